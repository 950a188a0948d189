"""``fastpos.hf.patch`` and the lives of models: others of a family, copies, errors, what is left alone and what is refused."""

import copy
import gc
import inspect
import io
import pickle

import children
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed: its models are patched")

from hf_models import batch, built, logits, scaled, state_of  # noqa: E402

import fastpos.hf  # noqa: E402
from fastpos.hf.seams import rotary_modules  # noqa: E402


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


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gptj", "deepseek_v3"])
def test_a_patch_is_the_models_own(family):
    one, other = built(family), built(family)
    plain = logits(other, batch())
    with fastpos.hf.patch(one) as first:
        patched = logits(one, batch())
        assert torch.equal(logits(other, batch()), plain)
        with fastpos.hf.patch(other) as second:
            assert first.state == second.state == "fused", str(second)
            assert torch.equal(logits(other, batch()), patched)
        assert torch.equal(logits(one, batch()), patched)
        assert torch.equal(logits(other, batch()), plain)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gptj", "deepseek_v3"])
def test_a_model_that_was_collected_leaves_nothing(family):
    model = built(family)
    before = state_of(model)[1]
    lost = built(family)
    fastpos.hf.patch(lost)
    assert state_of(model)[1] != before
    del lost
    gc.collect()
    with fastpos.hf.patch(model) as report:
        assert report.state == "fused", str(report)
    assert state_of(model)[1] == before


def test_undone_after_an_error(llama):
    before = state_of(llama)

    def fail():
        with fastpos.hf.patch(llama):
            raise RuntimeError("own")

    with pytest.raises(RuntimeError, match="own"):
        fail()
    assert state_of(llama) == before
    fastpos.hf.unpatch(llama)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, pickled, saved])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gptj", "deepseek_v3"])
def test_a_copy_is_not_patched(family, twin_of):
    model, plain = built(family), logits(built(family), batch())
    fastpos.hf.patch(model)
    twin = twin_of(model)
    # Also a copy of a copy, and with frequencies of its own.
    again = twin_of(twin)
    rotary = [module for _, module in rotary_modules(again)]
    assert all(module.forward.__self__ is module for module in rotary)
    patched = logits(model, batch())
    for made in (twin, again):
        assert torch.equal(logits(made, batch()), plain)
        with fastpos.hf.patch(made) as report:
            assert report.state == "fused", str(report)
            assert torch.equal(logits(made, batch()), patched)
        assert torch.equal(logits(made, batch()), plain)
    fastpos.hf.unpatch(model)
    assert torch.equal(logits(twin, batch()), plain)
    for module in rotary:
        for held in module.buffers():
            held.mul_(0.5)
    assert not torch.equal(logits(again, batch()), plain)
    assert torch.equal(logits(model, batch()), plain)


def test_a_copy_has_the_forward_of_its_instance(llama):
    """One that was there before the patch, bound to the copy where it is a method."""
    rotary, plain = llama.model.rotary_emb, logits(llama, batch())
    rotary.forward = type(rotary).forward.__get__(rotary)
    with fastpos.hf.patch(llama):
        for twin in (copy.deepcopy(llama), pickled(llama)):
            assert vars(twin.model.rotary_emb)["forward"].func.__self__ is twin.model.rotary_emb
            assert torch.equal(logits(twin, batch()), plain)


def test_what_was_put_around_a_patch_stays(llama):
    plain = logits(llama, batch())
    fastpos.hf.patch(llama)
    rotary = llama.model.rotary_emb
    inner = rotary.forward
    rotary.forward = around = lambda *args, **kwargs: inner(*args, **kwargs)
    fastpos.hf.unpatch(llama)
    assert rotary.forward is around
    assert torch.equal(logits(llama, batch()), plain)


def test_a_forward_of_the_instance_comes_back(llama):
    rotary = llama.model.rotary_emb
    own = type(rotary).forward.__get__(rotary)
    rotary.forward = own
    with fastpos.hf.patch(llama) as report:
        assert report.state == "fused"
    assert vars(rotary)["forward"] is own


def test_patching_changes_nothing_else(llama):
    llama.train()
    llama.model.layers[0].eval()
    modes, noise = [module.training for module in llama.modules()], torch.get_rng_state()
    with fastpos.hf.patch(llama):
        assert [module.training for module in llama.modules()] == modes
        assert torch.equal(torch.get_rng_state(), noise)
    assert all(parameter.grad is None for parameter in llama.parameters())


# What is left alone --------------------------------------------------------------------------------------------------


def alone(model, why, numerics="exact"):
    before, plain = state_of(model), logits(model, batch())
    report = fastpos.hf.patch(model, numerics=numerics)
    assert report.state == "left alone"
    assert why in str(report.parts) or why in str(report).replace("\n", " ")
    assert state_of(model) == before
    assert torch.equal(logits(model, batch()), plain)
    fastpos.hf.unpatch(model)


def test_frequencies_that_grow_are_left_alone():
    alone(scaled({"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}), "grow with the length of the batch")


def test_code_that_looks_at_cosines_is_left_alone(llama, modeling, monkeypatch):
    attention, original = modeling.LlamaAttention, modeling.LlamaAttention.forward

    def forward(self, hidden_states, position_embeddings=None, **kwargs):
        cos, sin = position_embeddings
        return original(self, hidden_states, position_embeddings=(cos * 1.0, sin), **kwargs)

    monkeypatch.setattr(attention, "forward", forward)
    alone(llama, "other code reads its waves")


@pytest.mark.parametrize(
    ("dtype", "numerics", "off", "why"),
    [
        (torch.float32, "exact", 2.0, "of the largest apart"),
        (torch.float32, "hf", 2.0, "of the largest apart"),
        (torch.bfloat16, "hf", 1.05, "other bits in torch.bfloat16"),
        (torch.float32, "exact", None, "raised RuntimeError: no tensor"),
        (torch.bfloat16, "hf", None, "raised RuntimeError: no tensor"),
    ],
)
def test_a_patched_model_that_computes_something_else_is_left_alone(
    llama, modeling, monkeypatch, dtype, numerics, off, why
):
    """Code that asks what its sines are, which no function of PyTorch sees."""
    original = modeling.LlamaAttention.forward

    def forward(self, hidden_states, position_embeddings=None, **kwargs):
        made = original(self, hidden_states, position_embeddings=position_embeddings, **kwargs)
        if isinstance(position_embeddings[1], torch.Tensor):
            return made
        if off is None:
            raise RuntimeError("no tensor")
        return made[0] * off, *made[1:]

    monkeypatch.setattr(modeling.LlamaAttention, "forward", forward)
    alone(llama.to(dtype), why, numerics)


@pytest.mark.parametrize("numerics", ["exact", "hf"])
def test_a_cache_in_the_example_stays_as_it_is(llama, numerics):
    # Versions of transformers name it differently. The run is with gradients: PyTorch does not deep-copy its tensors.
    name = "cache" if "cache" in inspect.signature(llama.forward).parameters else "past_key_values"
    cache = getattr(llama(**batch()), name)
    keys, plain = cache.layers[0].keys.clone(), logits(llama, batch())
    example = {"input_ids": torch.ones(2, 1, dtype=torch.int64), name: cache}
    with fastpos.hf.patch(llama, numerics=numerics, example=example) as report:
        assert report.state == "fused", str(report)
        assert torch.equal(cache.layers[0].keys, keys)
        torch.testing.assert_close(logits(llama, batch()), plain)


@pytest.mark.parametrize("change", ["scaled", "one head", "swapped"])
def test_what_is_no_rotation_is_left_alone(llama, modeling, monkeypatch, change):
    original = modeling.apply_rotary_pos_emb

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        q, k = original(q, k, cos, sin, unsqueeze_dim)
        if change == "scaled":
            return q * 1.0001, k
        if change == "one head":
            return q, torch.cat([k[:, :1] * 2, k[:, 1:]], dim=1)
        return k.repeat_interleave(q.shape[1] // k.shape[1], 1), q[:, : k.shape[1]]

    monkeypatch.setattr(modeling, "apply_rotary_pos_emb", apply_rotary_pos_emb)
    alone(llama, "is no rotation that fastpos knows")


def test_frequencies_that_are_not_used_are_left_alone(llama):
    rotary = llama.model.rotary_emb
    frequencies = rotary.inv_freq.clone()
    original = type(rotary).forward

    def forward(x, position_ids):
        rotary.inv_freq, held = frequencies * 1.001, rotary.inv_freq
        try:
            return original(rotary, x, position_ids)
        finally:
            rotary.inv_freq = held

    rotary.forward = forward
    alone(llama, "is no rotation that fastpos knows")


def test_what_cannot_be_probed_is_left_alone(llama):
    rotary = llama.model.rotary_emb
    original = rotary.forward

    def forward(x, position_ids):
        if int(position_ids.max()) > 512:
            raise IndexError("beyond the table")
        return original(x, position_ids)

    rotary.forward = forward
    alone(llama, "probing it raised IndexError: beyond the table")


def test_a_module_that_is_given_more_is_left_alone(llama):
    rotary = llama.model.rotary_emb
    original = rotary.forward
    rotary.forward = lambda x, position_ids, sizes=None: original(x, position_ids)
    rotary.register_forward_pre_hook(lambda module, args, kwargs: (args, {**kwargs, "sizes": [1]}), with_kwargs=True)
    alone(llama, "it is given sizes besides")


def test_a_model_without_rotation():
    alone(built("gpt2"), "it has no rotary module")


# Refused -------------------------------------------------------------------------------------------------------------


def test_refused(llama):
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, got builtins\.dict"):
        fastpos.hf.patch({})
    with pytest.raises(ValueError, match="numerics: expected one of exact, hf, got 'float32'"):
        fastpos.hf.patch(llama, numerics="float32")
    with (
        fastpos.hf.patch(llama),
        pytest.raises(ValueError, match="expected one that is not patched, got a patched Llama"),
    ):
        fastpos.hf.patch(llama)
    before = state_of(llama)
    with pytest.raises(ValueError, match="expected LlamaForCausalLM to run on input_ids, got IndexError"):
        fastpos.hf.patch(llama, example={"input_ids": torch.full((1, 4), 999)})
    assert state_of(llama) == before
    with fastpos.hf.patch(llama, example={"input_ids": torch.ones(1, 4, dtype=torch.int64)}) as report:
        assert report.state == "fused"


def test_a_call_that_was_not_seen_is_an_error(llama, modeling):
    with fastpos.hf.patch(llama):
        waves = llama.model.rotary_emb(torch.zeros(1, 3, 64), torch.arange(3)[None])
        q = torch.zeros(1, 3, 4, 16)
        with pytest.raises(ValueError, match=r"apply_rotary_pos_emb was called in a way that was not seen"):
            modeling.apply_rotary_pos_emb(q, q, *waves, unsqueeze_dim=2)
        with pytest.raises(ValueError, match="heads of 32 channels, but with"):
            modeling.apply_rotary_pos_emb(torch.zeros(1, 4, 3, 32), torch.zeros(1, 4, 3, 32), *waves)


def test_the_report(llama):
    with fastpos.hf.patch(llama) as report:
        text = str(report)
    assert text.startswith("LlamaForCausalLM: fused, numerics='exact'")
    assert "model.rotary_emb" in text
    assert report.parts == (
        fastpos.hf.Part("model.rotary_emb", "LlamaRotaryEmbedding", "fused", "apply_rotary_pos_emb"),
    )


def test_the_import_loads_no_transformers():
    children.child("import fastpos.hf, sys; assert 'transformers' not in sys.modules")
