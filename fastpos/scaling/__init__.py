"""Frequency scalings: rules from the plain frequencies of a rotation to those a model was trained with, and one factor.

Letters of formulas: i pair, d ``rotary_dim``, b ``base``, s ``factor``, ``w_i = b ** (-2 i / d)`` the plain frequency in
radians a token, w'_i the scaled one, L0 ``original_max_position_embeddings``, L ``max_position_embeddings``, A what
cosines and sines are multiplied with (1 where nothing else is said), ln the natural logarithm.
"""

from typing import TYPE_CHECKING, Any

from .rule import Scaling

if TYPE_CHECKING:
    from .by_length import DynamicNTK, LongRoPE
    from .fixed import AttentionFactor, Linear, Llama3, Proportional
    from .yarn import YaRN

__all__ = ["AttentionFactor", "DynamicNTK", "Linear", "Llama3", "LongRoPE", "Proportional", "Scaling", "YaRN"]

# Where each rule is. They are imported when one is asked for: all of them take 9 ms, a quarter of ``import fastpos``.
_ROOMS = {
    "by_length": ("DynamicNTK", "LongRoPE"),
    "fixed": ("AttentionFactor", "Linear", "Llama3", "Proportional"),
    "yarn": ("YaRN",),
}


def __getattr__(name: str) -> Any:
    """A rule, by its name."""
    for room, names in _ROOMS.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is there, and what is imported when it is asked for."""
    return sorted({*globals(), *__all__})
