"""What a user would call instead, as models write it, on ``(b, h, s, d)`` views of ``(b, s, h, d)`` memory.

Tables are float32 products of position and frequency, cast to x's type; one that is ``given`` was made before the clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from gpu_machine import Machine, array_of

from fastpos import Rotary, Sinusoidal
from fastpos.commands.oracle import expected

Tensors = tuple[torch.Tensor, ...]
Call = Callable[[], Tensors]
GIVEN, MADE = "given", "made in the call"
# Roundings to x's type of the result, a table and products, with room, and angles in float32.
EPSILONS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Task:
    """What is to be encoded: inputs ``(b, s, ..., d)`` with tokens at ``ids`` (b, s)."""

    machine: Machine
    encoding: Rotary | Sinusoidal
    inputs: Tensors
    ids: torch.Tensor

    @property
    def dtype(self) -> torch.dtype:
        """Of inputs and results."""
        return self.inputs[0].dtype

    def frequencies(self) -> torch.Tensor:
        """Radians a token, ``(d / 2,)``, in float32."""
        steps = torch.arange(0, self.encoding.width, 2, dtype=torch.float32, device=self.machine.device)
        return 1.0 / self.encoding.base ** (steps / self.encoding.width)


@dataclass(frozen=True)
class Peer:
    """``make`` gives a call on a task's inputs, whose results are ``(b, s, ..., d)``; ``kind``: what it encodes."""

    name: str
    kind: type
    table: str
    modules: tuple[str, ...]
    make: Callable[[Task], Call]

    def missing(self) -> str | None:
        """Why it cannot run here."""
        absent = [module for module in self.modules if find_spec(module) is None]
        return f"not installed: pip install {' '.join(absent)}" if absent else None


def _rotate(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> Tensors:
    halves = [x.chunk(2, dim=-1) for x in (q, k)]
    turned = [torch.cat([-second, first], dim=-1) for first, second in halves]
    return q * cosine + turned[0] * sine, k * cosine + turned[1] * sine


def _rotations(ids: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype) -> Tensors:
    """Cosines and sines, ``(b, s, d)``."""
    angles = ids[..., None].float() * frequencies
    wide = torch.cat([angles, angles], dim=-1)
    return wide.cos().to(dtype), wide.sin().to(dtype)


def _sinusoids(ids: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    angles = ids[..., None].float() * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(dtype)


def _heads_first(task: Task) -> Tensors:
    return tuple(x.transpose(1, 2) for x in task.inputs)


def _tokens_first(results: Tensors) -> Tensors:
    return tuple(y.transpose(1, 2) for y in results)


@cache
def _compile(function: Any, dry: bool) -> Any:
    """A function compiled for the very shapes that it meets; a case begins with ``torch.compiler.reset()``."""
    return torch.compile(function, fullgraph=True, dynamic=False, backend="aot_eager" if dry else "inductor")


def _rotate_made(q: torch.Tensor, k: torch.Tensor, ids: torch.Tensor, frequencies: torch.Tensor) -> Tensors:
    cosine, sine = (wave[:, None] for wave in _rotations(ids, frequencies, q.dtype))
    return _rotate(q, k, cosine, sine)


def _add_sinusoids(x: torch.Tensor, ids: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    return x + _sinusoids(ids, frequencies, x.dtype)


def _given(task: Task, function: Any) -> Call:
    q, k = _heads_first(task)
    cosine, sine = (wave[:, None] for wave in _rotations(task.ids, task.frequencies(), task.dtype))
    return lambda: _tokens_first(function(q, k, cosine, sine))


def _eager(task: Task) -> Call:
    return _given(task, _rotate)


def _compiled(task: Task) -> Call:
    return _given(task, _compile(_rotate, task.machine.dry))


def _compiled_made(task: Task) -> Call:
    compiled, (q, k), frequencies = _compile(_rotate_made, task.machine.dry), _heads_first(task), task.frequencies()
    return lambda: _tokens_first(compiled(q, k, task.ids, frequencies))


def _transformers(task: Task) -> Call:
    modeling = import_module("transformers.models.llama.modeling_llama")
    q, k = _heads_first(task)
    cosine, sine = _rotations(task.ids, task.frequencies(), task.dtype)
    return lambda: _tokens_first(modeling.apply_rotary_pos_emb(q, k, cosine, sine))


def _liger(task: Task) -> Call:
    """In place."""
    rope = import_module("liger_kernel.ops.rope").LigerRopeFunction
    q, k = _heads_first(task)
    cosine, sine = _rotations(task.ids, task.frequencies(), task.dtype)
    return lambda: _tokens_first(rope.apply(q, k, cosine, sine))


def _add(task: Task) -> Call:
    x, rows = task.inputs[0], _sinusoids(task.ids, task.frequencies(), task.dtype)
    return lambda: (x + rows,)


def _add_made(task: Task) -> Call:
    compiled = _compile(_add_sinusoids, task.machine.dry)
    x, frequencies = task.inputs[0], task.frequencies()
    return lambda: (compiled(x, task.ids, frequencies),)


PEERS = (
    Peer("torch eager", Rotary, GIVEN, ("torch",), _eager),
    Peer("torch.compile", Rotary, GIVEN, ("torch",), _compiled),
    Peer("torch.compile, own table", Rotary, MADE, ("torch",), _compiled_made),
    Peer("transformers", Rotary, GIVEN, ("transformers",), _transformers),
    Peer("Liger", Rotary, GIVEN, ("liger_kernel",), _liger),
    Peer("torch eager", Sinusoidal, GIVEN, ("torch",), _add),
    Peer("torch.compile, own table", Sinusoidal, MADE, ("torch",), _add_made),
)


def check_peer(peer: Peer, task: Task) -> str | None:
    """Why a peer's results cannot be trusted: of some tokens, against 50-digit arithmetic."""
    fresh = Task(task.machine, task.encoding, tuple(x.clone() for x in task.inputs), task.ids)
    results = peer.make(fresh)()
    tokens = sorted({0, task.ids.shape[1] // 3, task.ids.shape[1] - 1})
    positions = array_of(task.ids[-1, tokens])
    for x, y in zip(task.inputs, results, strict=True):
        if y.shape != x.shape:
            return f"wrong: expected results of shape {tuple(x.shape)}, got {tuple(y.shape)}"
        given, got = array_of(x[-1, tokens]), array_of(y[-1, tokens])
        error = float(np.abs(got.astype(np.float64) - expected(task.encoding, given, positions)).max())
        largest = float(np.abs(given.astype(np.float64)).max()) + 1
        angle = 4 * float(np.abs(positions).max() + 1) * 2.0**-24
        bound = 2 * largest * (8 * EPSILONS[given.dtype.name] + angle)
        if not error <= bound:
            return f"wrong: its error is {error:.1e}, and none up to {bound:.1e} is explained"
    return None
