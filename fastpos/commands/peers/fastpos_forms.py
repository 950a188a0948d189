"""fastpos with each kind of result, and a plain copy, in processes like those of the others."""

from functools import partial
from typing import Any

import numpy as np

from ...api import apply, apply_
from ...threads import set_num_threads
from ..workloads import Array
from .job import Form, Job
from .torch_forms import array, tensor


def copy(job: Job) -> Form:
    """The same bytes into memory that exists: what everything is measured by."""
    targets = tuple(np.empty_like(x) for x in job.inputs)
    calls = [partial(np.copyto, y, x) for y, x in zip(targets, job.inputs, strict=True)]

    def two() -> None:
        calls[0]()
        calls[1]()

    call = two if len(calls) == 2 else calls[0]

    def results() -> tuple[Array, ...]:
        call()
        return targets

    return Form(call, results)


def in_place(job: Job) -> Form:
    """Results in the place of the inputs."""
    set_num_threads(job.threads)
    arrays = [x.copy() for x in job.inputs]

    def results() -> tuple[Array, ...]:
        fresh = tuple(x.copy() for x in job.inputs)
        apply_(job.encoding, *fresh, start=job.start)
        return fresh

    return Form(partial(apply_, job.encoding, *arrays, start=job.start), results)


def given(job: Job) -> Form:
    """Results into memory that exists."""
    set_num_threads(job.threads)
    targets = tuple(np.empty_like(x) for x in job.inputs)
    call = partial(apply, job.encoding, *job.inputs, start=job.start, out=targets)

    def results() -> tuple[Array, ...]:
        call()
        return targets

    return Form(call, results)


def new(job: Job) -> Form:
    """Results in new arrays."""
    set_num_threads(job.threads)
    call = partial(apply, job.encoding, *job.inputs, start=job.start)

    def results() -> tuple[Array, ...]:
        made: Any = call()
        return made if isinstance(made, tuple) else (made,)

    return Form(call, results)


def on_tensors(job: Job) -> Form:
    """Tensors in place; where this version of fastpos takes none, its own error says so."""
    set_num_threads(job.threads)
    apply_tensors: Any = apply_
    tensors = [tensor(x.copy()) for x in job.inputs]

    def results() -> tuple[Array, ...]:
        fresh = [tensor(x.copy()) for x in job.inputs]
        apply_tensors(job.encoding, *fresh, start=job.start)
        return tuple(map(array, fresh))

    return Form(partial(apply_tensors, job.encoding, *tensors, start=job.start), results)
