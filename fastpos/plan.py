"""What a call comes down to: checks of its arrays and the choice of its launch, made once and kept.

Everything here depends on the encoding, on flags, and on dtypes, shapes and strides; not on the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from . import dispatch, machine, threads
from .encodings import Encoding, Learned, Rotary, Sinusoidal
from .frequencies import Rates, rates
from .head import Head
from .layout import Layout, layout_of
from .places import Rule

Array = NDArray[Any]
DTYPES = ("float32", "float16", "bfloat16", "float64")
# Which way a rotation goes: to a token's position, by a shift of what stands at one already, or back for a gradient.
Turn = Literal["apply", "shift", "back"]


def turned(clock: Rates, head: Head, turn: Turn) -> tuple[Rates, Head]:
    """Clock and channels for a turn; rows that have been rotated lie where that put them."""
    if turn == "apply":
        return clock, head
    return clock.for_shift() if turn == "shift" else clock.reversed(), head.turned()


@dataclass(frozen=True)
class Plan:
    """What a call would run: everything that is decided before its first byte.

    Attributes
    ----------
    backend, kernel
        Who runs it, and what.
    layout
        Letters of the arrays' axes: b batch, s sequence, t packed tokens, h heads, d channels.
    dtype
        Of the arrays and of the result.
    threads
        How many may share the work.
    in_place
        Whether the results replace the inputs.
    streamed
        Whether results go to memory past the caches, as they do when all arrays together exceed half the largest of them
        (512 tokens of 40 float32 heads, 21 MB, into a 32 MiB cache: 1.2 copies -> 0.9).
    copies
        Whether an array whose last axis is not contiguous is gathered and scattered around the kernel.
    bytes_read, bytes_written
        Of the arrays, each byte counted once.
    """

    backend: str
    kernel: str
    layout: str
    dtype: str
    threads: int
    in_place: bool
    streamed: bool
    copies: bool
    bytes_read: int
    bytes_written: int
    launch: Any = field(repr=False, compare=False)
    # Plans are found by the addresses of dtypes, and kernels compare them: one that is gone could become another's.
    kinds: Any = field(repr=False, compare=False)


def name_of(index: int) -> str:
    """What an input is called in a message."""
    return "x" if index == 0 else f"more[{index - 1}]"


def check_encoding(encoding: object) -> None:
    """Refuse what is no encoding."""
    if not isinstance(encoding, Rotary | Sinusoidal | Learned):
        said = f"the class {encoding.__name__}" if isinstance(encoding, type) else f"a {type(encoding).__name__}"
        raise TypeError(
            f"encoding: expected first an object made by fastpos.Rotary, Sinusoidal or Learned, as Rotary(128), got {said}"
        )


def check_kind(name: str, array: object) -> None:
    """Refuse what is no plain NumPy array."""
    kind = type(array)
    if kind is not np.ndarray and kind is not np.memmap:
        said = f"{kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"{name}: expected a NumPy array (numpy.ndarray or memmap), got {said}")


def _check_dtype(name: str, array: Array) -> None:
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        order = "" if array.dtype.isnative else " in foreign byte order"
        raise TypeError(f"{name}: expected dtype {', '.join(DTYPES)}, got {array.dtype}{order}")


def check_inputs(encoding: Encoding, inputs: Sequence[Array], layout: Layout, names: Sequence[str]) -> None:
    """Refuse inputs that do not belong together or to the encoding."""
    first = inputs[0]
    for name, x in zip(names, inputs, strict=True):
        _check_dtype(name, x)
        if x.dtype != first.dtype:
            raise TypeError(f"{name}: expected dtype {first.dtype} like x, got {x.dtype}")
        if x.ndim != first.ndim:
            raise ValueError(f"{name}: expected rank {first.ndim} like x, got shape {x.shape}")
        if x.shape[-1] != encoding.width:
            raise ValueError(
                f"{name}: expected {encoding.width} channels on the last axis for {encoding}, got {x.shape}"
            )
        for axis in (layout.batch, layout.token):
            if axis is not None and x.shape[axis] != first.shape[axis]:
                letter = layout.letters[axis]
                raise ValueError(
                    f"{name}: expected {first.shape[axis]} on axis {letter!r} like x, got shape {x.shape} (the arrays are read "
                    f"as {layout.letters!r}; give layout= if their axes stand otherwise)"
                )


def check_output(name: str, out: Array, x: Array) -> None:
    """Refuse an output that does not fit its input or cannot be written without touching an element twice."""
    if out.dtype != x.dtype:
        raise TypeError(f"{name}: expected dtype {x.dtype} like its input, got {out.dtype}")
    if out.shape != x.shape:
        raise ValueError(f"{name}: expected shape {x.shape} like its input, got {out.shape}")
    if not out.flags.writeable:
        raise ValueError(f"{name}: expected a writeable array, got a read-only one")
    if out.size == 0:
        return
    reach = out.itemsize - 1
    for stride, size in sorted((abs(stride), size) for stride, size in zip(out.strides, out.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                raise ValueError(f"{name}: expected elements apart in memory, got overlapping strides {out.strides}")
            reach += stride * (size - 1)


def check_apart(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Refuse outputs that share memory with each other or with another input than their own, or partly with that."""
    for index, out in enumerate(outputs):
        name = "out" if len(outputs) == 1 else f"output {index}"
        for other_index, other in enumerate(outputs[:index]):
            if _share(out, other):
                raise ValueError(
                    f"{name}: expected memory of its own, but it overlaps the output for {name_of(other_index)}"
                )
        for other_index, x in enumerate(inputs):
            if other_index == index and _same(x, out):
                continue
            if _share(out, x):
                raise ValueError(
                    f"{name}: expected to be {name_of(index)} itself or memory apart from the inputs, but it partly "
                    f"overlaps {name_of(other_index)}; give another out, or copy the input first"
                )


def check_apart_from(table: Array, outputs: Sequence[Array]) -> None:
    """Refuse outputs that share memory with a learned table, which is read while they are written."""
    if any(_share(out, table) for out in outputs):
        raise ValueError("out: expected memory apart from the learned table, but it overlaps the table")


def _same(a: Array, b: Array) -> bool:
    """Whether the same elements lie in the same places; strides of axes of size 1 mean nothing."""
    steps = zip(a.shape, a.strides, b.strides, strict=True)
    return a is b or (a.ctypes.data == b.ctypes.data and all(one == other for size, one, other in steps if size > 1))


def _share(a: Array, b: Array) -> bool:
    try:
        # NumPy's stubs know no bound of one's own; without one, contrived strides take exponential time.
        return np.shares_memory(a, b, max_work=1_000_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _is_rowwise(array: Array) -> bool:
    return array.shape[-1] <= 1 or array.strides[-1] == array.itemsize


_stored: WeakKeyDictionary[Learned, dict[str, Array]] = WeakKeyDictionary()


def stored_table(encoding: Learned, dtype: str) -> Array:
    """The table as kernels read it: in the data's own type, or widened or rounded once to what that is computed in.

    A tensor comes in a type that kernels read, for it may change from call to call.
    """
    table: Array = encoding.table
    if encoding.is_tensor:
        return table
    if table.dtype.name == dtype:
        return table
    computed = "float64" if dtype == "float64" else "float32"
    tables = _stored.setdefault(encoding, {})
    if computed not in tables:
        tables[computed] = table.astype(computed)
    return tables[computed]


def layout_for(encoding: Encoding, letters: str | None, rank: int) -> Layout:
    """The layout of a call's arrays."""
    if letters is not None and not isinstance(letters, str):
        raise TypeError(f"layout: expected a string of letters, as 'bshd', got {letters!r}")
    return layout_of("rotary" if isinstance(encoding, Rotary) else "additive", letters, rank)


def kernel_name(encoding: Encoding) -> str:
    """What is run for an encoding."""
    if isinstance(encoding, Rotary):
        return "rotate"
    return "add_sinusoidal" if isinstance(encoding, Sinusoidal) else "add_learned"


def rowwise(array: Array) -> Array:
    """The array itself where its last axis is contiguous, else a contiguous copy."""
    return array if _is_rowwise(array) else np.ascontiguousarray(array)


def make(
    encoding: Encoding,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    layout: Layout,
    rule: Rule,
    backend: str,
    turn: Turn,
) -> Plan:
    """Choose the launch for checked arrays."""
    in_place = all(x is y for x, y in zip(inputs, outputs, strict=True))
    size = sum(x.nbytes for x in inputs)
    count = threads.get_num_threads() if backend == "numba" and 2 * size >= threads.THREADED_BYTES else 1
    moved = size if in_place else 2 * size
    streamed = backend == "numba" and not in_place and 2 * moved > machine.last_level_cache()
    copies = backend == "numba" and not all(map(_is_rowwise, (*inputs, *outputs)))
    kinds = [(type(array), array.dtype) for array in (*inputs, *outputs)]
    if copies:
        inputs = [rowwise(x) for x in inputs]
        outputs = inputs if in_place else [rowwise(y) for y in outputs]
    bind = dispatch.kernels(backend)
    common = (inputs, outputs, layout.axes, rule)
    if isinstance(encoding, Rotary):
        clock, head = turned(rates(encoding), encoding.head, turn)
        launch = bind.bind_rotate(*common, clock, head, streamed, count)
    elif isinstance(encoding, Sinusoidal):
        scale = encoding.embedding_scale
        launch = bind.bind_sinusoidal(*common, rates(encoding), encoding.waves, scale, streamed, count)
    else:
        table = stored_table(encoding, inputs[0].dtype.name)
        launch = bind.bind_learned(*common, table, encoding.offset, streamed, count)
    return Plan(
        backend,
        kernel_name(encoding),
        layout.letters,
        inputs[0].dtype.name,
        count,
        in_place,
        streamed,
        copies,
        size,
        size,
        launch,
        kinds,
    )
