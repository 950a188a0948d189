"""What a peer is asked to do, and what it answers with. Shapes: b batch, s tokens, h heads, d channels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encodings import Encoding, Learned
from ..workloads import Array, Case


@dataclass(frozen=True)
class Job:
    """A case whose first token stands at ``start``, with inputs that are the same in every process."""

    case: Case
    start: int
    threads: int

    @cached_property
    def inputs(self) -> tuple[Array, ...]:
        """Queries and keys, ``(b, s, h, d)``, or embeddings, ``(b, s, d)``."""
        return self.case.inputs()

    @cached_property
    def encoding(self) -> Encoding:
        """What is to be applied."""
        return self.case.encoding()

    @property
    def positions(self) -> NDArray[np.int64]:
        """Where the tokens stand, ``(s,)``."""
        return np.arange(self.start, self.start + self.case.tokens)

    def learned_rows(self) -> Array:
        """The table of a learned encoding, ``(rows, d)``."""
        assert isinstance(self.encoding, Learned)
        table: Array = self.encoding.table
        return table

    def base(self) -> float:
        """What frequencies are powers of."""
        assert not isinstance(self.encoding, Learned)
        return self.encoding.base


@dataclass(frozen=True)
class Form:
    """How a peer does it.

    ``call`` is timed; ``results`` gives NumPy arrays with the axes of the inputs, from one call; ``kept`` is what a call
    needs alive and does not hold itself.
    """

    call: Callable[[], Any]
    results: Callable[[], tuple[Array, ...]]
    kept: Any = None
