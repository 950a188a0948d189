"""Where tokens stand: builders for what people get wrong.

They give ``int64`` arrays for ``positions=`` or ``cu_seqlens=``. A contiguous run (prefill, decode) needs none of them: say
``start=``. Letters: b batch row, s sequence, t packed tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .places import integers, starts_of

__all__ = ["cu_seqlens", "from_lengths", "from_mask", "packed"]


def from_mask(mask: Any, start: int | Sequence[int] = 0, *, padding: int | None = None) -> Any:
    """Positions of the tokens of a padded batch, ``(b, s)``, from its 0/1 mask.

    Padding, left, right or in between, neither consumes nor resets a position. A padded place gets the position of the
    token before it, or ``start`` where there is none, so that it is valid for every encoding; or ``padding``, where a model
    has a position for it (fairseq's sinusoids: ``start=2, padding=1``).

    Parameters
    ----------
    mask
        ``(b, s)`` or ``(s,)``; 1 or True where there is a token. Of a PyTorch tensor the positions are a tensor beside it.
    start
        Position of a row's first token: one number, or one a row (tokens already in a cache).
    padding
        Position of padded places.

    Raises
    ------
    ValueError
        When the mask holds something else than 0 and 1, or ``start`` does not fit its rows.

    Examples
    --------
    >>> from_mask([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]]).tolist()
    [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2]]
    """
    if hasattr(type(mask), "__torch_function__"):
        from .torch_positions import from_mask as from_tensor

        return from_tensor(mask, start, padding)
    if isinstance(mask, np.ma.MaskedArray):
        raise TypeError("mask: expected a plain array of 0 and 1, got a masked array")
    marks = np.asarray(mask)
    if marks.ndim not in (1, 2):
        raise ValueError(f"mask: expected shape (b, s) or (s,), got {marks.shape}")
    if not np.isin(marks, (0, 1)).all():
        raise ValueError(f"mask: expected 0 and 1 alone, got {marks[~np.isin(marks, (0, 1))][0]}")
    begin = starts_of("start", start, len(marks) if marks.ndim == 2 else None)
    steps: NDArray[np.int64] = np.maximum(np.cumsum(marks != 0, axis=-1, dtype=np.int64) - 1, 0)
    found = steps + (begin if isinstance(begin, int) else begin[:, None])
    return found if padding is None else np.where(marks != 0, found, padding)


def from_lengths(
    lengths: Sequence[int] | NDArray[Any],
    s: int | None = None,
    *,
    padding: str = "right",
    start: int | Sequence[int] = 0,
) -> NDArray[np.int64]:
    """Positions of a padded batch, ``(b, s)``, from how many tokens each row holds.

    Parameters
    ----------
    lengths
        Tokens of each row, ``(b,)``.
    s
        Padded length; the largest of ``lengths`` when None.
    padding
        ``"right"`` or ``"left"``: the side on which rows are filled up.
    start
        Position of a row's first token: one number, or one a row.

    Raises
    ------
    ValueError
        When a length is negative or above ``s``, or ``padding`` names no side.

    Examples
    --------
    >>> from_lengths([3, 1], padding="left").tolist()
    [[0, 1, 2], [0, 0, 0]]
    """
    counts = _counts(lengths)
    if s is not None and (isinstance(s, bool) or not isinstance(s, int | np.integer)):
        raise TypeError(f"s: expected an integer, got {s!r}")
    width = int(counts.max(initial=0)) if s is None else int(s)
    if width < 0:
        raise ValueError(f"s: expected 0 or more, got {s}")
    if (counts > width).any():
        raise ValueError(f"lengths: expected at most s = {width}, got {counts.max()}")
    if padding not in ("left", "right"):
        raise ValueError(f"padding: expected 'left' or 'right', got {padding!r}")
    places = np.arange(width)
    inside = places < counts[:, None] if padding == "right" else places >= width - counts[:, None]
    found: NDArray[np.int64] = from_mask(inside, start)
    return found


def packed(lengths: Sequence[int] | NDArray[Any], start: int | Sequence[int] = 0) -> NDArray[np.int64]:
    """Positions of documents packed one after the other, ``(t,)``: each from 0, or from its ``start``.

    A call that gives ``cu_seqlens=`` needs no such array.

    Examples
    --------
    >>> packed([3, 2]).tolist()
    [0, 1, 2, 0, 1]
    """
    counts = _counts(lengths)
    begin = np.broadcast_to(starts_of("start", start, len(counts)), counts.shape)
    shift: NDArray[np.int64] = np.repeat(begin - (np.cumsum(counts) - counts), counts)
    return shift + np.arange(len(shift))


def cu_seqlens(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Boundaries of packed documents, ``(documents + 1,)``, from their lengths.

    Examples
    --------
    >>> cu_seqlens([5, 4]).tolist()
    [0, 5, 9]
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(_counts(lengths))])


def _counts(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    counts = integers("lengths", lengths)
    if counts.ndim != 1:
        raise ValueError(f"lengths: expected one number a row, got shape {counts.shape}")
    if (counts < 0).any():
        raise ValueError(f"lengths: expected 0 or more, got {counts.min()}")
    return counts.astype(np.int64)
