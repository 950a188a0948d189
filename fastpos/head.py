"""Where pairs of channels lie: the descriptors that kernels are given besides a clock."""

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


@dataclass(frozen=True)
class Waves:
    """Channels of a sinusoidal row.

    Attributes
    ----------
    sines, cosines, zeros
        How many channels have each; there are as many frequencies as sines. An odd width has a cosine less, or a zero.
    interleaved
        Whether sines stand in even channels and cosines in odd ones; else the ones come after the others, zeros last.
    cosine_first
        Whether the cosines come first; not when interleaved.
    padding_index
        The position whose row is all zeros; None for none.
    real
        Whether positions may be real numbers. A row's kernel then does not depend on whether they are.
    """

    sines: int
    cosines: int
    zeros: int = 0
    interleaved: bool = True
    cosine_first: bool = False
    padding_index: int | None = None
    real: bool = False
