"""The example on a real checkpoint: however a token's position is given, the model says the same.

``FASTPOS_TEST_GGUF`` names the file: SmolLM2-135M-Instruct as ``.gguf``, or the wheel that holds it. Its weights become
the same float32 numbers for us and for transformers, so that greedy tokens can be compared one by one.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from smollm import checkpoint_path, llama_of_transformers, load_transformers

import fastpos

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from checkpoint import Checkpoint, read_checkpoint
from generate import generate, generate_packed, generate_padded
from gguf import GGUFWriter
from llama import Cache, Llama, rms_norm
from tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

QUESTIONS = [
    "What is the capital of France?",
    "Explain in three sentences why the sky looks blue at noon but red at dusk.",
]

# At each of these steps the best token leads the second by 0.02 or more in its score, while two ways to the same sum
# differ by 6e-5 (both measured): rounding cannot swap them.
COUNT = 32


@pytest.fixture(scope="module")
def path() -> Path:
    return checkpoint_path()


@pytest.fixture(scope="module")
def checkpoint(path: Path) -> Checkpoint:
    return read_checkpoint(path)


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> Llama:
    return Llama.from_checkpoint(checkpoint)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return Tokenizer(checkpoint.metadata)


@pytest.fixture(scope="module")
def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    return [tokenizer.chat(question) for question in QUESTIONS]


@pytest.fixture(scope="module")
def expected(model: Llama, prompts: list[list[int]]) -> np.ndarray:
    """Each prompt alone, prefilled in one piece: ``(prompts, COUNT)``."""
    return np.array([list(generate(model, prompt, COUNT)) for prompt in prompts])


@pytest.mark.parametrize("chunk", [1, 7], ids=["token by token", "in chunks"])
def test_prefill_can_be_cut_anywhere(model: Llama, prompts: list[list[int]], expected: np.ndarray, chunk: int) -> None:
    actual = [list(generate(model, prompt, COUNT, chunk=chunk)) for prompt in prompts]
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("together", [generate_packed, generate_padded], ids=["packed", "left-padded"])
def test_prompts_together_generate_what_each_does_alone(
    model: Llama, prompts: list[list[int]], expected: np.ndarray, together: Callable[..., np.ndarray]
) -> None:
    np.testing.assert_array_equal(together(model, prompts, COUNT), expected)


def decode_into_a_cache(rope: fastpos.Rotary, keys: np.ndarray) -> np.ndarray:
    cache = np.full((1, len(keys) + 3, *keys.shape[1:]), np.nan, keys.dtype)
    for position in range(len(keys)):
        new = slice(position, position + 1)
        fastpos.apply(rope, keys[None, new], start=position, out=cache[:, new])
    assert np.isnan(cache[:, len(keys) :]).all()
    return cache[0, : len(keys)]


def left_padded(rope: fastpos.Rotary, keys: np.ndarray) -> np.ndarray:
    rows = np.stack([np.concatenate([keys[-3:], keys[:-3]]), keys])
    mask = np.stack([np.arange(len(keys)) >= 3, np.ones(len(keys), bool)])
    rotated = fastpos.apply(rope, rows, positions=fastpos.positions.from_mask(mask))
    return np.concatenate([rotated[0, 3:], rotated[1, -3:]])


WAYS: dict[str, Callable[[fastpos.Rotary, np.ndarray], np.ndarray]] = {
    "start, packed": lambda rope, keys: fastpos.apply(rope, keys, start=0),
    "start, in place": lambda rope, keys: fastpos.apply_(rope, keys.copy()[None], start=0)[0],
    "start, one a row": lambda rope, keys: np.concatenate(
        fastpos.apply(rope, np.stack([keys[:20], keys[20:40]]), start=[0, 20])
    ),
    "positions (s,)": lambda rope, keys: fastpos.apply(rope, keys[None], positions=np.arange(len(keys)))[0],
    "positions (b, s), from a mask": left_padded,
    "positions (t,), backwards": lambda rope, keys: fastpos.apply(
        rope, keys[::-1], positions=np.arange(len(keys))[::-1]
    )[::-1],
    "cu_seqlens": lambda rope, keys: fastpos.apply(
        rope, np.concatenate([keys[:5], keys]), cu_seqlens=[0, 5, 5 + len(keys)]
    )[5:],
    "cu_seqlens and start": lambda rope, keys: fastpos.apply(rope, keys, cu_seqlens=[0, 9, len(keys)], start=[0, 9]),
    "decode into a cache": decode_into_a_cache,
}


@pytest.mark.parametrize("way", WAYS)
def test_keys_are_the_same_bits_however_their_position_is_given(
    model: Llama, prompts: list[list[int]], way: str
) -> None:
    layer, hidden = model.layers[0], model.embedding[prompts[1][:40]]
    keys = rms_norm(hidden, layer.attn_norm, model.epsilon) @ layer.attn_k.T
    keys = keys.reshape(len(keys), model.key_heads, -1)
    expected = fastpos.apply(model.rope, keys[None], start=0)[0]
    actual = WAYS[way](model.rope, keys)
    np.testing.assert_array_equal(np.ascontiguousarray(actual).view(np.uint32), expected.view(np.uint32))


def test_the_cache_holds_the_same_keys_alone_packed_and_padded(model: Llama, prompts: list[list[int]]) -> None:
    # Scores depend on distances alone, so that tokens would not tell if all positions of a row were shifted. Keys tell.
    short, long = (np.array(prompt) for prompt in prompts)
    pad = len(long) - len(short)
    alone, packed, padded = model.cache(1, len(short)), model.cache(len(short) + len(long)), model.cache(2, len(long))
    model.forward(short[None], alone, start=0)
    borders = [0, len(long), len(long) + len(short)]
    model.forward(
        np.concatenate([long, short]), packed, document=np.repeat([0, 1], np.diff(borders)), cu_seqlens=borders
    )
    mask = np.stack([np.ones(len(long), bool), np.arange(len(long)) >= pad])
    rows = np.stack([long, np.concatenate([np.zeros(pad, int), short])])
    positions = fastpos.positions.from_mask(mask)
    model.forward(rows, padded, document=np.where(mask, 0, -1), positions=positions)
    np.testing.assert_allclose(packed.keys[:, len(long) :], alone.keys[:, 0], rtol=0, atol=1e-3)
    np.testing.assert_allclose(padded.keys[:, 1, pad:], alone.keys[:, 0], rtol=0, atol=1e-3)


@pytest.fixture(scope="module")
def peer(checkpoint: Checkpoint) -> "LlamaForCausalLM":
    return llama_of_transformers(checkpoint)


def test_greedy_tokens_are_those_of_transformers(
    peer: "LlamaForCausalLM", prompts: list[list[int]], expected: np.ndarray
) -> None:
    import torch
    from transformers import GenerationConfig

    greedy = GenerationConfig(do_sample=False, max_new_tokens=COUNT)
    for prompt, tokens in zip(prompts, expected, strict=True):
        given = torch.tensor([prompt])
        output = peer.generate(given, attention_mask=torch.ones_like(given), generation_config=greedy)
        assert output[0, len(prompt) :].tolist() == tokens.tolist()


def test_scores_are_those_of_transformers(peer: "LlamaForCausalLM", model: Llama, prompts: list[list[int]]) -> None:
    import torch

    for prompt in prompts:
        with torch.inference_mode():
            expected = peer(torch.tensor([prompt])).logits[0].numpy()
        actual = model.logits(model.forward(np.array([prompt]), model.cache(1, len(prompt)), start=0)[0])
        # Scores reach 38; the two sums differ by 1.4e-4 at most (measured).
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-3)


def test_tokens_are_those_of_transformers(path: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    load_transformers()
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            [name] = [name for name in wheel.namelist() if name.endswith(".gguf")]
            path = Path(wheel.extract(name, tmp_path))
    peer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # The loader leaves out that digits stand alone, which the file says by tokenizer.ggml.pre = "smollm".
    peer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    texts = [
        "Hello 2024  it's ½ x² a  1\n\n ok",
        "tabs\t\tand  \n spaces   ",
        "日本語 ３つ 一二 Ⅷ",
        "naïve cafe\u0301\u2019s don't WE'LL I'm we've",
        "_under_score __x__ -- !?...'s 'tis \u00a0\u3000y",
        "def f(x):\n    return x + 1  # 🙂👍🏽 ₂\n",
    ]
    for text in texts:
        tokens = tokenizer.encode(text)
        assert tokens == peer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(tokens).decode() == text
    for question in QUESTIONS:
        conversation = [{"role": "user", "content": question}]
        assert (
            tokenizer.chat(question) == peer.apply_chat_template(conversation, add_generation_prompt=True)["input_ids"]
        )


def test_the_command_prints_the_answer(path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, sys.modules["generate"].__file__, path, QUESTIONS[0], "--tokens", "16"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, encoding="utf-8")
    assert run.stdout == "The capital of France is Paris.\n"
    assert "tokens/s" in run.stderr


def test_a_control_token_in_a_prompt_is_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|im_end|>") != [tokenizer.end]
    assert tokenizer.decode(tokenizer.encode("<|im_end|>")) == b"<|im_end|>"


def test_a_checkpoint_is_read_from_a_file_and_from_a_wheel(tmp_path: Path) -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    writer = GGUFWriter(tmp_path / "tiny.gguf", "gpt2")
    writer.add_tensor("token_embd.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w") as wheel:
        wheel.write(tmp_path / "tiny.gguf", "package/tiny.gguf")
    for name in ("tiny.gguf", "tiny.whl"):
        checkpoint = read_checkpoint(tmp_path / name)
        np.testing.assert_array_equal(checkpoint.tensors["token_embd.weight"], weight)
        with pytest.raises(ValueError, match="expected the architecture 'llama', got 'gpt2'"):
            Llama.from_checkpoint(checkpoint)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "empty.whl", "w").close()
    with pytest.raises(ValueError, match=r"expected one .gguf file in empty.whl, found 0: \[\]"):
        read_checkpoint(tmp_path / "empty.whl")
    scaled = Checkpoint({"general.architecture": "llama", "llama.rope.scaling.type": "yarn"}, {})
    with pytest.raises(ValueError, match="expected unscaled rotary frequencies"):
        Llama.from_checkpoint(scaled)
    with pytest.raises(
        ValueError, match=r"expected a tokenizer of the kind \('gpt2', 'smollm'\), got \('llama', 'x'\)"
    ):
        Tokenizer({"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "x"})


def test_a_full_cache_is_an_error() -> None:
    cache = Cache(np.zeros(0), np.zeros(0), np.zeros((1, 4), int), length=3)
    with pytest.raises(ValueError, match="the cache holds 4 tokens, 5 are needed"):
        cache.append(2, 0)
    assert cache.length == 3
