"""JAX, jitted, as its language models write it: sines and cosines in float32, products in float32, cast back."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from ..workloads import LEARNED, Array
from .job import Form, Job


def ready(job: Job) -> Form:
    """Table given."""
    jax = import_module("jax")
    rows = jax.jit(partial(_rows, job))(_positions(job))
    return _form(job, partial(_use, job), rows)


def made(job: Job) -> Form:
    """From positions to results in one jitted function."""
    return _form(job, lambda arrays, positions: _use(job, arrays, _rows(job, positions)), _positions(job))


def _form(job: Job, function: Callable[..., tuple[Any, ...]], table: Any) -> Form:
    jax = import_module("jax")
    jitted = jax.jit(function)
    arrays = jax.block_until_ready(tuple(jax.numpy.asarray(x) for x in job.inputs))
    table = jax.block_until_ready(table)

    def call() -> tuple[Any, ...]:
        done: tuple[Any, ...] = jax.block_until_ready(jitted(arrays, table))
        return done

    def results() -> tuple[Array, ...]:
        return tuple(np.asarray(x) for x in call())

    return Form(call, results)


def _positions(job: Job) -> Any:
    return import_module("jax.numpy").asarray(job.positions.astype(np.int32))


def _rows(job: Job, positions: Any) -> tuple[Any, ...]:
    """Rows ``(s, d)``, or for rotations cosines and sines ``(s, 1, d / 2)``."""
    jnp = import_module("jax.numpy")
    if job.case.workload == LEARNED:
        return (jnp.asarray(job.learned_rows())[positions],)
    width = job.case.width
    angles = positions[:, None] / job.base() ** (jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    if job.case.heads:
        return jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    rows = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return (rows.reshape(-1, width).astype(job.inputs[0].dtype),)


def _use(job: Job, arrays: tuple[Any, ...], rows: tuple[Any, ...]) -> tuple[Any, ...]:
    jnp = import_module("jax.numpy")
    if not job.case.heads:
        return (arrays[0] + rows[0],)
    cosine, sine = rows

    def rotate(x: Any) -> Any:
        first, second = (x[..., ::2], x[..., 1::2]) if job.case.interleaved else jnp.split(x, 2, axis=-1)
        turned = first * cosine - second * sine, second * cosine + first * sine
        joined = jnp.stack(turned, axis=-1).reshape(x.shape) if job.case.interleaved else jnp.concatenate(turned, -1)
        return joined.astype(x.dtype)

    return tuple(rotate(x) for x in arrays)
