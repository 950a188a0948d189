"""Where a model's code can be replaced: modules that make cosines and sines, and functions of Python modules that rotate."""

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

ROTATES = re.compile("apply.*rot", re.IGNORECASE)


@dataclass(frozen=True)
class Seam:
    """A function that may rotate, under its name in a Python module whose code calls it there.

    Attributes
    ----------
    module, name
        ``getattr(module, name)`` is what is called.
    """

    module: Any
    name: str

    @property
    def label(self) -> str:
        """The name in messages, and in what stands for sines."""
        return f"{self.module.__name__}.{self.name}"


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """The named parameters of a function; empty where it does not say them."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in found.items() if parameter.kind in named}


def constants(function: Any, tensors: tuple[str, ...] = ()) -> tuple[tuple[str, Any], ...]:
    """Parameters that say how, not what: each with its default (None where it has none)."""
    empty = inspect.Parameter.empty
    return tuple(
        (name, None if parameter.default is empty else parameter.default)
        for name, parameter in parameters(function).items()
        if name not in tensors
    )


def rotary_modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that make what is rotated with, each once."""
    for name, module in model.named_modules():
        if "rotary" in type(module).__name__.lower():
            yield name, module


def seams(model: torch.nn.Module) -> list[Seam]:
    """Functions that may rotate, in the Python modules that the model's classes are from."""
    found: dict[tuple[str, str], Seam] = {}
    classes = {kind for module in model.modules() for kind in type(module).__mro__}
    for kind in sorted(classes, key=lambda kind: (kind.__module__, kind.__qualname__)):
        module = sys.modules.get(kind.__module__)
        if module is None or kind.__module__.split(".")[0] in ("torch", "builtins", "fastpos"):
            continue
        for name, value in vars(module).items():
            if ROTATES.search(name) and callable(value) and not isinstance(value, type):
                found[module.__name__, name] = Seam(module, name)
    return list(found.values())
