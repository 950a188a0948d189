"""The functions that models of Hugging Face's transformers call, on ``(b, h, s, d)`` views of ``(b, s, h, d)`` memory."""

from importlib import import_module
from typing import Any

from .job import Form, Job
from .torch_forms import Tensors, array, inference, tensor


def ready(job: Job) -> Form:
    """``apply_rotary_pos_emb`` alone: a model makes the table once for all layers."""
    return _form(job, made=False)


def made(job: Job) -> Form:
    """The module that makes the table, then ``apply_rotary_pos_emb``."""
    return _form(job, made=True)


def _form(job: Job, made: bool) -> Form:
    (torch, _), transformers = inference(), import_module("transformers")
    # Cohere is the family that turns neighbouring channels with the same two functions.
    family = "Cohere" if job.case.interleaved else "Llama"
    modeling = import_module(f"transformers.models.{family.lower()}.modeling_{family.lower()}")
    heads, kv_heads = job.case.heads
    config = getattr(transformers, f"{family}Config")(
        hidden_size=heads * job.case.width,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rope_parameters={"rope_type": "default", "rope_theta": job.base()},
    )
    rotary = getattr(modeling, f"{family}RotaryEmbedding")(config)
    q, k = (tensor(x).transpose(1, 2) for x in job.inputs)
    ids = torch.from_numpy(job.positions).expand(job.case.batch, -1)
    cosine, sine = rotary(q, ids)

    def call() -> Tensors:
        table: Any = rotary(q, ids) if made else (cosine, sine)
        turned: Tensors = modeling.apply_rotary_pos_emb(q, k, *table)
        return turned

    return Form(call, lambda: tuple(array(x.transpose(1, 2)) for x in call()))
