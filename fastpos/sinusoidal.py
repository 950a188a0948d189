"""Sinusoids added to embeddings: the frozen description, and the forms of it that are in use, by name."""

import math
from dataclasses import KW_ONLY, dataclass, fields

import numpy as np

from .fields import Spelled, flag, integer, positive
from .head import Waves

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, repr=False)
class Sinusoidal(Spelled):
    """Sinusoids added to embeddings (Vaswani et al. 2017, arXiv:1706.03762): ``y = x * embedding_scale + PE(p)``.

    The default is the paper's table. Others are made by name: ``tensor2tensor``, ``fairseq``, ``whisper``, ``marian``,
    ``diffusers``, ``mlx``. With h the number of pairs, S and C their sines and cosines:

    Parameters
    ----------
    width
        Channels; at most 65536.
    base, divisor, frequency_scale
        Frequencies are ``frequency_scale * base ** (-r / divisor)`` radians a token for pair r; divisor ``width / 2`` when
        None.
    interleaved
        True, as in the paper: channel 2 r is ``sin(p w_r)``, channel 2 r + 1 is ``cos(p w_r)``. False: all sines, then
        all cosines.
    cosine_first
        All cosines, then all sines; not when interleaved.
    zero_last
        What an odd width does with its last channel: True adds nothing to it; False gives it one more sine (interleaved),
        or S one more channel than C.
    scale
        What the sinusoids are multiplied with.
    embedding_scale
        What many models multiply the embedding with before they add, sqrt(width) as a rule; fused.
    padding_index
        The position to which nothing is added: where tokens of padding stand.
    real
        Whether positions may be real numbers (float32 or float64), which enter exactly.

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
    divisor: float | None = None
    frequency_scale: float = 1.0
    scale: float = 1.0
    cosine_first: bool = False
    zero_last: bool = False
    padding_index: int | None = None
    real: bool = False

    def __post_init__(self) -> None:
        width = integer("width", self.width, 2, 1 << 16)
        divisor = width / 2 if self.divisor is None else positive("divisor", self.divisor)
        checked: dict[str, object] = {"width": width, "divisor": divisor, "base": positive("base", self.base)}
        for name in ("interleaved", "cosine_first", "zero_last", "real"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        checked["frequency_scale"] = positive("frequency_scale", self.frequency_scale)
        for name in ("embedding_scale", "scale"):
            checked[name] = positive(name, getattr(self, name), LARGEST)
        if self.padding_index is not None:
            checked["padding_index"] = integer("padding_index", self.padding_index, 0, 1 << 31)
        if self.cosine_first and (self.interleaved or (width % 2 and not self.zero_last)):
            raise ValueError("cosine_first: expected interleaved=False beside it, and zero_last=True for an odd width")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._spell()

    def __repr__(self) -> str:
        """Only what differs from the defaults, and the base: messages quote it."""
        shown = {"base": self.base}
        for item in fields(self)[2:]:
            value = getattr(self, item.name)
            if value != (self.width / 2 if item.name == "divisor" else item.default):
                shown[item.name] = value
        return f"Sinusoidal({self.width}, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def pairs(self) -> int:
        """Frequencies."""
        return self.waves.sines

    @property
    def waves(self) -> Waves:
        """Where sines and cosines stand."""
        cosines, odd = divmod(self.width, 2)
        sines, zeros = (cosines, odd) if self.zero_last else (cosines + odd, 0)
        return Waves(sines, cosines, zeros, self.interleaved, self.cosine_first, self.padding_index, self.real)

    @classmethod
    def tensor2tensor(
        cls, width: int, *, min_timescale: float = 1.0, max_timescale: float = 1e4, embedding_scale: float = 1.0
    ) -> "Sinusoidal":
        """``[S, C]``, frequencies ``min_timescale * (max/min)^(-r / max(h - 1, 1))``, an odd width's last channel zero.

        Source: tensor2tensor, ``common_attention.get_timing_signal_1d``; so Flax's lm1b, MaxText and marian-dev's C++.

        Examples
        --------
        >>> Sinusoidal.tensor2tensor(512).divisor
        255.0
        """
        least = positive("min_timescale", min_timescale)
        base, divisor = positive("max_timescale", max_timescale) / least, max(_half(width, 1) - 1, 1)
        return cls(
            width,
            base=base,
            divisor=divisor,
            frequency_scale=least,
            interleaved=False,
            zero_last=True,
            embedding_scale=embedding_scale,
        )

    @classmethod
    def fairseq(cls, width: int, *, padding_index: int | None = 1, embedding_scale: float = 1.0) -> "Sinusoidal":
        """``[S, C]``, frequencies ``10000^(-r / (h - 1))``, an odd width's last channel zero, no row for padding.

        Source: fairseq, ``SinusoidalPositionalEmbedding``; so M2M100, NLLB-MoE, XGLM and Speech2Text in transformers. Token
        n of a row stands at ``padding_index + 1 + n``, padding at ``padding_index``, to which nothing is added.

        Examples
        --------
        >>> Sinusoidal.fairseq(512).padding_index
        1
        """
        return cls(
            width,
            divisor=_half(width, 2) - 1,
            interleaved=False,
            zero_last=True,
            padding_index=padding_index,
            embedding_scale=embedding_scale,
        )

    @classmethod
    def whisper(cls, width: int, *, max_timescale: float = 1e4) -> "Sinusoidal":
        """``[S, C]``, frequencies ``max_timescale^(-r / (h - 1))``, of an even width: Whisper's encoder.

        Source: openai/whisper, ``model.sinusoids``. (Its decoder has a learned table.)

        Examples
        --------
        >>> Sinusoidal.whisper(384).divisor
        191.0
        """
        half = _half(width, 2)
        if width % 2:
            raise ValueError(f"width: expected an even number, for Whisper's rows are halves, got {width}")
        return cls(width, base=max_timescale, divisor=half - 1, interleaved=False)

    @classmethod
    def marian(cls, width: int, *, embedding_scale: float = 1.0) -> "Sinusoidal":
        """``[S, C]``, frequencies ``10000^(-2 r / width)``, of an odd width one more sine: the paper's waves in halves.

        Source: transformers, ``MarianSinusoidalPositionalEmbedding``; so RoFormer, Pegasus and CTRL. marian-dev itself is
        ``tensor2tensor``, another table.

        Examples
        --------
        >>> Sinusoidal.marian(512) == Sinusoidal(512, interleaved=False)
        True
        """
        return cls(width, interleaved=False, embedding_scale=embedding_scale)

    @classmethod
    def diffusers(
        cls,
        width: int,
        *,
        flip_sin_to_cos: bool = False,
        downscale_freq_shift: float = 1.0,
        scale: float = 1.0,
        max_period: float = 1e4,
    ) -> "Sinusoidal":
        """Timestep embeddings: ``[S, C]`` (flipped ``[C, S]``) of ``t * scale * max_period^(-r / (h - shift))``, t real.

        Source: diffusers, ``get_timestep_embedding``. An odd width's last channel is zero. The rows themselves are
        ``fastpos.table(encoding, positions=timesteps)``.

        Examples
        --------
        >>> Sinusoidal.diffusers(320, flip_sin_to_cos=True, downscale_freq_shift=0.0).divisor
        160.0
        """
        divisor = _half(width, 1) - downscale_freq_shift
        return cls(
            width,
            base=max_period,
            divisor=divisor,
            frequency_scale=scale,
            interleaved=False,
            cosine_first=flip_sin_to_cos,
            zero_last=True,
            real=True,
        )

    @classmethod
    def mlx(
        cls,
        width: int,
        *,
        min_freq: float = 1e-4,
        max_freq: float = 1.0,
        scale: float | None = None,
        cos_first: bool = False,
        full_turns: bool = False,
    ) -> "Sinusoidal":
        """``[S, C] * scale`` (or ``[C, S]``), h frequencies from ``max_freq`` down to ``min_freq`` in equal ratios, p real.

        Source: MLX, ``nn.SinusoidalPositionalEncoding``. ``scale`` is ``sqrt(2 / width)`` when None; ``full_turns`` counts
        the frequencies in turns (times 2 pi). Of an even width.

        Examples
        --------
        >>> Sinusoidal.mlx(8).scale
        0.5
        """
        half, most = _half(width, 2), positive("max_freq", max_freq)
        if width % 2:
            raise ValueError(f"width: expected an even number, for MLX's rows are halves, got {width}")
        return cls(
            width,
            base=most / positive("min_freq", min_freq),
            divisor=half - 1,
            frequency_scale=most * (math.tau if full_turns else 1.0),
            interleaved=False,
            cosine_first=cos_first,
            scale=math.sqrt(2 / width) if scale is None else scale,
            real=True,
        )


def _half(width: object, least: int) -> int:
    """Pairs of a row that ends with a zero when its width is odd; some forms divide by one less."""
    half = integer("width", width, 2, 1 << 16) // 2
    if half < least:
        raise ValueError(f"width: expected at least {2 * least}, for its frequencies are divided by h - 1, got {width}")
    return half
