"""Positions with several coordinates: which of them drives each channel pair."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from .fields import flag, integer

ORDERS = ("chunked", "interleaved", "alternating")
MAX_AXES = 8


@dataclass(frozen=True)
class Axes:
    """Which coordinate of a token drives each channel pair, as ``Rotary(axes=)``.

    Positions then have a first axis of that many coordinates: ``(axes, b, s)``, ``(axes, s)`` or ``(axes, t)``. A call
    with ``start=`` or ``cu_seqlens=`` gives all of them the same number, as text between images has it.

    Parameters
    ----------
    sections
        Pairs that each axis drives; their sum is ``rotary_dim / 2``. Qwen2-VL's (16, 24, 24) are time, height, width.
    order
        ``"chunked"``: the first section's pairs, then the second's (Qwen2-VL, GLM-4V). ``"interleaved"``: with n axes, axis
        a > 0 drives the pairs j with ``j mod n = a`` and ``j < n * sections[a]``, axis 0 the others (Qwen3-VL).
        ``"alternating"``: axes 1, 2, ... take turns, then axis 0 has the last section (Ernie 4.5: ids are (t, h, w), so
        its ``mrope_section`` of h, w, t = 22, 22, 20 is (20, 22, 22) here).
    own_frequencies
        False: frequencies run on over all pairs, as in text. True: every axis has ``base ** (-j / section)``, from 1 on
        again, as in axial image and video models.
    own_channels
        False: pairs lie as if there were one axis. True: every axis pairs (j, j + section) inside a block of channels of
        its own (Gemma 4's vision tower, CroCo); needs ``"chunked"`` and channels that are not interleaved.
    real
        Whether positions may be real numbers (float32 or float64), which enter exactly.

    Raises
    ------
    ValueError, TypeError
        With the value, when a parameter is not what is said above.

    Examples
    --------
    >>> Axes((2, 1, 1), order="interleaved").of_pairs().tolist()
    [0, 1, 2, 0]
    """

    sections: tuple[int, ...]
    _: KW_ONLY
    order: str = "chunked"
    own_frequencies: bool = False
    own_channels: bool = False
    real: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.sections, str) or not hasattr(self.sections, "__iter__"):
            raise TypeError(f"sections: expected a row of integers, got {self.sections!r}")
        sections = tuple(integer("sections", section, 1, 1 << 12) for section in self.sections)
        if not 1 <= len(sections) <= MAX_AXES:
            raise ValueError(f"sections: expected 1 to {MAX_AXES} axes, got {len(sections)}")
        if self.order not in ORDERS:
            raise ValueError(f"order: expected one of {', '.join(ORDERS)}, got {self.order!r}")
        for name in ("own_frequencies", "own_channels", "real"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        object.__setattr__(self, "sections", sections)
        if self.own_channels and self.order != "chunked":
            raise ValueError(f"own_channels: expected the order 'chunked' beside it, got {self.order!r}")
        if self.order == "alternating" and len(set(sections[1:])) > 1:
            raise ValueError(f"sections: expected axes that take turns to have one number of pairs, got {sections}")
        counts = tuple(np.bincount(self.of_pairs(), minlength=len(sections)).tolist())
        if counts != sections:
            raise ValueError(f"sections: expected numbers that the order {self.order!r} can give, got {sections}")

    @property
    def count(self) -> int:
        """How many coordinates a position has."""
        return len(self.sections)

    def of_pairs(self) -> NDArray[np.intp]:
        """The axis that drives each pair, ``(pairs,)``."""
        pair, count = np.arange(sum(self.sections)), self.count
        if self.order == "chunked":
            return np.repeat(np.arange(count), self.sections)
        if self.order == "interleaved":
            axis = pair % count
            return np.where(pair < count * np.array(self.sections)[axis], axis, 0)
        turns = len(pair) - self.sections[0]
        return np.where(pair < turns, 1 + pair % max(count - 1, 1), 0)
