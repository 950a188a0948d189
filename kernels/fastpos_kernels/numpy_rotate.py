"""Rotary reference: plain NumPy in float64, one rounding at the end; or step by step as transformers computes."""

import numpy as np

from .numpy_clock import sincos
from .numpy_head import channels
from .numpy_round import rounded


def waves(place, rates) -> tuple[np.ndarray, np.ndarray]:
    """Sines and cosines times the factor, (b, t, pairs): float64, or with ``rates.inv_freq`` float32 throughout."""
    whole, fractions = place.of_pairs(rates.axis)
    if rates.inv_freq is None:
        sine, cosine = sincos(whole, rates.words, rates.residuals, fractions, rates.turns)
        return rates.factor * sine, rates.factor * cosine
    position = (whole if fractions is None else whole + fractions).astype(np.float32)
    angle = (position * rates.inv_freq).astype(np.float64)
    # The sine of a float32 angle in float64, rounded: within 0.5000001 ulp of what float32 can hold.
    factor = np.float32(rates.factor)
    return factor * np.sin(angle).astype(np.float32), factor * np.cos(angle).astype(np.float32)


def rotate(x, y, place, rates, head, scaled: bool) -> None:
    """Write the rotation of ``x`` (b, t, h, d) at ``place`` (b, t) into ``y``, which may be ``x`` itself.

    ``scaled``: whether these are queries, which the encoding's query scale multiplies.
    """
    first, second, to_first, to_second = channels(head)
    a, b = x[..., first], x[..., second]
    sine, cosine = (wave[:, :, None, :] for wave in waves(place, rates))
    y[...] = x
    if rates.inv_freq is not None:
        sine, cosine = sine.astype(x.dtype), cosine.astype(x.dtype)
        y[..., to_first] = a * cosine - b * sine
        y[..., to_second] = b * cosine + a * sine
        if scaled:
            scale = query_scale(place.first, rates.query, np.float32).astype(x.dtype if rates.query[4] else np.float32)
            y[...] = (y * scale[:, :, None, None]).astype(y.dtype)
        return
    a, b, scale = a.astype(np.float64), b.astype(np.float64), np.float64(1)
    if scaled:
        scale = query_scale(place.first, rates.query, np.float64)[:, :, None, None]
        y[...] = rounded(x.astype(np.float64) * scale, y.dtype)
    y[..., to_first] = rounded((a * cosine - b * sine) * scale, y.dtype)
    y[..., to_second] = rounded((b * cosine + a * sine) * scale, y.dtype)


def query_scale(positions, terms, dtype) -> np.ndarray:
    """``max(1, constant + slope * ln(1 + floor((p + offset) / length)))``, and 1 before position 0, all in ``dtype``."""
    constant, slope, length, offset = (dtype(term) for term in terms[:4])
    steps = np.maximum(np.floor((positions.astype(dtype) + offset) / length) + dtype(1), dtype(1))
    return np.maximum(constant + slope * np.log(steps.astype(np.float64)).astype(dtype), dtype(1))
