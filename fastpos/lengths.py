"""Encodings that go by the length of a sequence: every row with the frequencies of its own length, whatever its neighbours.

A call is cut where the frequencies change, and each cut is a call of its own with the encoding that ``at_length`` gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from fastpos_kernels.rules import IDS, PACKED
from numpy.typing import NDArray

from .encodings import Encoding, Rotary
from .layout import Layout
from .places import Place

Array = NDArray[Any]


def by_length(encoding: object) -> bool:
    """Whether an encoding has no frequencies until a length is chosen."""
    return isinstance(encoding, Rotary) and encoding.by_length


def check_settled(encoding: Encoding) -> None:
    """Refuse an encoding that goes by the length of a sequence where no length is said."""
    if by_length(encoding):
        assert isinstance(encoding, Rotary)
        raise ValueError(
            f"encoding: its frequencies go by the length of the sequence ({type(encoding.scaling).__name__}): give apply "
            "or apply_ seq_lens=, the tokens of each sequence so far, or take encoding.at_length(n) for n tokens"
        )


def check_by_length(encoding: Encoding) -> Rotary:
    """Refuse lengths beside an encoding that is the same for all."""
    if not by_length(encoding):
        raise ValueError(f"seq_lens: expected none, for {encoding} does not go by the length of a sequence")
    assert isinstance(encoding, Rotary)
    return encoding


@dataclass(frozen=True)
class Cut:
    """Rows or documents next to each other with the same frequencies, and where their tokens stand.

    Attributes
    ----------
    encoding
        With the length they share.
    axis, span
        Which part of an array they are.
    start, positions, cu_seqlens
        As ``apply`` takes them.
    """

    encoding: Rotary
    axis: int
    span: slice
    start: int | NDArray[np.int64] | None = None
    positions: Array | None = None
    cu_seqlens: NDArray[np.int64] | None = None

    def of(self, array: Any) -> Any:
        """The cut's part of an array or tensor: a view."""
        return array[(slice(None),) * self.axis + (self.span,)]


def cuts(rope: Rotary, lengths: NDArray[np.int64], layout: Layout, place: Place, positions: Any) -> Iterator[Cut]:
    """Cut a call where the frequencies of its rows or documents change."""
    clocks = [rope.at_length(length) for length in lengths.tolist()]
    for _, group in groupby(range(len(clocks)), key=lambda row: id(clocks[row])):
        rows = list(group)
        yield _cut(clocks[rows[0]], slice(rows[0], rows[-1] + 1), layout, place, positions)


def _cut(clock: Rotary, rows: slice, layout: Layout, place: Place, positions: Any) -> Cut:
    rule, where, starts = place
    if rule.kind == PACKED:
        assert not isinstance(where, int)
        edges = where[rows.start : rows.stop + 1]
        span = slice(int(edges[0]), int(edges[-1]))
        start = None if starts is None else starts[rows]
        return Cut(clock, layout.token, span, start=start, cu_seqlens=edges - edges[0])
    assert layout.batch is not None
    if rule.kind == IDS:
        return Cut(
            clock,
            layout.batch,
            rows,
            positions=positions if rule.same_for_batch else np.asarray(positions)[..., rows, :],
        )
    return Cut(clock, layout.batch, rows, start=where if isinstance(where, int) else where[rows])
