"""What the operators do with tensors on a GPU (or in Triton's interpreter): no value is read, nothing waits.

Positions are the kernel's to take. With FASTPOS_CHECK=1 (read once) they are copied to the host and checked as those of
CPU calls are, which waits for the device.
"""

from typing import Any

import torch
from fastpos_kernels.rules import START

from .plan import check_apart
from .torch_request import Tensors, arrays_of, check_tensors, checks_values, key_of, planned, request_of

Ids = tuple[torch.Tensor | None, torch.Tensor | None]
MAX_LAUNCHES = 4096
INTEGERS = (torch.int8, torch.int16, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
# Launches, with the distances between operands at which they are known not to overlap.
_launches: dict[tuple[Any, ...], tuple[Any, set[tuple[int, ...]]]] = {}


def forget() -> None:
    """Forget every launch."""
    _launches.clear()


def run_on_device(
    inputs: Tensors,
    outputs: Tensors,
    start: int,
    call: str,
    where: torch.Tensor | None,
    begins: torch.Tensor | None,
    table: torch.Tensor | None,
) -> None:
    """Apply an encoding to one or two tensors on a device."""
    where, begins = _native(where), _native(begins)
    if where is not None and request_of(call).rule == "cu_seqlens":
        # Kernels search boundaries, and take starts of documents, in arrays without gaps.
        where = where.contiguous()
        begins = None if begins is None else begins.contiguous()
    apart = outputs is not inputs
    tensors = (*inputs, *outputs) if apart else inputs
    key = (inputs[0].device, *key_of(call, apart, tuple(ids for ids in (where, begins) if ids is not None), tensors))
    found = None if table is not None else _launches.get(key)
    if found is not None and not checks_values():
        launch, known = found
        if _distances(tensors) in known:
            where, begins = _parts(where, begins)
            launch(inputs, outputs, start if where is None else where, begins, 1, True)
            return
    check_tensors(inputs, outputs)
    _run(inputs, outputs, start, call, where, begins, table, key)


def _native(ids: torch.Tensor | None) -> torch.Tensor | None:
    """Integers as kernels read them; what is no integer is left for the checks to refuse."""
    if ids is None or ids.dtype in (torch.int64, torch.int32):
        return ids
    return ids.to(torch.int64) if ids.dtype in INTEGERS else ids


def _parts(where: torch.Tensor | None, begins: torch.Tensor | None) -> Ids:
    """What kernels read: in place of real numbers their whole parts and fractions, without gaps."""
    if where is None or not where.is_floating_point():
        return where, begins
    numbers = where.to(torch.float64, memory_format=torch.contiguous_format)
    whole = numbers.floor()
    return whole.to(torch.int64), numbers - whole


def _distances(tensors: Tensors) -> tuple[int, ...]:
    first = tensors[0].data_ptr()
    return tuple(tensor.data_ptr() - first for tensor in tensors[1:])


def _run(
    inputs: Tensors,
    outputs: Tensors,
    start: int,
    call: str,
    where: torch.Tensor | None,
    begins: torch.Tensor | None,
    table: torch.Tensor | None,
    key: tuple[Any, ...],
) -> None:
    in_place = all(x is y for x, y in zip(inputs, outputs, strict=True))
    sources = tuple(_rowwise(x) for x in inputs)
    targets = sources if in_place else tuple(_rowwise(y) for y in outputs)
    plan, arrays, _, place = planned(sources, targets, start, call, where, begins, table)
    if not any(array.size for array in arrays):
        return
    check_apart(*arrays_of(inputs, outputs))
    where, begins = _parts(where, begins)
    place_argument = place[1] if place[0].kind == START else where
    plan.launch(sources, targets, place_argument, begins, 1, True)
    for target, output in zip(targets, outputs, strict=True):
        if target is not output:
            output.copy_(target)
    if table is None and all(x is y for x, y in zip((*sources, *targets), (*inputs, *outputs), strict=True)):
        _remember(key, plan.launch, (*inputs, *outputs) if outputs is not inputs else inputs)


def _remember(key: tuple[Any, ...], launch: Any, tensors: Tensors) -> None:
    if len(_launches) >= MAX_LAUNCHES:
        _launches.clear()
    known = _launches.setdefault(key, (launch, set()))[1]
    if len(known) < MAX_LAUNCHES:
        known.add(_distances(tensors))


def _rowwise(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where its last axis is contiguous, else a contiguous copy."""
    return tensor if tensor.ndim == 0 or tensor.shape[-1] <= 1 or tensor.stride(-1) == 1 else tensor.contiguous()
