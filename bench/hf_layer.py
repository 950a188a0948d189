"""What patching buys: the rotary part of a layer and a whole model, as it is and patched, in turns on one thread.

``python bench/hf_layer.py --models`` prints a table in Markdown; ``--tokens`` and ``--rounds`` change the sizes.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

import fastpos.hf

DTYPES = (torch.float32, torch.bfloat16)
# 32 and 8 heads of 128 channels, as in Llama 3.1 8B, for the rotary part; SmolLM2-135M's sizes for a whole model.
LAYER = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 64}
MODEL = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536}


def medians(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of each way, taken in turns.

    The first call of each turn is not counted: it finds the memory as the other way left it, which costs 1 to 2 ms of page
    faults after eager PyTorch's large temporaries.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            way()
            for _ in range(2):
                began = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - began)
    return {name: median(found) for name, found in times.items()}


def rotary_part(model: torch.nn.Module, tokens: int) -> Callable[[], Any]:
    """Cosines and sines of a call and their use in one layer, by whatever code the model has now."""
    dtype, heads = model.dtype, (32, 8)
    q, k = (torch.randn(1, tokens, count, 128, dtype=dtype).transpose(1, 2) for count in heads)
    hidden, ids = torch.zeros(1, tokens, 8, dtype=dtype), torch.arange(tokens)[None]
    waves, rotate = model.model.rotary_emb(hidden, position_ids=ids), modeling_llama.apply_rotary_pos_emb
    return lambda: rotate(q, k, *waves)


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tokens", type=int, default=512)
    options.add_argument("--rounds", type=int, default=31)
    options.add_argument("--models", action="store_true", help="time whole models as well")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    fastpos.set_num_threads(1)
    small = {"vocab_size": 512, "tie_word_embeddings": True}
    print("| what | dtype | numerics | as it is, ms | patched, ms | times |\n|---|---|---|---:|---:|---:|")
    for dtype in DTYPES:
        layer = LlamaForCausalLM(LlamaConfig(**small, **LAYER, num_hidden_layers=1)).to(dtype).eval()
        for numerics in ("exact", "hf"):
            plain = rotary_part(layer, chosen.tokens)
            with fastpos.hf.patch(layer, numerics=numerics):
                ways = {"plain": plain, "patched": rotary_part(layer, chosen.tokens)}
                _print(f"rotation in a layer, {chosen.tokens} tokens", dtype, numerics, medians(ways, chosen.rounds))
            if chosen.models:
                whole, fast = (
                    LlamaForCausalLM(LlamaConfig(**small, **MODEL, num_hidden_layers=30)).to(dtype).eval()
                    for _ in range(2)
                )
                ids = torch.randint(0, 512, (1, chosen.tokens))
                with fastpos.hf.patch(fast, numerics=numerics):
                    models = {"plain": lambda: whole(ids), "patched": lambda: fast(ids)}  # noqa: B023
                    found = medians(models, chosen.rounds // 5)
                _print(f"30 layers of 576, {chosen.tokens} tokens", dtype, numerics, found)


def _print(what: str, dtype: torch.dtype, numerics: str, found: dict[str, float]) -> None:
    plain, patched = found["plain"] * 1e3, found["patched"] * 1e3
    kind = str(dtype).removeprefix("torch.")
    print(f"| {what} | {kind} | {numerics} | {plain:.2f} | {patched:.2f} | {plain / patched:.2f} |", flush=True)


if __name__ == "__main__":
    main()
