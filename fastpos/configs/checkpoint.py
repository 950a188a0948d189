"""A checkpoint's config, and the rotations of its layers."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from .. import fields
from ..encodings import Rotary
from .families import FAMILIES, TEXT_PARTS
from .layers import Layer, layers_of
from .rotation import describe
from .switches import switches
from .values import Values, load

# Parts of key names that say that a key is about positions.
POSITION_WORDS = ("rope", "rotary", "theta", "alibi")


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """Layers that share one description.

    Attributes
    ----------
    layers
        Their indices; none where the config does not say how many there are.
    layer
        What they have in common.
    """

    layers: tuple[int, ...]
    layer: Layer

    @property
    def name(self) -> str:
        """How to speak of them."""
        kind = self.layer.type or "all"
        return kind if self.layer.turns else f"{kind}, without rotation"


class Checkpoint:
    """What a config says about positions.

    Parameters
    ----------
    config
        A dict, the path of a ``config.json`` or of its folder, or a config object of transformers.

    Raises
    ------
    ValueError, TypeError, OSError
        When it cannot be read, or is of a family that is not known.
    """

    def __init__(self, config: Any) -> None:
        content = load(config)
        top = Values(content)
        outer = top.text("model_type") or ""
        inner = top.level("text_config")
        kind = outer if inner is None else inner.text("model_type") or ""
        where = "" if inner is None else "text_config."
        if outer in TEXT_PARTS and (inner is None or not kind):
            kind = TEXT_PARTS[outer]
        if kind not in FAMILIES:
            raise ValueError(
                f"{where}model_type: expected one that fastpos knows ({', '.join(sorted({*FAMILIES, *TEXT_PARTS}))}), got "
                f"{kind!r}; for another model write what its code does, fastpos.Rotary(head_dim, base=..., interleaved=...), or "
                "let fastpos.hf.patch find it out; a learned table is read by fastpos.Learned.from_config"
            )
        self.model_type = kind
        self.family = FAMILIES[kind]
        self.values = Values(content if inner is None else inner.content, where, self.family.defaults)
        self.layers = layers_of(self.values, self.family)

    def groups(self) -> list[LayerGroup]:
        """Layers that are described alike, in the order of the first of each."""
        found: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            found.setdefault(layer, []).append(index)
        if not found:
            return [LayerGroup((), Layer())]
        return [LayerGroup(tuple(indices), layer) for layer, indices in found.items()]

    def encoding_of(self, layer: Layer) -> Rotary:
        """The rotation of such a layer.

        Raises
        ------
        ValueError, TypeError
            With the key, the value and the rule, for what cannot be honoured.
        """
        encoding = describe(self.values, self.family, layer)
        self._check_unread()
        return encoding

    def encoding(self, layer: int | str | None) -> Rotary:
        """The rotation of a layer by its index, of layers of a type, or of all."""
        chosen = list(self._chosen(layer))
        if len({one.turns for one in chosen}) == 1:
            encodings = {self.encoding_of(one) for one in chosen}
            if len(encodings) == 1:
                return encodings.pop()
        said = "; ".join(f"{group.name} ({_indices(group.layers)})" for group in self.groups() if group.layer in chosen)
        raise ValueError(
            f"layer: expected an index or a type of layers, for not all rotate alike in this {self.model_type}: {said}; "
            f"got {layer!r}"
        )

    def _chosen(self, layer: int | str | None) -> Iterator[Layer]:
        known = self.layers or (Layer(),)
        if layer is None:
            return iter(dict.fromkeys(known))
        if isinstance(layer, str):
            types = dict.fromkeys(one.type for one in known if one.type)
            if layer not in types:
                names = ", ".join(types) or "none, for its layers are all alike"
                raise ValueError(f"layer: expected an index or a type of layers ({names}), got {layer!r}")
            return iter(dict.fromkeys(one for one in known if one.type == layer))
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise TypeError(f"layer: expected an index or a type of layers, got {layer!r}")
        if not self.layers:
            raise ValueError(
                f"layer: expected None, for the config does not say how many layers there are, got {layer}"
            )
        return iter([known[fields.integer("layer", layer, 0, len(known) - 1)]])

    def _check_unread(self) -> None:
        """Refuse what the top level says about positions and nobody heeds."""
        for key in self.values.unread():
            found = self.values.content[key]
            if not any(word in key for word in POSITION_WORDS):
                continue
            right = switches(self.family).get(key)
            expected = "no such key" if right is None else f"{right} or no such key"
            raise ValueError(
                f"{self.values.name(key)}: expected {expected}, for {self.model_type} as fastpos knows it has no use for "
                f"it, got {found!r}"
            )


def _indices(layers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, layers[:8]))
    return f"layers {shown}{', ...' if len(layers) > 8 else ''}"


def rotary_from_config(config: Any, layer: int | str | None, numerics: str) -> Rotary:
    """What ``Rotary.from_config`` gives."""
    return dataclasses.replace(Checkpoint(config).encoding(layer), numerics=numerics)
