"""The rotation of one layer, from a config's values and what its family's code does."""

from collections.abc import Mapping

from .. import fields
from ..axes import Axes
from ..encodings import Rotary
from ..queries import Llama4Scale, MinistralScale
from ..scaling import Proportional
from .families import Family
from .layers import HEAD_DIM, Layer
from .rules import LENGTH, RULES, Lengths, rope_type, warn
from .switches import SHARES, agree
from .values import Values

PARTIAL = "partial_rotary_factor"
# Values of position_embedding_type in configs of models that rotate; the first is BERT's, which ModernBERT still carries.
ROTARY = ("absolute", "rope", "rope_gptj", "rotary")
LEVELS = ("rope_parameters", "rope_scaling")


def describe(config: Values, family: Family, layer: Layer) -> Rotary:
    """The encoding of such a layer."""
    for rule in family.by_layer.values():
        config.get(rule.base_key)
    _check_rotary(config)
    rope, still = _parameters(config, family, layer)
    head_dim = _head_dim(config, family, layer)
    lengths = Lengths(config, family.name(LENGTH))
    kind = rope_type(rope, family.aliases)
    scaling = RULES[kind](rope, lengths)
    base = _base(config, rope, family, layer)
    rotary_dim = _rotary_dim(config, rope, family, head_dim, isinstance(scaling, Proportional))
    key = family.deinterleave_key
    # The code asks whether it is true, which null is not.
    deinterleaved = bool(key) and config.flag(key, True) and not config.cleared(key)
    axes = _axes(rope, family, rotary_dim or head_dim)
    query_scale = _query_scale(config, rope, family, layer, lengths)
    _check_length(config, rope, family)
    agree(config, family)
    _check_unread(rope, kind)
    if still or not layer.turns:
        return Rotary(head_dim, rotary_dim=0, query_scale=query_scale)
    return Rotary(
        head_dim,
        base=base,
        rotary_dim=rotary_dim,
        interleaved=family.interleaved or deinterleaved,
        deinterleaved=deinterleaved,
        scaling=scaling,
        axes=axes,
        query_scale=query_scale,
    )


def _check_rotary(config: Values) -> None:
    kind = config.text("position_embedding_type")
    if kind not in (None, *ROTARY):
        raise ValueError(f"{config.name('position_embedding_type')}: expected one of {', '.join(ROTARY)}, got {kind!r}")
    if config.flag("alibi", False):
        raise ValueError(f"{config.name('alibi')}: expected False, for a model with ALiBi does not rotate, got True")


def _parameters(config: Values, family: Family, layer: Layer) -> tuple[Values, bool]:
    """The parameters that are meant for a layer; and whether they say that it does not rotate."""
    if family.fixed_base:
        return Values({}), False
    said = [level for key in LEVELS if (level := config.level(key)) is not None and level.content]
    if len(said) == 2 and said[0].content != said[1].content:
        raise ValueError(
            f"{config.name(LEVELS[1])}: expected none beside {config.name(LEVELS[0])}, or the same, got "
            f"{dict(said[1].content)!r}"
        )
    if not said:
        return Values(family.rope.get(layer.type, family.rope.get("", {})), f"{config.name(LEVELS[0])}."), False
    (level, *_) = said
    types = {*(config.row("layer_types") or ()), *family.by_layer}
    by_type = any(key in types for key in level.content) or (
        all(value is None or isinstance(value, Mapping) for value in level.content.values())
        and any(value is not None for value in level.content.values())
    )
    if not by_type:
        rule = family.by_layer.get(layer.type)
        return (level if rule is None or rule.scaled else Values({}, level.where)), False
    for key in level.content:
        if key not in types:
            raise ValueError(
                f"{level.name(key)}: expected types of layers ({', '.join(sorted(types)) or 'there are none'}), got "
                f"{level.content[key]!r}"
            )
    if layer.type not in level.content:
        raise ValueError(f"{level.name(layer.type)}: expected parameters for layers of this type, got none")
    inner = level.level(layer.type)
    return (Values({}, level.where), True) if inner is None else (inner, False)


def _base(config: Values, rope: Values, family: Family, layer: Layer) -> float:
    if family.fixed_base:
        return family.fixed_base
    rule = family.by_layer.get(layer.type)
    key, default = (family.name("rope_theta"), None) if rule is None else (rule.base_key, rule.base)
    inside = rope.number("rope_theta", low=1)
    beside = config.number(key, low=1) if key and config.has(key) else None
    if inside is not None and beside is not None and inside != beside:
        warn(f"{rope.name('rope_theta')}: {inside:g} is used, not {beside:g} of {config.name(key)}")
    found = inside if inside is not None else beside if beside is not None else default
    if found is not None:
        return found
    return config.needed_number(key, "frequencies are its powers", low=1)


def _head_dim(config: Values, family: Family, layer: Layer) -> int:
    if layer.head_dim is not None:
        config.get(HEAD_DIM)
        return layer.head_dim
    key = family.head_dim_key
    own = None if key is None or (key == HEAD_DIM and config.cleared(key)) else config.integer(key)
    if own is not None:
        return own
    hidden, heads = family.name("hidden_size"), family.name("num_attention_heads")
    why = "heads share it" if key is None else f"{config.name(key)} is not said"
    width, count = config.needed_integer(hidden, why), config.needed_integer(heads, why)
    if width % count:
        raise ValueError(f"{config.name(hidden)}: expected a multiple of {config.name(heads)} = {count}, got {width}")
    said = config.integer(HEAD_DIM) if key is None else None
    if said not in (None, width // count):
        raise ValueError(
            f"{config.name('head_dim')}: expected {config.name(hidden)} / {config.name(heads)} = {width // count}, got {said}"
        )
    return width // count


def _rotary_dim(config: Values, rope: Values, family: Family, head_dim: int, whole: bool) -> int | None:
    if "rotary_dim" in family.defaults:
        return config.needed_integer("rotary_dim", "so many channels turn")
    if whole:
        return None
    key = family.name(PARTIAL)
    inside, beside = rope.number(PARTIAL), config.number(key)
    share = inside if inside is not None else beside
    for other in SHARES:
        config.agree(other, share or 1.0)
    if share is None or share == 1:
        return None
    name = rope.name(PARTIAL) if inside is not None else config.name(key)
    if not family.partial:
        raise ValueError(f"{name}: expected 1, for the code of this model rotates whole heads, got {share:g}")
    turning = int(head_dim * share) if share <= 1 else 0
    if turning < 2 or turning % 2:
        raise ValueError(
            f"{name}: expected a share of head_dim = {head_dim} with an even number of channels that turn, "
            f"got {share:g}"
        )
    return turning


def _axes(rope: Values, family: Family, rotary_dim: int) -> Axes | None:
    if not family.sections:
        return None
    interleaved, order = rope.get("mrope_interleaved"), family.order == "interleaved"
    if interleaved is not None and interleaved != order:
        raise ValueError(f"{rope.name('mrope_interleaved')}: expected {order} for this model, got {interleaved!r}")
    sections = tuple(
        fields.integer(rope.name("mrope_section"), section, 1, rotary_dim)
        for section in rope.row("mrope_section", family.sections) or ()
    )
    if len(sections) != 3 or sum(sections) != rotary_dim // 2:
        raise ValueError(
            f"{rope.name('mrope_section')}: expected pairs of time, height and width, {rotary_dim // 2} in all, got {sections}"
        )
    return Axes(sections, order=family.order)


def _query_scale(
    config: Values, rope: Values, family: Family, layer: Layer, lengths: Lengths
) -> Llama4Scale | MinistralScale | None:
    if family.query_scale == "ministral":
        beta = rope.number("llama_4_scaling_beta", low=0)
        return MinistralScale(beta, lengths.original(rope)) if beta else None
    if family.query_scale == "llama4" and config.flag("attn_temperature_tuning", True) and not layer.turns:
        scale, floor = config.number("attn_scale", 0.1), config.number("floor_scale", 8192.0)
        assert scale is not None
        assert floor is not None
        return Llama4Scale(scale, floor)
    return None


def _check_length(config: Values, rope: Values, family: Family) -> None:
    key = family.name(LENGTH)
    inside, beside = rope.integer(LENGTH), config.integer(key)
    if inside is not None and beside not in (None, inside):
        raise ValueError(
            f"{rope.name(LENGTH)}: expected {config.name(key)} = {beside}, which stands beside, got {inside}"
        )


def _check_unread(rope: Values, kind: str) -> None:
    for key in rope.unread():
        raise ValueError(f"{rope.name(key)}: expected no such key with rope_type {kind!r}, got {rope.content[key]!r}")
