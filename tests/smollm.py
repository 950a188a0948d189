"""SmolLM2-135M-Instruct, for tests that want a real checkpoint: ``FASTPOS_TEST_GGUF`` names it, as ``.gguf`` or its wheel."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from checkpoint import Checkpoint, read_checkpoint
from llama import Llama
from tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


__all__ = [
    "Checkpoint",
    "Tokenizer",
    "checkpoint_path",
    "llama_of_transformers",
    "load_transformers",
    "read_checkpoint",
]


def unavailable(reason: str) -> NoReturn:
    """Skip, but fail where CI promised to have everything."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def checkpoint_path() -> Path:
    """Where the file is."""
    name = os.environ.get("FASTPOS_TEST_GGUF", "")
    if not Path(name).is_file():
        unavailable(f"FASTPOS_TEST_GGUF must name SmolLM2-135M-Instruct as a .gguf or .whl file, got {name!r}")
    return Path(name)


def load_transformers() -> None:
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            unavailable(f"{name} is not installed")


def llama_of_transformers(checkpoint: Checkpoint) -> "LlamaForCausalLM":
    """Give transformers' Llama the weights of the file. Its own GGUF loader would want `accelerate`."""
    load_transformers()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = Llama.from_checkpoint(checkpoint)

    def halves(weight: np.ndarray, heads: int) -> np.ndarray:
        # Back from neighbours (2i, 2i + 1) to halves (i, i + d/2), the order that transformers rotates.
        return weight.reshape(heads, -1, 2, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)

    values = {name.removeprefix("llama."): value for name, value in checkpoint.metadata.items()}
    peer = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=values["vocab_size"],
            hidden_size=values["embedding_length"],
            intermediate_size=values["feed_forward_length"],
            num_hidden_layers=values["block_count"],
            num_attention_heads=values["attention.head_count"],
            num_key_value_heads=values["attention.head_count_kv"],
            max_position_embeddings=values["context_length"],
            rms_norm_eps=values["attention.layer_norm_rms_epsilon"],
            rope_parameters={"rope_type": "default", "rope_theta": values["rope.freq_base"]},
            tie_word_embeddings="output.weight" not in checkpoint.tensors,
            # It generates as many tokens as it is asked for, beyond the end of the turn.
            eos_token_id=None,
            dtype="float32",
        )
    ).eval()
    weights = {"model.embed_tokens.weight": model.embedding, "model.norm.weight": model.output_norm}
    weights["lm_head.weight"] = model.output
    for index, layer in enumerate(model.layers):
        for name, weight in {
            "input_layernorm": layer.attn_norm,
            "self_attn.q_proj": halves(layer.attn_q, model.heads),
            "self_attn.k_proj": halves(layer.attn_k, model.key_heads),
            "self_attn.v_proj": layer.attn_v,
            "self_attn.o_proj": layer.attn_output,
            "post_attention_layernorm": layer.ffn_norm,
            "mlp.gate_proj": layer.ffn_gate,
            "mlp.up_proj": layer.ffn_up,
            "mlp.down_proj": layer.ffn_down,
        }.items():
            weights[f"model.layers.{index}.{name}.weight"] = weight
    peer.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()}, strict=True)
    return peer
