"""From what a checkpoint ships, its config, to the encoding that it was trained with; or a refusal that names the field."""

from .checkpoint import Checkpoint, LayerGroup

__all__ = ["Checkpoint", "LayerGroup"]
