"""The one table of benchmark cases: ``fastpos bench``, ``bench/`` and their tests are all made from it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from fastpos_kernels import numpy_baseline
from numpy.typing import NDArray

from ..api import apply, apply_
from ..encodings import Encoding, Learned, Rotary, Sinusoidal
from .oracle import expected

Array = NDArray[Any]

PREFILL, DECODE, SINUSOIDAL, LEARNED = "rope", "decode", "sinusoidal", "learned"
FASTPOS, COPY, READY, MADE = "fastpos", "copy", "ready", "made"
CONTENDERS = {
    COPY: "numpy.copyto of the same bytes",
    FASTPOS: "fastpos, one call",
    READY: "NumPy, rows of the table ready",
    MADE: "NumPy, rows of the table made in the call (sines from the formula; learned rows gathered)",
}
DTYPES = ("float32", "float16", "bfloat16")
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
HEADS = (32, 8)
HEAD_DIM = 128
DECODED_AT = 4096
# Inputs of one case, not counting the arrays of the same size that results go to and that the baselines make.
MAX_BYTES = 700 << 20
SMALL_BYTES = 1 << 20
SAMPLED_ROWS = 4


@dataclass(frozen=True)
class Case:
    """One line of the table: ``batch`` rows of ``tokens``, each of ``heads`` (of q and of k; none: additive) x ``width``."""

    workload: str
    batch: int
    tokens: int
    width: int
    dtype: str
    in_place: bool
    interleaved: bool = False
    heads: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Says everything: ``rope-b1-s512-float32-halves-inplace``, ``learned-b1-s512-d4096-float16-out``."""
        form = ("pairs" if self.interleaved else "halves") if self.heads else f"d{self.width}"
        place = "inplace" if self.in_place else "out"
        size = f"{self.workload}-b{self.batch}-s{self.tokens}"
        return f"{size}-{self.dtype}-{form}-{place}" if self.heads else f"{size}-{form}-{self.dtype}-{place}"

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs."""
        return self.batch * self.tokens * (sum(self.heads) or 1) * self.width * ITEMSIZE[self.dtype]

    @property
    def start(self) -> int:
        """Where the first token stands."""
        return DECODED_AT if self.workload == DECODE else 0

    def small(self) -> "Case":
        """The same with at most 1 MiB of inputs: one row, fewer tokens."""
        if self.nbytes <= SMALL_BYTES:
            return self
        row = self.nbytes // (self.batch * self.tokens)
        return replace(self, batch=1, tokens=min(self.tokens, SMALL_BYTES // row))

    def encoding(self) -> Encoding:
        """What is benchmarked; a learned table has the data's type."""
        if self.workload == SINUSOIDAL:
            return Sinusoidal(self.width)
        if self.workload == LEARNED:
            return Learned(normals(1, (self.tokens, self.width), self.dtype))
        return Rotary(self.width, base=500_000.0, interleaved=self.interleaved)

    def inputs(self) -> tuple[Array, ...]:
        """Queries and keys ``(b, s, h, d)``, or embeddings ``(b, s, d)``: the same numbers in every process."""
        axes: list[tuple[int, ...]] = [(heads, self.width) for heads in self.heads] or [(self.width,)]
        shapes = [(self.batch, self.tokens, *last) for last in axes]
        return tuple(normals(2 + index, shape, self.dtype) for index, shape in enumerate(shapes))

    def sampled(self) -> NDArray[np.int64]:
        """Tokens whose results are judged."""
        return np.unique(np.linspace(0, self.tokens - 1, SAMPLED_ROWS, dtype=np.int64))

    def make(self) -> "Contest":
        """Inputs and contenders."""
        return Contest(self)


def normals(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Standard normals. Random bit patterns would hold subnormals, at half the speed; zeros would hide errors."""
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    if dtype == "bfloat16":
        import ml_dtypes

        return values.astype(ml_dtypes.bfloat16)
    return values.astype(dtype, copy=False)


def largest_error(encoding: Encoding, positions: NDArray[np.int64], rows: Iterable[tuple[Array, Array]]) -> float:
    """Largest absolute error of results against 50-digit arithmetic: pairs of x and y, ``(n, ..., d)``; NaN if one is."""
    return float(np.max([np.abs(y - expected(encoding, x, positions)).max() for x, y in rows]))


class Contest:
    """A case with its arrays, and a callable without arguments for every contender; ``start`` moves its first token.

    All contenders write to the same ``targets``. In place, they read them too: ``copy`` brings the inputs back.
    """

    def __init__(self, case: Case, start: int | None = None) -> None:
        self.case = case
        self.start = case.start if start is None else start
        self.encoding = case.encoding()
        self.inputs = case.inputs()
        self.targets = tuple(np.empty_like(x) for x in self.inputs)
        self.contenders = {COPY: self._copy(), FASTPOS: self._fastpos(), **self._baselines()}
        self.contenders[COPY]()

    def error(self, contender: str) -> float:
        """Largest absolute error of some rows of one run against 50-digit arithmetic."""
        self.contenders[COPY]()
        self.contenders[contender]()
        tokens = self.case.sampled()
        rows = [(x[-1, tokens], y[-1, tokens]) for x, y in zip(self.inputs, self.targets, strict=True)]
        return largest_error(self.encoding, self.start + tokens, rows)

    def _fastpos(self) -> Callable[[], Any]:
        if self.case.in_place:
            return partial(apply_, self.encoding, *self.targets, start=self.start)
        return partial(apply, self.encoding, *self.inputs, start=self.start, out=self.targets)

    def _copy(self) -> Callable[[], Any]:
        if len(self.inputs) == 1:
            return partial(np.copyto, self.targets[0], self.inputs[0])
        return partial(_copy_two, *self.targets, *self.inputs)

    def _baselines(self) -> dict[str, Callable[[], Any]]:
        sources = self.targets if self.case.in_place else self.inputs
        arrays = list(zip(sources, self.targets, strict=True))
        positions = np.arange(self.start, self.start + self.case.tokens)
        make, use = self._baseline()
        rows = make(positions)
        return {READY: lambda: _each(use, arrays, rows), MADE: lambda: _each(use, arrays, make(positions))}

    def _baseline(self) -> tuple[Callable[[Array], tuple[Array, ...]], Callable[..., None]]:
        """How a NumPy user makes the rows of the table, and how they are used."""
        encoding = self.encoding
        if isinstance(encoding, Learned):
            return lambda positions: (encoding.table[positions],), numpy_baseline.add
        width, base = encoding.width, encoding.base
        if isinstance(encoding, Sinusoidal):
            return lambda positions: (numpy_baseline.sinusoids(positions, width, base),), numpy_baseline.add
        if encoding.interleaved:
            return lambda positions: numpy_baseline.pairs_table(positions, width, base), numpy_baseline.rotate_pairs
        return lambda positions: numpy_baseline.halves_table(positions, width, base), numpy_baseline.rotate_halves


def _copy_two(first_target: Array, second_target: Array, first: Array, second: Array) -> None:
    np.copyto(first_target, first)
    np.copyto(second_target, second)


def _each(use: Callable[..., None], arrays: list[tuple[Array, Array]], rows: tuple[Array, ...]) -> None:
    for x, y in arrays:
        use(x, y, *rows)


def _all() -> Iterator[Case]:
    rotations = list(product(DTYPES, (False, True), (True, False)))
    for batch, tokens in product((1, 8), (1, 16, 512, 4096, 32768)):
        for dtype, interleaved, in_place in rotations:
            case = Case(PREFILL, batch, tokens, HEAD_DIM, dtype, in_place, interleaved, HEADS)
            if case.nbytes <= MAX_BYTES:
                yield case
    for batch, (dtype, interleaved, in_place) in product((1, 8), rotations):
        yield Case(DECODE, batch, 1, HEAD_DIM, dtype, in_place, interleaved, HEADS)
    for workload, width, tokens in product((SINUSOIDAL, LEARNED), (512, 4096), (512, 4096)):
        for dtype, in_place in product(DTYPES, (True, False)):
            yield Case(workload, 1, tokens, width, dtype, in_place)


CASES = tuple(_all())
# What a reader wants to know first, with no more than six kernels to compile.
QUICK = (
    "rope-b1-s512-float32-halves-inplace",
    "rope-b1-s512-float32-halves-out",
    "rope-b1-s512-float32-pairs-inplace",
    "rope-b1-s512-bfloat16-halves-inplace",
    "rope-b1-s4096-float32-halves-inplace",
    "rope-b1-s4096-float32-halves-out",
    "rope-b1-s4096-float16-halves-inplace",
    "rope-b1-s4096-bfloat16-halves-out",
    "decode-b1-s1-float32-halves-inplace",
    "decode-b1-s1-bfloat16-halves-inplace",
    "sinusoidal-b1-s4096-d4096-float32-out",
    "sinusoidal-b1-s4096-d4096-bfloat16-out",
    "learned-b1-s4096-d4096-float32-out",
)


def select(quick: bool = False, only: str = "") -> list[Case]:
    """Cases whose name contains ``only``, of all or of the quick ones."""
    return [case for case in CASES if only in case.name and (not quick or case.name in QUICK)]
