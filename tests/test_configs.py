"""Configs of every family against transformers' own modelling code: the rotation itself, its frequencies, its factor."""

import json
import warnings

import numpy as np
import pytest
from checkpoints import CHECKPOINTS, GEMMA_3, MODERNBERT, SMOLLM_3
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpos
from fastpos import Rotary
from fastpos.configs.families import FAMILIES, TEXT_PARTS
from fastpos.frequencies import rates

torch = pytest.importorskip("torch", reason="transformers' own rotations need PyTorch")
transformers = pytest.importorskip("transformers", reason="compares with transformers' own rotations")
families = pytest.importorskip("families", reason="reads both")
SCALINGS, SMALL, TINY, UNSCALED = families.SCALINGS, families.SMALL, families.TINY, families.UNSCALED
config_of, embedding_of, spelled = families.config_of, families.embedding_of, families.spelled
theirs, with_scaling = families.theirs, families.with_scaling

# Float32 powers, reciprocals and ramps of transformers, each rounded.
RELATIVE = 3e-6


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


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if "rope_parameters" not in TINY.get(name, {})])
def test_what_files_lack(model_type):
    """Bases, shares and scalings of the config class are known, for files that do not say them."""
    config = config_of(model_type)
    content = config.to_dict()
    content.pop("rope_parameters", None)
    for layer in (0, 1):
        assert Rotary.from_config(content, layer) == Rotary.from_config(config, layer)


@pytest.mark.parametrize("head_dim", ["absent", "null"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_widths_that_files_lack(model_type, head_dim):
    """A head width that a file leaves out is its config class's, which need not be hidden_size / num_attention_heads."""
    family = FAMILIES[model_type]
    # 96 is no class's width; the sections of models for images take 128 channels.
    width = 128 if family.sections and "head_dim" not in family.defaults else 96
    sizes = {"hidden_size": 16 * width, "num_attention_heads": 16, "num_hidden_layers": 12}
    config = {family.name(key): value for key, value in sizes.items()} | {"model_type": model_type}
    if head_dim == "null":
        config[family.head_dim_key or "head_dim"] = None
    try:
        read = transformers.CONFIG_MAPPING[model_type].from_dict(dict(config))
        made = None if model_type in UNSCALED else embedding_of(read)
    except Exception:
        # Some classes take no null.
        if head_dim == "null":
            return
        raise
    layer_type = read.layer_types[0] + "_" if family.by_layer else ""
    turning = read.rotary_dim if made is None else 2 * getattr(made, f"{layer_type}inv_freq").numel()
    assert Rotary.from_config(config, 0).rotary_dim == turning


@pytest.mark.parametrize("window", [{}, {"sliding_window": 64}, {"sliding_window": None}], ids=["absent", "64", "null"])
@pytest.mark.parametrize("types", [True, False], ids=["types", "pattern"])
@pytest.mark.parametrize("model_type", ["cohere2", "exaone4"])
def test_which_layers_turn_by_their_window(model_type, types, window):
    """The family's own attention turns a layer, or does not, with a window, without one, and with that of its class."""
    config = {"model_type": model_type, **SMALL, **window, "num_hidden_layers": 4}
    if types:
        config["layer_types"] = ["sliding_attention", "full_attention"] * 2
    elif window == {"sliding_window": None}:
        # transformers divides by zero for exaone4 without a window and without types.
        config |= {"layer_types": ["full_attention"] * 4} if model_type == "exaone4" else {}
    read = transformers.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(config)))
    read._attn_implementation = "eager"
    module = families.module_of(model_type)
    attention = vars(module)[{"cohere2": "Cohere2Attention", "exaone4": "Exaone4Attention"}[model_type]]
    hidden = torch.randn(1, 3, SMALL["hidden_size"])
    for layer in range(4):
        made = attention(read, layer)
        # Angles of 0, and those of tokens at 0, 1 and 2.
        still, angles = torch.zeros(1, 3, SMALL["head_dim"]), torch.arange(3.0)[None, :, None].expand(1, 3, 32)
        outputs = [made(hidden, (angle.cos(), angle.sin()), None)[0] for angle in (still, angles)]
        turned = not torch.allclose(*outputs, atol=1e-6)
        assert (Rotary.from_config(config, layer).rotary_dim > 0) == turned
    if model_type == "exaone4" and "sliding_window" in window and window["sliding_window"] is None:
        config.pop("layer_types")
        assert Rotary.from_config({**config, "sliding_window_pattern": 0}) == Rotary(32)


# Those of which transformers 5.24 makes nothing: old names of longrope without a length inside, and a rule of vLLM's.
UNREAD = ("Phi 3 mini 128k, first", "Phi 3 small, as yarn", "DeepSeek's own rule")
LAYERED = {"Gemma 3 4B": GEMMA_3, "ModernBERT": MODERNBERT, "SmolLM3": SMOLLM_3}
READ = {name: config for name, (config, _) in CHECKPOINTS.items() if name not in UNREAD} | LAYERED


@pytest.mark.parametrize("config", READ.values(), ids=READ)
def test_files_are_read_as_transformers_reads_them(config):
    """A file means what transformers makes of it, layer by layer."""
    read = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(json.loads(json.dumps(config)))
    text = config.get("text_config", config)
    for layer in range(text["num_hidden_layers"]) if "num_hidden_layers" in text else (None,):
        assert Rotary.from_config(config, layer) == Rotary.from_config(read, layer)


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
