"""``fastpos.hf.patch``: live models of transformers compute what they did, by fastpos."""

import copy

import numpy as np
import oracle
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed: its models are patched")

from hf_models import batch, built, logits, scaled, state_of  # noqa: E402

import fastpos.hf  # noqa: E402
from fastpos.hf import turns  # noqa: E402

# One of each kind of seam: the usual one; two types of layers; partial; interleaved; interleaved and partial; cosines of
# half the width; one tensor; complex waves; read interleaved and written in halves; a table of sines; several axes; trailing
# channels, undone afterwards; frequencies by share.
FAMILIES = [
    "llama",
    "gemma3_text",
    "gpt_neox",
    "cohere",
    "glm4",
    "gpt_oss",
    "gemma4_text",
    "llama4_text",
    "deepseek_v3",
    "gptj",
    "qwen3_5_text",
    "deepseek_v4",
    "nanochat",
]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def llama():
    return built("llama", num_hidden_layers=2)


@pytest.fixture
def modeling():
    from transformers.models.llama import modeling_llama

    return modeling_llama


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_computes_what_it_did(family):
    model, given = built(family), batch()
    before, plain = state_of(model), logits(model, given)
    calls = []
    for numerics in ("hf", "exact"):
        with fastpos.hf.patch(model, numerics=numerics) as report, pytest.MonkeyPatch.context() as patched:
            patched.setattr(turns, "apply", lambda *args, **kwargs: calls.append(1) or fastpos.apply(*args, **kwargs))
            result = logits(model, given)
        assert report.state == "fused", str(report)
        assert report.numerics == numerics
        # Rounding of float32 sums: over the largest logit.
        assert float((result - plain).abs().max() / plain.abs().max()) <= 1e-5
    assert len(calls) >= 2
    assert state_of(model) == before
    assert torch.equal(logits(model, given), plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "glm4", "llama4_text", "qwen3_5_text", "zaya"])
def test_hf_gives_the_same_bits_in_short_types(family, dtype):
    model, given = built(family).to(dtype), batch(tokens=48)
    plain = logits(model, given)
    with fastpos.hf.patch(model, numerics="hf") as report:
        assert report.state == "fused", str(report)
        assert torch.equal(logits(model, given), plain)


def test_exact_is_the_model_at_exact_angles(llama):
    """Far out, where float32 angles are off by 0.008, float32 logits are those of float64 at exact angles."""
    for layer in llama.model.layers:
        # Random weights are small, so that attention is the same for all tokens and angles hardly count.
        layer.self_attn.q_proj.weight.data *= 30
        layer.self_attn.k_proj.weight.data *= 30
    given = batch()
    given["position_ids"] = torch.arange(12).expand(2, -1) * 4001 + 131072 - 12 * 4001
    plain = logits(llama, given)
    with fastpos.hf.patch(llama):
        exact = logits(llama, given)
    double = copy.deepcopy(llama)
    frequencies = llama.model.rotary_emb.inv_freq
    double.double()
    double.model.rotary_emb.inv_freq = frequencies
    with fastpos.hf.patch(double):
        truth = logits(double, given)
    with fastpos.hf.patch(double, numerics="hf"):
        off = logits(double, given)
    scale = truth.abs().max()
    # Rounding of float32 sums: 1.4e-6 measured.
    assert float((exact - truth).abs().max() / scale) <= 5e-6
    # What transformers is off by (3.7e-3 measured) is what its angles are off by, and nothing else.
    assert float((plain - truth).abs().max() / scale) >= 1e-3
    assert float((plain - off).abs().max() / scale) <= 5e-6


def test_errors_of_positions_far_out(modeling):
    """Sines and cosines at 131,072, by 50 digits from the model's own frequencies: transformers' beside ours."""
    model = scaled({"rope_type": "default", "rope_theta": 1e4}, head_dim=128)
    at = torch.arange(131072 - 256, 131072)[None]
    unit = torch.zeros(1, 1, 256, 128)
    unit[..., :64] = 1

    def error():
        waves = model.model.rotary_emb(torch.zeros(1, 256, 64), position_ids=at)
        turned, _ = modeling.apply_rotary_pos_emb(unit, unit, *waves)
        return oracle.error(turned[0, 0].numpy(), right).max()

    cos, sin = oracle.waves(at[0].tolist(), model.model.rotary_emb.inv_freq.tolist())
    right = np.concatenate([cos, sin], axis=1)
    assert 1e-3 <= error() <= 8e-3
    with fastpos.hf.patch(model):
        assert error() <= 1.2e-7


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_generation_with_padding_gives_the_same_tokens(llama, cache, numerics):
    kept = {"cache_implementation": cache, "do_sample": False, "max_new_tokens": 24}
    plain = llama.generate(**batch(), **kept)
    with fastpos.hf.patch(llama, numerics=numerics):
        assert torch.equal(llama.generate(**batch(), **kept), plain)


@pytest.mark.parametrize(("family", "dynamic"), [("llama", True), ("llama4_text", False)])
def test_compiled_into_one_graph(family, dynamic):
    model, given = built(family, num_hidden_layers=1), batch()
    with fastpos.hf.patch(model):
        plain = logits(model, given)
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        assert torch.equal(logits(compiled, {**given, "use_cache": False}), plain)
        longer = batch(tokens=18)
        torch.testing.assert_close(logits(compiled, {**longer, "use_cache": False}), logits(model, longer))
    torch._dynamo.reset()


def test_exported(llama):
    given = {**batch(), "use_cache": False}
    with fastpos.hf.patch(llama), torch.no_grad():
        exported = torch.export.export(llama, (), given)
        plain = logits(llama, given)
    assert "fastpos.encode_pair" in str(exported.graph)
    assert torch.equal(exported.module()(**given).logits[given["attention_mask"].bool()], plain)


def gradients(model, given):
    model.zero_grad()
    model(**given, use_cache=False).logits.square().mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_gradients_and_checkpoints(llama):
    llama.train()
    plain = gradients(llama, batch())
    with fastpos.hf.patch(llama):
        assert llama.training
        patched = gradients(llama, batch())
        getattr(llama, "activation_checkpointing_enable", llama.gradient_checkpointing_enable)()
        assert torch.equal(gradients(llama, batch()), patched)
    torch.testing.assert_close(patched, plain, rtol=1e-4, atol=1e-6)


def test_layers_that_move_their_inputs(llama):
    """As layers on other devices do: what they are given is copied there first, in whatever it lies."""
    before = logits(llama, batch())

    def moved(value):
        if isinstance(value, tuple | list):
            return type(value)(map(moved, value))
        return value.to("cpu", copy=True) if hasattr(value, "to") else value

    for layer in llama.model.layers:
        layer.register_forward_pre_hook(
            lambda layer, args, kwargs: (moved(args), {name: moved(value) for name, value in kwargs.items()}),
            with_kwargs=True,
        )
    with fastpos.hf.patch(llama, numerics="hf") as report:
        assert report.state == "fused", str(report)
        torch.testing.assert_close(logits(llama, batch()), before)


def test_autocast(llama):
    with torch.autocast("cpu", torch.bfloat16):
        plain = logits(llama, batch())
        with fastpos.hf.patch(llama):
            torch.testing.assert_close(logits(llama, batch()), plain, rtol=0, atol=0.02)


LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 14}
LONGROPE |= {"short_factor": [1.0 + pair / 8 for pair in range(8)], "long_factor": [2.0 + pair for pair in range(8)]}


def test_longrope_compiled_into_one_graph():
    model, given = scaled(LONGROPE, num_hidden_layers=1), [batch(tokens=tokens) for tokens in (14, 15)]
    plain = [logits(model, some) for some in given]
    with fastpos.hf.patch(model):
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
        for expected, some in zip(plain, given, strict=True):
            torch.testing.assert_close(logits(compiled, {**some, "use_cache": False}), expected, rtol=0, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_longrope_goes_by_the_length_of_the_batch(numerics):
    model = scaled(LONGROPE)
    plain = [logits(model, batch(tokens=tokens)) for tokens in (12, 14, 15, 40)]
    options = {"do_sample": False, "max_new_tokens": 8}
    tokens = model.generate(**batch(), **options)
    with fastpos.hf.patch(model, numerics=numerics) as report:
        assert report.state == "fused", str(report)
        given = [batch(tokens=tokens) for tokens in (12, 14, 15, 40)]
        for expected, some in zip(plain, given, strict=True):
            torch.testing.assert_close(logits(model, some), expected, rtol=0, atol=1e-5)
        assert torch.equal(model.generate(**batch(), **options), tokens)
    # These logits tell short and long apart.
    short = scaled({**LONGROPE, "long_factor": LONGROPE["short_factor"]})
    apart = [float((logits(short, some) - expected).abs().max()) for some, expected in zip(given, plain, strict=True)]
    assert apart[:2] == [0, 0]
    assert min(apart[2:]) > 1e-4


@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_a_factor_and_scaled_frequencies_are_the_models_own(numerics):
    model = scaled({"rope_theta": 1e4, "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}).to(
        torch.bfloat16 if numerics == "hf" else torch.float32
    )
    plain = logits(model, batch())
    with fastpos.hf.patch(model, numerics=numerics) as report:
        assert report.state == "fused"
        result = logits(model, batch())
    torch.testing.assert_close(result, plain, rtol=0, atol=0 if numerics == "hf" else 1e-5)
