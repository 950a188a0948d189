"""What an operator's arguments mean: the word ``call``, which stands in graphs, and tensors as arrays that stand for them."""

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, cast

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from . import dispatch, spelling
from .call import check_rows, prepare
from .encodings import Encoding, Learned, coordinates
from .places import Place, resolve
from .plan import Plan, Turn, check_apart_from, layout_for, name_of
from .tensors import Array, check_plain, standing

Tensors = tuple[torch.Tensor, ...]
OFFSET = "Learned(offset="


@dataclass(frozen=True)
class Request:
    """A call but for its tensors: an encoding in words, a layout, a backend, a rule of positions, and a turn."""

    words: str
    layout: str | None
    backend: str | None
    rule: str
    turn: Turn


def word(words: str, layout: str | None, backend: str | None, rule: str, turn: Turn) -> str:
    """What ``request_of`` reads."""
    return f"{words}|{layout or ''}|{backend or ''}|{rule}|{turn}"


@lru_cache(maxsize=1024)
def request_of(call: str) -> Request:
    """Read ``call`` again."""
    words, layout, backend, rule, turn = call.split("|")
    return Request(words, layout or None, backend or None, rule, cast(Turn, turn))


# Tables that are tensors, as encodings: by the tensor, for as long as it lives where it does.
_tables: Any = WeakTensorKeyDictionary()


def encoding_of(request: Request, table: torch.Tensor | None, backend: str) -> Encoding:
    """The encoding of a call; a table that is a tensor is neither copied nor kept alive by it."""
    if table is None:
        return spelling.read(request.words)
    known = _tables.setdefault(table, {})
    key = (request.words, backend, table.data_ptr(), table.shape, table.stride(), table.dtype)
    if key not in known:
        encoding = object.__new__(Learned)
        stands = table.detach() if backend == "triton" else standing("table", table)
        object.__setattr__(encoding, "table", stands)
        object.__setattr__(encoding, "offset", int(request.words[len(OFFSET) : -1]))
        known.clear()
        known[key] = encoding
    return cast(Learned, known[key])


def check_tensors(inputs: Tensors, outputs: Tensors) -> None:
    """Refuse what cannot stand as an array beside the first input."""
    for index, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
        check_plain(name_of(index), x, inputs[0])
        if y is not x:
            check_plain("out" if len(outputs) == 1 else f"out[{index}]", y, inputs[0])


def arrays_of(inputs: Tensors, outputs: Tensors) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Arrays that stand for inputs and outputs; the input's own for an output that lies where it does."""
    sources = tuple(standing(name_of(index), x) for index, x in enumerate(inputs))
    targets = []
    for index, (x, y, source) in enumerate(zip(inputs, outputs, sources, strict=True)):
        alike = (x.data_ptr(), x.shape, x.stride(), x.dtype) == (y.data_ptr(), y.shape, y.stride(), y.dtype)
        name = "out" if len(inputs) == 1 else f"out[{index}]"
        targets.append(source if y is x or (alike and x.numel()) else standing(name, y))
    return sources, tuple(targets)


def place_of(request: Request, start: int, where: torch.Tensor | None, begins: torch.Tensor | None) -> dict[str, Any]:
    """The arguments ``start``, ``positions`` and ``cu_seqlens`` of ``fastpos.apply``."""
    place: dict[str, Any] = {"start": None, "positions": None, "cu_seqlens": None}
    if where is None:
        place["start"] = start
    else:
        place[request.rule] = standing(request.rule, where)
    if begins is not None:
        place["start"] = standing("start", begins)
    return place


@cache
def checks_values() -> bool:
    """Whether values on a device are copied to the host and checked there, which waits for it (FASTPOS_CHECK, read once)."""
    return os.environ.get("FASTPOS_CHECK", "0") not in ("", "0")


def _check_values(
    encoding: Encoding,
    request: Request,
    x: torch.Tensor,
    start: int,
    where: torch.Tensor | None,
    begins: torch.Tensor | None,
) -> None:
    host = [None if ids is None else ids.cpu() for ids in (where, begins)]
    layout = layout_for(encoding, request.layout, x.ndim)
    axes, real = coordinates(encoding)
    place = resolve(layout, tuple(x.shape), **place_of(request, start, *host), axes=axes, real=real)
    if isinstance(encoding, Learned):
        check_rows(encoding, place, x.shape[layout.token], x.numel())


def planned(
    inputs: Tensors,
    outputs: Tensors | None,
    start: int,
    call: str,
    where: torch.Tensor | None,
    begins: torch.Tensor | None,
    table: torch.Tensor | None,
) -> tuple[Plan, tuple[Array, ...], tuple[Array, ...], Place]:
    """The plan of a call, arrays that stand for its inputs and outputs (new ones when None), and where tokens stand."""
    request, device = request_of(call), str(inputs[0].device)
    backend = dispatch.choose(request.backend, device)
    encoding = encoding_of(request, table, backend)
    if backend == "triton" and checks_values():
        _check_values(encoding, request, inputs[0], start, where, begins)
    sources, targets = arrays_of(inputs, inputs if outputs is None else outputs)
    if table is not None and outputs is not None:
        check_apart_from(standing("table", table), targets)
    plan, made, place = prepare(
        encoding,
        sources,
        None if outputs is None else targets,
        **place_of(request, start, where, begins),
        letters=request.layout,
        backend=backend,
        turn=request.turn,
        device=device,
    )
    return plan, sources, made, place


def key_of(call: str, apart: bool, ids: Tensors, tensors: Tensors) -> tuple[Any, ...]:
    """What a launch by address depends on; ``apart``: whether results have memory of their own."""
    facts = [fact for tensor in (*tensors, *ids) for fact in (tensor.shape, tensor.stride(), tensor.dtype)]
    return call, apart, dispatch.process, dispatch.scope.get(), *facts
