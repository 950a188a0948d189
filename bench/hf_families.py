"""Every CausalLM family of the transformers installed here, tiny and random, patched: the table in docs/hf-families.md.

``python bench/hf_families.py`` prints it, ``python bench/hf_families.py llama gpt_neox`` those families alone.
"""

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

import fastpos.hf

MOST_PARAMETERS = 30_000_000
SEQUENCE = 12
# What makes a config small, wherever its class has the key. Heads and their shares fit each other in all families.
SMALL: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "n_embed": 64,
    "embed_dim": 64,
    "dim": 64,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "d_ff": 64,
    "n_inner": 64,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "num_hidden_layers": 6,
    "n_layer": 6,
    "n_layers": 6,
    "num_layers": 6,
    "decoder_layers": 6,
    "encoder_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "rotary_dim": 8,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "sliding_window": 64,
    "vocab_size_per_layer_input": 128,
    "hidden_size_per_layer_input": 16,
    "mamba_num_heads": 8,
    "mamba_n_heads": 8,
    "mamba_head_dim": 16,
    "mamba_d_head": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
