"""Tensors as the rest of the package sees them: NumPy arrays that stand where a tensor's memory does."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


class _Memory:
    """What NumPy asks for when it makes an array of somebody else's memory. It does not own it, and reads nothing."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], kind: str):
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": kind,
        }


def _dtype(name: str, dtype: torch.dtype) -> np.dtype[Any]:
    text = str(dtype).removeprefix("torch.")
    if text == "bfloat16" or text.startswith("float8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, text, "V1"))
    try:
        return np.dtype(text)
    except TypeError:
        raise TypeError(f"{name}: expected dtype float32, float16, bfloat16, float64, got {dtype}") from None


def check_plain(name: str, tensor: object, first: torch.Tensor) -> None:
    """Refuse what holds no elements in the memory of the call's device at fixed strides."""
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor)
        raise TypeError(f"{name}: expected a PyTorch tensor like x, got {kind.__module__}.{kind.__qualname__}")
    if tensor.is_nested:
        raise TypeError(
            f"{name}: expected a dense tensor, got a nested one; pack its rows and give cu_seqlens=, or pad them"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got layout {tensor.layout}; give {name}.to_dense()")
    if tensor.is_quantized:
        raise TypeError(f"{name}: expected plain numbers, got quantised {tensor.dtype}; give {name}.dequantize()")
    if tensor.device != first.device:
        raise ValueError(f"{name}: expected device {first.device} like x, got {tensor.device}")


def standing(name: str, tensor: torch.Tensor) -> Array:
    """An array of the tensor's shape, strides and dtype at its address.

    On the CPU it shares the tensor's memory for as long as that lives; of a tensor elsewhere only the outline is true,
    which is all that checks and the choice of a launch look at.
    """
    dtype = _dtype(name, tensor.dtype)
    if not tensor.numel():
        return np.empty(tuple(tensor.shape), dtype)
    size = dtype.itemsize
    strides = tuple(step * size for step in tensor.stride())
    raw = np.dtype(f"V{size}").str if dtype.isbuiltin != 1 else dtype.str
    memory = _Memory(tensor.data_ptr(), tuple(tensor.shape), strides, raw)
    return np.asarray(memory).view(dtype)
