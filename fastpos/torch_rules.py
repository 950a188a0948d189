"""Gradients and batching of the operators: the transpose of each encoding, and vmap as a loop of calls."""

from typing import Any

import torch

from .encodings import Sinusoidal
from .head import Head
from .layout import layout_of
from .spelling import keys_alone, read
from .torch_request import OFFSET, Request, request_of, word

Where = torch.Tensor | None


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    count = 2 if isinstance(inputs[1], torch.Tensor) else 1
    start, call, where, begins, table = inputs[count:]
    ctx.call, ctx.start, ctx.count = call, start, count
    ctx.table = None if table is None else (table.shape, table.dtype)
    ctx.save_for_backward(where, begins)


def _backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
    where, begins = ctx.saved_tensors
    request = request_of(ctx.call)
    place = (ctx.start, where, begins)
    table = None
    if ctx.table is not None:
        if ctx.needs_input_grad[-1]:
            given = [grad for grad in grads if grad is not None]
            table = sum((_table_gradient(request, grad, place, *ctx.table) for grad in given), torch.tensor(0.0))
        return (*grads, None, None, None, None, table)
    encoding = read(request.words)
    if isinstance(encoding, Sinusoidal):
        scale = encoding.embedding_scale
        inputs = [grad if grad is None or scale == 1.0 else grad * scale for grad in grads]
        return (*inputs, None, None, None, None, None)
    # The scale of queries is the first tensor's alone.
    words = (request.words, keys_alone(request.words))
    inputs = [None if grad is None else _rotated(grad, word, request, place) for grad, word in zip(grads, words)]  # noqa: B905
    return (*inputs, None, None, None, None, None)


def _rotated(grad: torch.Tensor, words: str, request: Request, place: tuple[int, Where, Where]) -> torch.Tensor:
    """A gradient through the transpose of a rotation: the same factor, backwards; of that again, the rotation itself."""
    start, where, begins = place
    head = read(words).head  # type: ignore[union-attr]
    back = request.turn == "back"
    call = word(words, request.layout, request.backend, request.rule, "apply" if back else "back")
    rotate = torch.ops.fastpos.encode
    if not head.deinterleaved:
        return rotate(grad, start, call, where, begins)  # type: ignore[no-any-return]
    if back:
        return rotate(_interleaved(grad, head), start, call, where, begins)  # type: ignore[no-any-return]
    return _interleaved(rotate(grad, start, call, where, begins), head)


def _interleaved(x: torch.Tensor, head: Head) -> torch.Tensor:
    """Channels (i, i + pairs) of the slice that turns, back at (2 i, 2 i + 1)."""
    before, halves, after = x.tensor_split((head.start, head.start + 2 * head.pairs), dim=-1)
    return torch.cat([before, torch.stack(halves.chunk(2, dim=-1), dim=-1).flatten(-2), after], dim=-1)


def _table_gradient(
    request: Request, grad: torch.Tensor, place: tuple[int, Where, Where], shape: torch.Size, dtype: torch.dtype
) -> torch.Tensor:
    """The sum of the gradients of all tokens that used a row; in float32 where the table is shorter.

    On a GPU a token may have asked for a row that is not there (its result is NaN). Its gradient goes to a row past the
    end, which is dropped: an index out of range would end the process's use of the GPU.
    """
    layout = layout_of("additive", request.layout, grad.ndim)
    rows_last = grad if layout.batch is None else grad.movedim((layout.batch, layout.token), (0, 1))
    batch, tokens = (1 if layout.batch is None else grad.shape[layout.batch]), grad.shape[layout.token]
    rows = positions_of(request.rule, batch, tokens, *place, device=grad.device) + int(request.words[len(OFFSET) : -1])
    rows = torch.where((rows >= 0) & (rows < shape[0]), rows, shape[0])
    kind = torch.promote_types(dtype, torch.float32)
    summed = torch.zeros((shape[0] + 1, shape[1]), dtype=kind, device=grad.device)
    summed.index_add_(0, rows.reshape(-1), rows_last.reshape(-1, shape[1]).to(kind))
    return summed[:-1].to(dtype)


def positions_of(
    rule: str, batch: int, tokens: int, start: int, where: Where, begins: Where, device: torch.device
) -> torch.Tensor:
    """Positions of a call's tokens, ``(b, s)``, as a tensor."""
    steps = torch.arange(tokens, device=device)
    # PyTorch knows no arithmetic of the larger unsigned types.
    where, begins = (None if ids is None else ids.to(torch.int64) for ids in (where, begins))
    if where is None:
        found = start + steps
    elif rule == "start":
        found = where.reshape(-1, 1) + steps
    elif rule == "positions":
        found = where
    else:
        document = torch.searchsorted(where[1:].contiguous(), steps, right=True)
        found = steps - where[document] + (start if begins is None else begins[document])
    return found.expand(batch, tokens).to(torch.int64)


# Which arguments an operator writes to.
WRITTEN = {"encode_": (0,), "encode_pair_": (0, 1), "encode_into": (1,), "encode_pair_into": (2, 3)}


def _each(name: str, operator: Any) -> Any:
    """A vmap rule: the operator once for every element of the mapped axis."""
    written, count = WRITTEN.get(name, ()), 2 if "pair" in name else 1

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        def at(index: int) -> list[Any]:
            pairs = zip(arguments, in_dims, strict=True)
            return [value if dim is None else value.select(dim, index) for value, dim in pairs]

        if any(in_dims[index] is None for index in written):
            raise ValueError(
                "vmap: expected tensors that are written to to be mapped like the others, got one that is not: every element "
                "would be written over it"
            )
        if not info.batch_size and not written:
            shapes = [
                [size for axis, size in enumerate(x.shape) if axis != dim]
                for x, dim in zip(arguments[:count], in_dims, strict=False)
            ]
            made = [x.new_empty((0, *shape)) for x, shape in zip(arguments[:count], shapes, strict=True)]
            return (made[0], 0) if count == 1 else (tuple(made), (0,) * count)
        results = [operator(*at(index)) for index in range(info.batch_size)]
        if written:
            return None, None
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(column) for column in zip(*results, strict=True)), (0,) * len(results[0])

    return rule


def register(library: torch.library.Library, operators: dict[str, Any]) -> None:
    """Tell PyTorch the rules."""
    for name, operator in operators.items():
        torch.library.register_vmap(f"fastpos::{name}", _each(name, operator), lib=library)
        if name not in WRITTEN:
            torch.library.register_autograd(f"fastpos::{name}", _backward, setup_context=_save, lib=library)
