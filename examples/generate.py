"""Greedy generation with a key and value cache: one prompt, packed prompts, or a left-padded batch.

``python examples/generate.py MODEL.gguf "What is the capital of France?"`` answers on the command line.
"""

import codecs
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from checkpoint import read_checkpoint
from llama import Llama
from tokenizer import Tokenizer

import fastpos


def generate(model: Llama, prompt: Sequence[int], count: int, *, chunk: int | None = None) -> Iterator[int]:
    """Continue one prompt.

    Parameters
    ----------
    model : Llama
        The model.
    prompt : sequence of int
        Its tokens, at least one.
    count : int
        How many tokens to generate.
    chunk : int, optional
        Prefill so many tokens at a time instead of all at once.

    Yields
    ------
    int
        Each token as soon as it is chosen. Stopping early costs nothing.
    """
    length = len(prompt)
    cache = model.cache(1, length + count)
    for first in range(0, length, chunk or length):
        part = np.asarray(prompt[first : first + (chunk or length)])
        hidden = model.forward(part[None], cache, start=first)
    for position in range(length, length + count):
        token = best(model, hidden[:, -1])
        yield int(token[0])
        if position < length + count - 1:
            hidden = model.forward(token[:, None], cache, start=position)


def generate_packed(model: Llama, prompts: Sequence[Sequence[int]], count: int) -> np.ndarray:
    """Continue several prompts, packed one behind the other without padding.

    Returns
    -------
    ndarray
        The tokens of each prompt's continuation, ``(prompts, count)``.
    """
    lengths = np.array([len(prompt) for prompt in prompts])
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    documents = np.arange(len(prompts))
    cache = model.cache(cu_seqlens[-1] + len(prompts) * count)
    hidden = model.forward(
        np.concatenate(prompts), cache, document=np.repeat(documents, lengths), cu_seqlens=cu_seqlens
    )
    tokens = [best(model, hidden[cu_seqlens[1:] - 1])]
    for step in range(count - 1):
        # One new token a document: documents of length one, each starting where its own text ends.
        one_each = np.arange(len(prompts) + 1)
        hidden = model.forward(tokens[-1], cache, document=documents, cu_seqlens=one_each, start=lengths + step)
        tokens.append(best(model, hidden))
    return np.stack(tokens, -1)


def generate_padded(model: Llama, prompts: Sequence[Sequence[int]], count: int) -> np.ndarray:
    """Continue several prompts as the rows of a batch, the shorter ones padded on the left.

    Returns
    -------
    ndarray
        The tokens of each prompt's continuation, ``(prompts, count)``.
    """
    lengths = np.array([len(prompt) for prompt in prompts])
    mask = np.arange(lengths.max()) >= lengths.max() - lengths[:, None]
    rows = np.zeros(mask.shape, np.int64)
    rows[mask] = np.concatenate(prompts)
    cache = model.cache(len(prompts), lengths.max() + count)
    hidden = model.forward(rows, cache, document=np.where(mask, 0, -1), positions=fastpos.positions.from_mask(mask))
    tokens = [best(model, hidden[:, -1])]
    for step in range(count - 1):
        hidden = model.forward(tokens[-1][:, None], cache, start=lengths + step)
        tokens.append(best(model, hidden[:, -1]))
    return np.stack(tokens, -1)


def best(model: Llama, hidden: np.ndarray) -> np.ndarray:
    """Choose the likeliest next token after each hidden state: ``(n, width)`` to ``(n,)``."""
    return model.logits(hidden).argmax(-1)


def main(
    model: Annotated[
        Path, typer.Argument(help="A Llama checkpoint: a .gguf file, or a wheel that holds one.", exists=True)
    ],
    prompt: Annotated[str, typer.Argument(help="What to ask.")],
    tokens: Annotated[int, typer.Option(help="The most tokens to generate.", min=1)] = 128,
) -> None:
    """Answer a prompt."""
    checkpoint = read_checkpoint(model)
    llama, tokenizer = Llama.from_checkpoint(checkpoint), Tokenizer(checkpoint.metadata)
    text = codecs.getincrementaldecoder("utf-8")(errors="replace")
    began, count = time.perf_counter(), 0
    for token in generate(llama, tokenizer.chat(prompt), tokens):
        count += 1
        if token == tokenizer.end:
            break
        typer.echo(text.decode(tokenizer.decode([token])), nl=False)
    seconds = time.perf_counter() - began
    typer.echo(text.decode(b"", final=True))
    typer.echo(f"{count} tokens in {seconds:.1f} s, {count / seconds:.1f} tokens/s with the prefill", err=True)


if __name__ == "__main__":
    typer.run(main)
