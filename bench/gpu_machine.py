"""Where ``bench/gpu.py`` runs: a GPU, or main memory with Triton's interpreter in its place (a dry run)."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
PACKAGES = ("fastpos", "torch", "triton", "numba", "numpy", "ml_dtypes", "transformers", "liger_kernel")


@dataclass(frozen=True)
class Machine:
    """The device of all data. ``dry``: every size is tiny, and no time means anything."""

    device: torch.device
    dry: bool

    def pick(self, full: Any, dry: Any) -> Any:
        """One value for the GPU, another for a dry run."""
        return dry if self.dry else full

    def on(self, array: Any) -> torch.Tensor:
        """The same numbers on the device."""
        values = np.ascontiguousarray(array)
        if values.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(values.view(np.uint16).copy()).view(torch.bfloat16).to(self.device)
        return torch.from_numpy(values.copy()).to(self.device)

    def normals(self, shape: Sequence[int], dtype: str, seed: int = 0) -> torch.Tensor:
        """Standard normals, made on the device."""
        source = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(*shape, generator=source, device=self.device).to(getattr(torch, dtype))

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if not self.dry:
            torch.cuda.synchronize(self.device)

    def facts(self) -> dict[str, Any]:
        """The device by name, and versions."""
        found = {"Python": platform.python_version()}
        for package in PACKAGES:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        if self.dry:
            return {"device": "Triton's interpreter on the CPU (dry run)", "versions": found}
        seen = torch.cuda.get_device_properties(self.device)
        return {
            "device": seen.name,
            "capability": f"{seen.major}.{seen.minor}",
            "multiprocessors": seen.multi_processor_count,
            "memory_bytes": seen.total_memory,
            "cuda": torch.version.cuda,
            "versions": found,
        }


def array_of(tensor: torch.Tensor) -> Array:
    """The same numbers in NumPy."""
    values = tensor.detach().cpu().contiguous()
    if values.dtype == torch.bfloat16:
        return values.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    found: Array = values.numpy()
    return found


def bytes_of(*tensors: torch.Tensor) -> int:
    """What a call on these tensors has to move: each element read once and written once."""
    return 2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors)
