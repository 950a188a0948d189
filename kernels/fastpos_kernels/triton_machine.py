"""What the kernels know of machines, and the tiles that follow from it: pure functions of shapes and item sizes."""

from dataclasses import dataclass

WARPS = 4
ACCESS_BYTES = 16  # the widest load or store of a thread
LANES = 32  # of a warp where a target does not say; AMD's data centre GPUs have 64
# Two programs for each of the 132 multiprocessors of an H200: with fewer, heads are spread over programs instead.
FULL = 264
# Heads that share the sines and cosines of one program: 16 instructions a pair with 8, 21 with 4.
MOST_STEPS, LEAST_STEPS = 8, 4
# Rows that share the loads of a pair's rates (12 bytes, where a pair of 16-bit channels moves 8).
ROW_ACCESSES = 8
# Rows are counted in 32 bits, and so are programs.
MOST_ROWS = 2**31 - 2**16


@dataclass(frozen=True)
class Tile:
    """What a program does: ``steps`` times ``rows x heads x pairs`` (``rows x pairs`` or channels where added)."""

    rows: int
    heads: int
    pairs: int
    steps: int


def has_fast_sine(backend: str, itemsize: int) -> bool:
    """Whether sinusoids are made by the hardware's own sine, whose error of 5e-7 only results of 16 bits hide."""
    return backend == "cuda" and itemsize == 2


def ceiling(count: int, part: int) -> int:
    """How many parts hold ``count``."""
    return -(-count // part)


def _power(count: int) -> int:
    """The least power of two that is not below ``count``."""
    return 1 << max(count - 1, 0).bit_length()


def _accesses(itemsize: int, lanes: int) -> int:
    """Elements of a tile in which each thread has one full access, the smallest whose accesses are all full."""
    return lanes * WARPS * ACCESS_BYTES // itemsize


def unit(itemsize: int, strides) -> int:
    """The most elements, a full access at most, in whole numbers of which all ``strides`` (bytes) are."""
    size = ACCESS_BYTES
    while any(stride % size for stride in strides):
        size //= 2
    return size // itemsize


def groups(heads: int, tile: Tile) -> int:
    """Programs for the heads of one block of rows of an array."""
    return ceiling(heads, tile.heads * tile.steps)


def rotate_programs(rows: int, heads: tuple[int, ...], pairs: int, tile: Tile) -> int:
    """Programs of a rotary launch."""
    return ceiling(rows, tile.rows) * sum(groups(count, tile) for count in heads) * ceiling(pairs, tile.pairs)


def rotate_tile(
    rows: int, heads: tuple[int, ...], pairs: int, itemsize: int, interleaved: bool, lanes: int, together: bool = False
) -> Tile:
    """Many rows: one after the other head past the same sines; few rows: heads side by side, over more programs.

    ``together``: all pairs of a head in one program, however many.
    """
    size = _accesses(itemsize, lanes) // (2 if interleaved else 1)
    size = max(size, _power(pairs)) if together else size
    span = min(_power(pairs), size)
    most = max(1, *heads)
    even = [steps for steps in range(MOST_STEPS, LEAST_STEPS - 1, -1) if not any(count % steps for count in heads)]
    many = Tile(size // span, 1, span, even[0] if even else min(MOST_STEPS, most))
    if rotate_programs(rows, heads, pairs, many) >= FULL:
        return many
    beside = min(size // span, _power(most))
    return Tile(size // span // beside, beside, span, 1)


def add_programs(rows: int, count: int, tile: Tile) -> int:
    """Programs of an additive launch of ``count`` pairs (or channels) a row."""
    return ceiling(rows, tile.rows * tile.steps) * ceiling(count, tile.pairs)


def sinusoid_tile(rows: int, pairs: int, itemsize: int, interleaved: bool, lanes: int, real: bool = False) -> Tile:
    """Many rows: several past the same rates. A wide row has two accesses of each thread, for what a row costs by itself.

    ``real``: positions have fractions, whose float64 phases of several rows are more than a thread's registers hold.
    """
    size = _accesses(itemsize, lanes)
    span = min(_power(pairs), size)
    beside = max(1, size // (2 * span if interleaved else span))
    many = Tile(beside, 1, span, ROW_ACCESSES * size // (beside * 2 * span))
    return many if not real and add_programs(rows, pairs, many) >= FULL else Tile(beside, 1, span, 1)


def learned_tile(width: int, itemsize: int, lanes: int) -> Tile:
    """Rows of a table are shared by nobody: the same tile for any number of rows."""
    size = _accesses(itemsize, lanes)
    span = min(_power(width), size)
    return Tile(size // span, 1, span, 1)
