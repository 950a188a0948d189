"""What a model was trained with: frozen descriptions of position encodings. Shapes: b batch, s sequence, h heads, d width."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .axes import Axes
from .fields import MAX_WIDTH, Spelled, even, flag, integer, positive
from .head import Head
from .learned import Learned
from .queries import QueryScale
from .scaling import Scaling
from .sinusoidal import Sinusoidal

NUMERICS = ("exact", "hf")
MAX_LENGTHS = 256


@dataclass(frozen=True, repr=False)
class Rotary(Spelled):
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864): channel pair i of a token at p turns by p * w_i.

    Parameters
    ----------
    head_dim
        Channels of a head; at most 8192.
    base
        Frequencies are ``w_i = base ** (-2 i / rotary_dim)`` radians a token.
    rotary_dim
        How many channels turn (even; all of them when None, none when 0: a layer without positions). The others pass
        through byte for byte.
    rotary_start
        The first channel that turns: 0 for the leading ones, ``head_dim - rotary_dim`` for the trailing ones (DeepSeek V4).
    interleaved
        False pairs channel i with i + rotary_dim / 2 (GPT-NeoX, Llama in transformers); True pairs 2 i with 2 i + 1
        (GPT-J, Llama in GGUF files).
    deinterleaved
        Pairs are read from (2 i, 2 i + 1) and written to (i, i + rotary_dim / 2): needs ``interleaved`` (DeepSeek V3,
        ``rope_interleave`` in transformers).
    clockwise
        Turn the other way, by ``-p * w_i`` (nanochat).
    scaling
        A rule of ``fastpos.scaling`` (``Linear``, ``DynamicNTK``, ``YaRN``, ``LongRoPE``, ``Llama3``, ``Proportional``).
        With one that goes by the length of a sequence, calls say ``seq_lens=``, or use what ``at_length`` gives.
    inv_freq
        The frequencies themselves, ``rotary_dim / 2`` numbers in radians a token, instead of ``base``. A float32 value
        enters exactly.
    axes
        ``Axes``, where a position has several coordinates (images, video) or is a real number.
    query_scale
        ``Llama4Scale``, ``MinistralScale`` or ``LogScale``: what queries are multiplied with by where they stand. The
        first array of a call is the queries; its whole head is scaled, in one rounding with the rotation.
    numerics
        ``"exact"``: the formula itself. Sines and cosines are within 1.2e-7 of it at every position up to 2**31 in float32
        arithmetic, and results are rounded once. ``"hf"``: what transformers computes for Llama on the CPU: frequencies,
        positions and angles in float32, sines, cosines and factor rounded to float32 and then to the data's dtype, two
        products and their sum each rounded to it. An angle of p radians is then off by up to p * 2**-23, so that sines
        differ from the formula by up to 2.4e-4 at 4,096 tokens, 8e-3 at 131,072 and 6e-2 at 1,048,576. Each step is rounded
        to nearest; PyTorch's own float32 power, sine and cosine are one ulp beside that for one frequency in 300 and for 1
        to 5 % of the angles. With a model's own frequencies (``inv_freq=``) 16-bit results therefore differ from
        transformers' in about one element of 100,000, by one ulp, and float32 results in 3 to 6 %, by an ulp of their pair.

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
    rotary_start: int = 0
    deinterleaved: bool = False
    clockwise: bool = False
    axes: Axes | None = None
    query_scale: QueryScale | None = None
    numerics: str = "exact"

    def __post_init__(self) -> None:
        head_dim = integer("head_dim", self.head_dim, 2, MAX_WIDTH)
        rotary_dim = _rotary_dim(head_dim, self.rotary_dim)
        start = integer("rotary_start", self.rotary_start, 0, head_dim - rotary_dim)
        for name in ("interleaved", "deinterleaved", "clockwise"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        if self.deinterleaved and not self.interleaved:
            raise ValueError("deinterleaved: expected interleaved=True beside it, for it says where those pairs go")
        _check_axes(self.axes, rotary_dim // 2, self.interleaved, self.inv_freq)
        if self.query_scale is not None and not isinstance(self.query_scale, QueryScale):
            raise TypeError(
                f"query_scale: expected fastpos.Llama4Scale, MinistralScale, LogScale or None, got {self.query_scale!r}"
            )
        if self.numerics not in NUMERICS:
            raise ValueError(f"numerics: expected one of {', '.join(NUMERICS)}, got {self.numerics!r}")
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise TypeError(
                "scaling: expected a rule of fastpos.scaling (Linear, DynamicNTK, YaRN, LongRoPE, Llama3, Proportional) or "
                f"None, got {self.scaling!r}; for another scaling give the frequencies it makes as inv_freq="
            )
        inv_freq = None if self.inv_freq is None else _frequencies(self.inv_freq, rotary_dim // 2)
        base = positive("base", self.base)
        if inv_freq is not None and base != 10000.0:
            raise ValueError(f"base: expected none beside inv_freq, which replaces it, got {base}")
        if self.scaling is not None:
            if not rotary_dim:
                raise ValueError(
                    f"scaling: expected None beside rotary_dim=0, for no channel turns, got {self.scaling!r}"
                )
            self.scaling.check(base if inv_freq is None else None, rotary_dim, head_dim)
            restart = self.axes is not None and self.axes.own_frequencies
            if restart and not self.scaling.keeps_ratios:
                raise ValueError(
                    f"scaling: expected Linear or None beside axes with own_frequencies, got {self.scaling}"
                )
        checked = {"head_dim": head_dim, "base": base, "rotary_dim": rotary_dim, "inv_freq": inv_freq}
        for name, value in (checked | {"rotary_start": start}).items():
            object.__setattr__(self, name, value)
        self._spell()

    def __repr__(self) -> str:
        """Only what differs from the defaults, and the base: messages quote it."""
        shown = {"base": self.base} if self.inv_freq is None else {}
        for item in fields(self)[1:]:
            value = getattr(self, item.name)
            if value != (self.head_dim if item.name == "rotary_dim" else item.default):
                shown[item.name] = value
        return f"Rotary({self.head_dim}, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"

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
    def from_config(cls, config: Any, layer: int | str | None = None, *, numerics: str = "exact") -> "Rotary":
        """What a checkpoint was trained with, from the config that it ships.

        Parameters
        ----------
        config
            A dict, the path of a ``config.json`` or of the folder it lies in, or a config object of transformers.
        layer
            Where not all layers rotate alike (Gemma 3, ModernBERT): the index of one, or a type of layers such as
            ``"sliding_attention"``.
        numerics
            ``"exact"`` or ``"hf"``, as of ``Rotary``.

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

        return rotary_from_config(config, layer, numerics)

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
        tokens = integer("length", length, 0, 1 << 62)
        if self.scaling is None or not self.scaling.by_length:
            return self
        chosen = self.scaling.chosen(tokens)
        found = self._settled.get(chosen)
        if found is None:
            if len(self._settled) >= MAX_LENGTHS:
                self._settled.clear()
            found = self._settled[chosen] = replace(self, scaling=self.scaling.at_length(chosen))
        return found

    @cached_property
    def _settled(self) -> dict[int, "Rotary"]:
        """One object a length, for plans are kept by an encoding's identity, and a decoded token has no time for a new one."""
        return {}

    @property
    def head(self) -> Head:
        """Where the pairs' channels lie."""
        sections = self.axes.sections if self.axes is not None and self.axes.own_channels else ()
        return Head(self.pairs, self.rotary_start, self.interleaved, self.deinterleaved, sections)


def _rotary_dim(head_dim: int, rotary_dim: object) -> int:
    if rotary_dim is None:
        return even("head_dim", head_dim, MAX_WIDTH)
    number = integer("rotary_dim", rotary_dim, 0, MAX_WIDTH)
    if number > head_dim:
        raise ValueError(f"rotary_dim: expected at most head_dim = {head_dim}, got {number}")
    return even("rotary_dim", number, head_dim) if number else 0


def _check_axes(axes: object, pairs: int, interleaved: bool, inv_freq: object) -> None:
    if axes is None:
        return
    if not isinstance(axes, Axes):
        raise TypeError(f"axes: expected fastpos.Axes or None, got {axes!r}")
    if sum(axes.sections) != pairs:
        raise ValueError(f"axes: expected sections of rotary_dim / 2 = {pairs} pairs in all, got {axes.sections}")
    if axes.own_channels and interleaved:
        raise ValueError("axes: expected no own_channels beside interleaved=True, whose pairs have blocks of their own")
    if axes.own_channels and pairs > MAX_WIDTH // 4:
        raise ValueError(f"axes: expected at most {MAX_WIDTH // 2} channels for own_channels, got {2 * pairs}")
    if axes.own_frequencies and inv_freq is not None:
        raise ValueError("axes: expected no own_frequencies beside inv_freq, which gives each pair its frequency")


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


Encoding = Rotary | Sinusoidal | Learned


def coordinates(encoding: Encoding) -> tuple[int, bool]:
    """How many coordinates a position has, and whether they may be real numbers."""
    if isinstance(encoding, Rotary) and encoding.axes is not None:
        return encoding.axes.count, encoding.axes.real
    return 1, isinstance(encoding, Sinusoidal) and encoding.real


__all__ = ["Encoding", "Learned", "Rotary", "Sinusoidal", "coordinates"]
