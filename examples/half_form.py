"""The form of RoPE in transformers, channel halves swapped, beside its line of fastpos. ``python examples/half_form.py``."""

import torch

import fastpos


def waves(head_dim: int, positions: torch.Tensor, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The usual table: cosines and sines of every position, ``(b, s, head_dim)``, both halves alike."""
    frequencies = base ** -(torch.arange(0, head_dim, 2).double() / head_dim)
    angles = (positions[..., None] * frequencies).repeat(1, 1, 2)
    return angles.cos().float(), angles.sin().float()


def by_hand(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys, ``(b, h, s, d)``."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos[:, None] + torch.cat([-second, first], dim=-1) * sin[:, None]

    return turned(q), turned(k)


def by_fastpos(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, base: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same without a table; heads stand before tokens."""
    return fastpos.apply(fastpos.Rotary(q.shape[-1], base=base), q, k, positions=positions, layout="bhsd")


def main() -> None:
    """Show that both are one function, for rows padded on the left."""
    q, k = torch.randn(2, 8, 64, 128), torch.randn(2, 2, 64, 128)
    positions = (torch.arange(64) - torch.tensor([[10], [0]])).clamp(min=0)
    pairs = zip(by_hand(q, k, *waves(128, positions, 10_000.0)), by_fastpos(q, k, positions, 10_000.0), strict=True)
    print(f"largest difference: {max(float((a - b).abs().max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
