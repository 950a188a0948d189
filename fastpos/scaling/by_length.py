"""Scalings whose frequencies go by the length of the sequence."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal, localcontext

from .. import fields
from .rule import DIGITS_28, MOST_TOKENS, Scaling, attention_factor, chosen_length, original_length


@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """A base that grows with the sequence (bloc97 and emozilla, 2023; ``dynamic`` in configs).

    With n the sequence's length or L, whichever is more, and g = s n / L - (s - 1):

        b' = b * g ** (d / (d - 2));   w'_i = b' ** (-2 i / d) = w_i * g ** (-2 i / (d - 2))

    In print in Peng et al. 2023, arXiv:2309.00071. Keys in a cache keep the base of the length they were rotated at.

    Parameters
    ----------
    factor, max_position_embeddings
        s, at least 1, and L.
    length
        None: each sequence has the frequencies of its own length (``apply(..., seq_lens=)``). A number: all have those
        of this length.

    Examples
    --------
    >>> DynamicNTK(2.0, 4096).at_length(6000)
    DynamicNTK(factor=2.0, max_position_embeddings=4096, length=6000)
    """

    factor: float
    max_position_embeddings: int
    _: KW_ONLY
    length: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", fields.at_least("factor", self.factor, 1))
        trained = fields.integer("max_position_embeddings", self.max_position_embeddings, 1, MOST_TOKENS)
        object.__setattr__(self, "max_position_embeddings", trained)
        object.__setattr__(self, "length", chosen_length(self.length))

    @property
    def by_length(self) -> bool:
        return self.length is None

    def chosen(self, length: int) -> int:
        return length if length > self.max_position_embeddings else self.max_position_embeddings

    def at_length(self, length: int) -> "DynamicNTK":
        return replace(self, length=self.chosen(length))

    def check(self, base: float | None, rotary_dim: int, head_dim: int) -> None:
        if rotary_dim == 2:
            raise ValueError("scaling: DynamicNTK divides by rotary_dim - 2, expected a rotary_dim above 2, got 2")

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        assert self.length is not None, "a clock belongs to one length"
        factor, trained = Decimal(self.factor), Decimal(self.max_position_embeddings)
        growth = factor * max(self.length, self.max_position_embeddings) / trained - (factor - 1)
        step = growth.ln() / (1 - len(plain))
        return [frequency * (step * pair).exp() for pair, frequency in enumerate(plain)]


@dataclass(frozen=True)
class LongRoPE(Scaling):
    """A divisor for each pair, one list for sequences up to L0 and one for longer ones (Ding et al. 2024, arXiv:2402.13753).

        w'_i = w_i / e_i, with e ``long_factor`` for a sequence of more than L0 tokens, else ``short_factor``
        A = ``attention_factor`` where given; else sqrt(1 + ln s / ln L0), 1 for s = 1

    (``longrope`` in configs; ``su`` in older ones). Transformers chooses the list for a whole batch by its largest
    position; here each sequence goes by its own length. Keys cached with one list do not fit the other.

    Parameters
    ----------
    short_factor, long_factor
        ``rotary_dim / 2`` divisors each.
    original_max_position_embeddings, factor
        L0 and s = L / L0, at least 1.
    attention_factor
        A itself.
    length
        None: each sequence has the list of its own length (``apply(..., seq_lens=)``). A number: all have that of this
        length.

    Examples
    --------
    >>> LongRoPE([1.0, 1.0], [2.0, 4.0], 4096, 32.0).at_length(5000).length
    4097
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float
    _: KW_ONLY
    attention_factor: float | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        for name in ("short_factor", "long_factor"):
            object.__setattr__(self, name, fields.positives(name, getattr(self, name)))
        # The logarithm of L0 divides.
        object.__setattr__(
            self, "original_max_position_embeddings", original_length(self.original_max_position_embeddings, 2)
        )
        object.__setattr__(self, "factor", fields.at_least("factor", self.factor, 1))
        object.__setattr__(self, "attention_factor", attention_factor(self.attention_factor))
        object.__setattr__(self, "length", chosen_length(self.length))

    @property
    def by_length(self) -> bool:
        return self.length is None

    def chosen(self, length: int) -> int:
        trained = self.original_max_position_embeddings
        return trained + 1 if length > trained else trained

    def at_length(self, length: int) -> "LongRoPE":
        return replace(self, length=self.chosen(length))

    @property
    def attention_scaling(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        with localcontext(DIGITS_28):
            context = Decimal(self.original_max_position_embeddings)
            return float((1 + Decimal(self.factor).ln() / context.ln()).sqrt())

    def check(self, base: float | None, rotary_dim: int, head_dim: int) -> None:
        for name, divisors in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
            if len(divisors) != rotary_dim // 2:
                raise ValueError(f"{name}: expected rotary_dim / 2 = {rotary_dim // 2} numbers, got {len(divisors)}")

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        assert self.length is not None, "a clock belongs to one length"
        divisors = self.long_factor if self.length > self.original_max_position_embeddings else self.short_factor
        return [frequency / Decimal(divisor) for frequency, divisor in zip(plain, divisors, strict=True)]
