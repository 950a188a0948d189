"""What is added to embeddings: frozen descriptions of sinusoids and learned tables."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from .fields import Spelled, even, flag, integer, positive


@dataclass(frozen=True)
class Sinusoidal(Spelled):
    """Sinusoids added to embeddings (Vaswani et al. 2017, arXiv:1706.03762): ``y = x * embedding_scale + PE(p)``.

    Parameters
    ----------
    width
        Channels, even; at most 65536.
    base
        Frequencies are ``w_r = base ** (-2 r / width)`` radians a token.
    interleaved
        True, as in the paper: channel 2 r is ``sin(p w_r)``, channel 2 r + 1 is ``cos(p w_r)``. False: all sines, then
        all cosines (Marian, RoFormer).
    embedding_scale
        What many models multiply the embedding with before they add, sqrt(width) as a rule; fused.

    Raises
    ------
    ValueError, TypeError
        With the value, when a parameter is not what is said above.

    Examples
    --------
    >>> Sinusoidal(512).base
    10000.0
    """

    width: int
    _: KW_ONLY
    base: float = 10000.0
    interleaved: bool = True
    embedding_scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", even("width", self.width, 1 << 16))
        object.__setattr__(self, "base", positive("base", self.base))
        flag("interleaved", self.interleaved)
        object.__setattr__(
            self, "embedding_scale", positive("embedding_scale", self.embedding_scale, float(np.finfo(np.float32).max))
        )
        self._spell()

    @property
    def pairs(self) -> int:
        """Channel pairs."""
        return self.width // 2


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained table of absolute positions: ``y = x + table[p + offset]``.

    Parameters
    ----------
    table
        ``(rows, width)`` in float32, float16, bfloat16 or float64. A NumPy array is copied, so that later changes to the
        caller's do not change what this encoding is. A PyTorch tensor is kept as it is, for it may be trained: calls read
        it as it then stands, and it gets its gradient. Two ``Learned`` are equal only when they are the same object.
    offset
        Rows before the row of position 0 (2 for OPT and BART). A position whose row does not exist is an IndexError.

    Examples
    --------
    >>> Learned(np.zeros((1024, 768), np.float32)).width
    768
    """

    table: Any = field(repr=False)
    _: KW_ONLY
    offset: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.table, np.ma.MaskedArray):
            raise TypeError("table: expected a plain array, got a masked array")
        table = self.table if self.is_tensor else np.asarray(self.table)
        dtype = _name(table.dtype)
        if dtype not in ("float32", "float16", "bfloat16", "float64"):
            raise TypeError(f"table: expected float32, float16, bfloat16 or float64, got {table.dtype}")
        if table.ndim != 2 or 0 in table.shape:
            raise ValueError(f"table: expected shape (rows, width), got {tuple(table.shape)}")
        if not self.is_tensor:
            table = np.array(table, dtype=table.dtype.newbyteorder("="), order="C")
            table.flags.writeable = False
            object.__setattr__(self, "table", table)
        object.__setattr__(self, "offset", integer("offset", self.offset, 0, len(table) - 1))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a pickled or copied state; NumPy does not carry over that the table is read-only."""
        self.__dict__.update(state)
        if not self.is_tensor:
            self.table.flags.writeable = False

    @property
    def is_tensor(self) -> bool:
        """Whether the table is a PyTorch tensor."""
        return hasattr(type(self.table), "__torch_function__")

    @property
    def width(self) -> int:
        """Channels."""
        return int(self.table.shape[1])

    def __repr__(self) -> str:
        rows, width = self.table.shape
        return f"Learned(rows={rows}, width={width}, dtype={_name(self.table.dtype)}, offset={self.offset})"


def _name(dtype: Any) -> str:
    """``float32`` for NumPy's and PyTorch's."""
    return getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
