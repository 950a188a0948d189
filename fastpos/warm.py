"""Compile ahead of the first call."""

from collections.abc import Sequence

import numpy as np

from .encodings import Encoding, Learned
from .api import explain


def _dtype(name: str) -> np.dtype[np.generic]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def warmup(*encodings: Encoding, dtypes: Sequence[str] = ("float32", "float16", "bfloat16")) -> list[str]:
    """Compile the kernels that calls with these encodings and dtypes will need, and keep them in the cache on disk.

    Kernels depend on the kind of encoding and on the dtype alone: not on sizes, layout or positions.

    Parameters
    ----------
    *encodings
        ``Rotary``, ``Sinusoidal``, ``Learned``.
    dtypes
        Names of dtypes; bfloat16 needs ml_dtypes.

    Returns
    -------
    list of str
        What was compiled or found compiled, as ``"rotate float32"``.

    Examples
    --------
    >>> from fastpos import Rotary
    >>> warmup(Rotary(128), dtypes=["float32"])
    ['rotate float32']
    """
    names = []
    for encoding in encodings:
        for dtype in dtypes:
            x = np.zeros((1, 1, encoding.width), _dtype(dtype))
            start = 0
            plan = explain(encoding, x, start=start, layout="bsd")
            names.append(f"{plan.kernel} {dtype}")
    return names
