"""The table of model families: what their modelling code does with positions that no config says.

Sources: ``models/*/configuration_*.py`` and ``modeling_*.py`` of transformers 5.24; tests compare every line with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class LayerRule:
    """What one type of layer has of its own.

    Attributes
    ----------
    base_key
        The top-level key of its ``rope_theta`` in older files.
    base
        Its ``rope_theta`` where the file has none.
    scaled
        Whether a scaling that is not said by layer is meant for it.
    """

    base_key: str
    base: float
    scaled: bool = True


@dataclass(frozen=True)
class Pattern:
    """Types of layers where a file does not list them: every n-th layer is ``full_attention``, others ``sliding_attention``."""

    key: str
    every: int
    first: bool = False
    last_full: bool = False

    def types(self, every: int, layers: int) -> list[str]:
        """A type for each layer."""
        found = [
            "full_attention" if (layer + (not self.first)) % every == 0 else "sliding_attention"
            for layer in range(layers)
        ]
        return [*found[:-1], "full_attention"] if self.last_full and found else found


@dataclass(frozen=True)
class Family:
    """How a family's modelling code rotates.

    Attributes
    ----------
    interleaved
        Whether it pairs (2i, 2i+1).
    partial
        Whether it heeds a partial rotary factor; others rotate whole heads.
    defaults
        Values of its config class for keys that its files may lack.
    names
        Its own spellings of keys that others share.
    head_dim_key
        Where the width of what is rotated stands; None: it is always hidden_size / num_attention_heads.
    by_layer
        Types of layers with parameters of their own.
    pattern
        Types of layers where the file does not list them.
    still_layers
        Which layers have no rotation: those without a sliding window (``"windowless"``: all of them where the file says
        null), those of type ``full_attention`` where others have a window (``"hybrid"``: none where the file says null), or
        those that ``no_rope_layers`` lists (``"list"``).
    deinterleave_key
        The flag that says whether pairs (2i, 2i+1) are written to (i, i+d/2).
    sections, order
        ``mrope_section`` where the file has none, and which axis drives which pair.
    wide_layers, wide_head_dim
        The key of the head width of layers of type ``full_attention``, and its default.
    query_scale
        ``"ministral"``: queries are scaled by ``llama_4_scaling_beta``. ``"llama4"``: those without rotation are.
    aliases
        Other names of scalings.
    rope
        Rope parameters where the file has none at all; by layer type where those have their own.
    fixed_base
        Its base, where its code knows no other and no scaling.
    note
        What its code does beside a scaling, or otherwise.
    """

    interleaved: bool = False
    partial: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    head_dim_key: str | None = "head_dim"
    by_layer: Mapping[str, LayerRule] = field(default_factory=dict)
    pattern: Pattern | None = None
    still_layers: str = ""
    deinterleave_key: str = ""
    sections: tuple[int, ...] = ()
    order: str = ""
    wide_layers: str = ""
    wide_head_dim: int = 0
    query_scale: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    fixed_base: float = 0.0
    note: str = ""

    def name(self, key: str) -> str:
        """How this family spells a key."""
        return self.names.get(key, key)


def _based(base: float, **options: Any) -> Family:
    return Family(defaults={"rope_theta": base}, **options)


def _partly(share: float, **options: Any) -> Family:
    return Family(partial=True, defaults={"rope_theta": 1e4, "partial_rotary_factor": share}, **options)


def _wide(family: Family, head_dim: int) -> Family:
    """A family whose config class has a head width of its own, whatever the hidden size."""
    return replace(family, defaults={**family.defaults, "head_dim": head_dim})


LLAMA = _based(1e4)
GPT_J = Family(
    interleaved=True,
    head_dim_key=None,
    names={
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "max_position_embeddings": "n_positions",
    },
    defaults={"rotary_dim": 64},
    fixed_base=1e4,
)
GPT_NEOX = Family(
    partial=True,
    head_dim_key=None,
    names={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    defaults={"rotary_emb_base": 1e4, "rotary_pct": 0.25},
)
PHI_3 = _partly(1.0, aliases={"su": "longrope", "yarn": "longrope"})
QWEN2_VL = _based(1e6, sections=(16, 24, 24), order="chunked", aliases={"mrope": "default"})
QWEN3_VL = _based(5e5, sections=(24, 20, 20), order="interleaved", aliases={"mrope": "default"})
GEMMA_3 = Family(
    defaults={"head_dim": 256, "num_attention_heads": 8, "num_hidden_layers": 26, "hidden_size": 2304},
    pattern=Pattern("sliding_window_pattern", 6),
    by_layer={
        "full_attention": LayerRule("rope_theta", 1e6),
        "sliding_attention": LayerRule("rope_local_base_freq", 1e4, scaled=False),
    },
)
GEMMA_4 = Family(
    defaults={"head_dim": 256, "num_attention_heads": 8, "num_hidden_layers": 30, "hidden_size": 2304},
    pattern=Pattern("sliding_window_pattern", 6, last_full=True),
    wide_layers="global_head_dim",
    wide_head_dim=512,
    by_layer={"full_attention": LayerRule("", 1e6), "sliding_attention": LayerRule("", 1e4)},
    rope={
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
)
DEEPSEEK_V2 = Family(
    defaults={"rope_theta": 1e4, "qk_rope_head_dim": 64},
    interleaved=True,
    head_dim_key="qk_rope_head_dim",
    note="the attention multiplies its softmax scale by (1 + 0.1 mscale_all_dim ln factor)^2, which is not done here",
)
MINISTRAL_3_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
GPT_OSS_ROPE = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "qwen2", "qwen2_moe", "qwen3_moe"), LLAMA),
    **dict.fromkeys(("olmo", "olmo2", "olmoe", "granite", "granitemoe", "granitemoeshared", "starcoder2"), LLAMA),
    **dict.fromkeys(("arcee", "diffllama", "dots1"), LLAMA),
    **dict.fromkeys(("qwen3", "seed_oss"), _wide(LLAMA, 128)),
    **dict.fromkeys(("bitnet", "flex_olmo"), _based(5e5)),
    "mixtral": _based(1e6),
    "ministral3": Family(
        defaults={"rope_theta": 1e4, "head_dim": 128}, query_scale="ministral", rope={"": MINISTRAL_3_ROPE}
    ),
    **dict.fromkeys(("gemma", "gemma2"), _wide(LLAMA, 256)),
    "gemma3_text": GEMMA_3,
    "gemma3n_text": replace(
        GEMMA_3,
        pattern=Pattern("", 5),
        defaults={"head_dim": 256, "num_attention_heads": 8, "num_hidden_layers": 35, "hidden_size": 2048},
    ),
    "gemma4_text": GEMMA_4,
    "phi": _partly(0.5),
    "phi3": PHI_3,
    "phi4_multimodal": PHI_3,
    "phimoe": _based(
        1e6,
        note="transformers never takes the long factors of longrope for this model; fastpos does beyond the trained length",
    ),
    "gptj": GPT_J,
    "codegen": GPT_J,
    "gpt_neox": GPT_NEOX,
    "falcon": _based(1e4, head_dim_key=None),
    "stablelm": _partly(0.25, head_dim_key=None),
    "persimmon": _partly(0.5, head_dim_key=None),
    "nemotron": _partly(0.5),
    "cohere": _based(5e5, interleaved=True),
    "cohere2": Family(
        defaults={"rope_theta": 1e4, "sliding_window": 4096},
        interleaved=True,
        head_dim_key=None,
        pattern=Pattern("sliding_window_pattern", 4),
        still_layers="windowless",
    ),
    "exaone4": Family(
        defaults={"rope_theta": 1e4, "sliding_window": 4096},
        pattern=Pattern("sliding_window_pattern", 4),
        still_layers="hybrid",
    ),
    "ernie4_5": _wide(_based(5e5, interleaved=True), 128),
    "ernie4_5_moe": _based(5e5, interleaved=True),
    "helium": Family(interleaved=True, defaults={"rope_theta": 1e5, "head_dim": 128}),
    "glm4_moe": _partly(0.5),
    **dict.fromkeys(("glm", "glm4"), _wide(_partly(0.5, interleaved=True), 128)),
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v3": replace(DEEPSEEK_V2, interleaved=False, deinterleave_key="rope_interleave"),
    "gpt_oss": Family(defaults={"rope_theta": 1.5e5, "head_dim": 64}, rope={"": GPT_OSS_ROPE}),
    "olmo3": _based(
        5e5,
        pattern=Pattern("", 4),
        by_layer={
            "full_attention": LayerRule("rope_theta", 5e5),
            "sliding_attention": LayerRule("rope_theta", 5e5, scaled=False),
        },
    ),
    "smollm3": _based(2e6, still_layers="list"),
    "llama4_text": Family(
        interleaved=True, defaults={"rope_theta": 5e5, "head_dim": 128}, still_layers="list", query_scale="llama4"
    ),
    "modernbert": Family(
        head_dim_key=None,
        pattern=Pattern("global_attn_every_n_layers", 3, first=True),
        by_layer={
            "full_attention": LayerRule("global_rope_theta", 1.6e5),
            "sliding_attention": LayerRule("local_rope_theta", 1e4),
        },
    ),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text"), QWEN2_VL),
    "qwen3_vl_text": _wide(QWEN3_VL, 128),
    "qwen3_vl_moe_text": QWEN3_VL,
}

# Models with several parts: the type of their text part, where the file does not say it.
TEXT_PARTS: Mapping[str, str] = {
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "mistral3": "mistral",
    "llama4": "llama4_text",
}
