"""Tensors sharded over devices: which shards an operator can work on alone, told to PyTorch's own engine.

A row depends on itself and its position, so the batch, the heads and, with ``positions`` beside them, the tokens may be
sharded; nothing is ever sent.
"""

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from . import torch_ops
from .encodings import Encoding
from .layout import Layout, layout_of
from .plan import layout_for, name_of
from .torch_request import Tensors, request_of

Cut = tuple[list[Any], list[Any]]


def is_sharded(tensors: Tensors) -> bool:
    """Whether one of a call's tensors is spread over devices."""
    return any(isinstance(tensor, DTensor) for tensor in tensors)


def check(encoding: Encoding, inputs: Any, outputs: Any, layout: str | None, rule: str) -> None:
    """Refuse shards whose place is not known, and writing in place what would be written to a copy."""
    axes = layout_for(encoding, layout, inputs[0].ndim)
    for index, tensor in enumerate((*inputs, *(outputs or ()))):
        name = name_of(index) if index < len(inputs) else "out"
        if not isinstance(tensor, DTensor):
            raise TypeError(f"{name}: expected a DTensor like x, got a plain tensor")
        cut = [placement for placement in tensor.placements if placement.is_shard(axes.token)]
        if cut and rule != "positions":
            raise ValueError(
                f"{name}: expected positions= beside tokens that are sharded over devices, got {tensor.placements}: a start "
                "or boundaries say where a sequence stands, not where one device's part of it does; shard positions with it"
            )
        if outputs is None:
            continue
        kept = [placement for placement in tensor.placements if not _is_kept(placement, axes, rule)]
        if kept or tensor.placements != inputs[0].placements:
            raise ValueError(
                f"{name}: expected placements that all tensors share, whole or cut along the batch, heads or tokens, got "
                f"{tensor.placements}, for what must be moved cannot be written in place"
            )


def _is_kept(placement: Any, axes: Layout, rule: str) -> bool:
    cuts = [axes.batch, axes.head, axes.token if rule == "positions" else None]
    return placement.is_replicate() or any(axis is not None and placement.is_shard(axis) for axis in cuts)


def spread(x: Any, ids: torch.Tensor | None) -> Any:
    """Integers that every device has whole, on the mesh of ``x``."""
    if ids is None or isinstance(ids, DTensor):
        return ids
    whole = [Replicate()] * x.device_mesh.ndim
    return DTensor.from_local(ids, x.device_mesh, whole, run_check=False)


def _cuts(call: str, x: Any, where: Any, tensors: int, results: int, others: list[Any]) -> list[Cut]:
    """Every way to cut a call: results' placements, then those of all arguments."""
    request = request_of(call)
    layout = layout_of("rotary" if request.words.startswith("Rotary") else "additive", request.layout, len(x.shape))
    whole = None if where is None else Replicate()
    rest = [None if other is None else Replicate() for other in others]
    ways: list[tuple[Any, Any]] = [(Replicate(), whole)]
    if layout.head is not None:
        ways.append((Shard(layout.head), whole))
    rank = 0 if where is None else len(where.shape)
    if (
        layout.batch is not None
        and rank
        and where.shape[0] == x.shape[layout.batch]
        and (rank == 2 or request.rule == "start")
    ):
        ways.append((Shard(layout.batch), Shard(0)))
    elif layout.batch is not None:
        ways.append((Shard(layout.batch), whole))
    if request.rule == "positions" and rank:
        ways.append((Shard(layout.token), Shard(rank - 1)))
    return [([cut] * results, [*[cut] * tensors, None, None, ids, *rest]) for cut, ids in ways]


def _register() -> None:
    def one(x: Any, start: int, call: str, where: Any = None, begins: Any = None, table: Any = None) -> list[Cut]:
        return _cuts(call, x, where, 1, 1, [begins, table])

    def one_in_place(
        x: Any, start: int, call: str, where: Any = None, begins: Any = None, table: Any = None
    ) -> list[Cut]:
        return _cuts(call, x, where, 1, 0, [begins, table])

    def pair(
        x: Any, y: Any, start: int, call: str, where: Any = None, begins: Any = None, table: Any = None
    ) -> list[Cut]:
        return _cuts(call, x, where, 2, 2, [begins, table])

    def pair_in_place(
        x: Any, y: Any, start: int, call: str, where: Any = None, begins: Any = None, table: Any = None
    ) -> list[Cut]:
        return _cuts(call, x, where, 2, 0, [begins, table])

    register_sharding(torch_ops.encode)(one)
    register_sharding(torch_ops.encode_pair)(pair)
    register_sharding(torch_ops.encode_)(one_in_place)
    register_sharding(torch_ops.encode_pair_)(pair_in_place)


_register()
