"""Relative shifts: the linear map from a token's encoding to that of one some tokens further on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from fastpos_kernels import numpy_head
from numpy.typing import NDArray

from . import dispatch, plan
from .call import execute
from .encodings import Encoding, Learned, Rotary, Sinusoidal
from .frequencies import rates
from .lengths import check_settled
from .places import HIGHEST, LOWEST, resolve_shift

Array = NDArray[Any]


def _pairs(encoding: Rotary | Sinusoidal) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Channels of each pair in what is shifted: first and second, or sine and cosine."""
    if isinstance(encoding, Rotary):
        first, second, _, _ = numpy_head.channels(encoding.head.turned())
        return first, second
    waves = encoding.waves
    if waves.sines != waves.cosines:
        raise ValueError(f"encoding: a sine without its cosine has no linear map, as in an odd width, got {encoding}")
    sine = np.arange(waves.sines)
    if waves.interleaved:
        return 2 * sine, 2 * sine + 1
    return (sine + waves.cosines, sine) if waves.cosine_first else (sine, sine + waves.sines)


def shift_matrix(encoding: Encoding, offset: int) -> NDArray[np.float64]:
    """The matrix M with ``encoding at p + offset = M @ encoding at p``; it depends on ``offset`` alone (angle addition).

    Parameters
    ----------
    encoding
        ``Sinusoidal`` or ``Rotary``; a learned table has no such map.
    offset
        Tokens, any integer within 2**62 of zero.

    Returns
    -------
    ndarray
        float64, ``(width, width)`` for sinusoids, ``(head_dim, head_dim)`` for rotations (where it is the rotation by
        ``offset`` itself, without any factor of the encoding: a rotated key has that already).

    Raises
    ------
    TypeError
        For a learned table, or an offset that is no integer.

    Examples
    --------
    >>> shift_matrix(Rotary(2), 0).shape
    (2, 2)
    """
    plan.check_encoding(encoding)
    check_settled(encoding)
    if isinstance(encoding, Learned):
        raise TypeError(f"encoding: a learned table has no linear map from one position to another, got {encoding}")
    if isinstance(offset, bool) or not isinstance(offset, int | np.integer):
        raise TypeError(f"offset: expected an integer, got {offset!r}")
    if not LOWEST <= offset <= HIGHEST:
        raise ValueError(f"offset: expected within +-2**62, got {offset}")
    sine, cosine = (wave[0] for wave in rates(encoding).sincos(np.array([int(offset)])))
    matrix = np.eye(encoding.width)
    first, second = _pairs(encoding)
    # (sin, cos) of a sinusoid turns the other way round than the (first, second) channel of a rotated pair.
    direction = 1 if not isinstance(encoding, Rotary) else -1
    matrix[first, first] = matrix[second, second] = cosine
    matrix[first, second] = direction * sine
    matrix[second, first] = -direction * sine
    return matrix


def shift_(
    rope: Rotary,
    k: Array,
    by: int | Sequence[int] | Array,
    *,
    layout: str | None = None,
    backend: str | None = None,
) -> Array:
    """Move keys that are already rotated by some tokens, in place, for caches that drop or move tokens.

    Rotations add up: a key rotated for p and shifted by d is the key rotated for p + d, up to one more rounding.

    Parameters
    ----------
    rope
        What the keys were rotated with.
    k
        Rotated keys, ``(b, s, h, d)`` or as ``layout`` says.
    by
        Tokens to move by, negative towards the start: one integer, or one a batch row.
    layout, backend
        As for ``apply``.

    Returns
    -------
    ndarray
        ``k``.

    Raises
    ------
    TypeError, ValueError
        As for ``apply``, before anything is written.

    Examples
    --------
    >>> k = np.ones((1, 1, 1, 2))
    >>> shift_(Rotary(2), k, 0).tolist()
    [[[[1.0, 1.0]]]]
    """
    if not isinstance(rope, Rotary):
        raise TypeError(f"rope: expected fastpos.Rotary, got {rope!r}")
    check_settled(rope)
    if hasattr(type(k), "__torch_function__"):
        from . import torch_door

        torch_door.shift_(rope, k, by, layout, backend)
        return k
    plan.check_kind("k", k)
    places = plan.layout_for(rope, layout, k.ndim)
    place = resolve_shift(places, k.shape, by)
    plan.check_inputs(rope, (k,), places, ("k",))
    plan.check_output("k", k, k)
    made = plan.make(rope, (k,), (k,), places, place[0], dispatch.choose(backend), turn="shift")
    if k.size:
        execute(made, (k,), (k,), place)
    return k
