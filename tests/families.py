"""Small configs of every family, and what transformers' own modelling code makes of them."""

import importlib
import inspect
import json
import warnings

import numpy as np
import torch
import transformers

from fastpos import Rotary
from fastpos.configs.families import FAMILIES

ORIGINAL = "original_max_position_embeddings"
SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 12,
    "max_position_embeddings": 4096,
    "vocab_size": 8,
    "intermediate_size": 16,
    "head_dim": 32,
}
SECTIONS = {
    2: {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 7, 5]},
    3: {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True},
}
TINY = {
    **{name: {"n_embd": 64, "n_head": 2, "n_layer": 2, "rotary_dim": 16} for name in ("gptj", "codegen")},
    **{name: {"head_dim": None} for name in ("falcon", "persimmon", "modernbert", "gpt_neox", "cohere2")},
    "ministral3": {
        "max_position_embeddings": 32,
        "rope_parameters": {
            **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8},
            **{"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "max_position_embeddings": 32},
        },
    },
    **{name: {"rope_parameters": SECTIONS[2]} for name in ("qwen2_vl_text", "qwen2_5_vl_text")},
    **{name: {"rope_parameters": SECTIONS[3]} for name in ("qwen3_vl_text", "qwen3_vl_moe_text")},
    "stablelm": {"head_dim": None, "num_attention_heads": 1},
    "gemma4_text": {"global_head_dim": 64},
    **{name: {"head_dim": None, "qk_rope_head_dim": 16} for name in ("deepseek_v2", "deepseek_v3")},
}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}
SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": YARN,
    "yarn not truncated": {**YARN, "truncate": False, "beta_fast": 16, "beta_slow": 2.0},
    "yarn with mscales": {**YARN, "mscale": 0.9, "mscale_all_dim": 0.4},
    "yarn with a factor": {**YARN, "attention_factor": 0.75},
    "yarn of null": {**YARN, "factor": None, "beta_fast": None},
    "llama3": {
        **{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512},
        **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    },
    "llama3 without a ramp": {
        **{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512},
        **{"low_freq_factor": 1.0, "high_freq_factor": 1.0},
    },
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 512},
}
UNSCALED = ("gptj", "codegen")


def config_of(model_type, **changes):
    """Make a small config object of transformers."""
    known = {**SMALL, **TINY.get(model_type, {}), **changes}
    if "n_embd" in known:
        known = {key: value for key, value in known.items() if key not in SMALL}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.CONFIG_MAPPING[model_type](
            **{key: value for key, value in known.items() if value is not None}
        )


def module_of(model_type):
    """The family's modelling code."""
    folder = model_type.removesuffix("_text")
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


def embedding_of(config):
    """The family's own rotary embedding."""
    module = module_of(config.model_type)
    names = [name for name in vars(module) if name.endswith("RotaryEmbedding") and "Vision" not in name]
    names = [name for name in names if "Audio" not in name] or names
    chosen = [name for name in names if "Text" in name] or names
    return vars(module)[chosen[0]](config)


def apply_of(config, q, cos, sin, positions):
    """The family's own rotation of ``q`` (b, h, s, d), which may split partial heads outside."""
    module = module_of(config.model_type)
    if config.model_type == "deepseek_v3":
        return module.apply_rotary_pos_emb_interleave(q, q, cos, sin)[0]
    if config.model_type == "ministral3":
        beta, original = (config.rope_parameters[key] for key in ("llama_4_scaling_beta", ORIGINAL))
        scale = module.get_llama_4_attn_scale(torch.tensor([list(positions)]), beta, original)
        return module.apply_rotary_pos_emb(q, q, cos, sin)[0] * scale
    width = cos.shape[-1] * (2 if "gpt_oss" in module.__name__ else 1)
    turning, rest = q[..., :width], q[..., width:]
    if len(inspect.signature(module.apply_rotary_pos_emb).parameters) == 4:
        turned = module.apply_rotary_pos_emb(turning, cos, sin)
    else:
        turned = module.apply_rotary_pos_emb(turning, turning, cos, sin)[0]
    return torch.cat([turned, rest], dim=-1)


def theirs(config, q, positions, layer_type=None):
    """What transformers makes of ``q`` (b, h, s, d) at ``positions`` (s,)."""
    module = module_of(config.model_type)
    if config.model_type in UNSCALED:
        table = module.create_sinusoidal_positions(max(positions) + 1, config.rotary_dim)[list(positions)][None]
        sin, cos = torch.split(table, config.rotary_dim // 2, dim=-1)
        turned = module.apply_rotary_pos_emb(q.transpose(1, 2)[..., : config.rotary_dim], sin, cos).transpose(1, 2)
        return torch.cat([turned, q[..., config.rotary_dim :]], dim=-1)
    ids = torch.tensor(np.asarray(positions))[..., None, :]
    arguments = (q, ids) + (() if layer_type is None else (layer_type,))
    made = embedding_of(config)(*arguments)
    if torch.is_tensor(made):
        turn = module.apply_rotary_emb
        if "llama4" in module.__name__:
            return turn(q.transpose(1, 2), q.transpose(1, 2), made)[0].transpose(1, 2)
        return turn(q, q, made)[0]
    return apply_of(config, q, *made, positions)


def spelled(config, old):
    """A config as a file has it: as transformers 5 saves it, or as older files have it."""
    content = config.to_dict()
    if old:
        rope = content.pop("rope_parameters")
        names = FAMILIES[config.model_type].names
        content[names.get("rope_theta", "rope_theta")] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            content[names.get("partial_rotary_factor", "partial_rotary_factor")] = rope.pop("partial_rotary_factor")
        rope["type"] = rope.pop("rope_type")
        # Without parameters gpt-oss has those of its config class.
        if "mrope_section" in rope and rope["type"] == "default":
            rope["type"] = "mrope"
        content["rope_scaling"] = None if rope == {"type": "default"} and not FAMILIES[config.model_type].rope else rope
    return json.loads(json.dumps(content))


def with_scaling(model_type, name):
    """A small config with a scaling."""
    rope = {"rope_theta": 5e4, **SCALINGS[name]}
    plain = config_of(model_type)
    own = plain.rope_parameters or {}
    rope |= {key: own[key] for key in ("partial_rotary_factor", "mrope_section", "mrope_interleaved") if key in own}
    if name == "longrope":
        pairs = Rotary.from_config(plain, 0).pairs
        rope |= {"short_factor": [1.0 + 0.1 * i for i in range(pairs)], "long_factor": [2.0 + i for i in range(pairs)]}
        if model_type in ("phi3", "phi4_multimodal"):
            return config_of(model_type, rope_parameters=rope, original_max_position_embeddings=512)
    return config_of(model_type, rope_parameters=rope, max_position_embeddings=4096)
