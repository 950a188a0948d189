"""Triton's kernels in Triton's interpreter: the same files under another name, on tensors in main memory.

What a function decorated by ``triton.jit`` becomes is settled when it is decorated, so an interpreted copy and a compiled
one live in one process.
"""

import ctypes
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import fastpos_kernels
import numpy as np
import torch
import triton
import triton.language as tl
from fastpos_kernels.rules import DONE, IDS, PACKED, START, STARTS
from triton.runtime import interpreter

from fastpos import Learned, Rotary
from fastpos.frequencies import rates
from fastpos.places import Rule, resolve
from fastpos.plan import layout_for, stored_table

__all__ = ["DONE", "IDS", "PACKED", "START", "STARTS", "Rule", "apply", "bind", "kernels", "layout_for", "tensor"]
NAMES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
_cast = interpreter.InterpreterBuilder.cast_impl


def _cast_impl(self, source, target):
    """Round float32 to bfloat16 as hardware does; the interpreter would cut."""
    if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
        bits = np.ascontiguousarray(source.data).view(np.uint32).astype(np.uint64)
        short = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return interpreter.TensorHandle(np.where(np.isnan(source.data), np.uint16(0x7FC0), short), target.scalar)
    return _cast(self, source, target)


def _fused(name: str, number: type) -> np.ufunc:
    """Multiply and add with one rounding, as the C library does it, element by element."""
    function = getattr(ctypes.CDLL(None), name)
    function.argtypes, function.restype = [number] * 3, number
    return np.frompyfunc(function, 3, 1)


FUSED = {"float32": _fused("fmaf", ctypes.c_float), "float64": _fused("fma", ctypes.c_double)}


def _create_fma(self, x, y, z):
    """Round once; the interpreter of Triton 3.6 rounds the product, too."""
    total = FUSED[z.data.dtype.name](x.data, y.data, z.data)
    return interpreter.TensorHandle(np.asarray(total).astype(z.data.dtype), z.dtype.scalar)


interpreter.InterpreterBuilder.cast_impl = _cast_impl
if triton.__version__.startswith("3.6."):
    interpreter.InterpreterBuilder.create_fma = _create_fma


def _interpreted():
    """Import the package of the kernels once more, with its functions for the interpreter."""
    name, folder = "interpreted_kernels", Path(fastpos_kernels.__file__).parent
    places = [str(folder)]
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=places)
    sys.modules[name] = package = importlib.util.module_from_spec(spec)
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = True
    try:
        spec.loader.exec_module(package)
        return importlib.import_module(f"{name}.triton_launch")
    finally:
        triton.knobs.runtime.interpret = before


kernels = _interpreted()


def tensor(array: np.ndarray) -> torch.Tensor:
    """Take an array's memory, whatever its strides, as a tensor that begins where it does.

    Tensors have no negative strides, so it has one element where the array has some: a launch reads address and dtype.
    """
    kind = NAMES.get(array.dtype.name) or getattr(torch, array.dtype.name)
    low, high = np.lib.array_utils.byte_bounds(array)
    if array.size == 0:
        return torch.empty(array.shape, dtype=kind)
    memory = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
    shape, strides = array.shape, [stride // array.itemsize for stride in array.strides]
    if min(strides, default=0) < 0:
        shape, strides = (1,), (1,)
    offset = array.__array_interface__["data"][0] - low
    view = torch.from_numpy(memory).view(kind).as_strided(shape, strides, offset // array.itemsize)
    view.kept = array
    return view


def bind(encoding, inputs, outputs, layout, rule, launcher=kernels):
    """Make the launch of a call."""
    common = inputs, outputs, layout.axes, rule
    if isinstance(encoding, Learned):
        table = tensor(stored_table(encoding, inputs[0].dtype.name))
        return launcher.bind_learned(*common, table, encoding.offset, False, 1)
    if isinstance(encoding, Rotary):
        return launcher.bind_rotate(*common, rates(encoding), encoding.head, False, 1)
    scale = encoding.embedding_scale
    return launcher.bind_sinusoidal(*common, rates(encoding), encoding.waves, scale, False, 1)


def apply(encoding, *inputs, out=None, start=None, positions=None, cu_seqlens=None, layout=None):
    """Do what ``fastpos.apply`` does, in the interpreter."""
    outputs = [np.empty_like(x) for x in inputs] if out is None else out
    place = layout_for(encoding, layout, inputs[0].ndim)
    rule, where, starts = resolve(place, inputs[0].shape, start, positions, cu_seqlens)
    if rule.kind == STARTS:  # one start a row, as kernels for tensors must be told
        rule = replace(rule, ids_strides=(where.itemsize, 0))
    launch = bind(encoding, inputs, outputs, place, rule)
    operands = [[tensor(array) for array in arrays] for arrays in (inputs, outputs)]
    where, starts = (x if x is None or isinstance(x, int) else tensor(np.asarray(x)) for x in (where, starts))
    assert launch(*operands, where, starts, 1, True) == DONE
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
