"""A real checkpoint in transformers, patched and not: the same tokens, and the same bits where that is promised."""

import copy
from typing import TYPE_CHECKING

import pytest
import smollm

import fastpos

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

COUNT = 64
QUESTIONS = [
    "What is the capital of France?",
    "Explain in three sentences why the sky looks blue at noon but red at dusk.",
]


@pytest.fixture(scope="module")
def checkpoint() -> smollm.Checkpoint:
    return smollm.read_checkpoint(smollm.checkpoint_path())


@pytest.fixture(scope="module")
def model(checkpoint: smollm.Checkpoint) -> "LlamaForCausalLM":
    return smollm.llama_of_transformers(checkpoint)


@pytest.fixture(scope="module")
def batch(checkpoint: smollm.Checkpoint) -> "dict[str, torch.Tensor]":
    """Two questions, the shorter one padded on the left."""
    import torch

    tokenizer = smollm.Tokenizer(checkpoint.metadata)
    prompts = [tokenizer.chat(question) for question in QUESTIONS]
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_greedy_tokens_are_the_same(model: "LlamaForCausalLM", batch: "dict[str, torch.Tensor]", numerics: str) -> None:
    options = {"do_sample": False, "max_new_tokens": COUNT, "min_new_tokens": COUNT, "pad_token_id": 0}
    plain = model.generate(**batch, **options)
    with fastpos.hf.patch(model, numerics=numerics) as report:
        assert report.state == "fused"
        patched = model.generate(**batch, **options)
    assert patched.shape[1] == batch["input_ids"].shape[1] + COUNT
    assert patched.tolist() == plain.tolist()


def test_bfloat16_logits_are_the_same_bits(model: "LlamaForCausalLM", batch: "dict[str, torch.Tensor]") -> None:
    import torch

    short = copy.deepcopy(model).to(torch.bfloat16)
    with torch.no_grad():
        plain = short(**batch).logits
        with fastpos.hf.patch(short, numerics="hf"):
            assert torch.equal(short(**batch).logits, plain)
        with fastpos.hf.patch(short):
            assert not torch.equal(short(**batch).logits, plain)
