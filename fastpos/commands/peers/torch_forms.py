"""PyTorch on the CPU, as models write it. Tables are float32 products of position and frequency, cast to x's dtype."""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from ..workloads import LEARNED, Array
from .job import Form, Job

Tensors = tuple[Any, ...]


@cache
def inference() -> tuple[Any, Any]:
    """The module torch, outside autograd from here on: entering that in each call would cost a decoded token 1 us."""
    torch = import_module("torch")
    guard = torch.inference_mode()
    guard.__enter__()
    return torch, guard


def tensor(x: Array) -> Any:
    """The same numbers as a tensor that shares their memory; NumPy knows no bfloat16, so the bits go across."""
    torch, _ = inference()
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view("uint16")).view(torch.bfloat16)
    return torch.from_numpy(x)


def array(x: Any) -> Array:
    """A tensor's numbers in NumPy; float32 holds those of every 16-bit type."""
    converted: Array = x.float().numpy()
    return converted


def form(call: Callable[[], Tensors]) -> Form:
    """A form whose call gives tensors."""
    return Form(call, lambda: tuple(array(x) for x in call()))


def eager(job: Job) -> Form:
    """Table given: the rotate-half product as in most models, or the addition of rows."""
    return form(partial(_use(job), tuple(map(tensor, job.inputs)), _make(job)(_positions(job))))


def eager_made(job: Job) -> Form:
    """Rows made (sinusoids) or gathered (learned) in the call."""
    return form(partial(_make_and_use(job), tuple(map(tensor, job.inputs)), _positions(job)))


def compiled(job: Job) -> Form:
    """Table given, compiled for these very shapes."""
    call = _compile(_use(job))
    return form(partial(call, tuple(map(tensor, job.inputs)), _make(job)(_positions(job))))


def compiled_made(job: Job) -> Form:
    """From positions to results in one compiled function."""
    call = _compile(_make_and_use(job))
    return form(partial(call, tuple(map(tensor, job.inputs)), _positions(job)))


def complex_product(job: Job) -> Form:
    """Neighbouring channels as complex numbers, as in Meta's Llama: float32, then cast back."""
    torch, _ = inference()
    angles = _angles(job)(_positions(job))[:, None]
    turn = torch.polar(torch.ones_like(angles), angles)

    def rotate(x: Any) -> Any:
        numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(numbers * turn).flatten(3).type_as(x)

    tensors = [tensor(x) for x in job.inputs]
    return form(lambda: tuple(rotate(x) for x in tensors))


def add_out(job: Job) -> Form:
    """The addition of given rows into memory that exists."""
    torch, _ = inference()
    (x,), (rows,) = [tensor(x) for x in job.inputs], _make(job)(_positions(job))
    y = torch.empty_like(x)
    return form(lambda: (torch.add(x, rows, out=y),))


def _positions(job: Job) -> Any:
    return inference()[0].from_numpy(job.positions)


def _angles(job: Job) -> Callable[[Any], Any]:
    torch, _ = inference()
    width = job.case.width
    frequencies = 1.0 / job.base() ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    return lambda positions: positions.float()[:, None] * frequencies


def _make(job: Job) -> Callable[[Any], Tensors]:
    """From positions ``(s,)`` to a ready table: rows ``(s, d)``, or for rotations cosines and sines ``(s, 1, d)``."""
    torch, _ = inference()
    if job.case.workload == LEARNED:
        table = tensor(job.learned_rows())
        return lambda positions: (torch.nn.functional.embedding(positions, table),)
    dtype, angles, interleaved = getattr(torch, job.case.dtype), _angles(job), job.case.interleaved

    def sinusoids(positions: Any) -> Tensors:
        phase = angles(positions)
        return (torch.stack([phase.sin(), phase.cos()], dim=-1).flatten(1).to(dtype),)

    def rotations(positions: Any) -> Tensors:
        phase = angles(positions)
        wide = phase.repeat_interleave(2, dim=-1) if interleaved else torch.cat([phase, phase], dim=-1)
        return wide.cos().to(dtype)[:, None], wide.sin().to(dtype)[:, None]

    return rotations if job.case.heads else sinusoids


def _use(job: Job) -> Callable[[Tensors, Tensors], Tensors]:
    torch, _ = inference()

    def add(tensors: Tensors, rows: Tensors) -> Tensors:
        return (tensors[0] + rows[0],)

    def rotate_pairs(tensors: Tensors, rows: Tensors) -> Tensors:
        cosine, sine = rows
        turned = [torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2) for x in tensors]
        return tuple(x * cosine + y * sine for x, y in zip(tensors, turned, strict=True))

    def rotate_halves(tensors: Tensors, rows: Tensors) -> Tensors:
        cosine, sine = rows
        split = [x.chunk(2, dim=-1) for x in tensors]
        turned = [torch.cat([-second, first], dim=-1) for first, second in split]
        return tuple(x * cosine + y * sine for x, y in zip(tensors, turned, strict=True))

    if not job.case.heads:
        return add
    return rotate_pairs if job.case.interleaved else rotate_halves


def _make_and_use(job: Job) -> Callable[[Tensors, Any], Tensors]:
    make, use = _make(job), _use(job)
    return lambda tensors, positions: use(tensors, make(positions))


def _compile(function: Callable[..., Tensors]) -> Callable[..., Tensors]:
    torch, _ = inference()
    # A second shape would otherwise be compiled for all shapes, and more slowly than the first.
    torch.compiler.reset()
    made: Callable[..., Tensors] = torch.compile(function, fullgraph=True, dynamic=False)
    return made
