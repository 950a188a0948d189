"""From a plan's arrays to records, and from a call's arrays to kernels."""

from functools import partial
from itertools import islice

import numpy as np

from . import numba_add, numba_jit, numba_positions, numba_rates, numba_record, numba_rotate, numba_sinusoid
from .numba_form import AXIAL, BLOCKS, DEINTERLEAVED, EXACT, INTERLEAVED, ROUNDED, SPLIT, Form
from .numba_record import CHECK, CHECK_ONLY, CHECKED
from .numba_threads import share
from .rules import DONE


class Launch:
    """A kernel with its records, each for one or two pairs of input and output.

    ``compiled(streamed)`` gives the kernel; ``held`` keeps alive what the records point to.
    """

    def __init__(self, compiled, streamed: bool, records, *held):
        self.compiled, self.streamed = compiled, streamed
        self.kernel = compiled(streamed)
        self.records = records
        self.held = held
        self.addresses = [record.ctypes.data for record in records]

    def by_address(self) -> "Launch":
        """The same launch for plain addresses (see ``at``) instead of NumPy arrays."""
        records = [record.copy() for record in self.records]
        for record in records:
            record[numba_record.DATA_OFFSET] = 0
        return Launch(self.compiled, self.streamed, records, *self.held)

    @staticmethod
    def _pieces(record) -> int:
        """How many times a thread can come for work: more threads than that have nothing to do."""
        blocks = -(-int(record[numba_record.TOKENS]) // int(record[numba_record.BLOCK]))
        return max(1, -(-int(record[numba_record.BATCH]) * blocks // int(record[numba_record.GRAB])))

    def __call__(self, inputs, outputs, where, starts, threads, checked):
        """Run on arrays like those the launch was made for; ``where`` is a number or an array, as the rule says."""
        place = where if isinstance(where, int) else id(where)
        begin = 0 if starts is None else id(starts)
        operands = [id(array) for pair in zip(inputs, outputs, strict=True) for array in pair]
        targets = [array.ctypes.data for array in outputs] if self.streamed else []
        return self._run(operands, targets, place, begin, threads, checked)

    def at(self, addresses, place, threads, checked):
        """Run on addresses, an input and its output in turn; ``place`` is a number or the address of ids."""
        return self._run(addresses, addresses[1::2], place, 0, threads, checked)

    def _run(self, operands, targets, place, begin, threads, checked):
        # Streamed stores need addresses that are multiples of 16, as NumPy's own are; a view of bytes may have others.
        aligned = not self.streamed or not any(address % 16 for address in targets)
        kernel = self.kernel if aligned else self.compiled(False)
        operands = iter(operands)
        for record, address in zip(self.records, self.addresses, strict=True):
            pairs = list(islice(operands, 2 * int(record[numba_record.ARRAYS])))
            arguments = (address, *pairs, *(0,) * (4 - len(pairs)), place, begin)
            if threads == 1:
                status = kernel(*arguments, 0, CHECKED if checked else CHECK)
            else:
                status = DONE if checked else kernel(*arguments, 0, CHECK_ONLY)
                if status == DONE:
                    counter = np.zeros(1, np.int64)
                    share(partial(kernel, *arguments, counter.ctypes.data, CHECKED), min(threads, self._pieces(record)))
            if status != DONE:
                return status
        return DONE


def _records(inputs, outputs, axes, rule, words: dict):
    """One record for every two arrays; ``axes`` are the places of (batch, token, head), None where there is none."""
    records = []
    for first in range(0, len(inputs), 2):
        pairs = list(zip(inputs, outputs, strict=True))[first : first + 2]
        head = np.zeros(numba_record.HEAD, np.int64)
        head[numba_record.DATA_OFFSET] = object.__basicsize__
        head[numba_record.ARRAYS] = len(pairs)
        head[numba_record.IN_PLACE] = all(x is y for x, y in pairs)
        head[numba_record.RULE] = rule.kind
        head[numba_record.IDS_BATCH_STRIDE], head[numba_record.IDS_TOKEN_STRIDE] = rule.ids_strides
        head[numba_record.IDS_ITEMSIZE] = rule.ids_itemsize
        head[numba_record.IDS_AXIS_STRIDE] = rule.ids_axis_stride
        head[numba_record.AXES], head[numba_record.REAL] = rule.axes, rule.real
        head[numba_record.DOCUMENTS] = rule.documents
        for index, value in words.items():
            head[index] = value
        operands = [
            numba_record.operand(
                array,
                [0 if axis is None else array.strides[axis] for axis in axes],
                1 if axes[2] is None else array.shape[axes[2]],
                writeable,
            )
            for pair in pairs
            for array, writeable in zip(pair, (False, True), strict=True)
        ]
        records.append(np.concatenate([head, *operands]))
    return records


def _sizes(array, axes, block: int, threads: int):
    """Words for batch, tokens, tokens a block, and blocks that a thread takes at a time (some 256 KiB)."""
    batch, tokens, heads = (1 if axis is None else array.shape[axis] for axis in axes)
    block = max(1, min(block, tokens // (4 * threads) if threads > 1 else tokens))
    unit = 2 * block * heads * array.shape[-1] * array.itemsize
    return {
        numba_record.BATCH: batch,
        numba_record.TOKENS: tokens,
        numba_record.BLOCK: block,
        numba_record.GRAB: max(1, (1 << 18) // max(unit, 1)),
        numba_record.WIDTH: array.shape[-1] * array.itemsize,
    }


def _streamable(outputs, axes, *channels: int) -> bool:
    """Whether rows, and runs of so many channels in them, begin at multiples of 16 bytes when the arrays do."""
    strides = [array.strides[axis] for array in outputs for axis in axes if axis is not None]
    return not any(stride % 16 for stride in (*strides, *(count * outputs[0].itemsize for count in channels)))


def compiled(operation: str, *specialised):
    """The kernels of an operation for a dtype and a form, a pairing or a table's dtype: a function of ``streamed``."""
    kernels = {
        "rotate": numba_rotate.kernel,
        "add_sinusoidal": numba_add.sinusoidal_kernel,
        "add_sinusoid": numba_sinusoid.kernel,
        "add_learned": numba_add.learned_kernel,
    }
    if "float16" in specialised and not numba_jit.converts_float16():
        raise ValueError(
            "backend: numba has no float16 on this processor (or NUMBA_CPU_NAME), which cannot convert it (F16C); "
            "give backend='numpy', or another dtype"
        )
    return partial(kernels[operation], *specialised)


def _factor(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def form_of(rule, rates, head) -> Form:
    """What a rotation's kernel is compiled for."""
    pairing = INTERLEAVED if head.interleaved else SPLIT
    if head.deinterleaved:
        pairing = DEINTERLEAVED
    elif head.sections:
        pairing = BLOCKS
    clock = EXACT if rule.axes == 1 and not rule.real else AXIAL
    return Form(pairing, clock if rates.inv_freq is None else ROUNDED, rates.query is not None)


def bind_rotate(inputs, outputs, axes, rule, rates, head, stream: bool, threads: int) -> Launch:
    """A launch that rotates each input into its output (the same array: in place)."""
    x, dtype, form = inputs[0], inputs[0].dtype.name, form_of(rule, rates, head)
    split = form.pairing in (SPLIT, BLOCKS)
    clock = words, residuals, frequencies = numba_rates.clock(rates, dtype, split, head.sections, rule.axes)
    tokens_inside = axes[2] is not None and abs(x.strides[axes[2]]) > abs(x.strides[axes[1]])
    # A long run of tokens for every head, or a table that stays in level-1 cache beside a token's heads.
    padded = len(words) // rule.axes
    longest = numba_positions.MAX_BLOCK // rule.axes if tokens_inside else 16
    block = max(1, min(numba_rotate.TABLE_BYTES // max(1, padded * residuals.itemsize), longest))
    sections = np.array([len(head.sections), *head.sections], np.int64)
    words_of = _sizes(x, axes, block, threads) | {
        numba_record.WORDS: words.ctypes.data,
        numba_record.RESIDUALS: residuals.ctypes.data,
        numba_record.FREQUENCIES: frequencies.ctypes.data,
        numba_record.SECTIONS: sections.ctypes.data,
        numba_record.LEAD: head.start * x.itemsize,
        numba_record.PAIRS: head.pairs,
        numba_record.PADDED: padded,
        numba_record.FACTOR: _factor(rates.factor),
    }
    # With heads before tokens, four heads share the table's rows, and their lines cannot be streamed side by side.
    stream = stream and not tokens_inside and form.pairing != DEINTERLEAVED
    stream = stream and _streamable(outputs, axes, head.start, *(head.sections or (head.pairs,)))
    records = _records(inputs, outputs, axes, rule, words_of)
    for index, term in enumerate(rates.query or ()):
        records[0][numba_record.QUERY + index] = _factor(term)
    return Launch(compiled("rotate", dtype, form), stream, records, *clock, sections)


def _each(inputs, outputs, axes, rule, words: dict):
    """A record for every array: additive kernels take one at a time."""
    return [_records([x], [y], axes, rule, words)[0] for x, y in zip(inputs, outputs, strict=True)]


def _shared(axes, rule):
    """Axes for an additive call: a batch whose rows stand alike is walked like heads, and shares the sinusoid."""
    batch, token, _ = axes
    return (None, token, batch) if rule.same_for_batch else axes


def sinusoid_of(rates, waves) -> str:
    """The operation that adds sinusoids of this kind: all but the commonest share one kernel."""
    plain = waves.sines == waves.cosines and not waves.zeros and not waves.cosine_first
    plain = plain and waves.padding_index is None and rates.factor == 1.0 and not waves.real
    return "add_sinusoidal" if plain else "add_sinusoid"


def bind_sinusoidal(inputs, outputs, axes, rule, rates, waves, scale: float, stream: bool, threads: int):
    """A launch that adds sinusoids to each input times ``scale``."""
    x, dtype, axes = inputs[0], inputs[0].dtype.name, _shared(axes, rule)
    permuted, operation = not waves.interleaved, sinusoid_of(rates, waves)
    clock = words, residuals, turns = numba_rates.clock(rates, dtype, permuted)
    near = numba_rates.near(rates, dtype, permuted)
    first, second = waves.cosines if waves.cosine_first else 0, 0 if waves.cosine_first else waves.sines
    head = _sizes(x, axes, numba_add.MAX_BLOCK, threads) | {
        numba_record.WORDS: words.ctypes.data,
        numba_record.RESIDUALS: residuals.ctypes.data,
        numba_record.FREQUENCIES: turns.ctypes.data,
        numba_record.PAIRS: waves.sines,
        numba_record.COSINES: waves.cosines,
        numba_record.SINE_AT: first * x.itemsize,
        numba_record.COSINE_AT: second * x.itemsize,
        numba_record.PADDING: waves.padding_index is not None,
        numba_record.PADDING_INDEX: waves.padding_index or 0,
        numba_record.FACTOR: _factor(rates.factor),
        numba_record.EMBEDDING_SCALE: _factor(scale),
        numba_record.NEIGHBOURS: near.ctypes.data,
    }
    records = _each(inputs, outputs, axes, rule, head)
    stream = stream and operation == "add_sinusoidal" and _streamable(outputs, axes, waves.sines)
    return Launch(compiled(operation, dtype, waves.interleaved), stream, records, *clock, near)


def bind_learned(inputs, outputs, axes, rule, table, offset: int, stream: bool, threads: int) -> Launch:
    """A launch that adds rows of ``table`` (C-contiguous, of the inputs' type or their compute type)."""
    x, dtype, axes = inputs[0], inputs[0].dtype.name, _shared(axes, rule)
    head = _sizes(x, axes, numba_add.MAX_BLOCK, threads) | {
        numba_record.EMBEDDING_SCALE: _factor(1.0),
        numba_record.TABLE: table.ctypes.data,
        numba_record.TABLE_STRIDE: table.strides[0],
        numba_record.TABLE_OFFSET: offset,
    }
    stream = stream and _streamable(outputs, axes, 0)
    records = _each(inputs, outputs, axes, rule, head)
    return Launch(compiled("add_learned", dtype, table.dtype.name), stream, records, table)
