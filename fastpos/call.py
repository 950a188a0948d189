"""From a call's arguments to a plan that has been made before, or once, and from the plan to its launch."""

import weakref
from typing import Any

import numpy as np
from fastpos_kernels.rules import DONE, OVERLAP, START
from numpy.typing import NDArray

from . import dispatch, fields, threads
from .encodings import Encoding, Learned, coordinates
from .lengths import by_length, check_by_length, check_settled, cuts
from .places import HIGHEST, LOWEST, Place, extremes, resolve, resolve_lengths
from .plan import (
    Plan,
    Turn,
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

Array = NDArray[Any]

MAX_PLANS = 512
# Plans of the encodings alive, by their id. A plan does not keep its encoding (nor a learned table) alive.
_plans: dict[int, dict[tuple[Any, ...], Plan]] = {}
# The plan an encoding used last, in place and apart, for calls with an integer start: its kernel compares the arrays with
# those it was made for, so that a decoded token costs one lookup and one kernel call.
latest: dict[tuple[Any, ...], tuple[Any, int, Plan]] = {}
latest_apart: dict[tuple[Any, ...], tuple[Any, int, Plan]] = {}


def quick(
    known: dict[tuple[Any, ...], Any], key: tuple[Any, ...], inputs: tuple[Array, ...], outputs: Any, start: int
) -> tuple[Array, ...] | None:
    """The results if the plan last used by this encoding fits and has run: its kernel compares the arrays with those it knows.

    ``outputs`` None asks for new arrays, as the plan was made for.
    """
    try:
        found = known.get(key)
    except TypeError:  # a layout or backend that is no string: the long way says so
        return None
    if found is None or not LOWEST < start < HIGHEST:
        return None
    if outputs is None:
        outputs = tuple(np.empty_like(x, subok=False) for x in inputs)
    elif len(outputs) != len(inputs):
        return None
    kernel, record, _ = found
    first, out = id(inputs[0]), id(outputs[0])
    if len(inputs) == 1:
        status = kernel(record, first, out, 0, 0, start, 0, 0, 0)
    else:
        status = kernel(record, first, out, id(inputs[1]), id(outputs[1]), start, 0, 0, 0)
    return outputs if status == DONE else None


def run(
    encoding: Encoding,
    inputs: tuple[Array, ...],
    out: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    seq_lens: Any = None,
) -> tuple[Array, ...]:
    if seq_lens is not None or by_length(encoding):
        return _run_by_length(encoding, inputs, out, start, positions, cu_seqlens, layout, backend, seq_lens)
    plan, outputs, place = prepare(encoding, inputs, out, start, positions, cu_seqlens, layout, backend)
    if not any(x.size for x in inputs):
        return outputs
    execute(plan, inputs, outputs, place)
    if plan.threads == 1 and place[0].kind == START and len(inputs) <= 2 and _may_be_latest(plan, encoding):
        known = latest if plan.in_place else latest_apart
        if len(known) >= MAX_PLANS:
            known.clear()
        key = (id(encoding), layout, backend, dispatch.process, dispatch.scope.get(), len(inputs) - 1)
        known[key if plan.in_place else (*key, out is None)] = (plan.launch.kernel, plan.launch.addresses[0], plan)
    return outputs


def _run_by_length(
    encoding: Encoding,
    inputs: tuple[Array, ...],
    out: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    seq_lens: Any,
) -> tuple[Array, ...]:
    """A call for each run of rows with the same frequencies, after all checks of the whole."""
    check_encoding(encoding)
    if seq_lens is None:
        check_settled(encoding)
    rope = check_by_length(encoding)
    if isinstance(seq_lens, int):
        alike = rope.at_length(fields.integer("seq_lens", seq_lens, 0, HIGHEST))
        return run(alike, inputs, out, start, positions, cu_seqlens, layout, backend)
    some = rope.at_length(0)
    _, outputs, place = prepare(some, inputs, out, start, positions, cu_seqlens, layout, backend)
    axes = layout_for(rope, layout, inputs[0].ndim)
    lengths = resolve_lengths(axes, inputs[0].shape, place, seq_lens)
    if len({id(rope.at_length(length)) for length in lengths.tolist()}) <= 1:
        alike = rope.at_length(int(lengths.max(initial=0)))
        return run(alike, inputs, outputs, start, positions, cu_seqlens, layout, backend)
    check_apart(inputs, outputs)
    for cut in cuts(rope, lengths, axes, place, positions):
        sources = tuple(cut.of(x) for x in inputs)
        targets = tuple(source if y is x else cut.of(y) for x, y, source in zip(inputs, outputs, sources, strict=True))
        run(cut.encoding, sources, targets, cut.start, cut.positions, cut.cu_seqlens, layout, backend)
    return outputs


def _forget(encoding: int) -> None:
    _plans.pop(encoding, None)
    for known in (latest, latest_apart):
        for key in [key for key in list(known) if key[0] == encoding]:
            known.pop(key, None)


def _may_be_latest(plan: Plan, encoding: Encoding) -> bool:
    """Whether the kernel itself can check all that a further call may change: not a table's end, threads or alignment."""
    small = 2 * plan.bytes_read < threads.THREADED_BYTES and not plan.streamed
    ours = plan.backend == "numba" and not plan.copies and not isinstance(encoding, Learned)
    return small and ours and len(plan.launch.addresses) == 1


def prepare(
    encoding: Encoding,
    inputs: tuple[Array, ...],
    out: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    letters: Any,
    backend: Any,
    turn: Turn = "apply",
    device: str | None = None,
) -> tuple[Plan, tuple[Array, ...], Place]:
    """The plan of a call with its outputs and where its tokens stand.

    All checks of arrays depend on what stands in the cache's key alone, so that a plan found there needs none. With a
    ``device`` the arrays stand for tensors there; the memory of one that is no CPU is not read.
    """
    check_encoding(encoding)
    if isinstance(encoding, Learned) and encoding.is_tensor and device is None:
        raise TypeError("x: expected a PyTorch tensor like the learned table, got a NumPy array; make the table one")
    names = [name_of(index) for index in range(len(inputs))]
    for name, x in zip(names, inputs, strict=True):
        check_kind(name, x)
    layout = layout_for(encoding, letters, inputs[0].ndim)
    chosen = dispatch.choose(backend, device)
    readable = chosen != "triton"
    place = resolve(layout, inputs[0].shape, start, positions, cu_seqlens, readable, *coordinates(encoding))
    outputs = _outputs(out, inputs)
    plans = _plans.get(id(encoding))
    if plans is None:
        plans = _plans[id(encoding)] = {}
        weakref.finalize(encoding, _forget, id(encoding))
    key = (
        layout,
        chosen,
        turn,
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
            name = names[index] if y is x else "out" if len(inputs) == 1 else f"out[{index}]"
            check_output(name, y, x)
    if isinstance(encoding, Learned) and (readable or place[0].kind == START):
        check_rows(encoding, place, inputs[0].shape[layout.token], inputs[0].size)
    if outputs is None:
        outputs = tuple(np.empty_like(x, subok=False) for x in inputs)
    if plan is None:
        plan = make(encoding, inputs, outputs, layout, place[0], chosen, turn)
        if len(plans) >= MAX_PLANS:
            plans.clear()
        plans[key] = plan
    return plan, outputs, place


def _outputs(out: Any, inputs: tuple[Array, ...]) -> tuple[Array, ...] | None:
    if out is None:
        return None
    outputs = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(outputs) != len(inputs):
        raise ValueError(f"out: expected {len(inputs)} arrays, one for each input, got {len(outputs)}")
    for index, y in enumerate(outputs):
        check_kind("out" if len(inputs) == 1 else f"out[{index}]", y)
    return outputs


def check_rows(encoding: Learned, place: Place, tokens: int, size: int) -> None:
    """Refuse positions that a learned table has no row for."""
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
