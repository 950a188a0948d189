"""What hypothesis draws: encodings, where tokens stand, and arrays that lie in memory in every possible way."""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from hypothesis import strategies as st
from oracle import DTYPES

from fastpos import Axes, Learned, Linear, LogScale, MinistralScale, Rotary, Sinusoidal
from fastpos.encodings import coordinates
from fastpos.positions import cu_seqlens, packed
from fastpos.scaling import Llama3, YaRN

WIDTHS = [2, 4, 6, 24, 33, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256, 576]
PLACES = [0, 1, 255, 256, 65535, 131071, 10**6, 2**24 + 1, 2**31 - 2, 2**31, -1, -8, -(2**31), -(2**31) - 3]
ROWS = 300
LAYOUTS = ["".join(order) + "d" for some in ("bsh", "sh", "bs", "s", "th", "t") for order in permutations(some)]


@st.composite
def encodings(draw, kind):
    """Draw an encoding that no plan is kept for yet."""
    if kind == "learned":
        width, name = draw(st.sampled_from([*WIDTHS, 31])), draw(st.sampled_from(sorted(DTYPES)))
        table = np.random.default_rng(7).standard_normal((ROWS, width)).astype(DTYPES[name])
        return Learned(table, offset=draw(st.integers(0, 3)))
    width = draw(st.sampled_from([*WIDTHS, 65]))
    base, interleaved = draw(st.sampled_from([1e4, 5e5])), draw(st.booleans())
    if kind == "sinusoidal":
        more = {"base": base, "embedding_scale": draw(st.sampled_from([1.0, math.sqrt(width)]))}
        if draw(st.booleans()):
            return Sinusoidal(width, interleaved=interleaved, **more)
        padding, real = draw(st.sampled_from([None, 0, 1, 255])), draw(st.booleans())
        more |= {"padding_index": padding, "scale": 0.5, "real": real, "zero_last": True, "interleaved": interleaved}
        return Sinusoidal(width, cosine_first=not interleaved and draw(st.booleans()), **more)
    turned = draw(st.sampled_from([None, 0, 2, 2 * (width // 4), 2 * ((width - 1) // 2)]))
    if turned is None and width % 2:
        turned = width - 1
    spare = width - (width if turned is None else turned)
    more = draw(forms((width if turned is None else turned) // 2, interleaved))
    start = draw(st.sampled_from([0, spare, spare // 2]))
    restart = "axes" in more and more["axes"].own_frequencies
    scalings = [None, Linear(3.0), *([] if restart else [YaRN(8.0, 64), Llama3(8.0, 64)])]
    scaling = None if turned == 0 else draw(st.sampled_from(scalings))
    more = {"interleaved": interleaved, "clockwise": draw(st.booleans()), **more}
    return Rotary(width, base=base, rotary_dim=turned, rotary_start=start, scaling=scaling, **more)


@st.composite
def forms(draw, pairs, interleaved):
    """What kernels are compiled for: a few forms that between them have every pairing, clock and scale."""
    names = ["plain", "plain", "deinterleaved", "rounded", *(["axes", "real"] if pairs > 2 else [])]
    name = draw(st.sampled_from(names))
    if name == "deinterleaved":
        scale = LogScale(draw(st.sampled_from([2.0, 300.0])))
        return {"interleaved": True, "deinterleaved": True, "query_scale": scale}
    if name == "rounded":
        return {"interleaved": False, "numerics": "hf", "query_scale": MinistralScale(0.1, 16)}
    if name == "plain":
        return {}
    first = draw(st.integers(1, pairs - 2))
    second = draw(st.integers(1, pairs - first - 1))
    sections = (first, second, pairs - first - second)
    if name == "axes":
        return {"interleaved": True, "axes": Axes(sections, own_frequencies=draw(st.booleans()))}
    return {"interleaved": False, "axes": Axes(sections, own_channels=True, real=True)}


@dataclass
class Stand:
    """Arguments that say where tokens stand, and the positions they mean, ``(b, s)`` or ``(axes, b, s)``."""

    arguments: dict
    at: np.ndarray


@st.composite
def stands(draw, batch, tokens, layout, encoding):
    """Every rule that the layout allows: start, start by row, positions of every integer type and stride, documents."""
    axes, real = coordinates(encoding)
    learned = isinstance(encoding, Learned)
    places = st.integers(0, ROWS - 4 - tokens) if learned else st.sampled_from(PLACES) | st.integers(-5000, 5000)
    rules = [
        "start",
        "positions",
        *(["starts", "ids"] if "b" in layout else []),
        *(["documents"] if "t" in layout else []),
    ]
    rule = draw(st.sampled_from(rules))
    if rule in ("positions", "ids"):
        return draw(ids_stands(batch if rule == "ids" else 1, batch, tokens, places, axes, real, rule == "ids"))
    if rule == "start":
        start = draw(places)
        arguments, at = {"start": start}, start + np.arange(tokens)
    elif rule == "starts":
        starts = np.array(draw(st.lists(places, min_size=batch, max_size=batch)), np.int64)
        arguments, at = {"start": starts}, starts[:, None] + np.arange(tokens)
    else:
        lengths = draw(st.lists(st.integers(0, tokens), max_size=3))
        lengths = [*lengths, tokens - sum(lengths)] if sum(lengths) <= tokens else [0, tokens, 0]
        starts = draw(st.none() | st.lists(places, min_size=len(lengths), max_size=len(lengths)))
        arguments, at = (
            {"cu_seqlens": cu_seqlens(lengths), "start": starts},
            packed(lengths, 0 if starts is None else starts),
        )
    return Stand(arguments, np.broadcast_to(at, (*((axes,) if axes > 1 else ()), batch, tokens)))


@st.composite
def ids_stands(draw, rows, batch, tokens, places, axes, real, by_row):
    """Positions a token, of a type that holds them, lying in memory in some way."""
    shape = (*((axes,) if axes > 1 else ()), rows, tokens)
    count = math.prod(shape)
    at = np.array(draw(st.lists(places, min_size=count, max_size=count)), np.int64).reshape(shape)
    names = ("i8", "i4", "u1", "i2", "u4", "u8", ">i8", ">i4")
    ids = at.astype(draw(st.sampled_from([name for name in names if (at.astype(name) == at).all()])))
    if real and draw(st.booleans()):
        at = ids = at + np.array(draw(st.lists(st.floats(0, 0.99), min_size=count, max_size=count))).reshape(shape)
    memory = draw(st.sampled_from(["plain", "reversed", "every other", "transposed"]))
    if memory == "reversed":
        ids = np.ascontiguousarray(ids[..., ::-1])[..., ::-1]
    elif memory == "every other":
        ids = np.repeat(ids, 2, axis=-1)[..., ::2]
    elif memory == "transposed":
        ids = np.asfortranarray(ids)
    whole = np.broadcast_to(at, (*shape[:-2], batch, tokens))
    return Stand({"positions": ids if by_row else ids[..., 0, :]}, whole)


@dataclass
class Lying:
    """How an array lies in memory: the order of its axes there, what surrounds them, steps, signs, an odd address."""

    order: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int
    odd: bool

    def place(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Make an array equal to ``values`` bit for bit, and the buffer of bytes around it, all ones (NaN)."""
        spans = [
            low + size * abs(step) + high
            for low, size, step, high in zip(self.before, values.shape, self.steps, self.after, strict=True)
        ]
        size = math.prod(spans) * values.itemsize + 256
        buffer = np.full(size, 255, np.uint8)
        memory = np.ndarray([spans[axis] for axis in self.order], values.dtype, buffer, self.offset)
        view = memory.transpose(np.argsort(self.order))
        cuts = [
            slice(low, low + n * abs(step), abs(step))
            for low, n, step in zip(self.before, values.shape, self.steps, strict=True)
        ]
        view = view[tuple(cuts)]
        view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in self.steps)]
        if self.odd and view.size:
            strides = [stride if n > 1 else 6151 for n, stride in zip(view.shape, view.strides, strict=True)]
            view = np.ndarray(view.shape, view.dtype, buffer, _first(view, buffer), strides)
        patterns(view)[...] = patterns(values)
        return view, buffer


def _first(view: np.ndarray, buffer: np.ndarray) -> int:
    """Bytes from the start of ``buffer`` to the first element."""
    return view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]


def patterns(array: np.ndarray) -> np.ndarray:
    """View memory as unsigned integers, whatever its strides."""
    return array.view(f"u{array.itemsize}")


def surroundings(view: np.ndarray, buffer: np.ndarray) -> bytes:
    """Copy the bytes of ``buffer`` that are not the array's."""
    kept = patterns(view).copy()
    patterns(view)[...] = 0
    around = buffer.tobytes()
    patterns(view)[...] = kept
    return around


@st.composite
def lyings(draw, rank):
    """Slices, steps, negative strides, transpositions, unaligned starts; also of the last axis, one time in five."""
    loose = draw(st.integers(0, 4)) == 0
    order = draw(st.permutations(range(rank - 1)))
    order = draw(st.permutations(range(rank))) if loose else (*order, rank - 1)
    spare = st.sampled_from([0, 0, 1, 3])
    before, after = (tuple(draw(st.lists(spare, min_size=rank, max_size=rank))) for _ in range(2))
    steps = draw(st.lists(st.sampled_from([1, 1, 2, -1, -3]), min_size=rank, max_size=rank))
    if not loose:
        steps[-1] = 1
    return Lying(
        tuple(order), before, after, tuple(steps), draw(st.sampled_from([0, 1, 2, 8, 16])), draw(st.booleans())
    )
