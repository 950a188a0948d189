"""From a plan to the reference: arrays as (batch, token, head, channel) views, positions as an array."""

import numpy as np

from .numpy_add import add_rows, add_sinusoid
from .numpy_positions import place
from .numpy_rotate import rotate
from .rules import DONE, OVERLAP


class Launch:
    """A reference function with everything but its arrays and positions."""

    def __init__(self, function, axes, rule):
        self.function, self.axes, self.rule = function, axes, rule

    def _view(self, array: np.ndarray) -> np.ndarray:
        missing = [place for place, axis in enumerate(self.axes) if axis is None]
        kept = [axis for axis in self.axes if axis is not None]
        return np.expand_dims(array.transpose(*kept, array.ndim - 1), missing)

    def __call__(self, inputs, outputs, where, starts, threads, checked):
        if not checked:
            return OVERLAP
        for index, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
            x_view, y_view = self._view(x), self._view(y)
            at = place(self.rule, where, starts, *x_view.shape[:2])
            # Infinities and overflow are data, as they are to compiled kernels: no warning.
            with np.errstate(invalid="ignore", over="ignore"):
                self.function(x_view, y_view, at, index)
        return DONE


def bind_rotate(inputs, outputs, axes, rule, rates, head, stream: bool, threads: int) -> Launch:
    def function(x, y, at, index):
        rotate(x, y, at, rates, head, scaled=index == 0 and rates.query is not None)

    return Launch(function, axes, rule)


def bind_sinusoidal(inputs, outputs, axes, rule, rates, waves, scale: float, stream: bool, threads: int):
    def function(x, y, at, index):
        add_sinusoid(x[:, :, 0], y[:, :, 0], at, rates, waves, scale)

    return Launch(function, axes, rule)


def bind_learned(inputs, outputs, axes, rule, table, offset: int, stream: bool, threads: int) -> Launch:
    def function(x, y, at, index):
        add_rows(x[:, :, 0], y[:, :, 0], at.whole, table, offset)

    return Launch(function, axes, rule)
