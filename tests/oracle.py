"""What is right: the formulas in 50-digit arithmetic, products and sums in integers, one rounding at the end.

No backend of fastpos and no NumPy mathematics is used here. A real number is a Python integer in units of
``2**-SCALE``, in NumPy arrays of objects; sines and cosines come from mpmath.
"""

import ml_dtypes
import mpmath
import numpy as np

SCALE = 200
DIGITS = 50
DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
# Significant bits, and the exponent of the least number above zero.
PRECISION = {"float32": 24, "float16": 11, "bfloat16": 8, "float64": 53}
LEAST = {"float32": -149, "float16": -24, "bfloat16": -133, "float64": -1074}
# What float32 arithmetic may lose against the norm of a pair: sine and cosine within 1.2e-7, two products and a sum.
FLOAT32_ERROR = 3e-7
# Where sine is all but zero: numerators of the fractions that come ever closer to pi.
NEAR_PI = (22, 333, 355, 103993, 104348, 208341, 312689, 833719)


def geometric(base: float, width: int, factor: float = 1.0) -> list[mpmath.mpf]:
    """Radians a token of every pair: ``base ** (-2 i / width) / factor``."""
    with mpmath.workdps(DIGITS):
        return [
            mpmath.power(mpmath.mpf(base), mpmath.mpf(-2 * i) / width) / mpmath.mpf(factor) for i in range(width // 2)
        ]


def waves(positions, frequencies) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, ``(len(positions), len(frequencies))``."""
    cos, sin = (np.empty((len(positions), len(frequencies)), object) for _ in range(2))
    with mpmath.workdps(DIGITS + 20):
        for row, position in enumerate(positions):
            for pair, frequency in enumerate(frequencies):
                c, s = mpmath.cos_sin(int(position) * mpmath.mpf(frequency))
                cos[row, pair], sin[row, pair] = (int(mpmath.ldexp(value, SCALE)) for value in (c, s))
    return cos, sin


def integers(x):
    """Floating-point numbers, exactly."""

    def one(value):
        numerator, denominator = float(value).as_integer_ratio()
        return (numerator << SCALE) // denominator

    return np.frompyfunc(one, 1, 1)(np.asarray(x).astype(np.float64))


def split(x: np.ndarray, pairs: int, interleaved: bool) -> tuple[np.ndarray, np.ndarray]:
    """First and second channel of every pair."""
    if interleaved:
        return x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    return x[..., :pairs], x[..., pairs : 2 * pairs]


def join(first: np.ndarray, second: np.ndarray, interleaved: bool) -> np.ndarray:
    """Undo ``split``."""
    if interleaved:
        return np.stack([first, second], axis=-1).reshape(*first.shape[:-1], -1)
    return np.concatenate([first, second], axis=-1)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """Rows ``x`` (n, d) turned by angles (n, pairs); exact but for the last bit of the integers."""
    a, b = split(integers(x), cos.shape[1], interleaved)
    return join((a * cos - b * sin) >> SCALE, (b * cos + a * sin) >> SCALE, interleaved)


def rotate_channels(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, read, write) -> np.ndarray:
    """Rows ``x`` (n, d), pair j read from the channels ``read[j]`` and written to ``write[j]``; the others as they are."""
    source = integers(x)
    result = source.copy()
    for pair, ((first, second), (to_first, to_second)) in enumerate(zip(read, write, strict=True)):
        a, b, c, s = source[:, first], source[:, second], cos[:, pair], sin[:, pair]
        result[:, to_first], result[:, to_second] = (a * c - b * s) >> SCALE, (b * c + a * s) >> SCALE
    return result


def norms(x: np.ndarray, pairs: int, interleaved: bool) -> np.ndarray:
    """Norm of the pair that each channel belongs to, as float64."""
    norm = np.hypot(*split(x.astype(np.float64), pairs, interleaved))
    return join(norm, norm, interleaved)


def _quantum(value: int, dtype: str) -> int:
    """Exponent of the last place of a number."""
    return max(abs(value).bit_length() - SCALE - PRECISION[dtype], LEAST[dtype])


def rounded(exact: np.ndarray, dtype: str) -> np.ndarray:
    """To nearest, ties to even; the numbers here are far from overflow."""

    def one(value):
        shift = _quantum(value, dtype) + SCALE
        if shift <= 0:
            return value / (1 << SCALE)
        low, half = abs(value) & ((1 << shift) - 1), 1 << (shift - 1)
        kept = abs(value) >> shift
        kept += low > half or (low == half and kept & 1)
        return (-kept if value < 0 else kept) * 2.0 ** (shift - SCALE)

    return np.frompyfunc(one, 1, 1)(exact).astype(np.float64).astype(DTYPES[dtype])


def ulp(exact: np.ndarray, dtype: str) -> np.ndarray:
    """Measure the unit in the last place at each number, as float64."""
    return np.frompyfunc(lambda value: 2.0 ** _quantum(value, dtype), 1, 1)(exact).astype(np.float64)


def error(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """``|got - exact|`` as float64."""
    return np.frompyfunc(lambda value: abs(value) / (1 << SCALE), 1, 1)(integers(got) - exact).astype(np.float64)


def assert_close(got: np.ndarray, exact: np.ndarray, tolerance) -> float:
    """Fail when an error exceeds ``tolerance`` (a number or one an element); return the greatest error."""
    assert got.shape == exact.shape
    assert np.isfinite(got.astype(np.float64)).all()
    errors = error(got, exact)
    limits = np.broadcast_to(tolerance, errors.shape)
    wrong = errors > limits
    if wrong.any():
        at = np.unravel_index(np.argmax(np.where(wrong, errors / limits, 0)), errors.shape)
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements are off; worst at {tuple(map(int, at))}: got {got[at]!r}, "
            f"right {exact[at] / (1 << SCALE)!r}, error {errors[at]:.3g} > {limits[at]:.3g}"
        )
    return float(errors.max(initial=0.0))


def bits(x: np.ndarray) -> np.ndarray:
    """Elements as integers: NaN and the sign of zero count."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """Fail when one bit differs."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    wrong = bits(got) != bits(want)
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements differ; first at {at}: {got[at]!r}, want {want[at]!r}"
        )
