"""What a model was trained with: frozen descriptions of position encodings. Shapes: b batch, s sequence, h heads, d width."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import fields
from .scaling import Scaling

MAX_WIDTH = 8192


class _Spelled:
    """What has itself in words, for traced graphs: made once, since a call has no time for it."""

    spelling: str

    def _spell(self) -> None:
        object.__setattr__(self, "spelling", repr(self))


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
        A rule of ``fastpos.scaling`` (``Linear``, ``DynamicNTK``, ``YaRN``, ``LongRoPE``, ``Llama3``, ``Proportional``).
        With one that goes by the length of a sequence, calls say ``seq_lens=``, or use what ``at_length`` gives.
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
    scaling: Scaling | None = None
    inv_freq: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        head_dim = fields.integer("head_dim", self.head_dim, 2, MAX_WIDTH)
        rotary_dim = _rotary_dim(head_dim, self.rotary_dim)
        fields.flag("interleaved", self.interleaved)
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise TypeError(
                "scaling: expected a rule of fastpos.scaling (Linear, DynamicNTK, YaRN, LongRoPE, Llama3, Proportional) or "
                f"None, got {self.scaling!r}; for another scaling give the frequencies it makes as inv_freq="
            )
        inv_freq = None if self.inv_freq is None else _frequencies(self.inv_freq, rotary_dim // 2)
        base = fields.positive("base", self.base)
        if inv_freq is not None and base != 10000.0:
            raise ValueError(f"base: expected none beside inv_freq, which replaces it, got {base}")
        if self.scaling is not None:
            self.scaling.check(base if inv_freq is None else None, rotary_dim, head_dim)
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

    @classmethod
    def from_config(cls, config: Any, layer: int | str | None = None) -> "Rotary":
        """What a checkpoint was trained with, from the config that it ships.

        Parameters
        ----------
        config
            A dict, the path of a ``config.json`` or of the folder it lies in, or a config object of transformers.
        layer
            Where not all layers rotate alike (Gemma 3, ModernBERT): the index of one, or a type of layers such as
            ``"sliding_attention"``.

        Raises
        ------
        ValueError, TypeError
            With the key, the value and the rule: for a model that is not known, a key that is missing or not heeded, values
            that contradict each other, or layers that differ when no layer is said.

        Warns
        -----
        UserWarning
            For a config that can be honoured, but that says something its own code does not heed.

        Examples
        --------
        >>> config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0}
        >>> Rotary.from_config(config).base
        500000.0
        """
        from .configs.checkpoint import rotary_from_config

        return rotary_from_config(config, layer)

    @property
    def by_length(self) -> bool:
        """Whether the frequencies depend on the length of the sequence, and none has been chosen."""
        return self.scaling is not None and self.scaling.by_length

    def at_length(self, length: int) -> "Rotary":
        """The encoding of sequences of ``length`` tokens: itself, unless its scaling goes by the length.

        Examples
        --------
        >>> from fastpos.scaling import DynamicNTK
        >>> Rotary(4, scaling=DynamicNTK(2.0, 4096)).at_length(8192).scaling
        DynamicNTK(factor=2.0, max_position_embeddings=4096, length=8192)
        """
        tokens = fields.integer("length", length, 0, 1 << 62)
        if self.scaling is None or not self.scaling.by_length:
            return self
        return _with_scaling(self, self.scaling.at_length(tokens))


# One object for equal lengths: plans are kept by the encoding's identity.
@lru_cache(maxsize=256)
def _with_scaling(rope: Rotary, scaling: Scaling) -> Rotary:
    return replace(rope, scaling=scaling)


def _rotary_dim(head_dim: int, rotary_dim: object) -> int:
    if rotary_dim is None:
        return fields.even("head_dim", head_dim, MAX_WIDTH)
    number = fields.integer("rotary_dim", rotary_dim, 2, MAX_WIDTH)
    if number > head_dim:
        raise ValueError(f"rotary_dim: expected at most head_dim = {head_dim}, got {number}")
    return fields.even("rotary_dim", number, head_dim)


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
        object.__setattr__(self, "width", fields.even("width", self.width, 1 << 16))
        object.__setattr__(self, "base", fields.positive("base", self.base))
        fields.flag("interleaved", self.interleaved)
        object.__setattr__(
            self,
            "embedding_scale",
            fields.positive("embedding_scale", self.embedding_scale, float(np.finfo(np.float32).max)),
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
        object.__setattr__(self, "offset", fields.integer("offset", self.offset, 0, len(table) - 1))

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
