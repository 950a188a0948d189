"""Configs as checkpoints ship them, and every kind of config that is refused."""

import json
import re
import types

import pytest
from checkpoints import CHECKPOINTS, EXAONE_4, GEMMA_3, LLAMA, LLAMA_3_1, LONG, MINI, MODERNBERT, QWEN, SHORT, SMOLLM_3
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpos import Rotary
from fastpos.frequencies import rates
from fastpos.scaling import Linear, Proportional


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints(name):
    config, rope = CHECKPOINTS[name]
    assert Rotary.from_config(config) == rope
    assert Rotary.from_config(json.loads(json.dumps(config))) == rope


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (
            GEMMA_3,
            {
                0: Rotary(256),
                5: Rotary(256, base=1e6, scaling=Linear(8.0)),
                33: Rotary(256),
                "sliding_attention": Rotary(256),
                "full_attention": Rotary(256, base=1e6, scaling=Linear(8.0)),
            },
        ),
        (
            {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text", "num_hidden_layers": 7}},
            {
                0: Rotary(256),
                5: Rotary(512, base=1e6, scaling=Proportional(0.25)),
                6: Rotary(512, base=1e6, scaling=Proportional(0.25)),
            },
        ),
        (
            MODERNBERT,
            {
                0: Rotary(64, base=1.6e5),
                1: Rotary(64),
                21: Rotary(64, base=1.6e5),
                "full_attention": Rotary(64, base=1.6e5),
            },
        ),
        (SMOLLM_3, {0: Rotary(128, base=5e6), 34: Rotary(128, base=5e6)}),
        (
            {"model_type": "cohere2", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
             "sliding_window_pattern": 4, "rope_theta": 50000, "position_embedding_type": "rope_gptj"},
            {"sliding_attention": Rotary(128, base=5e4, interleaved=True)},
        ),
    ],
    ids=["Gemma 3 4B", "Gemma 4", "ModernBERT", "SmolLM3", "Command R7B"],
)  # fmt: skip
def test_layers(config, layers):
    for layer, rope in layers.items():
        assert Rotary.from_config(config, layer) == rope
        assert Rotary.from_config(config, layer=layer) == rope


def test_layers_whose_parameters_are_null_stand_still():
    """What a nested config says of a layer without positions."""
    config = nested({"rope_type": "default", "rope_theta": 5e5}, sliding_attention=None)
    assert Rotary.from_config(config, 0) == Rotary(128, base=5e5)
    assert Rotary.from_config(config, 1) == Rotary(128, rotary_dim=0)
    with pytest.raises(ValueError, match=r"layer: .*full_attention \(layers 0, 2\); sliding_attention \(layers 1, 3\)"):
        Rotary.from_config(config)


def test_every_source(tmp_path):
    """A dict, a file, its folder, a string or a path, and whatever has ``to_dict``."""
    config, rope = CHECKPOINTS["Llama 3 8B"]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    for source in (config, file, tmp_path, str(file), str(tmp_path), types.SimpleNamespace(to_dict=lambda: config)):
        assert Rotary.from_config(source) == rope
    before = json.dumps(config)
    Rotary.from_config(config)
    assert json.dumps(config) == before


def scaled(rope, **top):
    return {**LLAMA, "max_position_embeddings": 32768, "num_hidden_layers": 4, "rope_scaling": rope, **top}


def nested(full, **more):
    types = ["full_attention", "sliding_attention"] * 2
    return {**LLAMA, "num_hidden_layers": 4, "layer_types": types, "rope_parameters": {"full_attention": full, **more}}


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA3 = {"rope_type": "llama3", **LLAMA_3_1, "factor": 4.0}
REFUSED = [
    ({}, ValueError, r"^model_type: expected one that fastpos knows \(.*gemma3.*\), got ''"),
    ({"model_type": "bert"}, ValueError, "model_type: expected one .*, got 'bert'; .* fastpos.Rotary"),
    ({"model_type": 7}, TypeError, "model_type: expected a string, got 7"),
    ({"model_type": "x", "text_config": {"model_type": "y"}}, ValueError, r"^text_config\.model_type: .*, got 'y'"),
    ({"model_type": "llama"}, ValueError, "hidden_size: expected a value, for head_dim is not said, got none"),
    ({**LLAMA, "num_attention_heads": None}, ValueError, "num_attention_heads: expected a value"),
    ({**LLAMA, "num_attention_heads": 31}, ValueError, "hidden_size: .* multiple of num_attention_heads = 31, got 4096"),
    ({**LLAMA, "head_dim": "128"}, TypeError, "head_dim: expected an integer, got '128'"),
    ({**LLAMA, "head_dim": 127}, ValueError, "head_dim: .*even.*, got 127"),
    ({**LLAMA, "rope_theta": "1e4"}, TypeError, "rope_theta: expected a number, got '1e4'"),
    ({**LLAMA, "rope_theta": -1}, ValueError, "rope_theta: expected a finite number of at least 1, got -1"),
    ({**LLAMA, "rope_scaling": "yarn"}, TypeError, "rope_scaling: expected an object of keys and values, got 'yarn'"),
    ({**LLAMA, "partial_rotary_factor": 0.5}, ValueError, r"partial_rotary_factor: expected 1, .*, got 0\.5"),
    ({**LLAMA, "rope_ratio": 2.0}, ValueError, r"rope_ratio: expected no such key, .* llama .*, got 2\.0"),
    ({**LLAMA, "rotary_pct": 0.25}, ValueError, r"rotary_pct: expected no such key, .*, got 0\.25"),
    ({**LLAMA, "num_hidden_layers": 2, "layer_types": ["full_attention"]}, ValueError, "layer_types: .* = 2 .*, got 1"),
    ({**LLAMA, "num_hidden_layers": 1, "layer_types": [3]}, TypeError, "layer_types: expected strings, got 3"),
    (
        {**LLAMA, "model_type": "olmo3", "num_hidden_layers": 2, "layer_types": ["full_attention", "full"]},
        ValueError,
        "layer_types: expected each of full_attention, sliding_attention, got 'full'",
    ),
    ({**EXAONE_4, "layer_types": ["global"] * 4}, ValueError, "layer_types: expected each of full_.*, got 'global'"),
    ({**EXAONE_4, "layer_types": None, "sliding_window_pattern": "LLLG"}, TypeError, "sliding_window_pattern: .*'LLLG'"),
    (scaled({"type": "ntk"}), ValueError, r"rope_scaling\.type: expected one of default, .*, got 'ntk'"),
    (scaled({"rope_type": 3}), TypeError, r"rope_scaling\.rope_type: expected a string, got 3"),
    (scaled({"type": "linear", "rope_type": "yarn"}), ValueError, r"type: expected .*rope_type = 'yarn', got 'linear'"),
    (scaled({"type": "linear"}), ValueError, r"rope_scaling\.factor: expected a value, .*, got none"),
    (scaled({"type": "linear", "factor": None}), ValueError, r"rope_scaling\.factor: expected a value, for its"),
    (scaled({"type": "linear", "factor": 0.5}), ValueError, r"rope_scaling\.factor: .* at least 1, got 0\.5"),
    (scaled({"type": "linear", "factor": "2"}), TypeError, r"rope_scaling\.factor: expected a number, got '2'"),
    (scaled({"type": "linear", "factor": True}), TypeError, r"rope_scaling\.factor: expected a number, got True"),
    (scaled({"type": "linear", "factor": 2, "alpha": 3}), ValueError, r"alpha: .*no such key .*'linear', got 3"),
    (scaled({"factor": 2.0}), ValueError, r"rope_scaling\.factor: expected no such key with rope_type 'default', got 2"),
    (scaled({"type": "dynamic", "factor": 0.0}), ValueError, r"rope_scaling\.factor: .* at least 1, got 0\.0"),
    (scaled({"type": "dynamic", "factor": 2}, max_position_embeddings=None), ValueError, "max_position_embeddings: .*"),
    (scaled({**YARN, "factor": 0.9}), ValueError, r"rope_scaling\.factor: .* at least 1, got 0\.9"),
    (scaled({"type": "yarn"}), ValueError, r"rope_scaling\.factor: expected a value, .* divides by it, got none"),
    (scaled({**YARN, "short_factor": [1]}), ValueError, r"short_factor: expected no such key .*'yarn', got \[1\]"),
    (scaled({**YARN, "beta_fast": 1, "beta_slow": 3}), ValueError, "beta_fast: .* beta_slow = 3, got 1"),
    (scaled({**YARN, "beta_fast": -1}), ValueError, r"rope_scaling\.beta_fast: .*, got -1"),
    (scaled({**YARN, "truncate": "no"}), TypeError, r"rope_scaling\.truncate: expected True or False, got 'no'"),
    (scaled({**YARN, "attention_factor": 0}), ValueError, r"rope_scaling\.attention_factor: .*, got 0"),
    (scaled({**YARN, "mscale": -1}), ValueError, r"rope_scaling\.mscale: .*, got -1"),
    (scaled(YARN, max_position_embeddings=4096), ValueError, r"original_max_.*at most max_.* = 4096, got 8192"),
    (scaled(YARN, original_max_position_embeddings=4096), ValueError, r"rope_scaling\.original.* = 4096, .* got 8192"),
    (scaled({**YARN, "original_max_position_embeddings": 8192.0}), TypeError, r"original.*integer, got 8192\.0"),
    (scaled({**LLAMA3, "low_freq_factor": None}), ValueError, r"rope_scaling\.low_freq_factor: expected a value"),
    (scaled({**LLAMA3, "high_freq_factor": 0.5}), ValueError, r"high_freq_factor: .* low_freq_factor = 1, got 0\.5"),
    (scaled({**LLAMA3, "attention_factor": 1.0}), ValueError, r"attention_factor: expected no such key .*'llama3'"),
    (scaled({**LLAMA3, "original_max_position_embeddings": 65536}), ValueError, "at most max_.* = 32768, got 65536"),
    (scaled(YARN, rope_parameters=LLAMA3), ValueError, r"rope_scaling: expected none beside rope_parameters, or the same"),
    (scaled({**YARN, "mrope_section": [16, 24, 24]}), ValueError, r"mrope_section: expected no such key with .*'yarn'"),
    (scaled({"type": "mrope", "mrope_section": [16, 24, 24]}), ValueError, r"rope_scaling\.type: .*, got 'mrope'"),
    ({**MINI, "rope_scaling": {"type": "su", "short_factor": SHORT}}, ValueError, "long_factor: expected a value"),
    ({**MINI, "rope_scaling": {"type": "su", "short_factor": 1.0, "long_factor": LONG}}, TypeError, r"short_.* list, got 1\.0"),
    (
        {**MINI, "rope_scaling": {"type": "su", "short_factor": SHORT, "long_factor": LONG[1:]}},
        ValueError,
        "long_factor: expected rotary_dim / 2 = 48 numbers, got 47",
    ),
    (
        {**MINI, "rope_scaling": {"type": "su", "short_factor": [0.0, *SHORT[1:]], "long_factor": LONG}},
        ValueError,
        r"short_factor\[0\]: expected a finite number above 0, got 0\.0",
    ),
    (
        {**MINI, "rope_scaling": {"type": "su", "short_factor": SHORT, "long_factor": LONG}, "max_position_embeddings": 2048},
        ValueError,
        r"original_max_position_embeddings|factor",
    ),
    (
        {
            **{**MINI, "model_type": "phimoe"},
            "rope_scaling": {
                **{"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
                **{"short_mscale": 1.2, "long_mscale": 1.3},
            },
        },
        ValueError,
        r"rope_scaling\.long_mscale: expected rope_scaling\.short_mscale = 1\.2, .*, got 1\.3",
    ),
    ({**MINI, "partial_rotary_factor": 0.52}, ValueError, r"partial_rotary_factor: .* even number .*, got 0\.52"),
    ({**LLAMA, "position_embedding_type": "nope"}, ValueError, "position_embedding_type: expected one of .*, got 'nope'"),
    ({**MINI, "partial_rotary_factor": 1e308}, ValueError, r"partial_rotary_factor: .*, got 1e\+308"),
    (scaled({**YARN, "attention_factor": {"a": 1}}), TypeError, r"attention_factor: expected a number, got \{'a': 1\}"),
    ({"model_type": "falcon", "alibi": True}, ValueError, "alibi: expected False, .*ALiBi.*, got True"),
    (
        {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "head_dim": 128},
        ValueError,
        "head_dim: expected hidden_size / num_attention_heads = 64, got 128",
    ),
    ({"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary_dim": 8, "rope_theta": 5e5}, ValueError, "rope_theta: .*no such"),
    (
        {"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary_dim": 8, "rope_scaling": YARN},
        ValueError,
        "rope_scaling: expected no such key",
    ),
    (nested({"rope_type": "default"}), ValueError, r"rope_parameters\.sliding_attention: expected parameters for"),
    (nested({"rope_type": "default"}, rope_theta=3), ValueError, r"rope_parameters\.rope_theta: .* types of layers \(full"),
    (nested({"rope_type": "linear"}, sliding_attention=None), ValueError, r"full_attention\.factor: expected a value"),
    (nested(None, sliding_attention=3), TypeError, r"rope_parameters\.sliding_attention: expected an object .*, got 3"),
    (nested({"foo": 1}, sliding_attention={}), ValueError, r"rope_parameters\.full_attention\.foo: expected no such key"),
    ({**MODERNBERT, "num_hidden_layers": None}, ValueError, "num_hidden_layers: expected a value, for its layers differ"),
    ({**SMOLLM_3, "no_rope_layers": [1, 0]}, ValueError, "no_rope_layers: expected num_hidden_layers = 36 .*, got 2"),
    ({**SMOLLM_3, "no_rope_layers": [2] * 36}, ValueError, "no_rope_layers: expected 0 to 1, got 2"),
    (
        {"model_type": "gemma4_text", "num_hidden_layers": 7, "per_layer_config": {"9": {"head_dim": 512}}},
        ValueError,
        "per_layer_config: expected indices of layers, got '9'",
    ),
    (
        {"model_type": "ministral3", "hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 65536,
         "rope_parameters": {**YARN, "factor": 8.0, "rope_theta": 1e6, "max_position_embeddings": 32768}},
        ValueError,
        r"rope_parameters\.max_position_embeddings: expected max_position_embeddings = 65536, .*, got 32768",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "error", "message"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_refused_with_key_value_and_rule(config, error, message):
    with pytest.raises(error, match=message):
        Rotary.from_config(config)


@pytest.mark.parametrize(("config", "layer", "error", "message"), [
    (GEMMA_3, None, ValueError, r"layer: .* gemma3_text: sliding_attention \(layers 0, .*\); full_attention \(layers 5"),
    (SMOLLM_3, None, ValueError, r"layer: .* without rotation \(layers 3, 7.*got None"),
    (SMOLLM_3, 36, ValueError, "layer: expected 0 to 35, got 36"),
    (SMOLLM_3, -1, ValueError, "layer: expected 0 to 35, got -1"),
    (SMOLLM_3, True, TypeError, "layer: expected an index or a type of layers, got True"),
    (SMOLLM_3, 1.0, TypeError, r"layer: expected an index or a type of layers, got 1\.0"),
    (GEMMA_3, "global", ValueError, r"layer: .* \(sliding_attention, full_attention\), got 'global'"),
    (QWEN, "full_attention", ValueError, r"layer: .* \(none, for its layers are all alike\), got 'full_attention'"),
    (LLAMA, 0, ValueError, "layer: expected None, for the config does not say how many layers there are, got 0"),
])  # fmt: skip
def test_layers_refused(config, layer, error, message):
    with pytest.raises(error, match=message):
        Rotary.from_config(config, layer)


HOSTILE = [
    *(
        None,
        0,
        -1,
        1,
        2,
        97,
        0.5,
        1e308,
        5e-324,
        float("nan"),
        float("inf"),
        10**400,
        True,
        False,
        "",
        "yarn",
        "longrope",
    ),
    *([], {}, [1], [None], {"a": 1}, {"full_attention": {}}, [1.0] * 48, ["full_attention"] * 32),
]
TOP = st.sampled_from(
    "rope_theta rope_scaling rope_parameters head_dim hidden_size num_attention_heads num_hidden_layers layer_types "
    "max_position_embeddings original_max_position_embeddings partial_rotary_factor model_type text_config rotary_dim "
    "rotary_pct alibi no_rope_layers rope_interleave per_layer_config position_embedding_type sliding_window_pattern".split()
)
INNER = st.sampled_from(
    "rope_type type factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale mscale_all_dim "
    "truncate short_factor long_factor low_freq_factor high_freq_factor rope_theta partial_rotary_factor mrope_section "
    "mrope_interleaved llama_4_scaling_beta max_position_embeddings full_attention short_mscale finetuned".split()
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=400)
@given(
    st.sampled_from([*(config for config, _ in CHECKPOINTS.values()), GEMMA_3["text_config"], MODERNBERT, SMOLLM_3]),
    st.dictionaries(TOP, st.sampled_from(HOSTILE), max_size=2),
    st.dictionaries(INNER, st.sampled_from(HOSTILE), max_size=2),
    st.sampled_from([None, 0, 3, "full_attention"]),
)
def test_whatever_a_config_says(config, top, inner, layer):
    """A rotation whose clock can be made, or a refusal of the two kinds: nothing else comes out."""
    changed = {**config, **top}
    if inner:
        rope = changed.get("rope_scaling")
        changed["rope_scaling"] = {**(rope if isinstance(rope, dict) else {}), **inner}
    try:
        rope = Rotary.from_config(changed, layer)
    except (ValueError, TypeError) as error:
        said = str(error)
    else:
        said = f"expected {rope.pairs} words, got {len(rates(rope.at_length(1)).words)}"
        assert rope.pairs == len(rates(rope.at_length(1)).words)
    assert re.search("expected .* got ", said)


def test_sources_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        Rotary.from_config(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config: expected JSON in .*config\.json"):
        Rotary.from_config(tmp_path)
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(TypeError, match=r"config: expected a JSON object in .*, got a list"):
        Rotary.from_config(tmp_path)
    for wrong in (None, 3, ["config.json"], object()):
        with pytest.raises(TypeError, match=r"config: expected a dict, the path of a config\.json or its folder"):
            Rotary.from_config(wrong)


@pytest.mark.parametrize(("config", "message"), [
    (scaled({**YARN, "factor": 16.0}), r"rope_scaling\.factor: 16 is used, but max_.* / original.* = 32768 / 8192"),
    (scaled({**YARN, "mscale": 0.7}), r"rope_scaling\.mscale: transformers heeds .* only together, so this has no effect"),
    *(
        ({**LLAMA, key: value}, f"{key}: neither transformers nor fastpos heeds it for this model, got ")
        for key, value in {
            **dict.fromkeys(("use_logn_attn", "use_dynamic_ntk", "attn_temperature_tuning"), True),
            "dual_chunk_attention_config": {"chunk_size": 262144},
        }.items()
    ),
    (scaled({"rope_type": "default", "rope_theta": 1e4}, rope_theta=5e5), r"rope_theta: 10000 is used, not 500000 of rope_th"),
])  # fmt: skip
def test_warned(config, message):
    """What can be honoured, but is not what it seems."""
    with pytest.warns(UserWarning, match=message):
        Rotary.from_config(config)
