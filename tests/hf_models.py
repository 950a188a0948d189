"""Tiny models of transformers, a batch for them, and what patching changes of them."""

import sys
import types
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from hf_families import built

__all__ = ["batch", "built", "logits", "scaled", "state_of"]


def batch(first=3, tokens=12):
    """A batch with padding on the left."""
    ids = torch.randint(first, 128, (2, tokens), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, : tokens // 3] = 0
    return {"input_ids": ids, "attention_mask": mask}


def state_of(model):
    """What patching changes: forwards of instances, and functions of the Python modules that the model's code is from."""
    forwards = {name: vars(module).get("forward") for name, module in model.named_modules()}
    modules = {sys.modules[type(module).__module__] for module in model.modules()}
    functions = {
        (module.__name__, name): value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType)
    }
    return forwards, functions


@torch.no_grad()
def logits(model, given):
    """Of tokens that are no padding; what padding gives depends on nothing that counts."""
    return model(**given).logits[given["attention_mask"].bool()]


def scaled(parameters, **more):
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, **more}
    heads = {"num_attention_heads": 4, "max_position_embeddings": 512, "rope_parameters": parameters}
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).eval()
