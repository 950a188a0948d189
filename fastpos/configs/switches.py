"""Keys that a family's code does not read, but that files carry: what they say where they say what it does anyway."""

from .families import Family
from .rules import warn
from .values import Values

TURNS = (
    *("rope", "rotary", "use_rope", "use_rotary", "use_rotary_emb", "use_rotary_embedding", "use_rotary_embeddings"),
    *("use_rotary_position_embeddings", "use_rope_embeddings", "apply_rope", "apply_rotary"),
)
OFF = ("no_rope", "disable_rope", "alibi", "use_alibi", "use_mem_rope", "use_rope_scaling", "use_dynamic_rope")
PAIRED = ("rope_interleaved", "rope_interleave", "rotary_interleaved", "rotary_emb_interleaved", "rope_traditional")
SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rope_pct", "rope_percent", "rotary_emb_fraction")
# Of attention beside rotation, in the code of some models' own authors; transformers heeds the last for Llama 4 alone.
UNHEEDED = ("use_logn_attn", "use_dynamic_ntk", "dual_chunk_attention_config", "attn_temperature_tuning")


def switches(family: Family) -> dict[str, bool]:
    """What each switch says where it says what the family's code does."""
    return {
        **dict.fromkeys(TURNS, True),
        **dict.fromkeys(OFF, False),
        **dict.fromkeys(PAIRED, family.interleaved),
        **dict.fromkeys(("use_mrope", "mrope"), bool(family.sections)),
        "mrope_interleaved": family.order == "interleaved",
    }


def agree(config: Values, family: Family) -> None:
    """Count switches as read that say what holds anyway, and warn of what nobody heeds."""
    for key, holds in switches(family).items():
        config.agree(key, holds)
    for key in UNHEEDED:
        if key not in config.read and (found := config.content.get(key)):
            warn(f"{config.name(key)}: neither transformers nor fastpos heeds it for this model, got {found!r}")
