"""The operators of PyTorch's library, registered once, here: what compiled graphs, exports, gradients and shards see.

``fastpos::encode`` and its kin take one tensor or a pair, and say what to do in the word ``call`` (torch_request.Request):
an encoding is no tensor, and a number that named one would mean nothing in a graph that is loaded elsewhere. Low-level
``define`` and ``impl``: ``custom_op`` costs 4 to 8 us a call (2 us here), and a decoded token takes 1.
"""

from typing import Any

import torch

from . import torch_rules
from .torch_device import run_on_device
from .torch_run import run

# Sharding keeps what it has found out by the arguments from the first integer on: the word must be among them.
WHERE = "SymInt start, str call, Tensor? where=None, Tensor? begins=None, Tensor? table=None"
SCHEMAS = {
    "encode": f"(Tensor x, {WHERE}) -> Tensor",
    "encode_pair": f"(Tensor x, Tensor y, {WHERE}) -> (Tensor, Tensor)",
    "encode_": f"(Tensor(a!) x, {WHERE}) -> ()",
    "encode_pair_": f"(Tensor(a!) x, Tensor(b!) y, {WHERE}) -> ()",
    "encode_into": f"(Tensor x, Tensor(a!) out, {WHERE}) -> ()",
    "encode_pair_into": f"(Tensor x, Tensor y, Tensor(a!) out, Tensor(b!) out_y, {WHERE}) -> ()",
}
library = torch.library.Library("fastpos", "DEF")
for _name, _schema in SCHEMAS.items():
    library.define(_name + _schema)


def _implement(key: str, work: Any) -> None:
    """Six operators from one function; the dispatcher leaves out arguments that equal their defaults."""

    def encode(x, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
        result = torch.empty_like(x)
        work((x,), (result,), start, call, where, begins, table)
        return result

    def encode_pair(x, y, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
        results = (torch.empty_like(x), torch.empty_like(y))
        work((x, y), results, start, call, where, begins, table)
        return results

    def encode_(x, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
        tensors = (x,)
        work(tensors, tensors, start, call, where, begins, table)

    def encode_pair_(x, y, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
        tensors = (x, y)
        work(tensors, tensors, start, call, where, begins, table)

    def encode_into(x, out, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
        work((x,), (out,), start, call, where, begins, table)

    def encode_pair_into(x, y, out, out_y, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
        work((x, y), (out, out_y), start, call, where, begins, table)

    library.impl("encode", encode, key)
    library.impl("encode_pair", encode_pair, key)
    library.impl("encode_", encode_, key)
    library.impl("encode_pair_", encode_pair_, key)
    library.impl("encode_into", encode_into, key)
    library.impl("encode_pair_into", encode_pair_into, key)


_implement("CPU", run)
_implement("CUDA", run_on_device)


@torch.library.register_fake("fastpos::encode", lib=library)
def _fake_encode(x, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
    return torch.empty_like(x)


@torch.library.register_fake("fastpos::encode_pair", lib=library)
def _fake_encode_pair(x, y, start, call, where=None, begins=None, table=None):  # type: ignore[no-untyped-def]
    return torch.empty_like(x), torch.empty_like(y)


def _fake_write(*arguments, **named):  # type: ignore[no-untyped-def]
    return None


for _name in ("encode_", "encode_pair_", "encode_into", "encode_pair_into"):
    torch.library.register_fake(f"fastpos::{_name}", _fake_write, lib=library)

encode = torch.ops.fastpos.encode.default
encode_pair = torch.ops.fastpos.encode_pair.default
encode_ = torch.ops.fastpos.encode_.default
encode_pair_ = torch.ops.fastpos.encode_pair_.default
encode_into = torch.ops.fastpos.encode_into.default
encode_pair_into = torch.ops.fastpos.encode_pair_into.default
torch_rules.register(library, {_name: getattr(torch.ops.fastpos, _name).default for _name in SCHEMAS})
