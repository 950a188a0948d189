"""Compile ahead of the first call."""

from collections.abc import Sequence
from dataclasses import replace

from . import dispatch, plan
from .encodings import Encoding, Learned, Sinusoidal, coordinates
from .frequencies import rates
from .places import START_RULE

DTYPES = ("float32", "float16", "bfloat16")


def warmup(*encodings: Encoding, dtypes: Sequence[str] = DTYPES) -> list[str]:
    """Compile the kernels that calls with these encodings and dtypes will need, and keep them in the cache on disk.

    Kernels depend on the encoding's kind, pairing, axes and numerics and on the dtype: not on sizes, layout or positions.

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
    bind = dispatch.kernels("numba")
    axes, real = coordinates(encoding)
    rules = [START_RULE, replace(START_RULE, axes=axes, real=real)]
    for streamed in (False, True):
        if isinstance(encoding, Learned):
            bind.compiled("add_learned", dtype, plan.stored_table(encoding, dtype).dtype.name)(streamed)
        elif isinstance(encoding, Sinusoidal):
            operation = bind.sinusoid_of(rates(encoding), encoding.waves)
            bind.compiled(operation, dtype, encoding.interleaved)(streamed)
        else:
            # All lengths have one kernel.
            clock = rates(encoding.at_length(0))
            for form in {bind.form_of(rule, clock, encoding.head) for rule in rules}:
                bind.compiled("rotate", dtype, form)(streamed)
    return plan.kernel_name(encoding)
