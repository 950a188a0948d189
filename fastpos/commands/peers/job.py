"""What a peer is asked to do, and what it answers with. Shapes: b batch, s tokens, h heads, d channels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encodings import Encoding
from ..workloads import Array, Case


@dataclass(frozen=True)
class Job:
    """A case whose first token stands at ``start``, with inputs that are the same in every process."""

    case: Case
    start: int

    @cached_property
    def inputs(self) -> tuple[Array, ...]:
        """q and k, ``(b, s, h, d)``, or embeddings, ``(b, s, d)``."""
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
        table: Array = getattr(self.encoding, "table")  # noqa: B009 - mypy: only one of the encodings has it
        return table

    def base(self) -> float:
        """What frequencies are powers of."""
        return float(getattr(self.encoding, "base"))  # noqa: B009 - mypy: a learned encoding has none


@dataclass(frozen=True)
class Form:
    """How a peer does it: ``call`` is timed; ``results`` are NumPy arrays with the axes of the inputs, from one call."""

    call: Callable[[], Any]
    results: Callable[[], tuple[Array, ...]]
