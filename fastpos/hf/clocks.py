"""What a rotary module holds: frequencies, a factor, and which argument is positions."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from ..axes import ORDERS, Axes
from .trace import Waves

# Far enough for fast pairs to tell neighbouring float32 frequencies apart, near enough for float32 to hold every angle.
FARTHEST = 100_000


@dataclass(frozen=True)
class Clock:
    """The frequencies and the factor that a rotary module holds for batches up to a position.

    Attributes
    ----------
    inv_freq, factor
        As in its buffers.
    farthest
        The end of the positions that it is probed at; the last one is among them.
    """

    inv_freq: tuple[float, ...]
    factor: float
    farthest: int


class Mismatch(Exception):
    """Why something is left alone."""


def _held(module: torch.nn.Module, prefix: str, farthest: int) -> Clock:
    inv_freq = getattr(module, f"{prefix}inv_freq", None)
    table = table_of(module)
    if inv_freq is None and table is not None:
        # Sines and cosines ready made, by these frequencies.
        width = table.shape[-1]
        inv_freq = 1.0 / (10000 ** (torch.arange(0, width, 2) / width))
        farthest = min(farthest, len(table))
    if not isinstance(inv_freq, torch.Tensor) or inv_freq.ndim != 1:
        raise Mismatch(f"it holds no row of frequencies named {prefix}inv_freq")
    factor = getattr(module, f"{prefix}attention_scaling", 1.0)
    return Clock(tuple(inv_freq.detach().double().cpu().tolist()), float(factor), farthest)


def clocks_of(
    module: torch.nn.Module, forward: Callable[..., Any], waves: Waves
) -> tuple[tuple[Clock, ...], int | None]:
    """What a rotary module holds for a call, and up to which length of a batch it holds the first of two.

    Its buffers may be named after a type of layers. ``longrope`` writes those of the batch's length into its buffer, so
    the module is run at either length.
    """
    layer_type = waves.given.get("layer_type")
    prefix = f"{layer_type}_" if isinstance(layer_type, str) else ""
    kinds = getattr(module, "rope_type", "default")
    kind = kinds.get(layer_type, "default") if isinstance(kinds, dict) else kinds
    if kind == "dynamic":
        raise Mismatch("its frequencies grow with the length of the batch (rope_type 'dynamic')")
    if kind != "longrope":
        return (_held(module, prefix, FARTHEST),), None
    parameters = module.config.rope_parameters  # type: ignore[union-attr]
    parameters = parameters[layer_type] if prefix else parameters  # type: ignore[index]
    original = int(parameters["original_max_position_embeddings"])  # type: ignore[index]
    name, clocks = positions_of(waves), []
    for farthest in (max(FARTHEST, 2 * original), original):
        forward(**{**waves.given, name: torch.full_like(waves.given[name], farthest - 1)})
        clocks.append(_held(module, prefix, farthest))
    return tuple(reversed(clocks)), original


def table_of(module: torch.nn.Module) -> torch.Tensor | None:
    """The waves of all positions that a module of GPT-J's kind holds; in a short type, if the model was cast to one."""
    table = getattr(module, "embed_positions", None)
    return table if isinstance(table, torch.Tensor) and table.ndim == 2 else None


def positions_of(waves: Waves) -> str:
    """The name of the argument that is positions."""
    found = [
        name
        for name, value in waves.given.items()
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)
    ]
    if len(found) != 1:
        raise Mismatch("it takes no integer positions")
    shape = tuple(waves.given[found[0]].shape)
    if len(shape) not in (2, 3):
        raise Mismatch(f"its positions are of shape {shape}, not (batch, sequence) or (axes, batch, sequence)")
    return found[0]


def axes_of(module: torch.nn.Module, positions: torch.Tensor) -> list[Axes | None]:
    """How several coordinates of a position may drive the pairs."""
    if positions.ndim == 2:
        return [None]
    parameters = getattr(getattr(module, "config", None), "rope_parameters", None) or {}
    sections = getattr(module, "mrope_section", parameters.get("mrope_section"))
    if not sections:
        raise Mismatch(f"its positions are of shape {tuple(positions.shape)}, and it says no mrope_section")
    found: list[Axes | None] = []
    for order, numbers in product(ORDERS, dict.fromkeys((tuple(sections), (*sections[-1:], *sections[:-1])))):
        try:
            found.append(Axes(numbers, order=order))
        except ValueError:
            continue
    return found
