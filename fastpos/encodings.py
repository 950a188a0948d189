"""What a model was trained with: frozen descriptions of position encodings. Shapes: b batch, s sequence, h heads, d width."""

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_WIDTH = 8192


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {value}")
    return int(value)


def _even(name: str, value: object, high: int) -> int:
    number = _integer(name, value, 2, high)
    if number % 2:
        raise ValueError(f"{name}: expected an even number, for channels turn in pairs, got {number}")
    return number


def _positive(name: str, value: object, high: float = sys.float_info.max) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 < value <= high:
        limit = "" if high == sys.float_info.max else f" and at most {high:g}"
        raise ValueError(f"{name}: expected a finite number above 0{limit}, got {value}")
    return float(value)


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")


class _Spelled:
    """What has itself in words, for traced graphs: made once, since a call has no time for it."""

    spelling: str

    def _spell(self) -> None:
        object.__setattr__(self, "spelling", repr(self))


@dataclass(frozen=True)
class Linear:
    """Linear position interpolation: every frequency divided by ``factor`` (Chen et al. 2023, arXiv:2306.15595).

    Examples
    --------
    >>> Rotary(128, scaling=Linear(4.0)).scaling
    Linear(factor=4.0)
    """

    factor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", _positive("factor", self.factor))


@dataclass(frozen=True)
class Rotary(_Spelled):
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864): channel pair i of a token at p turns by p * w_i.

    Parameters
    ----------
    head_dim
        Channels of a head; at most 8192.
    base
        Frequencies are ``w_i = base ** (-2 i / rotary_dim)`` radians a token.
    rotary_dim
        The leading channels that turn (even; all of them when None). The others pass through byte for byte.
    interleaved
        False pairs channel i with i + rotary_dim / 2 (GPT-NeoX, Llama in transformers); True pairs 2 i with 2 i + 1
        (GPT-J, Llama in GGUF files).
    scaling
        ``Linear(factor)`` for position interpolation.
    inv_freq
        The frequencies themselves, ``rotary_dim / 2`` numbers in radians a token, instead of ``base``. A float32 value
        enters exactly.

    Raises
    ------
    ValueError, TypeError
        With the value, when a parameter is not what is said above.

    Examples
    --------
    >>> Rotary(128, base=500_000.0).rotary_dim
    128
    """

    head_dim: int
    _: KW_ONLY
    base: float = 10000.0
    rotary_dim: int | None = None
    interleaved: bool = False
    scaling: Linear | None = None
    inv_freq: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        head_dim = _integer("head_dim", self.head_dim, 2, MAX_WIDTH)
        rotary_dim = _rotary_dim(head_dim, self.rotary_dim)
        _flag("interleaved", self.interleaved)
        if self.scaling is not None and not isinstance(self.scaling, Linear):
            raise TypeError(
                f"scaling: expected fastpos.Linear(factor) or None, got {self.scaling!r}; for another scaling give the "
                "frequencies it makes as inv_freq="
            )
        inv_freq = None if self.inv_freq is None else _frequencies(self.inv_freq, rotary_dim // 2)
        base = _positive("base", self.base)
        if inv_freq is not None and base != 10000.0:
            raise ValueError(f"base: expected none beside inv_freq, which replaces it, got {base}")
        for name, value in (("head_dim", head_dim), ("base", base), ("rotary_dim", rotary_dim), ("inv_freq", inv_freq)):
            object.__setattr__(self, name, value)
        self._spell()

    @property
    def pairs(self) -> int:
        """Channel pairs that turn."""
        assert self.rotary_dim is not None
        return self.rotary_dim // 2

    @property
    def width(self) -> int:
        """Channels on the last axis of what this encoding is applied to."""
        return self.head_dim


def _rotary_dim(head_dim: int, rotary_dim: object) -> int:
    if rotary_dim is None:
        return _even("head_dim", head_dim, MAX_WIDTH)
    number = _integer("rotary_dim", rotary_dim, 2, MAX_WIDTH)
    if number > head_dim:
        raise ValueError(f"rotary_dim: expected at most head_dim = {head_dim}, got {number}")
    return _even("rotary_dim", number, head_dim)


def _frequencies(values: Sequence[float] | NDArray[Any], pairs: int) -> tuple[float, ...]:
    numbers = np.asarray(values)
    if numbers.dtype.name == "bfloat16":
        numbers = numbers.astype(np.float64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "fiu":
        raise TypeError(f"inv_freq: expected a row of numbers, got {numbers.dtype} of shape {numbers.shape}")
    if len(numbers) != pairs:
        raise ValueError(f"inv_freq: expected rotary_dim / 2 = {pairs} numbers, got {len(numbers)}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"inv_freq: expected finite numbers, got {numbers[~np.isfinite(numbers)][0]}")
    return tuple(float(number) for number in numbers)


@dataclass(frozen=True)
class Sinusoidal(_Spelled):
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
        object.__setattr__(self, "width", _even("width", self.width, 1 << 16))
        object.__setattr__(self, "base", _positive("base", self.base))
        _flag("interleaved", self.interleaved)
        object.__setattr__(
            self, "embedding_scale", _positive("embedding_scale", self.embedding_scale, float(np.finfo(np.float32).max))
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
        object.__setattr__(self, "offset", _integer("offset", self.offset, 0, len(table) - 1))

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


Encoding = Rotary | Sinusoidal | Learned
