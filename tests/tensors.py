"""NumPy arrays as tensors on the same memory, and back."""

import ml_dtypes
import numpy as np
import torch


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """Share an array's memory; PyTorch knows no negative strides and no bfloat16 of NumPy's."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Share a tensor's memory."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
