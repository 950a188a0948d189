"""Scales that some models multiply queries with, by where they stand; fused with the rotation, as ``query_scale=``.

Each is a case of ``max(1, constant + slope * ln(1 + floor((p + offset) / length)))``, and 1 before position 0.
"""

import math
from dataclasses import dataclass

from .fields import positive

# Constant, slope, length, offset, and whether the scale itself is rounded to the data's dtype in numerics="hf".
Terms = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Llama4Scale:
    """Llama 4's temperature, ``1 + attn_scale * ln(1 + floor((p + 1) / floor_scale))`` (its layers without rotation).

    Field names are those of its config (transformers, ``modeling_llama4.py``).

    Examples
    --------
    >>> round(Llama4Scale().at(8191), 4)
    1.0693
    """

    attn_scale: float = 0.1
    floor_scale: float = 8192.0

    def __post_init__(self) -> None:
        for name in ("attn_scale", "floor_scale"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))

    @property
    def terms(self) -> Terms:
        """What kernels read."""
        return 1.0, self.attn_scale, self.floor_scale, 1.0, 0.0

    def at(self, position: int) -> float:
        """The scale of a query at ``position``."""
        return _at(self.terms, position)


@dataclass(frozen=True)
class MinistralScale:
    """Ministral 3's and Mistral 4's, ``1 + beta * ln(1 + floor(p / original_max_position_embeddings))``.

    ``beta`` is ``llama_4_scaling_beta`` of their configs (transformers, ``modeling_ministral3.py``). Queries alone: what
    some other systems multiply keys with as well is another function.

    Examples
    --------
    >>> MinistralScale(0.1, 16384).at(16383)
    1.0
    """

    beta: float
    original_max_position_embeddings: float

    def __post_init__(self) -> None:
        for name in ("beta", "original_max_position_embeddings"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))

    @property
    def terms(self) -> Terms:
        """What kernels read."""
        return 1.0, self.beta, self.original_max_position_embeddings, 0.0, 1.0

    def at(self, position: int) -> float:
        """The scale of a query at ``position``."""
        return _at(self.terms, position)


@dataclass(frozen=True)
class LogScale:
    """Log-n attention (Su 2021), ``max(1, ln(p + 1) / ln(length))``: beyond the trained ``length`` (Qwen 1, Baichuan).

    Examples
    --------
    >>> LogScale(2048).at(2047), round(LogScale(2048).at(4095), 6)
    (1.0, 1.090909)
    """

    length: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", positive("length", self.length))
        if self.length <= 1:
            raise ValueError(f"length: expected more than 1, got {self.length}")

    @property
    def terms(self) -> Terms:
        """What kernels read."""
        return 0.0, 1 / math.log(self.length), 1.0, 0.0, 1.0

    def at(self, position: int) -> float:
        """The scale of a query at ``position``."""
        return _at(self.terms, position)


QueryScale = Llama4Scale | MinistralScale | LogScale


def _at(terms: Terms, position: int) -> float:
    constant, slope, length, offset, _ = terms
    return max(1.0, constant + slope * math.log(max(1.0, 1.0 + math.floor((position + offset) / length))))
