"""Where tokens stand, read inside the kernels: a rule and a number or two, never an array made for the call."""

from numba import njit

from .numba_bytes import read_int, read_short_int, write_int
from .numba_record import (
    AXES,
    BLOCK,
    DOCUMENTS,
    IDS_AXIS_STRIDE,
    IDS_BATCH_STRIDE,
    IDS_ITEMSIZE,
    IDS_TOKEN_STRIDE,
    REAL,
    RULE,
    WORD,
    data_address,
    field,
)
from .rules import IDS, PACKED, START, STARTS

MAX_BLOCK = 128
# Positions of a block, by axis; fractions of real-valued ones lie so many bytes further.
POSITION_BYTES = MAX_BLOCK * WORD
PLACE_BYTES = 2 * POSITION_BYTES


@njit
def _document_of(boundaries, documents, token):
    """Index of the document that holds ``token``: the last one that begins at or before it."""
    low, high = 0, documents
    while high - low > 1:
        middle = (low + high) // 2
        if field(boundaries, middle) <= token:
            low = middle
        else:
            high = middle
    return low


@njit
def fill_positions(record, where, starts, batch, first, count, out):
    """Write the positions of the tokens ``first .. first + count`` of a batch row as ``int64`` at ``out``."""
    rule = field(record, RULE)
    if rule == START or rule == STARTS:
        begin = where if rule == START else field(data_address(record, where), batch)
        for i in range(count):
            write_int(out + i * WORD, begin + first + i)
    elif rule == IDS:
        ids = data_address(record, where) + batch * field(record, IDS_BATCH_STRIDE)
        stride, short = field(record, IDS_TOKEN_STRIDE), field(record, IDS_ITEMSIZE) == 4
        for i in range(count):
            at = ids + (first + i) * stride
            write_int(out + i * WORD, read_short_int(at) if short else read_int(at))
    elif rule == PACKED:
        boundaries, documents = data_address(record, where), field(record, DOCUMENTS)
        document = _document_of(boundaries, documents, first)
        for i in range(count):
            token = first + i
            while field(boundaries, document + 1) <= token:
                document += 1
            begin = field(data_address(record, starts), document) if starts else 0
            write_int(out + i * WORD, begin + token - field(boundaries, document))


@njit
def fill_coordinates(record, where, starts, batch, first, count, out):
    """Write whole parts of the tokens' coordinates, BLOCK words an axis, and fractions of real-valued ones behind them."""
    fill_positions(record, where, starts, batch, first, count, out)
    pitch, axes, real = field(record, BLOCK) * WORD, field(record, AXES), field(record, REAL)
    stride, short = field(record, IDS_TOKEN_STRIDE), field(record, IDS_ITEMSIZE) == 4
    for axis in range(axes):
        away = axis * field(record, IDS_AXIS_STRIDE) + batch * field(record, IDS_BATCH_STRIDE) + first * stride
        for i in range(count):
            to = out + axis * pitch + i * WORD
            if axis:
                at = data_address(record, where) + away + i * stride
                write_int(to, read_short_int(at) if short else read_int(at))
            if real:
                write_int(to + POSITION_BYTES, read_int(data_address(record, starts) + away + i * stride))
