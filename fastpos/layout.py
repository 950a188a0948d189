"""Layout strings: which axis of an array is batch, token, head and channel. Never guessed from sizes or strides."""

from dataclasses import dataclass
from functools import lru_cache

DEFAULTS = {"rotary": {4: "bshd", 3: "thd"}, "additive": {3: "bsd", 2: "td"}}
MEANING = "b batch, s sequence, t packed tokens, h heads, d channels"


@dataclass(frozen=True)
class Layout:
    """The places of (batch, token, head) in an array, None where it has no such axis; channels are last."""

    letters: str
    batch: int | None
    token: int
    head: int | None

    @property
    def axes(self) -> tuple[int | None, int, int | None]:
        """The places of (batch, token, head)."""
        return self.batch, self.token, self.head

    @property
    def packed(self) -> bool:
        """Whether tokens lie packed on one axis (letter ``t``)."""
        return "t" in self.letters


@lru_cache(maxsize=256)
def layout_of(family: str, letters: str | None, rank: int) -> Layout:
    """The layout named ``letters``, or the default of a ``rotary`` or ``additive`` encoding for arrays of this rank."""
    if letters is None:
        letters = DEFAULTS[family].get(rank)
        if letters is None:
            known = ", ".join(f"{name!r} for rank {size}" for size, name in DEFAULTS[family].items())
            raise ValueError(f"layout: expected one to be named ({MEANING}), for x has rank {rank}; by default {known}")
    allowed = "bsthd" if family == "rotary" else "bstd"
    unknown = [letter for letter in letters if letter not in allowed]
    if unknown:
        raise ValueError(
            f"layout: unknown letter {unknown[0]!r} in {letters!r}; expected letters of {allowed!r} ({MEANING})"
        )
    if len(set(letters)) != len(letters):
        raise ValueError(f"layout: a letter stands twice in {letters!r}")
    if not letters.endswith("d"):
        raise ValueError(f"layout: expected 'd' (channels) last, got {letters!r}")
    if ("s" in letters) == ("t" in letters):
        raise ValueError(f"layout: expected exactly one of 's' and 't', got {letters!r}")
    if "t" in letters and "b" in letters:
        raise ValueError(f"layout: packed tokens 't' have no batch axis, got {letters!r}; name the token axis 's'")
    if len(letters) != rank:
        raise ValueError(f"layout: {letters!r} has {len(letters)} axes, but the array has {rank}")
    token = letters.index("t") if "t" in letters else letters.index("s")
    return Layout(
        letters, letters.index("b") if "b" in letters else None, token, letters.index("h") if "h" in letters else None
    )
