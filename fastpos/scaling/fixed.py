"""Scalings with a formula for each pair alone."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal

from .. import fields
from .rule import Scaling, original_length


@dataclass(frozen=True)
class Linear(Scaling):
    """Position interpolation, ``w'_i = w_i / s`` (Chen et al. 2023, arXiv:2306.15595; ``linear`` in configs).

    Examples
    --------
    >>> Linear(4.0)
    Linear(factor=4.0)
    """

    factor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", fields.positive("factor", self.factor))

    @property
    def keeps_ratios(self) -> bool:
        """True."""
        return True

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        factor = Decimal(self.factor)
        return [frequency / factor for frequency in plain]


@dataclass(frozen=True)
class AttentionFactor(Scaling):
    """Frequencies as they are, and a factor: ``w'_i = w_i``, A = ``attention_factor``.

    For a rotation whose ``inv_freq`` are scaled already, as those that a model of transformers holds beside its
    ``attention_scaling``.

    Examples
    --------
    >>> AttentionFactor(1.19).attention_scaling
    1.19
    """

    attention_factor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "attention_factor", fields.positive("attention_factor", self.attention_factor))

    @property
    def attention_scaling(self) -> float:
        return self.attention_factor

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        return list(plain)


@dataclass(frozen=True)
class Llama3(Scaling):
    """Pairs with long waves slowed down, those with short waves kept, a ramp between (Llama 3.1, Meta 2024; ``llama3``).

    With the wavelength 2 pi / w_i tokens:

        x_i = (L0 / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor), within 0 to 1
        w'_i = (1 - x_i) w_i / s + x_i w_i

    With equal factors (Llama 4) there is no ramp: a pair with fewer turns in L0 is slowed down, one with as many is not.

    Examples
    --------
    >>> Llama3(8.0, 8192).high_freq_factor
    4.0
    """

    factor: float
    original_max_position_embeddings: int
    _: KW_ONLY
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", fields.at_least("factor", self.factor, 1))
        object.__setattr__(
            self, "original_max_position_embeddings", original_length(self.original_max_position_embeddings)
        )
        for name in ("low_freq_factor", "high_freq_factor"):
            object.__setattr__(self, name, fields.positive(name, getattr(self, name)))
        if self.high_freq_factor < self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor: expected at least low_freq_factor = {self.low_freq_factor:g}, "
                f"got {self.high_freq_factor:g}"
            )

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        factor, context = Decimal(self.factor), Decimal(self.original_max_position_embeddings)
        low, high = Decimal(self.low_freq_factor), Decimal(self.high_freq_factor)

        def scaled(frequency: Decimal) -> Decimal:
            turns = context * abs(frequency) / two_pi
            if high == low:
                return frequency if turns >= low else frequency / factor
            kept = min(max((turns - low) / (high - low), Decimal(0)), Decimal(1))
            return (1 - kept) * frequency / factor + kept * frequency

        return [scaled(frequency) for frequency in plain]


@dataclass(frozen=True)
class Proportional(Scaling):
    """The fastest pairs of a whole head turn, the others stand still (p-RoPE, Barbero et al. 2024, arXiv:2410.06205; Gemma 4).

        k = floor(r d / 2);   w'_i = w_i / s for i < k, else 0

    with r ``partial_rotary_factor`` and d the whole ``head_dim``: other than with ``rotary_dim``, exponents are over
    ``head_dim`` and the channels that turn lie in both halves (``proportional`` in configs).

    Examples
    --------
    >>> Proportional(0.25)
    Proportional(partial_rotary_factor=0.25, factor=1.0)
    """

    partial_rotary_factor: float = 1.0
    _: KW_ONLY
    factor: float = 1.0

    def __post_init__(self) -> None:
        share = fields.positive("partial_rotary_factor", self.partial_rotary_factor, 1)
        object.__setattr__(self, "partial_rotary_factor", share)
        object.__setattr__(self, "factor", fields.positive("factor", self.factor))

    def check(self, base: float | None, rotary_dim: int, head_dim: int) -> None:
        if rotary_dim != head_dim:
            raise ValueError(f"rotary_dim: expected head_dim = {head_dim} with Proportional, got {rotary_dim}")

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        turning = int(self.partial_rotary_factor * 2 * len(plain) // 2)
        factor = Decimal(self.factor)
        return [frequency / factor if pair < turning else Decimal(0) for pair, frequency in enumerate(plain)]
