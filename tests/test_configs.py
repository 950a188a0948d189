"""Configs of every family against transformers' own modelling code: the rotation itself, its frequencies, its factor."""

import importlib
import inspect
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpos
from fastpos import Rotary
from fastpos.configs.families import FAMILIES, TEXT_PARTS
from fastpos.frequencies import rates

torch = pytest.importorskip("torch", reason="transformers' own rotations need PyTorch")
transformers = pytest.importorskip("transformers", reason="compares with transformers' own rotations")

ORIGINAL = "original_max_position_embeddings"
# Float32 powers, reciprocals and ramps of transformers, each rounded.
RELATIVE = 3e-6
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


def check(rope, config, layer_type=None, positions=(0, 1, 2, 3, 17, 30)):
    """Compare rotations of noise."""
    rng = np.random.default_rng(3)
    q = torch.tensor(rng.standard_normal((1, 2, len(positions), rope.head_dim)), dtype=torch.float32)
    length = max(positions) + 1
    if rope.axes is not None:
        positions = rng.integers(0, 30, (3, len(positions)))
    ours = fastpos.apply(rope.at_length(length), q.numpy(), positions=positions, layout="bhsd", backend="numpy")
    np.testing.assert_allclose(ours, theirs(config, q, positions, layer_type).numpy(), atol=3e-5, rtol=1e-5)


def frequencies(rope):
    """Radians a token, from the clock."""
    clock = rates(rope)
    return (clock.words.astype(np.float64) / 2**64 + clock.residuals) % 1.0 * 2 * np.pi


def check_frequencies(rope, inv_freq, factor):
    """Compare frequencies and factor with what transformers computes in float32."""
    np.testing.assert_allclose(frequencies(rope), inv_freq.double().numpy(), rtol=RELATIVE, atol=1e-12)
    assert rates(rope).factor == pytest.approx(float(factor), rel=1e-7)


STILL = ("cohere2", "exaone4", "smollm3", "llama4_text")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_rotation_of_every_family(model_type):
    """Each type of layers turns the channels that the family's own code turns, as it turns them."""
    config = config_of(model_type)
    by_layer = FAMILIES[model_type].by_layer
    checked = 0
    for layer in range(getattr(config, "num_hidden_layers", 1)):
        layer_type = config.layer_types[layer] if by_layer else None
        if model_type in STILL and layer % 4 == 3:
            check_still(Rotary.from_config(config, layer), config)
        elif layer < 7:
            check(Rotary.from_config(config, layer), config, layer_type)
            checked += 1
    assert checked


def check_still(rope, config):
    """A layer without rotation passes keys as they are, and queries, but for Llama 4's temperature."""
    q, k = np.random.default_rng(4).standard_normal((2, 1, 5, 2, rope.head_dim))
    at = np.array([0, 8190, 8191, 8192, 100000])
    scaled, passed = fastpos.apply(rope, q, k, positions=at, backend="numpy")
    np.testing.assert_array_equal(passed, k)
    if config.model_type == "llama4_text":
        scale = np.log(np.floor((at + 1.0) / config.floor_scale) + 1.0) * config.attn_scale + 1.0
        np.testing.assert_allclose(scaled, q * scale[:, None, None], rtol=1e-15)
    else:
        np.testing.assert_array_equal(scaled, q)


@pytest.mark.parametrize("model_type", TEXT_PARTS)
def test_models_with_several_parts(model_type):
    """The text part is what is read, as an object, as what is saved, and flat as older files have it."""
    config = transformers.CONFIG_MAPPING[model_type]()
    inner = config.get_text_config()
    assert TEXT_PARTS[model_type] == inner.model_type
    for layer in (0, 5):
        right = Rotary.from_config(inner, layer)
        assert Rotary.from_config(config, layer) == right
        assert Rotary.from_config(json.loads(config.to_json_string()), layer) == right
        assert Rotary.from_config({**inner.to_dict(), "model_type": model_type}, layer) == right


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


FLAT = [name for name in FAMILIES if not FAMILIES[name].by_layer and name not in (*UNSCALED, "phimoe")]


# Transformers refuses other scalings for Phi 3.
CASES = [
    (model_type, scaling)
    for model_type in FLAT
    for scaling in SCALINGS
    if model_type not in ("phi3", "phi4_multimodal") or scaling in ("default", "longrope")
]


@pytest.mark.parametrize(("model_type", "scaling"), CASES)
def test_every_scaling_of_every_family(model_type, scaling):
    """Frequencies and factor are the family's own, below and beyond the trained length, in both spellings."""
    config = with_scaling(model_type, scaling)
    ropes = {Rotary.from_config(spelled(config, old), 0) for old in (False, True)}
    (rope,) = ropes
    made = embedding_of(config)
    check_frequencies(rope.at_length(100), made.inv_freq, made.attention_scaling)
    if rope.by_length:
        for length in (512, 513, 4096, 4097, 9000):
            made(torch.zeros(1, 1, 1, 1), torch.full((3, 1, 1) if rope.axes else (1, 1), length - 1))
            check_frequencies(rope.at_length(length), made.inv_freq, made.attention_scaling)


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if FAMILIES[name].by_layer])
@pytest.mark.parametrize("scaling", ["linear", "dynamic", "llama3", "yarn"])
def test_scalings_by_layer(model_type, scaling):
    """Nested parameters: each type of layers has its own base and scaling."""
    rope = {
        "full_attention": {"rope_theta": 3e5, **SCALINGS[scaling]},
        "sliding_attention": {"rope_theta": 2e4, "rope_type": "default"},
    }
    config = config_of(model_type, rope_parameters=rope)
    content = json.loads(json.dumps(config.to_dict()))
    made = embedding_of(config)
    for layer_type in ("full_attention", "sliding_attention"):
        found = Rotary.from_config(content, layer_type)
        own, factor = (getattr(made, f"{layer_type}_{name}") for name in ("inv_freq", "attention_scaling"))
        check_frequencies(found.at_length(1), own, factor)
        first = config.layer_types.index(layer_type)
        assert Rotary.from_config(config, first) == Rotary.from_config(config, layer_type) == found


def test_transformers_ignores_a_nested_truncate():
    """There it is read beside the layers, where it does not stand: its frequencies are not those of its own formula."""
    nested = {**SCALINGS["yarn"], "rope_theta": 1e4, "truncate": False}
    rope = {"full_attention": nested, "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}
    layers = config_of("gemma3_text", rope_parameters=rope)
    flat = config_of("llama", rope_parameters=nested)
    ours = Rotary.from_config(layers, "full_attention")
    assert ours == Rotary.from_config(flat)
    check_frequencies(ours, embedding_of(flat).inv_freq, embedding_of(flat).attention_scaling)
    wrong = embedding_of(layers).full_attention_inv_freq.double().numpy()
    assert np.abs(wrong / frequencies(ours) - 1).max() > 0.02


def test_transformers_never_takes_the_long_factors_of_phimoe():
    """Its forward asks for frequencies without a length, which are the short ones at every length; the factor does change."""
    pairs = SMALL["head_dim"] // 2
    rope = {
        **{"rope_theta": 1e4, "rope_type": "longrope", "original_max_position_embeddings": 512},
        **{"short_factor": [1.0] * pairs, "long_factor": [4.0] * pairs, "short_mscale": 1.25, "long_mscale": 1.25},
    }
    config = config_of("phimoe", rope_parameters=rope)
    ours = Rotary.from_config(config)
    check(ours, config)
    assert ours.scaling.attention_scaling == 1.25
    q = torch.ones(1, 2, 1, 32)
    long = fastpos.apply(ours.at_length(601), q.numpy(), positions=[600], layout="bhsd", backend="numpy")
    assert np.abs(long - theirs(config, q, [600]).numpy()).max() > 0.1


shares = st.sampled_from([0.25, 0.5, 0.75, 1.0])


@st.composite
def made_configs(draw):
    """Any flat config of a family whose code heeds a partial factor."""
    head_dim, share = draw(st.sampled_from([16, 32, 64, 96, 128])), draw(shares)
    longest = draw(st.sampled_from([2048, 8192, 131072]))
    original = draw(st.sampled_from([512, 1024, 2048]))
    pairs = int(head_dim * share) // 2
    number = st.floats(1, 64)
    kind = draw(st.sampled_from(["default", "linear", "dynamic", "yarn", "longrope", "llama3"]))
    rope = {"rope_type": kind, "rope_theta": draw(st.floats(1e3, 1e7)), "partial_rotary_factor": share}
    if kind in ("yarn", "longrope", "llama3"):
        rope["original_max_position_embeddings"] = original
    if kind in ("linear", "dynamic", "llama3", "yarn"):
        rope["factor"] = draw(number)
    if kind == "yarn":
        for key, values in {
            "factor": st.none() | number,
            "beta_fast": st.none() | st.floats(8, 64),
            "beta_slow": st.none() | st.floats(0.5, 4),
            "attention_factor": st.none() | st.floats(0.1, 2),
            "mscale": st.none() | st.floats(0, 2),
            "mscale_all_dim": st.none() | st.floats(0, 2),
            "truncate": st.booleans(),
        }.items():
            rope[key] = draw(values)
    if kind == "llama3":
        rope |= {"low_freq_factor": draw(st.floats(0.5, 2)), "high_freq_factor": draw(st.floats(2.5, 8))}
    if kind == "longrope":
        row = st.lists(number, min_size=pairs, max_size=pairs)
        rope |= {"short_factor": draw(row), "long_factor": draw(row)}
        rope |= draw(st.sampled_from([{}, {"factor": 4.0}, {"attention_factor": 1.1}]))
    return {"head_dim": head_dim, "max_position_embeddings": longest, "rope_parameters": rope}


@settings(max_examples=150)
@given(made_configs(), st.booleans(), st.sampled_from([1, 512, 513, 2048, 2049, 8193, 300000]))
def test_made_configs(made, old, length):
    """Whatever a flat config says, frequencies and factor are those of transformers' own functions."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = config_of("glm", **made)
    kind = config.rope_parameters["rope_type"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rope = Rotary.from_config(spelled(config, old)).at_length(length)
    functions = {**ROPE_INIT_FUNCTIONS, "default": embedding_of(config_of("glm")).compute_default_rope_parameters}
    check_frequencies(rope, *functions[kind](config, seq_len=length))
