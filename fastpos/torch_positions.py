"""Positions of padded batches whose masks are tensors: results lie where the masks do, and nothing waits for a GPU."""

from typing import Any

import torch


def from_mask(mask: torch.Tensor, start: Any, padding: int | None) -> torch.Tensor:
    """``fastpos.positions.from_mask``. What a mask on a GPU, or in a traced graph, holds is not looked at."""
    if mask.ndim not in (1, 2):
        raise ValueError(f"mask: expected shape (b, s) or (s,), got {tuple(mask.shape)}")
    if mask.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = (mask != 0) & (mask != 1)
        if wrong.any():
            raise ValueError(f"mask: expected 0 and 1 alone, got {mask[wrong][0].item()}")
    begin = (
        start
        if isinstance(start, int)
        else torch.as_tensor(start, dtype=torch.int64, device=mask.device).reshape(-1, 1)
    )
    if isinstance(begin, torch.Tensor) and (mask.ndim == 1 or len(begin) not in (1, len(mask))):
        raise ValueError(f"start: expected one integer or one a row of {tuple(mask.shape)}, got {begin.numel()}")
    found = ((mask != 0).cumsum(-1) - 1).clamp(min=0) + begin
    return found if padding is None else torch.where(mask != 0, found, padding)
