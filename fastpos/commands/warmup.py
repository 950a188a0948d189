"""``fastpos warmup``: compile ahead of the first call, with the time that each kernel takes."""

from collections.abc import Sequence
from itertools import product
from time import perf_counter

from rich.console import Console

from ..dispatch import choose
from ..encodings import Encoding, Learned, Rotary, Sinusoidal
from ..warm import warmup
from . import facts
from .console import console, progress, table
from .workloads import normals

ENCODINGS = ("rotary", "sinusoidal", "learned")
DTYPES = ("float32", "float16", "bfloat16")


def _example(encoding: str, dtype: str) -> Encoding:
    if encoding == "rotary":
        return Rotary(128)
    return Sinusoidal(512) if encoding == "sinusoidal" else Learned(normals(0, (1, 512), dtype))


def compile_each(out: Console, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, float]]:
    """Compile the kernel of every (encoding, dtype), and say how many seconds each took."""
    took = []
    with progress(out, wanted, lambda pair: f"compiling {pair[0]} {pair[1]}") as pairs:
        for encoding, dtype in pairs:
            begin = perf_counter()
            (name,) = warmup(_example(encoding, dtype), dtypes=[dtype])
            took.append((name, perf_counter() - begin))
    return took


def run(encodings: Sequence[str], dtypes: Sequence[str]) -> None:
    """Compile and report."""
    out = console()
    backend = choose(None)
    took = compile_each(out, list(product(encodings or ENCODINGS, dtypes or DTYPES)))
    rows = [(name, f"{seconds:.2f}") for name, seconds in took]
    out.print(
        table(
            f"Kernels of the {backend} backend",
            ("kernel", "seconds"),
            [*rows, ("all", f"{sum(s for _, s in took):.2f}")],
        )
    )
    if backend == "numba":
        out.print(f"They are kept in {facts.kernel_folder()}")
