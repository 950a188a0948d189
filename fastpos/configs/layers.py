"""Which layers there are: their types, and which of them rotate."""

from dataclasses import dataclass
from typing import Any

from .. import fields
from .families import Family
from .values import Values

HEAD_DIM, WINDOW = "head_dim", "sliding_window"
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Layer:
    """What tells one layer's rotation from another's.

    Attributes
    ----------
    type
        As in ``layer_types``; empty where layers have none.
    turns
        Whether it rotates at all.
    head_dim
        Its own, where it has one.
    """

    type: str = ""
    turns: bool = True
    head_dim: int | None = None


def layers_of(config: Values, family: Family) -> tuple[Layer, ...]:
    """Every layer; none where their number is not known and they do not differ."""
    count = config.integer(family.name("num_hidden_layers"))
    if count is None:
        if family.by_layer or family.pattern or family.still_layers:
            config.needed(family.name("num_hidden_layers"), "its layers differ")
        return ()
    types = _types(config, family, count)
    turning = _turning(config, family, types)
    own = _own_head_dims(config, family, types)
    return tuple(Layer(*layer) for layer in zip(types, turning, own, strict=True))


def _row(config: Values, key: str, count: int) -> list[Any] | None:
    """A list with an entry for each layer."""
    found = config.row(key)
    if found and len(found) != count:
        raise ValueError(f"{config.name(key)}: expected num_hidden_layers = {count} entries, got {len(found)}")
    return found or None


def _types(config: Values, family: Family, count: int) -> list[str]:
    said = _row(config, "layer_types", count)
    pattern = family.pattern
    if said is not None:
        known = (*family.by_layer,) if family.by_layer else (FULL, SLIDING) if pattern else ()
        for name in said:
            if not isinstance(name, str):
                raise TypeError(f"{config.name('layer_types')}: expected strings, got {name!r}")
            if known and name not in known:
                raise ValueError(f"{config.name('layer_types')}: expected each of {', '.join(known)}, got {name!r}")
        return said
    if pattern is None:
        return [""] * count
    if family.still_layers == "hybrid" and config.cleared(WINDOW):
        return [FULL] * count
    return pattern.types((config.integer(pattern.key) if pattern.key else None) or pattern.every, count)


def _turning(config: Values, family: Family, types: list[str]) -> list[bool]:
    if family.still_layers == "list":
        interval = config.integer("no_rope_layer_interval") or 4
        marks = _row(config, "no_rope_layers", len(types))
        if marks is None:
            return [(layer + 1) % interval != 0 for layer in range(len(types))]
        return [
            mark if isinstance(mark, bool) else fields.integer(config.name("no_rope_layers"), mark, 0, 1) == 1
            for mark in marks
        ]
    if not family.still_layers or (family.still_layers == "hybrid" and config.cleared(WINDOW)):
        return [True] * len(types)
    return [name == SLIDING and not config.cleared(WINDOW) for name in types]


def _own_head_dims(config: Values, family: Family, types: list[str]) -> list[int | None]:
    wide = family.wide_layers
    if not wide:
        return [None] * len(types)
    overrides = config.level("per_layer_config")
    if overrides is None:
        own = config.integer(wide) or family.wide_head_dim
        return [own if name == FULL else None for name in types]

    own_dims: list[int | None] = [None] * len(types)
    for key in overrides.content:
        # transformers fills keys up with zeros ("05").
        if not key.isdecimal() or int(key) >= len(types):
            raise ValueError(f"{config.name('per_layer_config')}: expected indices of layers, got {key!r}")
        level = overrides.level(key)
        own_dims[int(key)] = None if level is None else level.integer(HEAD_DIM)
    return own_dims
