"""What a model is run on to be watched: two short rows of tokens, padded on the left, at positions with gaps."""

from collections.abc import Iterator
from typing import Any

import torch

TOKENS = 7
PADDING = 2


def examples(model: torch.nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Arguments that models of transformers take, the most telling ones first."""
    config = getattr(model, "config", None)
    most = _number(config, "vocab_size", 2)
    draw = torch.Generator().manual_seed(0)
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    ids = torch.randint(0, most, (2, TOKENS), generator=draw).to(device)
    mask = torch.ones_like(ids)
    mask[0, :PADDING] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    # A gap, which tells positions from counted tokens.
    positions[1, TOKENS // 2 :] += 1
    told: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    yield {**told, "position_ids": positions}
    yield told
    yield {**told, "decoder_input_ids": ids}
    yield {"input_ids": ids}


def _number(config: Any, name: str, default: int) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = getattr(text, name, None)
    return found if isinstance(found, int) and found > 0 else default
