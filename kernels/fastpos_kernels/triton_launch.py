"""From a plan's arrays to handles, and from a call's tensors to kernels.

The arrays of a plan stand for tensors: they have their shapes, strides in bytes and dtypes, and are never read.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
import triton.language as tl

from . import triton_machine as machine
from .rules import DONE, START
from .triton_add import add_learned, add_sinusoid
from .triton_handle import Handle, check_not_captured, on_device, target_of
from .triton_rotate import rotate

COMPUTED = {2: tl.float32, 4: tl.float32, 8: tl.float64}


@dataclass(frozen=True)
class Geometry:
    """Shape and strides of one or two arrays, as kernels take them."""

    rows: int
    tokens: int
    heads: tuple[int, ...]
    unit: int
    strides: tuple[int, ...]


def _strides(array: np.ndarray, axes) -> list[int]:
    """Bytes from a batch row, token or head to the next, 0 where there is no next."""
    return [0 if axis is None or array.shape[axis] <= 1 else array.strides[axis] for axis in axes]


def geometry(arrays, axes, *further: int) -> Geometry:
    """What a launch on ``arrays`` (input, output and perhaps the same again) has to say; ``further`` strides count too."""
    x = arrays[0]
    batch, tokens, _ = (1 if axis is None else x.shape[axis] for axis in axes)
    if batch * tokens > machine.MOST_ROWS:
        raise ValueError(
            f"x: expected at most {machine.MOST_ROWS} tokens over all batch rows on a GPU, got {batch * tokens}"
        )
    strides = [stride for array in arrays for stride in _strides(array, axes)]
    unit = machine.unit(x.itemsize, (*strides, *further))
    heads = tuple(1 if axes[2] is None else array.shape[axes[2]] for array in arrays[::2])
    return Geometry(batch * tokens, tokens, heads, unit, tuple(stride // (unit * x.itemsize) for stride in strides))


class Piece:
    """One kernel on one or two inputs, with a handle for every device and type of positions.

    ``arguments(backend, lanes)`` gives programs, integers and compile-time values; ``constants(device)`` the tensors that
    stand after the arrays.
    """

    def __init__(self, kernel, rule, arguments, constants):
        self.kernel, self.rule = kernel, rule
        self.arguments, self.constants = arguments, constants
        self.handles = {}

    def _handle(self, device, where, starts) -> Handle:
        check_not_captured(device)
        apart = *self.rule.ids_strides, self.rule.ids_axis_stride
        steps = (0, 0, 0) if where is None else [stride // where.element_size() for stride in apart]
        programs, (rows, tokens, *strides), values = self.arguments(*target_of(self.kernel))
        integers = self.rule.documents, rows, tokens, *steps, *strides
        fixed = (*integers, self.rule.kind, starts is not None, self.rule.axes > 1, *values)
        return Handle(self.kernel, programs, self.constants(device), fixed)

    def __call__(self, device: int, arrays, where, starts) -> None:
        """Launch on pairs of input and output."""
        if self.rule.kind == START:
            handle = self.handles.get(device)
            if handle is None:
                handle = self.handles[device] = self._handle(arrays[0][0].device, None, None)
            handle(device, arrays, None, None, where)
            return
        key = device, where.dtype, None if starts is None else starts.dtype
        handle = self.handles.get(key)
        if handle is None:
            handle = self.handles[key] = self._handle(arrays[0][0].device, where, starts)
        handle(device, arrays, where, starts, 0)


class Launch:
    """Pieces, each with the places of its arrays among a call's inputs; there are none where nothing is to do."""

    def __init__(self, pieces):
        self.pieces = pieces

    def __call__(self, inputs, outputs, where, starts, threads, checked):
        """Run on tensors like the arrays that the launch was made for; ``where`` is a number or a tensor."""
        for piece, places in self.pieces:
            arrays = [(inputs[place], outputs[place]) for place in places]
            device = arrays[0][0].get_device()
            # A negative index is main memory, which the interpreter works on.
            if device < 0 or device == torch.cuda.current_device():
                piece(device, arrays, where, starts)
            else:
                on_device(device, piece, device, arrays, where, starts)
        return DONE


@lru_cache(maxsize=64)
def _clock(rates, first: int, last: int, wide: bool, interleaved: bool, device) -> tuple[torch.Tensor]:
    """What kernels read of the pairs ``first .. last``, on a device; one copy for all plans of an encoding.

    Words and bits of residuals, then axes and bits of frequencies, each two rows in the order of the channels; then the
    terms of the scale of queries. In place of words, ``inv_freq``, where that is what sines are made from.
    """
    pairs = slice(first, last)
    if wide:
        bits = rates.residuals.view(np.int64)
    else:
        bits = rates.residuals.astype(np.float32).view(np.int32).astype(np.int64)
    words = rates.words if rates.inv_freq is None else rates.inv_freq.view(np.int32).astype(np.int64)
    axis = np.zeros(len(words), np.int64) if rates.axis is None else rates.axis
    rows = [(words, bits), (axis, rates.turns.view(np.int64))]
    table = [np.stack([row[pairs] for row in two], axis=-1 if interleaved else 0).ravel() for two in rows]
    terms = np.array(rates.query or (0,) * 5, np.float64).view(np.int64)
    return (torch.tensor(np.concatenate([*table, terms]), device=device),)


def _pieces(inputs, outputs, size: int, pieces_of) -> Launch:
    """A launch of inputs taken ``size`` at a time, without those that are empty; a kernel for two is given one twice.

    ``pieces_of(arrays, first)`` gives the kernels for some of them; ``first``: whether the call's first is among them.
    """
    full = [place for place, x in enumerate(inputs) if x.size]
    pieces = []
    for first in range(0, len(full), size):
        places = full[first : first + size]
        arrays = [array for place in places for array in (inputs[place], outputs[place])]
        pieces += [(piece, places * (size // len(places))) for piece in pieces_of(arrays, places[0] == 0)]
    return Launch(pieces)


@dataclass(frozen=True)
class Slice:
    """Channels that turn in one launch, from ``lead`` on: pairs ``first .. last`` of the encoding's.

    Channels below ``before`` and from ``after`` on do not turn, and go with it.
    """

    first: int
    last: int
    lead: int
    before: int
    after: int

    def works(self, width: int) -> bool:
        """Whether there is anything to do."""
        return self.last > self.first or self.before > 0 or self.after < width


def _slices(head, width: int, carried: bool) -> list[Slice]:
    """One for each section of channels that pairs by itself."""
    slices, first = [], 0
    for section in head.sections or (head.pairs,):
        slices.append(Slice(first, first + section, head.start + 2 * first, 0, width))
        first += section
    if carried:
        slices[-1] = replace(slices[-1], before=head.start, after=head.start + 2 * head.pairs)
    return slices


def bind_rotate(inputs, outputs, axes, rule, rates, head, stream: bool, threads: int) -> Launch:
    """A launch that rotates each input into its output (the same array: in place), two inputs at a time."""
    interleaved, rounded = head.interleaved, rates.inv_freq is not None
    width, itemsize = inputs[0].shape[-1], inputs[0].itemsize

    def piece_of(shape: Geometry, part: Slice, scaled: int) -> Piece:
        strides = shape.strides if len(shape.heads) == 2 else shape.strides * 2
        pairs = part.last - part.first
        # A head of which nothing turns is cut by channels.
        count = pairs or width

        def arguments(backend: str, lanes: int):
            tile = machine.rotate_tile(
                shape.rows, shape.heads, count, itemsize, interleaved, lanes, head.deinterleaved or not pairs
            )
            heads, groups = [0, 0], [0, 0]
            for place, number in enumerate(shape.heads):
                heads[place], groups[place] = number, machine.groups(number, tile)
            blocks = machine.ceiling(count, tile.pairs)
            programs = machine.rotate_programs(shape.rows, shape.heads, count, tile)
            form = interleaved, head.deinterleaved, rounded, scaled
            channels = width, part.lead, pairs, part.before, part.after
            sizes = tile.rows, tile.heads, tile.pairs, tile.steps, *groups, blocks
            values = *form, *channels, float(rates.factor), *heads, shape.unit, *sizes
            return programs, (shape.rows, shape.tokens, *strides), values

        def constants(device):
            return _clock(rates, part.first, part.last, itemsize == 8, interleaved, device)

        return Piece(rotate, rule, arguments, constants)

    def pieces_of(arrays, first: bool) -> list[Piece]:
        shape, scaled = geometry(arrays, axes), 0
        if first and rates.query is not None:
            scaled = 2 if rounded and rates.query[4] else 1
        apart = any(x is not y for x, y in zip(arrays[::2], arrays[1::2], strict=True))
        slices = _slices(head, width, 2 * head.pairs < width and (apart or scaled > 0))
        return [piece_of(shape, part, scaled) for part in slices if part.works(width)]

    return _pieces(inputs, outputs, 2, pieces_of)


def bind_sinusoidal(inputs, outputs, axes, rule, rates, waves, scale: float, stream: bool, threads: int):
    """A launch that adds sinusoids to each input times ``scale``."""
    interleaved, pairs, itemsize = waves.interleaved, waves.sines, inputs[0].itemsize

    def pieces_of(arrays, first: bool) -> list[Piece]:
        shape = geometry(arrays, axes)

        def arguments(backend: str, lanes: int):
            count = max(pairs, 1)
            tile = machine.sinusoid_tile(shape.rows, count, itemsize, interleaved, lanes, rule.real)
            blocks = machine.ceiling(count, tile.pairs)
            hardware = machine.has_fast_sine(backend, itemsize)
            alike = shape.strides[:2] == shape.strides[3:5]
            channels = interleaved, pairs, waves.cosines, waves.zeros, waves.cosine_first, waves.padding_index
            sizes = tile.rows, tile.pairs, tile.steps, blocks, alike, hardware
            values = *channels, float(rates.factor), float(scale), shape.unit, *sizes
            return machine.add_programs(shape.rows, count, tile), _add_integers(shape), values

        def constants(device):
            return _clock(rates, 0, pairs, itemsize == 8, interleaved, device)

        return [Piece(add_sinusoid, rule, arguments, constants)]

    return _pieces(inputs, outputs, 1, pieces_of)


def _add_integers(shape: Geometry) -> tuple[int, ...]:
    """What additive kernels take of a geometry: they know no heads."""
    x_batch, x_token, _, y_batch, y_token, _ = shape.strides
    return shape.rows, shape.tokens, x_batch, x_token, y_batch, y_token


def bind_learned(inputs, outputs, axes, rule, table, offset: int, stream: bool, threads: int) -> Launch:
    """A launch that adds rows of ``table``, a tensor on the inputs' device whose rows are contiguous."""
    width, itemsize, computed = inputs[0].shape[-1], inputs[0].itemsize, COMPUTED[inputs[0].itemsize]

    def pieces_of(arrays, first: bool) -> list[Piece]:
        shape = geometry(arrays, axes, table.stride(0) * itemsize)

        def arguments(backend: str, lanes: int):
            tile = machine.learned_tile(width, itemsize, lanes)
            blocks = machine.ceiling(width, tile.pairs)
            lookup = table.stride(0) // shape.unit, len(table), offset
            what = width, shape.unit, tile.rows, tile.pairs, blocks, computed
            return machine.add_programs(shape.rows, width, tile), (*_add_integers(shape), *lookup), what

        return [Piece(add_learned, rule, arguments, lambda device: (table,))]

    return _pieces(inputs, outputs, 1, pieces_of)
