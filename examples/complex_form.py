"""Meta's form of RoPE, neighbouring channels as complex numbers, beside its line of fastpos. ``python examples/complex_form.py``."""

import torch

import fastpos


def waves(head_dim: int, tokens: int, base: float) -> torch.Tensor:
    """The usual table: a complex number of modulus 1 for every token and channel pair, ``(tokens, head_dim / 2)``."""
    frequencies = base ** -(torch.arange(0, head_dim, 2).double() / head_dim)
    angles = torch.outer(torch.arange(tokens).double(), frequencies)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def by_hand(q: torch.Tensor, k: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys, ``(b, s, h, d)``, by a table for their tokens."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * table[:, None]).flatten(-2).to(x.dtype)

    return turned(q), turned(k)


def by_fastpos(q: torch.Tensor, k: torch.Tensor, start: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same without a table: pairs of neighbours are ``interleaved``."""
    return fastpos.apply(fastpos.Rotary(q.shape[-1], base=base, interleaved=True), q, k, start=start)


def main() -> None:
    """Show that both are one function."""
    q, k = torch.randn(2, 64, 8, 128), torch.randn(2, 64, 2, 128)
    table = waves(128, 1064, base=500_000.0)
    pairs = zip(by_hand(q, k, table[1000:]), by_fastpos(q, k, 1000, 500_000.0), strict=True)
    print(f"largest difference: {max(float((a - b).abs().max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
