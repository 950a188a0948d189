"""The door for tensors: from the arguments of ``fastpos.apply`` to an operator."""

import sys
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from . import dispatch, torch_decode, torch_ops
from .encodings import Encoding, Learned, Rotary, coordinates
from .lengths import check_settled
from .places import HIGHEST, LOWEST, check_given, integers, starts_of
from .plan import Plan, Turn, check_apart, check_encoding, layout_for, name_of
from .spelling import keys_alone
from .tensors import check_plain, standing
from .torch_request import OFFSET, Tensors, planned, request_of, word

Where = torch.Tensor | None
# What an operator takes behind its tensors.
Place = tuple[int, str, Where, Where, Where]
NEW, IN_PLACE, INTO = range(3)
OPERATORS = (
    (torch_ops.encode, torch_ops.encode_pair),
    (torch_ops.encode_, torch_ops.encode_pair_),
    (torch_ops.encode_into, torch_ops.encode_pair_into),
)


def apply(
    encoding: Encoding,
    inputs: Tensors,
    outputs: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    turn: Turn = "apply",
) -> Tensors:
    """``fastpos.apply`` on tensors; ``outputs`` are other tensors, None, or ``"inputs"`` for ``apply_``."""
    # A word, for Dynamo cannot tell whether two tuples are one.
    way = NEW if outputs is None else IN_PLACE if isinstance(outputs, str) else INTO
    outputs = inputs if way == IN_PLACE else None if way == NEW else check_outputs(outputs, inputs)
    tracing = torch.compiler.is_compiling()
    quick = not tracing and turn == "apply" and cu_seqlens is None
    if quick:
        known: Tensors | None = torch_decode.run(encoding, inputs, outputs, start, positions, layout, backend)
        if known is not None:
            return known
    place = _arguments(encoding, inputs, start, positions, cu_seqlens, layout, backend, turn)
    if outputs is not None:
        _check_written(inputs, outputs, place[4])
    if type(inputs[0]) is not torch.Tensor and _sharded(inputs):
        place = _spread(encoding, inputs, outputs, layout, place)
    elif len(inputs) > 2 and not tracing and not _is_transformed():
        # Operators take two at a time: all is checked before the first of them writes.
        _, sources, targets, _ = planned(inputs, outputs, *place)
        check_apart(sources, targets)
    results: list[torch.Tensor] = []
    for first in range(0, len(inputs), 2):
        some, there = inputs[first : first + 2], () if outputs is None else outputs[first : first + 2]
        if first == 2 and isinstance(encoding, Rotary) and encoding.query_scale is not None:
            place = (place[0], place[1].replace(encoding.spelling, keys_alone(encoding.spelling)), *place[2:])
        made = OPERATORS[way][len(some) - 1](*some, *(there if way == INTO else ()), *place)
        results.extend(there if outputs is not None else made if len(some) == 2 else (made,))
    done = inputs if way == IN_PLACE else tuple(results)
    if outputs is not None and not tracing:
        _count_version(done)
    if quick:
        torch_decode.remember(encoding, inputs, outputs, positions, layout, backend, place[1], done)
    return done


def _is_transformed() -> bool:
    """Whether tensors stand for others: inside a functorch transform, or while a graph is traced without a compiler."""
    return torch._C._functorch.peek_interpreter_stack() is not None or is_in_torch_dispatch_mode()


def _sharded(inputs: Tensors) -> bool:
    """Whether tensors are spread over devices: then the module that makes such tensors has been imported."""
    return "torch.distributed.tensor" in sys.modules and torch_distributed().is_sharded(inputs)


def _spread(encoding: Encoding, inputs: Tensors, outputs: Any, layout: Any, place: Place) -> Place:
    start, call, where, begins, table = place
    sharding = torch_distributed()
    sharding.check(encoding, inputs, outputs, layout, request_of(call).rule)
    return start, call, *(sharding.spread(inputs[0], ids) for ids in (where, begins, table))


def torch_distributed() -> Any:
    """The rules for sharded tensors, registered when there is one."""
    from . import torch_distributed as rules

    return rules


def explain(
    encoding: Encoding,
    inputs: Tensors,
    outputs: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
) -> Plan:
    """``fastpos.explain`` on tensors."""
    if outputs is not None:
        outputs = check_outputs(outputs, inputs)
    place = _arguments(encoding, inputs, start, positions, cu_seqlens, layout, backend, "apply")
    return planned(inputs, outputs, *place)[0]


def check_apart_all(
    encoding: Encoding,
    inputs: Tensors,
    outputs: Tensors | None,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
) -> None:
    """All checks of a call that is made in several parts."""
    place = _arguments(encoding, inputs, start, positions, cu_seqlens, layout, backend, "apply")
    if outputs is not None:
        _check_written(inputs, outputs, place[4])
    _, sources, targets, _ = planned(inputs, outputs, *place)
    if outputs is not None:
        check_apart(sources, targets)


def shift_(rope: Encoding, k: Any, by: Any, layout: Any, backend: Any) -> None:
    """``fastpos.shift_`` on a tensor: all tokens of a row stand at ``by``."""
    check_plain("k", k, k)
    axes = layout_for(rope, layout, k.ndim)
    batch = None if axes.batch is None else k.shape[axes.batch]
    if isinstance(by, torch.Tensor) or np.ndim(by):
        rows = _ids("by", by, k)
        starts_of("by", standing("by", rows), batch, readable=False)
    else:
        # A fill, where a number from main memory would be a copy that a GPU is waited for, and no graph can capture.
        rows = torch.full((1,), int(starts_of("by", by, None)), dtype=torch.int64, device=k.device)
    positions = rows.reshape(-1, 1).expand(-1, k.shape[axes.token])
    apply(rope, (k,), "inputs", None, positions if batch is not None else positions[0], None, layout, backend, "shift")


def check_outputs(out: Any, inputs: Tensors) -> Tensors:
    """``out`` as a tuple of tensors, one for each input."""
    outputs = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(outputs) != len(inputs):
        raise ValueError(f"out: expected {len(inputs)} arrays, one for each input, got {len(outputs)}")
    for index, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
        if y is not x:
            check_plain("out" if len(inputs) == 1 else f"out[{index}]", y, inputs[0])
    return outputs


def _arguments(
    encoding: Encoding,
    inputs: Tensors,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    turn: Turn,
) -> Place:
    """The operators' arguments behind the tensors."""
    check_encoding(encoding)
    check_settled(encoding)
    if layout is not None and not isinstance(layout, str):
        raise TypeError(f"layout: expected a string of letters, as 'bshd', got {layout!r}")
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend: expected a name, got {backend!r}")
    x = inputs[0]
    if not torch.compiler.is_compiling():
        for index, tensor in enumerate(inputs):
            _check_real(name_of(index), tensor, x)
        # Or they would be read as other words than they are.
        layout_for(encoding, layout, x.ndim)
        dispatch.choose(backend, str(x.device))
    check_given(start, positions, cu_seqlens)
    if positions is None and not torch.compiler.is_compiling() and torch_decode.in_context_parallel():
        raise ValueError(
            "expected positions= under PyTorch's context parallelism, where each device has its own part of the tokens, got a "
            "start or boundaries of the whole sequence; give context_parallel a positions buffer to shard with the tokens"
        )
    rule, number, where, begins = _place(x, start, positions, cu_seqlens, coordinates(encoding)[1])
    words = f"{OFFSET}{encoding.offset})" if isinstance(encoding, Learned) else encoding.spelling
    table = _table(encoding, x) if isinstance(encoding, Learned) else None
    if not torch.compiler.is_compiling():
        _refuse_tangent("table", table)
        _refuse_tangent(rule, where)
    return number, word(words, layout, backend, rule, turn), where, begins, table


def _check_real(name: str, tensor: torch.Tensor, first: torch.Tensor) -> None:
    """Refuse what has no elements here, and what an operator would give wrong gradients for."""
    check_plain(name, tensor, first)
    if tensor.is_meta or (isinstance(tensor, FakeTensor) and get_proxy_mode() is None):
        kind = "a meta tensor" if tensor.is_meta else "a fake tensor outside of tracing"
        raise TypeError(f"{name}: expected a tensor with elements, got {kind}")
    _refuse_tangent(name, tensor)


def _refuse_tangent(name: str, tensor: Where) -> None:
    """Refuse forward-mode differentiation, which the operators would answer with zeros; it has a level while it runs."""
    if tensor is None or forward_ad._current_level < 0:
        return
    if forward_ad.unpack_dual(tensor).tangent is not None:
        raise NotImplementedError(
            f"{name}: forward-mode differentiation is not supported, got a tensor with a tangent; use reverse mode"
        )


def _check_written(inputs: Tensors, outputs: Tensors, table: Where) -> None:
    """Refuse a gradient that would be lost, and memory that holds not what it seems to."""
    for index, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
        out = "out" if len(inputs) == 1 else f"out[{index}]"
        if not torch.compiler.is_compiling():
            _refuse_tangent(out, y)
        for name, tensor in ((name_of(index), x), (out, y), ("table", table)):
            if tensor is not None and tensor.requires_grad:
                raise ValueError(
                    f"{name}: expected a tensor that requires no gradient, for what is written into a tensor that is there "
                    "has none; use fastpos.apply without out="
                )
        if not torch.compiler.is_compiling() and y.is_neg():
            name = name_of(index) if y is x else out
            raise ValueError(
                f"{name}: expected a tensor without a negation to come, got one; write to {name}.resolve_neg()"
            )


def _count_version(tensors: Tensors) -> None:
    """Let autograd know that tensors changed, so that a gradient that needs what was there before fails aloud."""
    torch.autograd.graph.increment_version([tensor for tensor in tensors if not tensor.is_inference()])


def _place(x: torch.Tensor, start: Any, positions: Any, cu_seqlens: Any, real: bool) -> tuple[str, int, Where, Where]:
    """The rule in words, and ``start``, ``where`` and ``begins`` of an operator."""
    if positions is not None:
        return "positions", 0, _ids("positions", positions, x, real), None
    if cu_seqlens is not None:
        edges = _ids("cu_seqlens", cu_seqlens, x)
        begins = None if start is None else _start(x, start)
        if isinstance(begins, int):
            begins = torch.full((max(len(edges) - 1, 0),), begins, dtype=torch.int64, device=x.device)
        return "cu_seqlens", 0, edges, begins
    begin = _start(x, start)
    return ("start", begin, None, None) if isinstance(begin, int) else ("start", 0, begin, None)


def _start(x: torch.Tensor, start: Any) -> int | torch.Tensor:
    if type(start) is int and LOWEST < start < HIGHEST:
        return start
    if isinstance(start, torch.Tensor):
        if torch.compiler.is_compiling() or start.ndim or (x.is_cuda and not start.is_cpu) or _is_transformed():
            return _ids("start", start, x)
        return int(starts_of("start", start.item(), None))
    if torch.compiler.is_compiling():
        plain = isinstance(start, int) and not isinstance(start, bool)
        return start if plain else _ids("start", start, x)
    return int(starts_of("start", start, None)) if np.ndim(start) == 0 else _ids("start", start, x)


def _ids(name: str, values: Any, x: torch.Tensor, real: bool = False) -> torch.Tensor:
    """Integers on the device of the data. One number moves there; more are a copy in every call, which is the caller's."""
    ids: torch.Tensor
    if isinstance(values, torch.Tensor):
        if values.requires_grad:
            raise ValueError(f"{name}: expected a tensor that requires no gradient, for positions get none; detach it")
        if not torch.compiler.is_compiling():
            check_plain(name, values, values)
            values = values.resolve_neg()
        ids = values
        if ids.device == x.device:
            return ids
        if ids.ndim == 0:
            return ids.to(x.device)
    elif torch.compiler.is_compiling():
        return torch.tensor(values, device=x.device)
    else:
        array = np.asarray(values)
        kept = real and array.dtype.kind == "f"
        # A tensor has no negative strides and no foreign byte order.
        array = (
            array.astype(array.dtype.newbyteorder("="), "C") if kept else integers(name, values).astype(np.int64, "C")
        )
        if not x.is_cuda:
            # Said, or PyTorch's default device would be it.
            return torch.tensor(array, device="cpu")
    place = (
        f"one on {values.device}" if isinstance(values, torch.Tensor) else f"a {type(values).__name__} in main memory"
    )
    raise ValueError(
        f"{name}: expected a tensor on {x.device} like x, got {place}; make it there once, as "
        f"torch.as_tensor({name}, device=x.device), not in every call"
    )


# Tables that came as NumPy arrays, on the devices where they are wanted.
_tables: WeakKeyDictionary[Learned, dict[tuple[torch.device, torch.dtype], torch.Tensor]] = WeakKeyDictionary()


def _table(encoding: Learned, x: torch.Tensor) -> torch.Tensor:
    """The table as kernels read it: on the device of the data, in its type or in that of the arithmetic."""
    computed = torch.float64 if x.dtype == torch.float64 else torch.float32
    if encoding.is_tensor:
        table: torch.Tensor = encoding.table
        if table.device != x.device:
            raise ValueError(f"table: expected device {x.device} like x, got {table.device}")
        return (table if table.dtype in (x.dtype, computed) else table.to(computed)).contiguous()
    known = _tables.setdefault(encoding, {})
    key = (x.device, x.dtype)
    found = known.get(key)
    if found is None or _is_transformed():
        bits = encoding.table.dtype.name == "bfloat16"
        values = torch.tensor(encoding.table.view(np.uint16) if bits else encoding.table, device="cpu")
        values = values.view(torch.bfloat16) if bits else values
        found = values.to(x.device, values.dtype if values.dtype == x.dtype else computed)
        if not _is_transformed():
            # What is made while a graph is traced is the graph's.
            known[key] = found
    return found
