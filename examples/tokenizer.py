"""The byte-level BPE tokenizer of SmolLM2, from the metadata of a GGUF file."""

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Tokenizer:
    """Text to tokens and back.

    Parameters
    ----------
    metadata : dict
        Of the GGUF file: the ``tokenizer.ggml`` keys are read.

    Raises
    ------
    ValueError
        If the file asks for another kind of tokenizer.
    """

    def __init__(self, metadata: dict[str, Any]) -> None:
        kind = metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]
        if kind != ("gpt2", "smollm"):
            raise ValueError(f"expected a tokenizer of the kind ('gpt2', 'smollm'), got {kind}")
        self.tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        self.identifiers = {token: identifier for identifier, token in enumerate(self.tokens)}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
        self.end: int = metadata["tokenizer.ggml.eos_token_id"]
        """The token that ends a turn."""

    def encode(self, text: str) -> list[int]:
        """Split text into tokens. The spelling of a control token is ordinary text here, so no prompt can forge one."""
        pieces = [piece for part in _digits().split(text) for piece in _words().findall(part)]
        symbols = [token for piece in pieces for token in self._merge(piece)]
        # The vocabulary lacks a few control characters, such as U+0004: they are dropped, as transformers does.
        return [self.identifiers[symbol] for symbol in symbols if symbol in self.identifiers]

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Join tokens to UTF-8. The end may cut a character, so a stream of tokens needs an incremental decoder."""
        return b"".join(bytes(_BYTES[symbol] for symbol in self.tokens[token]) for token in tokens)

    def chat(self, prompt: str) -> list[int]:
        """Set a user's prompt into the template that the Instruct model was trained with, up to its answer."""
        turns = [("system", SYSTEM), ("user", prompt)]
        start, newline = self.identifiers["<|im_start|>"], self.encode("\n")
        tokens: list[int] = []
        for role, content in turns:
            tokens += [start, *self.encode(f"{role}\n{content}"), self.end, *newline]
        return [*tokens, start, *self.encode("assistant\n")]

    def _merge(self, piece: str) -> list[str]:
        """Join neighbours within a piece, the pair that training learned first before the others."""
        symbols = [_SYMBOLS[byte] for byte in piece.encode()]
        while len(symbols) > 1:
            pairs = set(pairwise(symbols))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            joined: list[str] = []
            for symbol in symbols:
                if joined and (joined[-1], symbol) == best:
                    joined[-1] += symbol
                else:
                    joined.append(symbol)
            symbols = joined
        return symbols


@lru_cache
def _numbers() -> str:
    r"""Every character of the Unicode categories N. ``re`` has no ``\p{N}``; its ``\d`` leaves out ½ and ²."""
    return "".join(
        character for character in map(chr, range(sys.maxunicode)) if unicodedata.category(character)[0] == "N"
    )


@lru_cache
def _digits() -> re.Pattern[str]:
    """Where SmolLM2 splits first: each digit stands alone. The group makes `re.split` keep it."""
    return re.compile(f"([{_numbers()}])")


@lru_cache
def _words() -> re.Pattern[str]:
    r"""Find the pieces that GPT-2 splits text into, which no token crosses.

    Its pattern is ``'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+``.
    ``\w`` is ``\p{L}``, ``\p{N}`` and the underscore, so ``\p{L}`` is ``\w`` without the other two.
    """
    numbers = _numbers()
    return re.compile(rf"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W_{numbers}]+| ?[{numbers}]+| ?(?:_|[^\s\w])+|\s+(?!\S)|\s+")


def _byte_symbols() -> list[str]:
    """Give each byte a printable character: itself where Latin-1 prints it, else the next from 256 on (GPT-2's rule)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(0x100)]


_SYMBOLS = _byte_symbols()
_BYTES = {symbol: byte for byte, symbol in enumerate(_SYMBOLS)}
