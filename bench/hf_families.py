"""Every CausalLM family of the transformers installed here, tiny and random, run as it is and patched.

``python bench/hf_families.py > docs/hf-families.md`` makes the table; ``python bench/hf_families.py llama gpt_neox`` shows
those families alone. Five minutes on two cores, most of it kernels that are compiled for forms of heads.
"""

import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

import fastpos.hf

MOST_PARAMETERS = 30_000_000
TOKENS, PADDING = 12, 4
# Differences of float32 logits by rounding, over the largest logit; Gemma's without scaled weights reach 3e-6.
ROUNDING = 1e-5
# What makes a config small, wherever its class has the key; heads and their parts fit each other in all families.
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
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 4]},
    "dots1": {"num_key_value_heads": 4, "n_shared_experts": 1, "layer_types": None},
    "dots3_note_text": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_ssm": 128},
    "gemma3n_text": {
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 2,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 2,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0] * 10,
    },
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 3, "position_embedding_type": "rope"},
    "zamba2": {"layer_types": ["mamba", "mamba", "hybrid"] * 2, "use_mem_rope": True, "num_mem_blocks": 1},
    "zaya": {"num_experts_per_tok": 1},
}
MROPE = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2]}
OWN |= {name: {"head_dim": 32, "rope_parameters": MROPE} for name in ("qwen3_5_text", "qwen3_5_moe_text")}


@dataclass(frozen=True)
class Row:
    """A family: how it went, the largest difference of logits over the largest logit, and what was in the way."""

    family: str
    state: str
    apart_hf: float = 0.0
    apart_exact: float = 0.0
    same_after: bool = True
    short: str = ""
    why: str = ""


def small(kind: Any, family: str, **own: Any) -> Any:
    """A config with few and narrow layers; ``own``: values that go before all others."""
    default = kind().to_dict()
    aliases = getattr(kind, "attribute_map", {})
    given = {key: value for key, value in SMALL.items() if key in default or key in aliases}
    if "kv_lora_rank" in default:
        given["num_key_value_heads"] = 4
    parts = getattr(kind, "sub_configs", {})
    for name, part in parts.items():
        if default.get(name) is not None and hasattr(part, "model_type"):
            given[name] = small(part, part.model_type).to_dict()
    return kind(**given | OWN.get(family, {}) | own)


def built(family: str, **own: Any) -> torch.nn.Module:
    """A tiny model with random weights; ``own``: values of its config."""
    name = NAMES[family]
    kind = getattr(transformers, name if isinstance(name, str) else name[0])
    config = small(CONFIG_MAPPING[family], family, **own)
    if not isinstance(config, kind.config_class):
        config = config.get_text_config()
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in kind(config).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"{count} parameters, for its config has sizes of its own")
    torch.manual_seed(0)
    return kind(config).eval()


def ran(model: torch.nn.Module) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Arguments with padding on the left, with position_ids where the model takes them, and the logits."""
    ids = torch.randint(3, 128, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :PADDING] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    told = {**given, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    try:
        return told, model(**told).logits
    except Exception:  # whatever a family raises for what it does not take
        return given, model(**given).logits


@torch.no_grad()
def row(family: str) -> Row:
    """Build, run, patch both ways, and compare."""
    try:
        model = built(family)
        given, logits = ran(model)
    except Exception as error:  # whatever a family raises
        text = " ".join(str(error).split())
        return Row(family, "not built", why=f"{type(error).__name__}: {text[:120]}")
    real = given["attention_mask"].bool()
    apart = {}
    for numerics in ("hf", "exact"):
        with fastpos.hf.patch(model, numerics=numerics) as report:
            patched = model(**given).logits
        apart[numerics] = float((patched - logits)[real].abs().max() / logits[real].abs().max())
    after = bool(torch.equal(model(**given).logits[real], logits[real]))
    parts = [part for part in report.parts if part.state not in ("fused", "not used")]
    why = "; ".join(dict.fromkeys(f"{part.kind}: {part.why}" for part in parts))
    state = report.state if report.parts else "no rotary module"
    return Row(family, state, apart["hf"], apart["exact"], after, in_bfloat16(model, given), why)


def in_bfloat16(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> str:
    """Whether logits in bfloat16 are the same bits with numerics="hf", and what was fused."""
    real = given["attention_mask"].bool()
    try:
        logits = model.to(torch.bfloat16)(**given).logits[real]
    except RuntimeError as error:  # layers that want float32
        return f"does not run: {error}"
    with fastpos.hf.patch(model, numerics="hf") as report:
        same = torch.equal(model(**given).logits[real], logits)
    said = "same bits" if same else "other bits"
    if report.state == "fused" or not report.parts:
        return said
    with fastpos.hf.patch(model, numerics="exact") as exact:
        return f"{said}, {report.state} (`exact`: {exact.state})"


def is_wrong(found: Row) -> bool:
    """Whether patching changed what a family computes."""
    apart = max(found.apart_hf, found.apart_exact) > ROUNDING
    return apart or not found.same_after or found.short.startswith("other")


def main() -> None:
    """Print the table in Markdown, and fail if a family was wrong."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    families = sys.argv[1:] or list(NAMES)
    rows = []
    for family in families:
        rows.append(row(family))
        print(rows[-1], file=sys.stderr, flush=True)
    wrong = [found for found in rows if is_wrong(found)]
    counts = Counter(found.state for found in rows)
    print("# transformers: every CausalLM family, patched\n")
    print(
        "Made by `python bench/hf_families.py > docs/hf-families.md`: tiny random models, a batch with padding on the left, "
        "float32, one thread.\n"
    )
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}\n")
    print("| " + " | ".join(counts) + " | wrong |\n|" + "---:|" * (len(counts) + 1))
    print("| " + " | ".join(str(count) for count in counts.values()) + f" | {len(wrong)} |\n")
    print(
        "Rotary modules, `hf` and `exact` are of float32 models. Differences are the largest of all logits, over the largest "
        f"logit; `wrong` are families where they exceed {ROUNDING:g}, or whose logits are other bits in bfloat16 with `hf`, or "
        "after `unpatch`.\n"
    )
    alone = [found.family for found in rows if "left alone" in found.short]
    if alone:
        print(
            f"Exceptions in bfloat16 with `hf`: {', '.join(alone)} are left alone, and compute what they did: their code rounds "
            "elsewhere than the usual one, which `hf` repeats. `exact` fuses them where the frequencies that they hold are those "
            "that they use.\n"
        )
    print("| family | rotary modules | `hf` | `exact` | `hf`, bfloat16 | in the way |\n|---|---|---:|---:|---|---|")
    for found in rows:
        apart = (
            (f"{found.apart_hf:.0e}", f"{found.apart_exact:.0e}") if found.state in ("fused", "partly") else ("", "")
        )
        short = found.short if found.state in ("fused", "partly") else ""
        print(f"| {found.family} | {found.state} | {apart[0]} | {apart[1]} | {short} | {found.why.replace('|', '/')} |")
    if wrong:
        sys.exit(f"wrong: {', '.join(found.family for found in wrong)}")


if __name__ == "__main__":
    main()
