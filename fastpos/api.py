"""``apply`` and ``apply_``: find the plan, then execute it. The one-token call is a lookup and one kernel call."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastpos_kernels.rules import DONE, OVERLAP, START
from numpy.typing import DTypeLike, NDArray

from . import dispatch, threads
from .encodings import Encoding, Learned
from .plan import (
    Plan,
    check_apart,
    check_encoding,
    check_inputs,
    check_kind,
    check_output,
    layout_for,
    make,
    name_of,
    rowwise,
)
from .positions import HIGHEST, LOWEST, Place, extremes, resolve
from .tables import table_at

Array = NDArray[Any]

MAX_PLANS = 512
# Plans of the encodings alive, by their id. A plan does not keep its encoding (nor a learned table) alive.
_plans: dict[int, dict[tuple[Any, ...], Plan]] = {}
# The plan an encoding used last, in place and apart, for calls with an integer start: its kernel compares the arrays with
# those it was made for, so that a decoded token costs one lookup and one kernel call.
_latest: dict[tuple[Any, ...], tuple[Any, int, Plan]] = {}
_latest_apart: dict[tuple[Any, ...], tuple[Any, int, Plan]] = {}


def apply(
    encoding: Encoding,
    x: Array,
    *more: Array,
    start: int | Sequence[int] | Array | None = None,
    positions: Array | Sequence[int] | None = None,
    cu_seqlens: Array | Sequence[int] | None = None,
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
        One or more arrays of one dtype (float32, float16, bfloat16 of ml_dtypes, float64); head counts may differ.
        Arithmetic is float32 (float64 for float64) with one rounding at the end.
    start
        Token j stands at ``start + j``: one integer, or one a batch row; with ``cu_seqlens`` one a document.
    positions
        Integers ``(s,)``, ``(b, s)`` or ``(t,)`` in any order, repeated, negative (but for ``Learned``).
    cu_seqlens
        Boundaries ``(documents + 1,)`` of packed documents, each from 0 or from its ``start``.
    layout
        Letters of the axes, d last. Default: rotary ``bshd`` or ``thd``, additive ``bsd`` or ``td``, by rank.
    out
        Where results go: an array, or a tuple of one for each input; the input itself or memory apart from all inputs.
    backend
        ``auto``, ``numba`` or ``numpy``, before every other way to choose.

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
    if out is not None and type(start) is int and positions is None and cu_seqlens is None:
        outputs = out if isinstance(out, tuple) else (out,)
        key = (id(encoding), layout, backend, dispatch.process, dispatch.scope.get(), len(more))
        if _quick(_latest_apart, key, inputs, outputs, start):
            return outputs if more else outputs[0]
    results = _run(encoding, inputs, out, start, positions, cu_seqlens, layout, backend)
    return results if more else results[0]


def apply_(
    encoding: Encoding,
    x: Array,
    *more: Array,
    start: int | Sequence[int] | Array | None = None,
    positions: Array | Sequence[int] | None = None,
    cu_seqlens: Array | Sequence[int] | None = None,
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
    if type(start) is int and positions is None and cu_seqlens is None:
        # What a lookup finds and the kernel confirms has been checked before; anything else takes the long way.
        found = _latest.get((id(encoding), layout, backend, dispatch.process, dispatch.scope.get(), len(more)))
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
    _run(encoding, inputs, inputs, start, positions, cu_seqlens, layout, backend)
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
    inputs = (x, *more)
    return _prepare(encoding, inputs, out, start, positions, cu_seqlens, layout, backend)[0]


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
        Integers ``(n,)`` or a range.
    dtype
        Of the result; made in float64 and rounded once.

    Returns
    -------
    tuple of ndarray or ndarray
        Rotary: ``(cos, sin)``, each ``(n, rotary_dim / 2)``, any factor of the encoding included. Additive: ``(n, width)``.

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
    return table_at(encoding, start, length, positions, np.dtype(dtype))


def _quick(
    latest: dict[tuple[Any, ...], Any], key: tuple[Any, ...], inputs: tuple[Array, ...], outputs: Any, start: int
) -> bool:
    """Whether the plan last used by this encoding fits and has run: its kernel compares the arrays with those it knows."""
    found = latest.get(key)
    if found is None or not LOWEST < start < HIGHEST or len(outputs) != len(inputs):
        return False
    kernel, record, _ = found
    first, out = id(inputs[0]), id(outputs[0])
    if len(inputs) == 1:
        return bool(kernel(record, first, out, 0, 0, start, 0, 0, 0) == DONE)
    return bool(kernel(record, first, out, id(inputs[1]), id(outputs[1]), start, 0, 0, 0) == DONE)


def _run(
    encoding: Encoding,
    inputs: tuple[Array, ...],
    out: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
) -> tuple[Array, ...]:
    plan, outputs, place = _prepare(encoding, inputs, out, start, positions, cu_seqlens, layout, backend)
    if not any(x.size for x in inputs):
        return outputs
    execute(plan, inputs, outputs, place)
    if plan.threads == 1 and place[0].kind == START and len(inputs) <= 2 and _may_be_latest(plan, encoding):
        latest = _latest if plan.in_place else _latest_apart
        if len(latest) >= MAX_PLANS:
            latest.clear()
        key = (id(encoding), layout, backend, dispatch.process, dispatch.scope.get(), len(inputs) - 1)
        latest[key] = (plan.launch.kernel, plan.launch.addresses[0], plan)
    return outputs


def _forget(encoding: int) -> None:
    _plans.pop(encoding, None)
    for latest in (_latest, _latest_apart):
        for key in [key for key in list(latest) if key[0] == encoding]:
            latest.pop(key, None)


def _may_be_latest(plan: Plan, encoding: Encoding) -> bool:
    """Whether the kernel itself can check all that a further call may change: not a table's end, threads or alignment."""
    small = 2 * plan.bytes_read < threads.THREADED_BYTES and not plan.streamed
    ours = plan.backend == "numba" and not plan.copies and not isinstance(encoding, Learned)
    return small and ours and len(plan.launch.addresses) == 1


def _prepare(
    encoding: Encoding,
    inputs: tuple[Array, ...],
    out: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    letters: Any,
    backend: Any,
) -> tuple[Plan, tuple[Array, ...], Place]:
    """The plan of a call with its outputs and where its tokens stand.

    All checks of arrays depend on what stands in the cache's key alone, so that a plan found there needs none.
    """
    check_encoding(encoding)
    names = [name_of(index) for index in range(len(inputs))]
    for name, x in zip(names, inputs, strict=True):
        check_kind(name, x)
    layout = layout_for(encoding, letters, inputs[0].ndim)
    place = resolve(layout, inputs[0].shape, start, positions, cu_seqlens)
    chosen = dispatch.choose(backend)
    outputs = _outputs(out, inputs)
    plans = _plans.get(id(encoding))
    if plans is None:
        plans = _plans[id(encoding)] = {}
        weakref.finalize(encoding, _forget, id(encoding))
    key = (
        layout,
        chosen,
        place[0],
        threads.get_num_threads(),
        *[(id(x.dtype), x.shape, x.strides, type(x)) for x in inputs],
        *[
            (id(y.dtype), y.shape, y.strides, type(y), y.flags.writeable, y is x)
            for x, y in zip(inputs, outputs or (), strict=outputs is not None)
        ],
    )
    plan = plans.get(key)
    if plan is None:
        check_inputs(encoding, inputs, layout, names)
        for index, (x, y) in enumerate(zip(inputs, outputs or (), strict=outputs is not None)):
            check_output("out" if len(inputs) == 1 else f"out[{index}]", y, x)
    if isinstance(encoding, Learned):
        _check_rows(encoding, place, inputs[0].shape[layout.token], inputs[0].size)
    if outputs is None:
        outputs = tuple(np.empty_like(x, subok=False) for x in inputs)
    if plan is None:
        plan = make(encoding, inputs, outputs, layout, place[0], chosen, factor=True)
        if len(plans) >= MAX_PLANS:
            plans.clear()
        plans[key] = plan
    return plan, outputs, place


def _outputs(out: Any, inputs: tuple[Array, ...]) -> tuple[Array, ...] | None:
    if out is None:
        return None
    outputs = out if isinstance(out, tuple) else (out,)
    if len(outputs) != len(inputs):
        raise ValueError(f"out: expected {len(inputs)} arrays, one for each input, got {len(outputs)}")
    for index, y in enumerate(outputs):
        check_kind("out" if len(inputs) == 1 else f"out[{index}]", y)
    return outputs


def _check_rows(encoding: Learned, place: Place, tokens: int, size: int) -> None:
    if size == 0:
        return
    rows = len(encoding.table) - encoding.offset
    for position, where in extremes(place, tokens):
        if not 0 <= position < rows:
            raise IndexError(
                f"position {position} ({where}): expected 0 to {rows - 1}, for the learned table has "
                f"{len(encoding.table)} rows and offset {encoding.offset}"
            )


def execute(plan: Plan, inputs: tuple[Array, ...], outputs: tuple[Array, ...], place: Place) -> None:
    """Run a plan's launch; a launch that cannot rule out an overlap of operands asks for a full check first."""
    _, where, starts = place
    if len(inputs) > 2 or plan.copies:
        check_apart(inputs, outputs)
    sources, targets = inputs, outputs
    if plan.copies:
        sources = tuple(rowwise(x) for x in inputs)
        targets = sources if plan.in_place else tuple(rowwise(y) for y in outputs)
    checked = len(inputs) > 2 or plan.copies
    status = plan.launch(sources, targets, where, starts, plan.threads, checked)
    if status == OVERLAP:
        check_apart(inputs, outputs)
        status = plan.launch(sources, targets, where, starts, plan.threads, True)
    assert status == DONE, f"the launch was not made for these arrays (status {status})"
    for source, target in zip(targets, outputs, strict=True):
        if source is not target:
            target[...] = source
