"""Configs as checkpoints ship them, in all spellings that are met, with the rotation that each says."""

from fastpos import Rotary
from fastpos.scaling import DynamicNTK, Llama3, LongRoPE, YaRN

SHORT, LONG = [1.0 + 0.01 * i for i in range(48)], [1.0 + i for i in range(48)]
MINI = {
    **{"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_hidden_layers": 32},
    **{"max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_theta": 10000.0},
}
QWEN = {
    **{"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28},
    **{"max_position_embeddings": 32768, "rope_theta": 1000000.0},
}
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
LLAMA_3_1 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        **{"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024},
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
}
MODERNBERT = {
    **{"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 22},
    **{"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0},
    **{"position_embedding_type": "absolute", "max_position_embeddings": 8192},
}
SMOLLM_3 = {
    **{"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 36},
    **{"no_rope_layer_interval": 4, "rope_theta": 5000000.0, "rope_scaling": None},
    "no_rope_layers": [1, 1, 1, 0] * 9,
}
COHERE_2 = {"model_type": "cohere2", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 4}
EXAONE_4 = {**COHERE_2, "model_type": "exaone4", "layer_types": [*["sliding_attention"] * 3, "full_attention"]}
CHECKPOINTS = {
    "Llama 2 7B": ({**LLAMA, "rope_scaling": None}, Rotary(128)),
    "Llama 3 8B": ({**LLAMA, "rope_theta": 500000.0}, Rotary(128, base=5e5)),
    "Llama 3.1 8B": (
        {**LLAMA, "max_position_embeddings": 131072, "rope_theta": 5e5, "rope_scaling": {**LLAMA_3_1, "rope_type": "llama3"}},
        Rotary(128, base=5e5, scaling=Llama3(8.0, 8192)),
    ),
    "Mistral 7B": (
        {**LLAMA, "model_type": "mistral", "rope_theta": 10000.0, "sliding_window": 4096, "num_hidden_layers": 32},
        Rotary(128),
    ),
    "Mistral Nemo": (
        {**LLAMA, "model_type": "mistral", "hidden_size": 5120, "head_dim": 128, "rope_theta": 1000000.0},
        Rotary(128, base=1e6),
    ),
    "Qwen2.5 7B": (QWEN, Rotary(128, base=1e6)),
    "Qwen2.5 7B, 128k": (
        {**QWEN, "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}},
        Rotary(128, base=1e6, scaling=YaRN(4.0, 32768)),
    ),
    "Qwen2.5 7B, length not said": (
        {**QWEN, "rope_scaling": {"factor": 4.0, "type": "yarn"}},
        Rotary(128, base=1e6, scaling=YaRN(4.0, 32768)),
    ),
    "Qwen3 8B": (
        {**QWEN, "model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128},
        Rotary(128, base=1e6),
    ),
    "Gemma 7B": ({"model_type": "gemma", "hidden_size": 3072, "num_attention_heads": 16, "head_dim": 256}, Rotary(256)),
    "Gemma 2 9B": ({"model_type": "gemma2", "hidden_size": 3584, "num_attention_heads": 16}, Rotary(256)),
    "Phi 2": (
        {"model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.4},
        Rotary(80, rotary_dim=32),
    ),
    "Phi 3 mini 128k": (
        {**MINI, "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "longrope"}},
        Rotary(96, scaling=LongRoPE(SHORT, LONG, 4096, 32.0)),
    ),
    "Phi 3 mini 128k, first": (
        {**MINI, "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "su"}},
        Rotary(96, scaling=LongRoPE(SHORT, LONG, 4096, 32.0)),
    ),
    "Phi 3 small, as yarn": (
        {**MINI, "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "yarn", "attention_factor": None}},
        Rotary(96, scaling=LongRoPE(SHORT, LONG, 4096, 32.0)),
    ),
    "Phi 4 mini": (
        {
            **{**MINI, "num_attention_heads": 24, "partial_rotary_factor": 0.75},
            "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "longrope"},
        },
        Rotary(128, rotary_dim=96, scaling=LongRoPE(SHORT, LONG, 4096, 32.0)),
    ),
    "GPT-J 6B": (
        {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "rotary_dim": 64, "n_positions": 2048},
        Rotary(256, rotary_dim=64, interleaved=True),
    ),
    "Pythia": (
        {
            **{"model_type": "gpt_neox", "hidden_size": 2560, "num_attention_heads": 32},
            **{"rotary_pct": 0.25, "rotary_emb_base": 10000},
        },
        Rotary(80, rotary_dim=20),
    ),
    "Falcon 7B": (
        {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "alibi": False},
        Rotary(64),
    ),
    "StableLM 3B": (
        {"model_type": "stablelm", "hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.25},
        Rotary(80, rotary_dim=20),
    ),
    "Command R": (
        {"model_type": "cohere", "hidden_size": 8192, "num_attention_heads": 64, "rope_theta": 8000000.0},
        Rotary(128, base=8e6, interleaved=True),
    ),
    "GLM 4 9B": (
        {
            **{"model_type": "glm4", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128},
            "partial_rotary_factor": 0.5,
        },
        Rotary(128, rotary_dim=64, interleaved=True),
    ),
    "DeepSeek V2 Lite": (
        {
            **{"model_type": "deepseek_v2", "hidden_size": 2048, "num_attention_heads": 16, "qk_rope_head_dim": 64},
            **{"qk_nope_head_dim": 128, "max_position_embeddings": 163840, "rope_theta": 10000},
            "rope_scaling": {
                **{"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707},
                **{"original_max_position_embeddings": 4096, "type": "yarn"},
            },
        },
        Rotary(64, interleaved=True, scaling=YaRN(40.0, 4096, mscale=0.707, mscale_all_dim=0.707)),
    ),
    "gpt-oss 20B": (
        {
            **{"model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64},
            **{"max_position_embeddings": 131072, "initial_context_length": 4096, "rope_theta": 150000},
            "rope_scaling": {
                **{"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096},
                **{"rope_type": "yarn", "truncate": False},
            },
        },
        Rotary(64, base=1.5e5, scaling=YaRN(32.0, 4096, truncate=False)),
    ),
    "OLMo 2 7B": ({**LLAMA, "model_type": "olmo2", "rope_theta": 500000}, Rotary(128, base=5e5)),
    "SmolLM2 135M": (
        {
            **{"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "rope_theta": 100000},
            **{"rope_interleaved": False, "rope_scaling": None},
        },
        Rotary(64, base=1e5),
    ),
    "Granite 3 8B": ({**LLAMA, "model_type": "granite", "rope_theta": 10000000.0}, Rotary(128, base=1e7)),
    "Yarn Llama 2 7B 64k": (
        {**LLAMA, "max_position_embeddings": 65536, "rope_scaling": {"factor": 16.0, "finetuned": True, "type": "yarn",
         "original_max_position_embeddings": 4096}},
        Rotary(128, scaling=YaRN(16.0, 4096)),
    ),
    "LLaVA": ({"model_type": "llava", "text_config": {**LLAMA, "rope_theta": 5e5}}, Rotary(128, base=5e5)),
    "Llama, dynamic": (
        {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        Rotary(128, scaling=DynamicNTK(2.0, 4096)),
    ),
    "DeepSeek's own rule": (
        {**LLAMA, "max_position_embeddings": 163840, "rope_scaling": {"type": "deepseek_yarn", "factor": 40.0,
         "original_max_position_embeddings": 4096, "mscale": 2.0}},
        Rotary(128, scaling=YaRN.deepseek(40.0, 4096, mscale=2.0)),
    ),
}  # fmt: skip
