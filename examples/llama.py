"""A Llama model in plain NumPy: weights, key and value cache, forward pass. Its positions are made by fastpos.

Letters of the shapes: b rows of a batch, s tokens of a row, t packed tokens, m cached tokens, h heads, k key heads,
g heads that share a key head, d channels of a head. ``...`` stands for (b,) or, packed, for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from checkpoint import Checkpoint

import fastpos


@dataclass(frozen=True)
class Layer:
    """The weights of one layer, under the names they bear in a GGUF file."""

    attn_norm: np.ndarray
    attn_q: np.ndarray
    attn_k: np.ndarray
    attn_v: np.ndarray
    attn_output: np.ndarray
    ffn_norm: np.ndarray
    ffn_gate: np.ndarray
    ffn_up: np.ndarray
    ffn_down: np.ndarray


@dataclass
class Cache:
    """Keys, already rotated, and values of the tokens seen so far.

    Attributes
    ----------
    keys, values : ndarray
        ``(layers, ..., capacity, k, d)``.
    documents : ndarray
        ``(..., capacity)``: the document that each token belongs to.
    length : int
        How many tokens of the capacity are filled.
    """

    keys: np.ndarray
    values: np.ndarray
    documents: np.ndarray
    length: int = 0

    def append(self, count: int, document: int | np.ndarray) -> tuple[slice, np.ndarray]:
        """Make room for `count` tokens, and say which tokens of the cache each of them sees.

        Returns
        -------
        slots : slice
            Where their keys and values go.
        visible : ndarray
            Booleans ``(..., count, m)``: a token sees itself and the earlier tokens of its document. This one rule is
            the causal mask, the block-diagonal mask of packed documents, and the padding mask, with the padding as a
            document of its own: it sees itself, so that no softmax is empty.

        Raises
        ------
        ValueError
            If they exceed the capacity.
        """
        first, end = self.length, self.length + count
        if end > self.documents.shape[-1]:
            raise ValueError(f"the cache holds {self.documents.shape[-1]} tokens, {end} are needed")
        slots = slice(first, end)
        self.documents[..., slots] = document
        self.length = end
        causal = np.arange(end) <= np.arange(first, end)[:, None]
        return slots, causal & (self.documents[..., slots, None] == self.documents[..., None, :end])


@dataclass(frozen=True)
class Llama:
    """A Llama model with float32 weights."""

    rope: fastpos.Rotary
    heads: int
    key_heads: int
    epsilon: float
    embedding: np.ndarray
    layers: tuple[Layer, ...]
    output_norm: np.ndarray
    output: np.ndarray

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Llama:
        """Build the model that a GGUF file describes.

        Raises
        ------
        ValueError
            If the file holds another architecture, or a Llama whose rotary frequencies are scaled.
        """
        tensors, architecture = checkpoint.tensors, checkpoint.metadata["general.architecture"]
        if architecture != "llama":
            raise ValueError(f"expected the architecture 'llama', got {architecture!r}")
        values = {name.removeprefix("llama."): value for name, value in checkpoint.metadata.items()}
        if "rope_freqs.weight" in tensors or values.get("rope.scaling.type", "none") != "none":
            raise ValueError("expected unscaled rotary frequencies, got a checkpoint that scales them")
        head_dim = values["embedding_length"] // values["attention.head_count"]
        return cls(
            # Published Llama weights pair channel i of a head with channel i + d/2. The writers of GGUF files reorder
            # the rows of the q and k weights so that the two of a pair become neighbours, 2i and 2i + 1: as stored,
            # the weights want interleaved pairs. The scores are the same, since q and k are reordered alike.
            rope=fastpos.Rotary(
                values.get("attention.key_length", head_dim),
                base=values.get("rope.freq_base", 10000.0),
                rotary_dim=values.get("rope.dimension_count"),
                interleaved=True,
            ),
            heads=values["attention.head_count"],
            key_heads=values.get("attention.head_count_kv", values["attention.head_count"]),
            epsilon=values["attention.layer_norm_rms_epsilon"],
            embedding=tensors["token_embd.weight"],
            layers=tuple(
                Layer(**{field.name: tensors[f"blk.{index}.{field.name}.weight"] for field in fields(Layer)})
                for index in range(values["block_count"])
            ),
            output_norm=tensors["output_norm.weight"],
            # A file without an output matrix ties it to the embedding.
            output=tensors.get("output.weight", tensors["token_embd.weight"]),
        )

    def cache(self, *shape: int) -> Cache:
        """Make an empty cache for ``(b, capacity)`` tokens or, packed, for ``(capacity,)``."""
        keys = np.zeros((len(self.layers), *shape, self.key_heads, self.rope.head_dim), np.float32)
        return Cache(keys, np.zeros_like(keys), np.zeros(shape, np.int64))

    def forward(self, tokens: np.ndarray, cache: Cache, *, document: int | np.ndarray = 0, **where: Any) -> np.ndarray:
        """Run tokens through the layers; their keys and values are appended to the cache.

        Parameters
        ----------
        tokens : ndarray
            Integers, ``(b, s)`` or, packed, ``(t,)``.
        cache : Cache
            Of the same rows.
        document : int or ndarray
            The document of each token, of the shape of `tokens`: a token sees no other document.
        **where
            Where the tokens stand, handed to `fastpos.apply`: ``start=``, ``positions=`` or ``cu_seqlens=``.

        Returns
        -------
        ndarray
            The last hidden state of each token, ``(*tokens.shape, width)``.
        """
        slots, visible = cache.append(tokens.shape[-1], document)
        # Only attention knows of rows: for everything else, the tokens of all rows are one matrix.
        hidden = self.embedding[tokens.reshape(-1)]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            normed = rms_norm(hidden, layer.attn_norm, self.epsilon)
            query, key, value = (
                (normed @ weight.T).reshape(*tokens.shape, -1, self.rope.head_dim)
                for weight in (layer.attn_q, layer.attn_k, layer.attn_v)
            )
            fastpos.apply_(self.rope, query, **where)
            fastpos.apply(self.rope, key, out=keys[..., slots, :, :], **where)
            values[..., slots, :, :] = value
            mixed = attention(query, keys[..., : slots.stop, :, :], values[..., : slots.stop, :, :], visible)
            hidden += mixed.reshape(len(hidden), -1) @ layer.attn_output.T
            normed = rms_norm(hidden, layer.ffn_norm, self.epsilon)
            hidden += (silu(normed @ layer.ffn_gate.T) * (normed @ layer.ffn_up.T)) @ layer.ffn_down.T
        return rms_norm(hidden, self.output_norm, self.epsilon).reshape(*tokens.shape, -1)

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """Score every token of the vocabulary as the next one: ``(n, width)`` to ``(n, vocabulary)``."""
        return hidden @ self.output.T


def attention(query: np.ndarray, keys: np.ndarray, values: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Mix the values that each query sees.

    Parameters
    ----------
    query : ndarray
        ``(..., s, h, d)``.
    keys, values : ndarray
        ``(..., m, k, d)``.
    visible : ndarray
        Booleans ``(..., s, m)``.

    Returns
    -------
    ndarray
        ``(..., s, h, d)``.
    """
    *rows, count, _, width = query.shape
    cached, key_heads = keys.shape[-3:-1]
    grouped = query.reshape(*rows, count, key_heads, -1, width).swapaxes(-4, -3)  # (..., k, s, g, d)
    # The g heads that share a key head stack into one matrix product with its keys.
    scores = grouped.reshape(*rows, key_heads, -1, width) @ np.moveaxis(keys, -3, -1) * width**-0.5
    scores = scores.reshape(*rows, key_heads, count, -1, cached)
    scores = np.where(visible[..., None, :, None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = weights.reshape(*rows, key_heads, -1, cached) @ values.swapaxes(-3, -2)
    return mixed.reshape(*rows, key_heads, count, -1, width).swapaxes(-4, -3).reshape(query.shape)


def rms_norm(hidden: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """Scale each row of ``(n, width)`` to a root mean square of one, then each channel by its weight."""
    return hidden / np.sqrt(np.mean(hidden * hidden, -1, keepdims=True) + epsilon) * weight


def silu(gate: np.ndarray) -> np.ndarray:
    """Multiply by the sigmoid: x / (1 + exp(-x))."""
    # Below -80 the result is zero to float32's accuracy, but exp would overflow.
    return gate / (1 + np.exp(-np.maximum(gate, -80)))
