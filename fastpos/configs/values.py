"""One reader of config values: each checked and named by its place, and what nobody read is known in the end."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from .. import fields

MANY = 1 << 53


def load(config: Any) -> Mapping[str, Any]:
    """The content of a config: of a dict, of ``config.json`` or the folder it lies in, of a transformers config object."""
    if isinstance(config, Mapping):
        return config
    if isinstance(config, str | PathLike):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        if not path.exists():
            raise FileNotFoundError(
                f"config: expected the path of a config.json or of its folder, got {str(config)!r}, which is none; for a name "
                "on a hub give transformers.AutoConfig.from_pretrained(name)"
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"config: expected JSON in {path}, got something else ({error})") from error
        if isinstance(content, dict):
            return content
        raise TypeError(f"config: expected a JSON object in {path}, got a {type(content).__name__}")
    content = config.to_dict() if hasattr(config, "to_dict") else None
    if isinstance(content, dict):
        return content
    raise TypeError(
        "config: expected a dict, the path of a config.json or its folder, or a transformers config object, got a "
        f"{type(config).__module__}.{type(config).__qualname__}"
    )


class Values:
    """One level of a config; null counts as absent, but to ``cleared``.

    Parameters
    ----------
    content
        Keys and values as in the file.
    where
        What stands before a key in messages, as ``rope_scaling.``.
    defaults
        Of the model's own config class, for keys that files may lack.
    """

    def __init__(self, content: Mapping[str, Any], where: str = "", defaults: Mapping[str, Any] | None = None) -> None:
        self.content = content
        self.where = where
        self.defaults = defaults or {}
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """A value as it is."""
        self.read.add(key)
        found = self.content.get(key)
        return self.defaults.get(key, default) if found is None else found

    def name(self, key: str) -> str:
        """A key with its place."""
        return f"{self.where}{key}"

    def has(self, key: str) -> bool:
        """Whether the file itself has a value."""
        return self.content.get(key) is not None

    def cleared(self, key: str) -> bool:
        """Whether the file says null, where that is not the same as no such key: its class's default does not count."""
        return key in self.content and self.content[key] is None

    def agree(self, key: str, value: Any) -> None:
        """Count a key as read where it says what holds anyway; True is not 1."""
        found = self.content.get(key)
        if isinstance(found, bool) == isinstance(value, bool) and isinstance(found, int | float) and found == value:
            self.read.add(key)

    def needed(self, key: str, why: str) -> Any:
        """A value that must be there."""
        found = self.get(key)
        if found is None:
            raise ValueError(f"{self.name(key)}: expected a value, for {why}, got none")
        return found

    def number(self, key: str, default: float | None = None, low: float | None = None) -> float | None:
        """A number above zero, or of at least ``low``; None where there is none."""
        found = self.get(key, default)
        if found is None:
            return None
        name = self.name(key)
        return fields.positive(name, found) if low is None else fields.at_least(name, found, low)

    def needed_number(self, key: str, why: str, low: float | None = None) -> float:
        """A number that must be there."""
        self.needed(key, why)
        number = self.number(key, low=low)
        assert number is not None
        return number

    def integer(self, key: str, low: int = 1) -> int | None:
        """An integer; None where there is none."""
        found = self.get(key)
        return None if found is None else fields.integer(self.name(key), found, low, MANY)

    def needed_integer(self, key: str, why: str, low: int = 1) -> int:
        """An integer that must be there."""
        return fields.integer(self.name(key), self.needed(key, why), low, MANY)

    def flag(self, key: str, default: bool) -> bool:
        """True or False."""
        return fields.flag(self.name(key), self.get(key, default))

    def text(self, key: str) -> str | None:
        """A word; None where there is none."""
        found = self.get(key)
        if found is not None and not isinstance(found, str):
            raise TypeError(f"{self.name(key)}: expected a string, got {found!r}")
        return found

    def row(self, key: str, default: Any = None) -> list[Any] | None:
        """A list; None where there is none."""
        found = self.get(key, default)
        if found is not None and not isinstance(found, list | tuple):
            raise TypeError(f"{self.name(key)}: expected a list, got {found!r}")
        return None if found is None else list(found)

    def level(self, key: str) -> "Values | None":
        """A nested level; None where there is none."""
        found = self.get(key)
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise TypeError(f"{self.name(key)}: expected an object of keys and values, got {found!r}")
        return Values(found, f"{self.name(key)}.")

    def unread(self) -> list[str]:
        """Keys with a value that nobody asked for."""
        return [key for key in self.content if key not in self.read and self.content[key] is not None]
