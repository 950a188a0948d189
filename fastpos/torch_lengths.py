"""Encodings that go by the length of a sequence, on tensors: rows that differ are sorted out on the host."""

from operator import index
from typing import Any

import numpy as np
import torch

from . import torch_door
from .encodings import Encoding, Rotary, coordinates
from .lengths import check_by_length, cuts
from .places import resolve, resolve_lengths
from .plan import check_encoding, layout_for
from .tensors import check_plain, standing
from .torch_request import Tensors


def apply(
    encoding: Encoding,
    inputs: Tensors,
    outputs: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    seq_lens: Any,
) -> Tensors:
    """A call for each run of rows with the same frequencies. One number for all rows needs no host."""
    check_encoding(encoding)
    rope = check_by_length(encoding)
    if type(seq_lens) is int and seq_lens >= 0:
        # In a traced graph a length may be a symbol: choosing guards its side of the trained length, index its value.
        settled = _settled(rope, index(seq_lens if rope.scaling is None else rope.scaling.chosen(seq_lens)))
        return torch_door.apply(settled, inputs, outputs, start, positions, cu_seqlens, layout, backend)
    found: Tensors = _by_rows(rope, inputs, outputs, start, positions, cu_seqlens, layout, backend, seq_lens)
    return found


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _by_rows(
    rope: Rotary,
    inputs: Tensors,
    outputs: Any,
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    layout: Any,
    backend: Any,
    seq_lens: Any,
) -> Tensors:
    check_plain("x", inputs[0], inputs[0])
    axes, shape = layout_for(rope, layout, inputs[0].ndim), tuple(inputs[0].shape)
    places = _on_host("start", start), _on_host("positions", positions), _on_host("cu_seqlens", cu_seqlens)
    place = resolve(axes, shape, places[0], places[1], places[2], True, *coordinates(rope))
    lengths = resolve_lengths(axes, shape, place, _on_host("seq_lens", seq_lens))
    clocks = {rope.at_length(int(length)) for length in lengths}
    if len(clocks) <= 1:
        settled = clocks.pop() if clocks else rope.at_length(0)
        return torch_door.apply(settled, inputs, outputs, start, positions, cu_seqlens, layout, backend)
    device = inputs[0].device
    in_place = isinstance(outputs, str)
    whole = inputs if in_place else None if outputs is None else torch_door.check_outputs(outputs, inputs)
    # All is checked before the first part is written.
    torch_door.check_apart_all(rope.at_length(0), inputs, whole, start, positions, cu_seqlens, layout, backend)
    parts = []
    for cut in cuts(rope, lengths, axes, place, places[1]):
        sources: Any = tuple(cut.of(x) for x in inputs)
        targets: Any = None if whole is None else "inputs" if in_place else tuple(cut.of(y) for y in whole)
        where = [_there(ids, device) for ids in (cut.start, cut.positions, cut.cu_seqlens)]
        parts.append(torch_door.apply(cut.encoding, sources, targets, where[0], where[1], where[2], layout, backend))
        axis = cut.axis
    return tuple(torch.cat(column, axis) for column in zip(*parts, strict=True)) if whole is None else whole


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _settled(rope: Rotary, length: int) -> Rotary:
    """The encoding of that length, which a graph holds as it is: what makes it is Python that Dynamo cannot trace."""
    return rope.at_length(length)


def _on_host(name: str, ids: Any) -> Any:
    if not isinstance(ids, torch.Tensor):
        return ids
    return np.array(standing(name, ids.detach().cpu()))


def _there(ids: Any, device: torch.device) -> Any:
    return ids if ids is None or isinstance(ids, int) else torch.tensor(ids, device=device)
