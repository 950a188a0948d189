"""What a scaling is: a rule that turns frequencies into frequencies, and one factor."""

from collections.abc import Sequence
from decimal import Context, Decimal

from .. import fields

MOST_TOKENS = 1 << 53
# For factors, which are rounded to float64: a caller's own context of decimal does not count.
DIGITS_28 = Context(prec=28)


class Scaling:
    """What every scaling can do; the defaults fit those with fixed frequencies and no factor."""

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        """Every w'_i, in the current context of ``decimal``, from the w_i; ``base`` is None where those were given."""
        raise NotImplementedError

    def check(self, base: float | None, rotary_dim: int, head_dim: int) -> None:
        """Refuse a rotation that the rule does not fit."""

    @property
    def attention_scaling(self) -> float:
        """A."""
        return 1.0

    @property
    def keeps_ratios(self) -> bool:
        """Whether all frequencies are scaled alike, which does not depend on where a run of them begins."""
        return False

    @property
    def by_length(self) -> bool:
        """Whether the frequencies depend on the length of the sequence, and none has been chosen."""
        return False

    def chosen(self, length: int) -> int:
        """The length that stands for all with the same frequencies as ``length``."""
        return length

    def at_length(self, length: int) -> "Scaling":
        """The rule for sequences of ``length`` tokens; equal for all lengths with the same frequencies."""
        return self


def original_length(value: object, least: int = 1) -> int:
    """L0."""
    return fields.integer("original_max_position_embeddings", value, least, MOST_TOKENS)


def attention_factor(value: object) -> float | None:
    """A, where it is given."""
    return None if value is None else fields.positive("attention_factor", value)


def chosen_length(value: object) -> int | None:
    """The length of all sequences, where it is given."""
    return None if value is None else fields.integer("length", value, 0, 1 << 62)
