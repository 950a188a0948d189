"""nanoGPT's form of learned positions, two embeddings added, beside its line of fastpos. ``python examples/learned_form.py``."""

import torch

import fastpos


def by_hand(tokens: torch.Tensor, wte: torch.nn.Embedding, wpe: torch.nn.Embedding, start: int) -> torch.Tensor:
    """Embed tokens, ``(b, s)``, and add the rows of their positions."""
    positions = torch.arange(start, start + tokens.shape[1])
    return wte(tokens) + wpe(positions)


def by_fastpos(tokens: torch.Tensor, wte: torch.nn.Embedding, wpe: torch.nn.Embedding, start: int) -> torch.Tensor:
    """The same in one pass over the embeddings; gradients reach both tables, and a row beyond the end is an error."""
    return fastpos.apply(fastpos.Learned(wpe.weight), wte(tokens), start=start)


def main() -> None:
    """Show that both are one function, and give the same gradients."""
    wte, wpe = torch.nn.Embedding(1000, 256), torch.nn.Embedding(128, 256)
    tokens = torch.randint(0, 1000, (2, 64))
    results, gradients = [], []
    for form in (by_hand, by_fastpos):
        wpe.weight.grad = None
        results.append(form(tokens, wte, wpe, start=60))
        results[-1].square().sum().backward()
        gradients.append(wpe.weight.grad)
    print(f"the same bits: {torch.equal(*results)}")
    print(f"largest difference of gradients: {float((gradients[0] - gradients[1]).abs().max()):.1e}")


if __name__ == "__main__":
    main()
