"""Compile ahead of the first call."""

from collections.abc import Sequence

from . import dispatch, plan
from .encodings import Encoding, Learned, Rotary

DTYPES = ("float32", "float16", "bfloat16")


def warmup(*encodings: Encoding, dtypes: Sequence[str] = DTYPES) -> list[str]:
    """Compile the kernels that calls with these encodings and dtypes will need, and keep them in the cache on disk.

    Kernels depend on the encoding's kind and pairing and on the dtype: not on sizes, layout or positions.

    Parameters
    ----------
    *encodings
        ``Rotary``, ``Sinusoidal``, ``Learned``.
    dtypes
        Names of dtypes: float32, float16, bfloat16, float64.

    Returns
    -------
    list of str
        What was compiled or found compiled, as ``"rotate float32"``.

    Raises
    ------
    TypeError, ValueError
        For what is no encoding, an unknown dtype, or a numba that cannot run here.

    Examples
    --------
    >>> from fastpos import Rotary
    >>> warmup(Rotary(128), dtypes=["float32"])
    ['rotate float32']
    """
    for encoding in encodings:
        plan.check_encoding(encoding)
    if isinstance(dtypes, str) or not all(isinstance(dtype, str) and dtype in plan.DTYPES for dtype in dtypes):
        raise ValueError(f"dtypes: expected a list of names of {', '.join(plan.DTYPES)}, got {dtypes!r}")
    if not encodings:
        raise TypeError("expected at least one encoding to compile for, as fastpos.Rotary(128)")
    dispatch.choose("numba")
    return [f"{_compile(encoding, dtype)} {dtype}" for encoding in encodings for dtype in dtypes]


def _compile(encoding: Encoding, dtype: str) -> str:
    """Both kernels, for results that stay in the caches and for results streamed past them."""
    compiled = dispatch.kernels("numba").compiled
    for streamed in (False, True):
        if isinstance(encoding, Learned):
            compiled("add_learned", dtype, plan.stored_table(encoding, dtype).dtype.name)(streamed)
        else:
            compiled("rotate" if isinstance(encoding, Rotary) else "add_sinusoidal", dtype, encoding.interleaved)(
                streamed
            )
    return plan.kernel_name(encoding)
