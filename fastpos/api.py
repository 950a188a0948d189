"""``apply`` and ``apply_``: find the plan, then execute it. The one-token call is a lookup and one kernel call."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from fastpos_kernels.rules import DONE
from numpy.typing import DTypeLike

from . import dispatch
from .call import latest, latest_apart, prepare, quick, run
from .encodings import Encoding
from .lengths import check_settled
from .places import HIGHEST, LOWEST
from .plan import Plan, check_encoding
from .tables import table_at

Array = Any  # a NumPy array or a PyTorch tensor, whose module is not imported for its name
# The door for tensors, once one has come: it imports torch, which NumPy's users need not have.
_door: Any = None


def _tensors() -> Any:
    global _door
    if _door is None:
        from . import torch_door

        _door = torch_door
    return _door


def _to_tensors(encoding: Any, inputs: Any, outputs: Any, place: tuple[Any, Any, Any, Any, Any], seq_lens: Any) -> Any:
    """A call on tensors; ``place``: start, positions, cu_seqlens, layout, backend."""
    if seq_lens is None:
        return (_door or _tensors()).apply(encoding, inputs, outputs, *place)
    from .torch_lengths import apply as apply_by_length

    return apply_by_length(encoding, inputs, outputs, *place, seq_lens)


def apply(
    encoding: Encoding,
    x: Array,
    *more: Array,
    start: int | Sequence[int] | Array | None = None,
    positions: Array | Sequence[int] | None = None,
    cu_seqlens: Array | Sequence[int] | None = None,
    seq_lens: int | Sequence[int] | Array | None = None,
    layout: str | None = None,
    out: Array | tuple[Array, ...] | None = None,
    backend: str | None = None,
) -> Any:
    """Put positions into arrays: rotate queries and keys, or add to embeddings. Inputs stay untouched.

    Letters of shapes: b batch, s sequence, t packed tokens, h heads, d channels.

    Parameters
    ----------
    encoding
        ``Rotary``, ``Sinusoidal`` or ``Learned``: what the model was trained with.
    x, *more
        One or more arrays, or PyTorch tensors, of one dtype (float32, float16, float64, bfloat16, which is ml_dtypes' in
        NumPy); head counts may differ. A query scale of the encoding multiplies the first of them alone.
        Arithmetic is float32 (float64 for float64) with one rounding at the end.
    start
        Token j stands at ``start + j``: one integer, or one a batch row; with ``cu_seqlens`` one a document.
    positions
        Integers ``(s,)``, ``(b, s)`` or ``(t,)`` in any order, repeated, negative (but for ``Learned``). With several
        axes in the encoding ``(axes, s)``, ``(axes, b, s)`` or ``(axes, t)``; real numbers where it says so.
    cu_seqlens
        Boundaries ``(documents + 1,)`` of packed documents, each from 0 or from its ``start``.
    seq_lens
        For an encoding that goes by the length of a sequence (``DynamicNTK``, ``LongRoPE``), and only for such: tokens of
        each sequence so far, those in a cache included; one number for all, or one a batch row or document.
    layout
        Letters of the axes, d last. Default: rotary ``bshd`` or ``thd``, additive ``bsd`` or ``td``, by rank.
    out
        Where results go: an array, or a tuple of one for each input; the input itself or memory apart from all inputs.
    backend
        ``auto``, ``numba``, ``numpy`` or ``triton``, before every other way to choose.

    Returns
    -------
    ndarray or tuple of ndarray
        New arrays (or ``out``) of the inputs' shape and dtype; one for one input, a tuple for several.

    Raises
    ------
    TypeError, ValueError, IndexError
        When arguments are missing, contradict each other or do not fit; before anything is written.

    Examples
    --------
    >>> q = np.ones((1, 3, 2, 4), np.float32)
    >>> apply(Rotary(4), q, start=0)[0, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    inputs = (x, *more)
    if type(x) is not np.ndarray and hasattr(type(x), "__torch_function__"):
        results = _to_tensors(encoding, inputs, out, (start, positions, cu_seqlens, layout, backend), seq_lens)
        return results if more else results[0]
    if type(start) is int and positions is None and cu_seqlens is None and seq_lens is None:
        key = (id(encoding), layout, backend, dispatch.process, dispatch.scope.get(), len(more), out is None)
        outputs = out if isinstance(out, tuple) else None if out is None else (out,)
        outputs = quick(latest_apart, key, inputs, outputs, start)
        if outputs is not None:
            return outputs if more else outputs[0]
    results = run(encoding, inputs, out, start, positions, cu_seqlens, layout, backend, seq_lens)
    return results if more else results[0]


def apply_(
    encoding: Encoding,
    x: Array,
    *more: Array,
    start: int | Sequence[int] | Array | None = None,
    positions: Array | Sequence[int] | None = None,
    cu_seqlens: Array | Sequence[int] | None = None,
    seq_lens: int | Sequence[int] | Array | None = None,
    layout: str | None = None,
    backend: str | None = None,
) -> Any:
    """``apply`` in place: the results replace the inputs, which are returned.

    Examples
    --------
    >>> k = np.ones((1, 1, 2, 4), np.float32)
    >>> apply_(Rotary(4), k, start=7) is k
    True
    """
    if type(x) is not np.ndarray and hasattr(type(x), "__torch_function__"):
        inputs = (x, *more)
        _to_tensors(encoding, inputs, "inputs", (start, positions, cu_seqlens, layout, backend), seq_lens)
        return inputs if more else x
    if type(start) is int and positions is None and cu_seqlens is None and seq_lens is None:
        # What a lookup finds and the kernel confirms has been checked before; anything else takes the long way.
        try:
            found = latest.get((id(encoding), layout, backend, dispatch.process, dispatch.scope.get(), len(more)))
        except TypeError:  # a layout or backend that is no string: the long way says so
            found = None
        if found is not None and LOWEST < start < HIGHEST:
            kernel, record, _ = found
            first = id(x)
            if not more:
                if kernel(record, first, first, 0, 0, start, 0, 0, 0) == DONE:
                    return x
            else:
                second = id(more[0])
                if kernel(record, first, first, second, second, start, 0, 0, 0) == DONE:
                    return (x, *more)
    inputs = (x, *more)
    run(encoding, inputs, inputs, start, positions, cu_seqlens, layout, backend, seq_lens)
    return inputs if more else x


def explain(
    encoding: Encoding,
    x: Array,
    *more: Array,
    start: int | Sequence[int] | Array | None = None,
    positions: Array | Sequence[int] | None = None,
    cu_seqlens: Array | Sequence[int] | None = None,
    layout: str | None = None,
    out: Array | tuple[Array, ...] | None = None,
    backend: str | None = None,
) -> Plan:
    """The plan that ``apply`` with the same arguments would run (``out=`` the inputs: what ``apply_`` would).

    Examples
    --------
    >>> explain(Rotary(4), np.ones((1, 1, 2, 4), np.float32), start=0, backend="numpy").kernel
    'rotate'
    """
    check_settled(encoding)
    inputs = (x, *more)
    if hasattr(type(x), "__torch_function__"):
        plan: Plan = _tensors().explain(encoding, inputs, out, start, positions, cu_seqlens, layout, backend)
        return plan
    return prepare(encoding, inputs, out, start, positions, cu_seqlens, layout, backend)[0]


def table(
    encoding: Encoding,
    *,
    start: int | None = None,
    length: int | None = None,
    positions: Array | Sequence[int] | None = None,
    dtype: DTypeLike = np.float64,
) -> Any:
    """The table that ``apply`` never makes, for those who need one.

    Parameters
    ----------
    encoding
        ``Rotary``, ``Sinusoidal`` or ``Learned``.
    start, length
        Positions ``start .. start + length``, or instead
    positions
        Integers ``(n,)`` or a range; ``(axes, n)`` with several axes; real numbers where the encoding has them.
    dtype
        Of the result; made in float64 and rounded once.

    Returns
    -------
    tuple of ndarray or ndarray
        Rotary: ``(cos, sin)``, each ``(n, rotary_dim / 2)``, any factor of the encoding included, but no query scale.
        Additive: ``(n, width)``.

    Raises
    ------
    TypeError, ValueError, IndexError
        When positions are missing, doubled, no integers, or rows that a learned table does not have.

    Examples
    --------
    >>> cos, sin = table(Rotary(4), positions=range(2))
    >>> sin.shape
    (2, 2)
    """
    check_encoding(encoding)
    check_settled(encoding)
    return table_at(encoding, start, length, positions, np.dtype(dtype))
