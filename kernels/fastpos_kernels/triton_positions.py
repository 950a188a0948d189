"""Where tokens stand, read inside the kernels: a rule and a number or two, never an array made for the call."""

import triton
import triton.language as tl

from .rules import IDS as IDS_RULE
from .rules import START as START_RULE
from .rules import STARTS as STARTS_RULE

IDS, START, STARTS = tl.constexpr(IDS_RULE), tl.constexpr(START_RULE), tl.constexpr(STARTS_RULE)


@triton.jit
def _document_of(boundaries, documents, token, inside):
    """Index of the document that holds each token: the last one that begins at or before it.

    It stays below ``documents`` whatever the boundaries hold, for boundaries on a device are not looked at before.
    """
    low = token * 0
    high = low + documents
    length = documents
    while length > 0:
        middle = (low + high) >> 1
        later = tl.load(boundaries + middle, mask=inside, other=0) > token
        high = tl.where(later, middle, high)
        low = tl.where(later, low, middle)
        length = length >> 1
    return low


@triton.jit
def positions_of(
    rule: tl.constexpr,
    started: tl.constexpr,
    where,
    starts,
    start,
    documents,
    batch_stride,
    token_stride,
    batch,
    token,
    inside,
):
    """``int64`` positions of tokens ``token`` of batch rows ``batch``; strides are in elements of ``where``.

    ``start`` is the number that rule START has in place of ``where``; ``started`` says whether documents have ``starts``.
    Of positions with several axes it gives the first, and of real ones the whole part.
    """
    if rule == START:
        position = start.to(tl.int64) + token
    elif rule == STARTS:
        position = tl.load(where + batch.to(tl.int64) * batch_stride, mask=inside, other=0).to(tl.int64) + token
    elif rule == IDS:
        at = batch.to(tl.int64) * batch_stride + token.to(tl.int64) * token_stride
        position = tl.load(where + at, mask=inside, other=0).to(tl.int64)
    else:
        document = _document_of(where, documents, token, inside)
        position = token - tl.load(where + document, mask=inside, other=0).to(tl.int64)
        if started:
            position += tl.load(starts + document, mask=inside, other=0).to(tl.int64)
    return position


@triton.jit
def rows_of_ids(batch_stride, token_stride, batch, token):
    """Where ids, and fractions beside them, of some tokens lie: elements from the first."""
    return batch.to(tl.int64) * batch_stride + token.to(tl.int64) * token_stride
