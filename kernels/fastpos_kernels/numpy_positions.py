"""Where tokens stand, as an array: what the other backends read inside their kernels."""

import numpy as np

from .rules import PACKED, START, STARTS


def positions(kind: int, where, starts, batch: int, tokens: int) -> np.ndarray:
    """``int64`` positions, ``(batch, tokens)``."""
    steps = np.arange(tokens)
    if kind == START:
        found = where + steps
    elif kind == STARTS:
        found = where[:, None] + steps
    elif kind == PACKED:
        document = np.searchsorted(where, steps, side="right") - 1
        found = steps - where[document] + (0 if starts is None else starts[document])
    else:
        found = where.astype(np.int64)
    return np.broadcast_to(found, (batch, tokens))
