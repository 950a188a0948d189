"""Where tokens stand, read inside the kernels: a rule and a number or two, never an array made for the call."""

from numba import njit

from .numba_bytes import read_int, read_short_int, write_int
from .numba_record import (
    DOCUMENTS,
    IDS_BATCH_STRIDE,
    IDS_ITEMSIZE,
    IDS_TOKEN_STRIDE,
    RULE,
    WORD,
    data_address,
    field,
)
from .rules import IDS, PACKED, START, STARTS


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
