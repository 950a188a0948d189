"""From the parameters of a rotation, as configs spell them, to a scaling: one function for each ``rope_type``."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..scaling import DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN
from .values import Values

LENGTH = "max_position_embeddings"
ORIGINAL = "original_max_position_embeddings"


def warn(text: str) -> None:
    """Say what a user should know about a config that can be honoured."""
    warnings.warn(text, UserWarning, stacklevel=2)


@dataclass(frozen=True)
class Lengths:
    """How long sequences may be, as a config's top level says it.

    Attributes
    ----------
    config
        The top level.
    key
        Its spelling of ``max_position_embeddings``.
    """

    config: Values
    key: str

    def longest(self, why: str) -> int:
        """L."""
        return self.config.needed_integer(self.key, why)

    def original(self, rope: Values) -> int:
        """L0: beside the parameters, among them, or L where it is not said."""
        beside, inside = self.config.integer(ORIGINAL), rope.integer(ORIGINAL)
        if beside is not None and inside is not None and beside != inside:
            raise ValueError(
                f"{rope.name(ORIGINAL)}: expected {self.config.name(ORIGINAL)} = {beside}, which stands beside, got {inside}"
            )
        found = inside if beside is None else beside
        if found is None:
            return self.longest(f"{rope.name(ORIGINAL)} is not said")
        longest = self.config.integer(self.key)
        if longest is not None and found > longest:
            raise ValueError(
                f"{rope.name(ORIGINAL)}: expected at most {self.config.name(self.key)} = {longest}, got {found}"
            )
        return found

    def growth(self, rope: Values) -> float:
        """L / L0."""
        return self.longest(f"{rope.name('factor')} is not said") / self.original(rope)


def _factor(rope: Values) -> float:
    return rope.needed_number("factor", "its rope_type divides by it", low=1)


def _default(rope: Values, lengths: Lengths) -> None:
    return None


def _linear(rope: Values, lengths: Lengths) -> Scaling:
    return Linear(_factor(rope))


def _dynamic(rope: Values, lengths: Lengths) -> Scaling:
    return DynamicNTK(_factor(rope), lengths.longest("the base grows beyond it"))


def _yarn_factor(rope: Values, lengths: Lengths) -> float:
    if "factor" in rope.content and rope.get("factor") is None:
        return lengths.growth(rope)
    factor, original = _factor(rope), lengths.original(rope)
    longest = lengths.config.integer(lengths.key)
    if longest not in (None, original) and longest != factor * original:
        warn(
            f"{rope.name('factor')}: {factor:g} is used, but {lengths.config.name(lengths.key)} / {ORIGINAL} = "
            f"{longest} / {original}"
        )
    return factor


def _yarn(rope: Values, lengths: Lengths) -> Scaling:
    mscale, mscale_all_dim = (rope.number(key, low=0) for key in ("mscale", "mscale_all_dim"))
    attention_factor = rope.number("attention_factor")
    # In the configs of YaRN's own authors; it tells their training code something.
    rope.flag("finetuned", True)
    if attention_factor is None and bool(mscale) != bool(mscale_all_dim):
        key = "mscale" if mscale else "mscale_all_dim"
        warn(f"{rope.name(key)}: transformers heeds mscale and mscale_all_dim only together, so this has no effect")
    return YaRN(
        _yarn_factor(rope, lengths),
        lengths.original(rope),
        # 0 means the default, as null does.
        beta_fast=rope.number("beta_fast", low=0) or 32.0,
        beta_slow=rope.number("beta_slow", low=0) or 1.0,
        truncate=rope.flag("truncate", True),
        attention_factor=attention_factor,
        mscale=mscale,
        mscale_all_dim=mscale_all_dim,
    )


def _deepseek_yarn(rope: Values, lengths: Lengths) -> Scaling:
    mscale, mscale_all_dim = rope.number("mscale", 1.0, low=0), rope.number("mscale_all_dim", low=0)
    return YaRN.deepseek(
        _yarn_factor(rope, lengths),
        lengths.original(rope),
        mscale=1.0 if mscale is None else mscale,
        mscale_all_dim=mscale_all_dim or 0.0,
        beta_fast=rope.number("beta_fast", low=0) or 32.0,
        beta_slow=rope.number("beta_slow", low=0) or 1.0,
    )


def _longrope(rope: Values, lengths: Lengths) -> Scaling:
    rows = {}
    for key in ("short_factor", "long_factor"):
        rope.needed(key, "its rope_type divides frequencies by it")
        rows[key] = rope.row(key)
    factor = rope.number("factor", low=1)
    attention_factor = rope.number("attention_factor")
    short, long = rope.number("short_mscale"), rope.number("long_mscale")
    if short != long:
        raise ValueError(
            f"{rope.name('long_mscale')}: expected {rope.name('short_mscale')} = {short}, for the factor is one for all "
            f"lengths, got {long}"
        )
    if short is not None and attention_factor not in (None, short):
        raise ValueError(
            f"{rope.name('attention_factor')}: expected {rope.name('short_mscale')} = {short}, got {attention_factor}"
        )
    return LongRoPE(
        tuple(rows["short_factor"] or ()),
        tuple(rows["long_factor"] or ()),
        lengths.original(rope),
        lengths.growth(rope) if factor is None else factor,
        attention_factor=short if attention_factor is None else attention_factor,
    )


def _llama3(rope: Values, lengths: Lengths) -> Scaling:
    why = "its rope_type counts turns"
    low, high = (rope.needed_number(key, why) for key in ("low_freq_factor", "high_freq_factor"))
    return Llama3(_factor(rope), lengths.original(rope), low_freq_factor=low, high_freq_factor=high)


def _proportional(rope: Values, lengths: Lengths) -> Scaling:
    share = rope.number("partial_rotary_factor", 1.0)
    return Proportional(share or 1.0, factor=rope.number("factor", 1.0, low=1) or 1.0)


RULES: Mapping[str, Callable[[Values, Lengths], Scaling | None]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "deepseek_yarn": _deepseek_yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def rope_type(rope: Values, aliases: Mapping[str, str]) -> str:
    """The name of the rule, of ``rope_type`` or, as it once was, ``type``."""
    said = {key: found for key in ("rope_type", "type") if (found := rope.text(key)) is not None}
    names = {key: aliases.get(found, found) for key, found in said.items()}
    if len(set(names.values())) > 1:
        raise ValueError(
            f"{rope.name('type')}: expected {rope.name('rope_type')} = {said['rope_type']!r}, got {said['type']!r}"
        )
    name = next(iter(names.values()), "default")
    if name not in RULES:
        key = next(iter(said))
        raise ValueError(f"{rope.name(key)}: expected one of {', '.join(RULES)}, got {said[key]!r}")
    return name
