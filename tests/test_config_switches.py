"""Keys of configs that switch the rotation of a model or of some of its layers off, or say what its code does anyway."""

import pytest
from checkpoints import COHERE_2, EXAONE_4, GEMMA_3, LLAMA, SMOLLM_3

from fastpos import Rotary

GPT_J = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 64}
COHERE = {**LLAMA, "model_type": "cohere2", "num_hidden_layers": 4}
NEMOTRON = {**LLAMA, "model_type": "nemotron", "partial_rotary_factor": 0.5}


@pytest.mark.parametrize(("config", "turning"), [
    ({**EXAONE_4, "sliding_window": 4096, "sliding_window_pattern": "LLLG"}, [True, True, True, False]),
    ({**EXAONE_4, "sliding_window_pattern": 0}, [True, True, True, False]),
    ({**EXAONE_4, "sliding_window": None, "sliding_window_pattern": 0}, [True] * 4),
    ({**EXAONE_4, "sliding_window": None, "sliding_window_pattern": None, "layer_types": None}, [True] * 4),
    ({**COHERE_2, "sliding_window": None}, [False] * 4),
    ({**COHERE_2, "sliding_window_pattern": 2}, [True, False, True, False]),
    ({**SMOLLM_3, "num_hidden_layers": 4, "no_rope_layers": [True, False, 1, 0]}, [True, False, True, False]),
])  # fmt: skip
def test_layers_that_turn(config, turning):
    """A pattern is not read beside the types that it stands for; a null window is not an absent one."""
    assert [Rotary.from_config(config, layer).rotary_dim > 0 for layer in range(4)] == turning


@pytest.mark.parametrize(("config", "key", "right", "wrong"), [
    (GPT_J, "rotary", True, False),
    *((LLAMA, key, True, False) for key in ("use_rope", "use_rotary_embeddings", "use_rotary", "rope")),
    *((LLAMA, key, False, True) for key in ("rope_interleaved", "rotary_interleaved", "no_rope", "use_alibi", "use_mrope")),
    ({**LLAMA, "model_type": "cohere"}, "rope_interleaved", True, False),
    (LLAMA, "rotary_pct", 1, True),
    (LLAMA, "rotary_percent", 1.0, 0.5),
    (LLAMA, "rope_unheard_of", None, False),
    (COHERE, "rotary_pct", 1.0, 0.5),
    (NEMOTRON, "rope_percent", 0.5, 0.25),
    (NEMOTRON, "rope_percent", 0.5, 1.0),
    ({**LLAMA, "model_type": "phi"}, "rotary_pct", 0.5, False),
])  # fmt: skip
def test_switches(config, key, right, wrong):
    """A key that says what the code does anyway changes nothing; one that says otherwise is refused, False as well as True."""
    layer = 0 if "num_hidden_layers" in config else None
    assert Rotary.from_config({**config, key: right}, layer) == Rotary.from_config(config, layer)
    with pytest.raises(ValueError, match=rf"^{key}: expected .*no such key, .*, got {wrong}$"):
        Rotary.from_config({**config, key: wrong}, layer)


@pytest.mark.parametrize("rope", [{"factor": None}, {"type": None, "factor": None}, {"rope_type": None, "type": None}])
@pytest.mark.parametrize(
    "config", [LLAMA, {**LLAMA, "model_type": "qwen3", "num_hidden_layers": 2}, GEMMA_3["text_config"]]
)
def test_scalings_of_nulls_are_none(config, rope):
    layer = "full_attention" if config["model_type"] == "gemma3_text" else None
    plain = Rotary.from_config({**config, "rope_scaling": None}, layer)
    assert Rotary.from_config({**config, "rope_scaling": rope}, layer) == plain


def test_a_null_is_not_true():
    """DeepSeek V3's code asks whether ``rope_interleave`` is true; its class's default is that it is."""
    found = [
        Rotary.from_config({"model_type": "deepseek_v3", **said}).deinterleaved
        for said in ({}, {"rope_interleave": True}, {"rope_interleave": False}, {"rope_interleave": None})
    ]
    assert found == [True, True, False, False]


@pytest.mark.parametrize("layer", range(4))
def test_switches_of_layers_without_rotation(layer):
    assert Rotary.from_config({**COHERE, "rotary_pct": 1.0}, layer) == Rotary.from_config(COHERE, layer)
