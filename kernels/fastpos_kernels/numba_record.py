"""The record of a call: everything about it that does not change from one call of a plan to the next.

A kernel takes one address of such a record (``int64`` words), the arrays, and where the tokens stand. Arrays come as the
``id`` of a NumPy array, not as an address: asking NumPy for the address costs 0.9 us each, twice the whole kernel of a
decoded token, while the kernel finds it in the array's header for nothing. There it also compares type, dtype, flags,
shape and strides with those the plan was made for, so that Python need not read them either (0.6 us). The header's
layout is part of NumPy's binary interface; ``header_is_known`` makes sure of it on the running interpreter.
With ``DATA_OFFSET`` 0 the arguments are plain addresses, and there is nothing to compare.
"""

import numpy as np
from numba import njit

from .numba_bytes import read_int, read_short_int
from .rules import DONE, MISMATCH, OVERLAP

WORD = 8

# Words of the head.
(
    DATA_OFFSET,
    ARRAYS,
    IN_PLACE,
    RULE,
    BATCH,
    TOKENS,
    IDS_BATCH_STRIDE,
    IDS_TOKEN_STRIDE,
    IDS_ITEMSIZE,
    IDS_AXIS_STRIDE,
    AXES,
    REAL,
    DOCUMENTS,
    BLOCK,
    GRAB,
    WIDTH,
    WORDS,
    RESIDUALS,
    FREQUENCIES,
    SECTIONS,
    LEAD,
    PAIRS,
    PADDED,
    FACTOR,
    QUERY,
    _,
    _,
    _,
    _,
    NEIGHBOURS,
    TABLE,
    TABLE_STRIDE,
    TABLE_OFFSET,
    EMBEDDING_SCALE,
    COSINES,
    SINE_AT,
    COSINE_AT,
    PADDING,
    PADDING_INDEX,
    HEAD,
) = range(40)

# Words of one array operand (the input of a pair, then its output).
TYPE, DTYPE, RANK, MUST_BE, LOW, HIGH, STRIDE_B, STRIDE_T, STRIDE_H, HEADS, SHAPE = range(11)
MAX_RANK = 8
OPERAND = SHAPE + 2 * MAX_RANK


WRITEABLE = 0x400
# What a kernel does about operands: compare their headers and look for overlaps, then run; look for overlaps, then run;
# run; look for overlaps alone (before threads share the work).
COMPARE, CHECK, CHECKED, CHECK_ONLY = range(4)


def operand(array: np.ndarray, strides, heads: int, writeable: bool) -> np.ndarray:
    """The words of one array; ``strides`` are those of (batch, token, head) in bytes."""
    words = np.zeros(OPERAND, np.int64)
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    words[TYPE], words[DTYPE], words[RANK] = id(type(array)), id(array.dtype), array.ndim
    words[MUST_BE] = WRITEABLE if writeable else 0
    words[LOW] = sum(min(span, 0) for span in spans)
    words[HIGH] = sum(max(span, 0) for span in spans) + array.itemsize
    words[STRIDE_B], words[STRIDE_T], words[STRIDE_H] = strides
    words[HEADS] = heads
    words[SHAPE : SHAPE + array.ndim] = array.shape
    words[SHAPE + MAX_RANK : SHAPE + MAX_RANK + array.ndim] = array.strides
    return words


@njit
def field(record, index):
    return read_int(record + index * WORD)


@njit
def operand_of(record, pair, output):
    return record + (HEAD + (2 * pair + output) * OPERAND) * WORD


@njit
def data_address(record, array):
    """The address of an array's first element."""
    offset = field(record, DATA_OFFSET)
    return read_int(array + offset) if offset else array


@njit
def _matches(record, pair, output, array):
    """Whether the array's header is the one that the plan was made for."""
    words, header = operand_of(record, pair, output), array + field(record, DATA_OFFSET)
    if field(array + field(record, DATA_OFFSET) - WORD, 0) != field(words, TYPE):
        return False
    rank = field(words, RANK)
    if read_short_int(header + 8) != rank or field(header, 5) != field(words, DTYPE):
        return False
    must_be = field(words, MUST_BE)
    if read_short_int(header + 48) & must_be != must_be:
        return False
    shape, strides = field(header, 2), field(header, 3)
    for axis in range(rank):
        if field(shape, axis) != field(words, SHAPE + axis):
            return False
        if field(strides, axis) != field(words, SHAPE + MAX_RANK + axis):
            return False
    return True


@njit
def _apart(record, pair, output, array, other_pair, other_output, other):
    one, two = operand_of(record, pair, output), operand_of(record, other_pair, other_output)
    here, there = data_address(record, array), data_address(record, other)
    return here + field(one, HIGH) <= there + field(two, LOW) or there + field(two, HIGH) <= here + field(one, LOW)


@njit
def check(record, x0, y0, x1, y1, compare):
    """DONE when the arrays fit the record and no output can touch another operand; nothing is written before."""
    two, in_place = field(record, ARRAYS) == 2, field(record, IN_PLACE) != 0
    if compare:
        if not _matches(record, 0, 1, y0) or (two and not _matches(record, 1, 1, y1)):
            return MISMATCH
        if not in_place and (not _matches(record, 0, 0, x0) or (two and not _matches(record, 1, 0, x1))):
            return MISMATCH
    if two and not _apart(record, 0, 1, y0, 1, 1, y1):
        return OVERLAP
    if not in_place:
        if not _apart(record, 0, 0, x0, 0, 1, y0):
            return OVERLAP
        if two and not (
            _apart(record, 1, 0, x1, 1, 1, y1)
            and _apart(record, 0, 0, x0, 1, 1, y1)
            and _apart(record, 1, 0, x1, 0, 1, y0)
        ):
            return OVERLAP
    return DONE


@njit
def _probe(array, offset):
    header = array + offset
    shape, strides = field(header, 2), field(header, 3)
    return (
        field(header - WORD, 0),
        field(header, 0),
        read_short_int(header + 8),
        field(shape, 1),
        field(strides, 0),
        field(header, 5),
        read_short_int(header + 48),
    )


def header_is_known() -> bool:
    """Whether a NumPy array's header lies in memory as this module believes."""
    array = np.zeros((2, 3), np.float32)
    found = _probe(id(array), object.__basicsize__)
    return found[:6] == (
        id(np.ndarray),
        array.__array_interface__["data"][0],
        2,
        3,
        12,
        id(array.dtype),
    ) and bool(found[6] & WRITEABLE)
