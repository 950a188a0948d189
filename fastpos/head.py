"""Where the channels of a head's pairs lie: the descriptor that rotations are given besides a clock."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Head:
    """Channels of the ``pairs`` that turn; all others pass through.

    Attributes
    ----------
    pairs
        How many pairs turn.
    start
        The first channel of the slice that turns.
    interleaved
        Whether pair i is read from (2 i, 2 i + 1) of the slice; else from (i, i + pairs).
    deinterleaved
        Whether it is written to (i, i + pairs) all the same.
    sections
        Pairs of each axis where every axis has a block of channels of its own, inside which it pairs (i, i + section);
        empty where all pairs share one block.
    """

    pairs: int
    start: int = 0
    interleaved: bool = False
    deinterleaved: bool = False
    sections: tuple[int, ...] = ()

    def turned(self) -> "Head":
        """Where the pairs lie after the rotation."""
        return replace(self, interleaved=False, deinterleaved=False) if self.deinterleaved else self
