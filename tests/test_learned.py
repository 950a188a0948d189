"""Learned tables from a checkpoint's config: the row that each model's own code reads."""

import json

import numpy as np
import oracle
import pytest

import fastpos
from fastpos import Learned
from fastpos.learned import DIRECT, FROM_PADDING, TWO

ROWS, WIDTH = 40, 16
TABLE = np.random.default_rng(5).standard_normal((ROWS, WIDTH)).astype(np.float32)


class Config:
    """A config object as transformers has them."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def to_dict(self):
        """Return the fields, as transformers does."""
        return dict(self.__dict__)


@pytest.mark.parametrize("kind", [dict, Config])
@pytest.mark.parametrize(
    ("config", "offset"),
    [
        ({"model_type": "gpt2", "pad_token_id": 7}, 0),
        ({"model_type": "bert"}, 0),
        ({"model_type": "opt", "pad_token_id": 1}, 2),
        ({"model_type": "bart"}, 2),
        ({"model_type": "roberta", "pad_token_id": 1}, 2),
        ({"model_type": "esm", "pad_token_id": 0}, 1),
        ({"model_type": "xlm-roberta", "pad_token_id": 5}, 6),
    ],
    ids=repr,
)
def test_offsets(backend, kind, config, offset):
    learned = Learned.from_config(TABLE, kind(**config))
    assert learned.offset == offset
    x = np.zeros((3, WIDTH), np.float32)
    oracle.assert_same(fastpos.apply(learned, x, start=4, backend=backend), TABLE[4 + offset : 7 + offset])


@pytest.mark.parametrize(("config", "error", "message"), [
    ({"model_type": "llama"}, ValueError, "config: model type 'llama' is not known to have a learned table"),
    ({}, ValueError, "config: model type None is not known"),
    ({"model_type": "roberta"}, ValueError, "config: expected pad_token_id for the model type 'roberta'"),
    ({"model_type": "roberta", "pad_token_id": "1"}, TypeError, "pad_token_id: expected an integer, got '1'"),
    ({"model_type": "roberta", "pad_token_id": 39}, ValueError, "offset: expected 0 to 39, got 40"),
])  # fmt: skip
def test_refused(config, error, message):
    with pytest.raises(error, match=message):
        Learned.from_config(TABLE, config)


def test_every_source(tmp_path):
    """A config is read as Rotary.from_config reads it, and what is none is refused by its type."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt"}), encoding="utf-8")
    for source in (tmp_path, str(tmp_path), tmp_path / "config.json"):
        assert Learned.from_config(TABLE, source).offset == 2
    for wrong in (None, 5, object()):
        with pytest.raises(
            TypeError, match=r"config: expected a dict, the path of a config\.json or its folder, .* got a "
        ):
            Learned.from_config(TABLE, wrong)
    with pytest.raises(FileNotFoundError, match="config: expected the path"):
        Learned.from_config(TABLE, "facebook/opt-125m")


# Against transformers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transformers():
    """The package, where it is."""
    pytest.importorskip("torch", reason="PyTorch is not installed: compares with what transformers computes")
    return pytest.importorskip("transformers", reason="transformers is not installed: compares with what it computes")


@pytest.mark.parametrize("name", [*DIRECT, *TWO, *FROM_PADDING])
def test_every_model_type_exists(transformers, name):
    assert name in transformers.CONFIG_MAPPING


def test_rows_that_models_read(transformers):
    import torch
    from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding
    from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    x, weights = np.zeros((1, 6, WIDTH), np.float32), torch.nn.Parameter(torch.tensor(TABLE))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    at = fastpos.positions.from_mask(mask.numpy())
    opt = OPTLearnedPositionalEmbedding(ROWS - 2, WIDTH)
    opt.weight = weights
    ours = fastpos.apply(Learned.from_config(TABLE, {"model_type": "opt"}), x, positions=at)
    # The padded places differ: OPT reads row 1 there.
    oracle.assert_same(ours[:, 2:], opt(mask).detach().numpy()[:, 2:])
    bart = BartLearnedPositionalEmbedding(ROWS - 2, WIDTH)
    bart.weight = weights
    ours = fastpos.apply(Learned.from_config(TABLE, {"model_type": "bart"}), x, start=3)
    oracle.assert_same(ours, bart(torch.zeros(1, 6), 3).detach().numpy())
    ids = RobertaEmbeddings.create_position_ids_from_input_ids(torch.tensor([[1, 1, 9, 8, 7, 6]]), 1)
    ours = fastpos.apply(Learned.from_config(TABLE, {"model_type": "roberta", "pad_token_id": 1}), x, positions=at)
    oracle.assert_same(ours[:, 2:], TABLE[ids.numpy()][:, 2:])
