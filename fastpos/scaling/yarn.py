"""YaRN, with every rule for its factor."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

from .. import fields
from .rule import DIGITS_28, Scaling, attention_factor, original_length


@dataclass(frozen=True)
class YaRN(Scaling):
    """Slow pairs interpolated, fast pairs kept, a ramp between (Peng et al. 2023, arXiv:2309.00071; ``yarn``).

    c(r) = d ln(L0 / (2 pi r)) / (2 ln b) is the pair that makes r turns in L0 tokens; low = c(``beta_fast``) and
    high = c(``beta_slow``), with ``truncate`` rounded down and up; then low is at least 0, high at most d - 1, and 0.001
    more if they are equal. With m(s, k) = 1 + 0.1 k ln s:

        g_i = (i - low) / (high - low), within 0 to 1;   w'_i = w_i (1 - g_i) + w_i / s * g_i
        A = ``attention_factor`` where given; m(s, ``mscale``) / m(s, ``mscale_all_dim``) where both are given and not 0;
            else m(s, 1)

    as transformers has it. DeepSeek multiplies the scale of its softmax by m(s, ``mscale_all_dim``) ** 2 besides: that
    belongs to the attention, and is not done here.

    Parameters
    ----------
    factor, original_max_position_embeddings
        s, at least 1, and L0.
    beta_fast, beta_slow
        Turns within L0 from which a pair is kept, and up to which it is interpolated.
    truncate
        Whether the ends of the ramp are whole pairs.
    attention_factor, mscale, mscale_all_dim
        What A comes from.

    Raises
    ------
    ValueError, TypeError
        With the value; also by ``Rotary``, for a base of at most 1, ``inv_freq`` or a ramp that ends before it begins.

    Examples
    --------
    >>> round(YaRN(16.0, 4096).attention_scaling, 6)
    1.277259
    """

    factor: float
    original_max_position_embeddings: int
    _: KW_ONLY
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", fields.at_least("factor", self.factor, 1))
        object.__setattr__(
            self, "original_max_position_embeddings", original_length(self.original_max_position_embeddings)
        )
        for name in ("beta_fast", "beta_slow"):
            object.__setattr__(self, name, fields.positive(name, getattr(self, name)))
        if self.beta_fast < self.beta_slow:
            raise ValueError(f"beta_fast: expected at least beta_slow = {self.beta_slow:g}, got {self.beta_fast:g}")
        object.__setattr__(self, "truncate", fields.flag("truncate", self.truncate))
        object.__setattr__(self, "attention_factor", attention_factor(self.attention_factor))
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, fields.at_least(name, getattr(self, name), 0))

    @classmethod
    def deepseek(
        cls,
        factor: float,
        original_max_position_embeddings: int,
        *,
        mscale: float = 1.0,
        mscale_all_dim: float = 0.0,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
    ) -> "YaRN":
        """YaRN as DeepSeek's own code has it (``deepseek_yarn``): A = m(s, mscale) / m(s, mscale_all_dim), 0 or not.

        Examples
        --------
        >>> YaRN.deepseek(40.0, 4096, mscale=0.707, mscale_all_dim=0.707).attention_factor
        1.0
        """
        rule = cls(
            factor,
            original_max_position_embeddings,
            beta_fast=beta_fast,
            beta_slow=beta_slow,
            mscale=mscale,
            mscale_all_dim=mscale_all_dim,
        )
        return replace(rule, attention_factor=rule._ratio(mscale, mscale_all_dim))

    @property
    def attention_scaling(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._ratio(self.mscale, self.mscale_all_dim)
        return self._ratio(1.0, 0.0)

    def _ratio(self, above: float, below: float) -> float:
        """m(s, above) / m(s, below)."""
        with localcontext(DIGITS_28):
            growth = Decimal(self.factor).ln() / 10
            return float((1 + Decimal(above) * growth) / (1 + Decimal(below) * growth))

    def check(self, base: float | None, rotary_dim: int, head_dim: int) -> None:
        if base is None:
            raise ValueError("scaling: YaRN finds the ends of its ramp from base, expected none beside inv_freq")
        if base <= 1:
            raise ValueError(f"base: expected above 1, for YaRN divides by its logarithm, got {base:g}")
        with localcontext(DIGITS_28):
            low, high = self._ramp(rotary_dim, Decimal(base), Decimal("6.283185307179586476925286767"))
        if low > high:
            raise ValueError(
                f"scaling: expected a ramp from a pair to a later one, got {low:.2f} to {high:.2f} of {rotary_dim // 2} "
                f"pairs with base {base:g} in {self}"
            )

    def _ramp(self, width: int, base: Decimal, two_pi: Decimal) -> tuple[Decimal, Decimal]:
        context = Decimal(self.original_max_position_embeddings)

        def pair(turns: float) -> Decimal:
            return width * (context / (two_pi * Decimal(turns))).ln() / (2 * base.ln())

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = low.to_integral_value(ROUND_FLOOR), high.to_integral_value(ROUND_CEILING)
        low, high = max(low, Decimal(0)), min(high, Decimal(width - 1))
        return low, high + Decimal("0.001") if low == high else high

    def scaled(self, plain: Sequence[Decimal], base: Decimal | None, two_pi: Decimal) -> list[Decimal]:
        assert base is not None
        low, high = self._ramp(2 * len(plain), base, two_pi)
        factor = Decimal(self.factor)
        ramps = (min(max((pair - low) / (high - low), Decimal(0)), Decimal(1)) for pair in range(len(plain)))
        return [w * (1 - ramp) + w / factor * ramp for w, ramp in zip(plain, ramps, strict=True)]
