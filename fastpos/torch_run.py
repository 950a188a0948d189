"""What the operators do with tensors in main memory: kernels get their addresses.

A decoded token must not pay for NumPy arrays that stand for its tensors (3 us each): calls with an integer start or with
ids find their launch by dtypes, shapes and strides. Everything else goes the way of arrays.
"""

from typing import Any

import torch
from fastpos_kernels.rules import DONE, IDS, START

from . import dispatch, threads
from .call import execute
from .places import HIGHEST, LOWEST, starts_of
from .plan import Plan
from .torch_device import run_on_device
from .torch_request import Tensors, check_tensors, key_of, planned, request_of

MAX_LAUNCHES = 4096
# As numba_record.CHECK: look for overlaps, then run.
CHECK = 1
# Kernels and records of calls with one or two tensors that are small enough for one thread, and what keeps them alive.
_quick: dict[tuple[Any, ...], tuple[Any, int, Any]] = {}


def run(
    inputs: Tensors,
    outputs: Tensors,
    start: int,
    call: str,
    where: torch.Tensor | None,
    begins: torch.Tensor | None,
    table: torch.Tensor | None,
) -> None:
    """Apply an encoding to one or two tensors in main memory."""
    if where is not None and where.ndim == 0 and request_of(call).rule == "start":
        start, where = int(starts_of("start", where.item(), None)), None
    apart = outputs is not inputs
    key = key_of(call, apart, () if where is None else (where,), (*inputs, *outputs) if apart else inputs)
    found = _quick.get(key) if LOWEST < start < HIGHEST else None
    if found is not None and _run_quick(found, inputs, outputs, start if where is None else where.data_ptr()):
        return
    check_tensors(inputs, outputs)
    if dispatch.choose(request_of(call).backend, "cpu") == "triton":
        run_on_device(inputs, outputs, start, call, where, begins, table)
        return
    plan, sources, targets, place = planned(inputs, outputs, start, call, where, begins, table)
    if not any(source.size for source in sources):
        return
    execute(plan, sources, targets, place)
    if table is None and place[0].kind in (START, IDS) and place[2] is None and _is_quick(plan, where):
        if len(_quick) >= MAX_LAUNCHES:
            _quick.clear()
        launch = plan.launch.by_address()
        _quick[key] = (launch.kernel, launch.addresses[0], launch)


def _run_quick(found: tuple[Any, int, Any], inputs: Tensors, outputs: Tensors, place: int) -> bool:
    kernel, record, _ = found
    x, y = inputs[0].data_ptr(), outputs[0].data_ptr()
    if len(inputs) == 1:
        return bool(kernel(record, x, y, 0, 0, place, 0, 0, CHECK) == DONE)
    return bool(kernel(record, x, y, inputs[1].data_ptr(), outputs[1].data_ptr(), place, 0, 0, CHECK) == DONE)


def _is_quick(plan: Plan, where: torch.Tensor | None) -> bool:
    small = 2 * plan.bytes_read < threads.THREADED_BYTES and not plan.streamed
    native = where is None or where.dtype in (torch.int64, torch.int32)
    return plan.backend == "numba" and not plan.copies and small and native


def quick_launch(call: str, inputs: Tensors, outputs: Tensors, ids: Tensors) -> tuple[Any, int, Any] | None:
    """The kernel of a call that has run, its record, and what keeps that alive; None when there is none by address."""
    apart = outputs is not inputs
    return _quick.get(key_of(call, apart, ids, (*inputs, *outputs) if apart else inputs)) if len(inputs) <= 2 else None
