"""The door for tensors: from the arguments of ``fastpos.apply`` to an operator."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from . import torch_decode, torch_ops, torch_rules
from .encodings import Encoding, Learned
from .plan import Turn, check_encoding, name_of
from .positions import HIGHEST, LOWEST, check_given, integers, starts_of
from .tensors import check_plain
from .torch_request import OFFSET, Tensors, word

Where = torch.Tensor | None
torch_rules.register()


def apply_(
    encoding: Encoding,
    inputs: Tensors,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    turn: Turn = "apply",
) -> None:
    """``fastpos.apply_`` on tensors."""
    tracing = torch.compiler.is_compiling()
    quick = not tracing and turn == "apply" and cu_seqlens is None
    if quick and torch_decode.run(encoding, inputs, inputs, start, positions, layout, backend) is not None:
        return
    call, place = _arguments(encoding, inputs, start, positions, cu_seqlens, layout, backend, turn)
    table = place[3]
    for name, tensor in [*((name_of(index), x) for index, x in enumerate(inputs)), ("table", table)]:
        _check_constant(name, tensor)
    for first in range(0, len(inputs), 2):
        pair = inputs[first : first + 2]
        operator = torch_ops.encode_ if len(pair) == 1 else torch_ops.encode_pair_
        operator(*pair, call, *place)
    if not tracing:
        _count_version(inputs)
        if quick:
            torch_decode.remember(encoding, inputs, inputs, positions, layout, backend, call, inputs)


def apply(
    encoding: Encoding,
    inputs: Tensors,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    out: Any,
    backend: Any,
) -> Tensors:
    """``fastpos.apply`` on tensors."""
    outputs = tuple(out) if isinstance(out, tuple | list) else None if out is None else (out,)
    quick = not torch.compiler.is_compiling() and cu_seqlens is None
    if quick:
        done = torch_decode.run(encoding, inputs, outputs, start, positions, layout, backend)
        if done is not None:
            return done
    call, place = _arguments(encoding, inputs, start, positions, cu_seqlens, layout, backend, "apply")
    if outputs is None:
        results: list[torch.Tensor] = []
        for first in range(0, len(inputs), 2):
            pair = inputs[first : first + 2]
            found = (torch_ops.encode if len(pair) == 1 else torch_ops.encode_pair)(*pair, call, *place)
            results.extend((found,) if len(pair) == 1 else found)
        if quick:
            torch_decode.remember(encoding, inputs, None, positions, layout, backend, call, tuple(results))
        return tuple(results)
    if len(outputs) != len(inputs):
        raise ValueError(f"out: expected {len(inputs)} tensors, one for each input, got {len(outputs)}")
    for index, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
        name = "out" if len(inputs) == 1 else f"out[{index}]"
        check_plain(name, y, x)
        _check_constant(name, y)
        _check_constant(name_of(index), x)
    _check_constant("table", place[3])
    for first in range(0, len(inputs), 2):
        pair, targets = inputs[first : first + 2], outputs[first : first + 2]
        operator = torch_ops.encode_into if len(pair) == 1 else torch_ops.encode_pair_into
        operator(*pair, *targets, call, *place)
    if not torch.compiler.is_compiling():
        _count_version(outputs)
    if quick:
        torch_decode.remember(encoding, inputs, outputs, positions, layout, backend, call, outputs)
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
) -> tuple[str, tuple[int, Where, Where, Where]]:
    """The operators' arguments behind the tensors."""
    check_encoding(encoding)
    if layout is not None and not isinstance(layout, str):
        raise TypeError(f"layout: expected a string of letters, as 'bshd', got {layout!r}")
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend: expected a name, got {backend!r}")
    x = inputs[0]
    if not torch.compiler.is_compiling():
        for index, tensor in enumerate(inputs):
            _check_real(name_of(index), tensor, x)
    check_given(start, positions, cu_seqlens)
    rule, number, where, begins = _place(x, start, positions, cu_seqlens)
    words = f"{OFFSET}{encoding.offset})" if isinstance(encoding, Learned) else encoding.spelling
    table = _table(encoding, x) if isinstance(encoding, Learned) else None
    return word(words, layout, backend, rule, turn), (number, where, begins, table)


def _check_real(name: str, tensor: torch.Tensor, first: torch.Tensor) -> None:
    """Refuse what has no elements here, and what an operator would give wrong gradients for."""
    check_plain(name, tensor, first)
    if tensor.is_meta or (isinstance(tensor, FakeTensor) and get_proxy_mode() is None):
        kind = "a meta tensor" if tensor.is_meta else "a fake tensor outside of tracing"
        raise TypeError(f"{name}: expected a tensor with elements, got {kind}")
    # A dual level is there for as long as forward-mode differentiation runs; the operators would answer it with zeros.
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise NotImplementedError(
            f"{name}: forward-mode differentiation is not supported, got a tensor with a tangent; use reverse mode"
        )


def _check_constant(name: str, tensor: Where) -> None:
    if tensor is not None and tensor.requires_grad:
        raise ValueError(
            f"{name}: expected a tensor that requires no gradient, for a result that is written in place has none; use "
            "fastpos.apply without out="
        )


def _count_version(tensors: Tensors) -> None:
    """Let autograd know that tensors changed, so that a gradient that needs what was there before fails aloud."""
    torch.autograd.graph.increment_version([tensor for tensor in tensors if not tensor.is_inference()])


def _place(x: torch.Tensor, start: Any, positions: Any, cu_seqlens: Any) -> tuple[str, int, Where, Where]:
    """The rule in words, and ``start``, ``where`` and ``begins`` of an operator."""
    if positions is not None:
        return "positions", 0, _ids("positions", positions, x), None
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
        if torch.compiler.is_compiling() or start.ndim or x.is_cuda:
            return _ids("start", start, x)
        return int(starts_of("start", start.item(), None))
    if torch.compiler.is_compiling():
        return int(start)
    return int(starts_of("start", start, None)) if np.ndim(start) == 0 else _ids("start", start, x)


def _ids(name: str, values: Any, x: torch.Tensor) -> torch.Tensor:
    """Integers on the device of the data. One number moves there; more are a copy in every call, which is the caller's."""
    if isinstance(values, torch.Tensor):
        if values.device == x.device:
            return values
        if values.ndim == 0:
            return values.to(x.device)
    elif torch.compiler.is_compiling():
        return torch.tensor(values, device=x.device)
    else:
        array = integers(name, values)
        if not x.is_cuda:
            return torch.tensor(array.astype(np.int64))
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
    if key not in known:
        bits = encoding.table.dtype.name == "bfloat16"
        values = torch.tensor(encoding.table.view(np.uint16) if bits else encoding.table)
        values = values.view(torch.bfloat16) if bits else values
        known[key] = values.to(x.device, values.dtype if values.dtype == x.dtype else computed)
    return known[key]
