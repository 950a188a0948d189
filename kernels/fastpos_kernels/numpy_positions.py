"""Where tokens stand, as an array: what the other backends read inside their kernels."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Place:
    """Whole parts of positions, ``(b, t)`` or ``(axes, b, t)``, and the fractions of real-valued ones."""

    whole: np.ndarray
    fractions: np.ndarray | None

    @property
    def first(self) -> np.ndarray:
        """Whole positions on the first axis, ``(b, t)``."""
        return self.whole if self.whole.ndim < 3 else self.whole[0]

    def of_pairs(self, axis) -> tuple[np.ndarray, np.ndarray | None]:
        """What drives each pair: ``(b, t, pairs)``, or ``(b, t, 1)`` where all pairs go by one position."""
        both = (self.whole, self.fractions)
        if self.whole.ndim < 3:
            whole, fractions = (None if part is None else part[..., None] for part in both)
        else:
            whole, fractions = (None if part is None else np.moveaxis(part[axis], 0, -1) for part in both)
        return whole, fractions


def place(rule, where, starts, batch: int, tokens: int) -> Place:
    """Where the tokens of a call stand."""
    if rule.axes == 1:
        found = positions(rule.kind, where, None if rule.real else starts, batch, tokens)
        return Place(found, np.broadcast_to(starts, (batch, tokens)) if rule.real else None)
    shape = (rule.axes, batch, tokens)
    return Place(np.broadcast_to(where.astype(np.int64), shape), np.broadcast_to(starts, shape) if rule.real else None)
