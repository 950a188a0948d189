"""Encodings as PyTorch modules, for models that are written as modules; each is one call of ``fastpos.apply``.

Letters of shapes: b batch, s sequence, t packed tokens, h heads, d channels.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from . import encodings
from . import torch_ops as torch_ops  # programs that were exported find their operators where this module is imported
from .api import apply

Ids = torch.Tensor | Sequence[int] | None

__all__ = ["Learned", "Rotary", "Sinusoidal"]


class Rotary(torch.nn.Module):
    """``fastpos.Rotary`` as a module: of an encoding, or with the same parameters. It has no state to save, load or move.

    Examples
    --------
    >>> rope = Rotary(64, base=500_000.0)
    >>> q, k = rope(torch.ones(1, 3, 8, 64), torch.ones(1, 3, 2, 64), start=0)
    >>> k.shape
    torch.Size([1, 3, 2, 64])
    """

    def __init__(self, head_dim: int | encodings.Rotary, **parameters: Any) -> None:
        super().__init__()
        if isinstance(head_dim, encodings.Rotary):
            self.encoding = dataclasses.replace(head_dim, **parameters)
        else:
            self.encoding = encodings.Rotary(head_dim, **parameters)

    def forward(
        self,
        x: torch.Tensor,
        *more: torch.Tensor,
        start: int | torch.Tensor | None = None,
        positions: Ids = None,
        cu_seqlens: Ids = None,
        layout: str | None = None,
    ) -> Any:
        """Rotate queries and keys, ``(b, s, h, d)`` or as ``layout`` says; arguments and errors are those of ``apply``."""
        place: dict[str, Any] = {"start": start, "positions": positions, "cu_seqlens": cu_seqlens}
        return apply(self.encoding, x, *more, **place, layout=layout)

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        return self.encoding.spelling


class Sinusoidal(torch.nn.Module):
    """``fastpos.Sinusoidal`` as a module: of an encoding (one made by name, say), or with the same parameters. No state.

    Examples
    --------
    >>> Sinusoidal(encodings.Sinusoidal.whisper(512))(torch.ones(1, 3, 512), start=0).shape
    torch.Size([1, 3, 512])
    """

    def __init__(self, width: int | encodings.Sinusoidal, **parameters: Any) -> None:
        super().__init__()
        if isinstance(width, encodings.Sinusoidal):
            self.encoding = dataclasses.replace(width, **parameters)
        else:
            self.encoding = encodings.Sinusoidal(width, **parameters)

    def forward(
        self,
        x: torch.Tensor,
        *,
        start: int | torch.Tensor | None = None,
        positions: Ids = None,
        cu_seqlens: Ids = None,
        layout: str | None = None,
    ) -> Any:
        """Add sinusoids to embeddings, ``(b, s, d)``; arguments and errors are those of ``apply``."""
        place: dict[str, Any] = {"start": start, "positions": positions, "cu_seqlens": cu_seqlens}
        return apply(self.encoding, x, **place, layout=layout)

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        return self.encoding.spelling


class Learned(torch.nn.Module):
    """A trainable table of absolute positions, as ``wpe`` of nanoGPT: ``y = x + weight[p + offset]``.

    Parameters
    ----------
    rows, width
        Of the table, which is ``weight`` in the state_dict, as that of ``torch.nn.Embedding`` is.
    offset
        Rows before the row of position 0 (2 for OPT and BART).
    device, dtype
        Of the table.

    Examples
    --------
    >>> wpe = Learned(1024, 768)
    >>> wpe(torch.ones(1, 3, 768), start=0).shape
    torch.Size([1, 3, 768])
    """

    def __init__(self, rows: int, width: int, *, offset: int = 0, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(rows, width, device=device, dtype=dtype))
        self.offset = encodings.Learned(self.weight, offset=offset).offset
        torch.nn.init.normal_(self.weight, std=0.02)

    def forward(
        self,
        x: torch.Tensor,
        *,
        start: int | torch.Tensor | None = None,
        positions: Ids = None,
        cu_seqlens: Ids = None,
        layout: str | None = None,
    ) -> Any:
        """Add rows of the table to embeddings, ``(b, s, d)``; arguments and errors are those of ``apply``."""
        place: dict[str, Any] = {"start": start, "positions": positions, "cu_seqlens": cu_seqlens}
        return apply(encodings.Learned(self.weight, offset=self.offset), x, **place, layout=layout)

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        rows, width = self.weight.shape
        return f"rows={rows}, width={width}, offset={self.offset}"
