"""Where tokens stand: the one rule that a call's arguments come down to, and the numbers or arrays that it reads."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from fastpos_kernels.rules import IDS, PACKED, START, STARTS
from numpy.typing import NDArray

from .layout import Layout

LOWEST, HIGHEST = -(1 << 62), 1 << 62


def integers(name: str, values: Any, readable: bool = True) -> NDArray[Any]:
    """An array of integers that int64 can hold, refused with the argument's name when it is something else."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected plain integers, got a masked array, whose mask would be lost")
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers that int64 can hold, got {array.dtype}")
    if readable and array.dtype.kind == "u" and array.size and int(array.max()) > HIGHEST:
        raise ValueError(f"{name}: expected at most 2**62, got {array.max()}")
    return array


def starts_of(name: str, start: Any, rows: int | None, readable: bool = True) -> int | NDArray[Any]:
    """One number, or one a row; as ``int64`` where they can be read."""
    if isinstance(start, int | np.integer) and not isinstance(start, bool):
        if not LOWEST <= start <= HIGHEST:
            raise ValueError(f"{name}: expected within +-2**62, got {start}")
        return int(start)
    if isinstance(start, bool | float | np.floating | np.bool_):
        raise TypeError(f"{name}: expected an integer or one a row, got {start!r}")
    values = integers(name, start, readable)
    if values.ndim == 0:
        return starts_of(name, int(values), rows) if readable else values
    if rows is None:
        raise ValueError(
            f"{name}: expected one integer, for there is no batch axis and no cu_seqlens, got {values.shape}"
        )
    if values.shape != (rows,):
        hint = "; for one a token give positions=" if name == "start" else ""
        raise ValueError(
            f"{name}: expected one integer or shape ({rows},), one a row or document, got shape {values.shape}{hint}"
        )
    if not readable:
        return values
    outside = (values < LOWEST) | (values > HIGHEST)
    if outside.any():
        raise ValueError(f"{name}: expected within +-2**62, got {values[outside][0]}")
    return np.ascontiguousarray(values, np.int64)


@dataclass(frozen=True)
class Rule:
    """How a kernel finds the position of a token; what does not change from call to call.

    With several ``axes``, ids have one more dimension in front. ``real``: ids are whole numbers, and where ``starts`` would
    be stand as many ``float64`` fractions in the same places.
    """

    kind: int
    ids_strides: tuple[int, int] = (0, 0)
    ids_itemsize: int = 8
    documents: int = 0
    same_for_batch: bool = False
    axes: int = 1
    ids_axis_stride: int = 0
    real: bool = False


START_RULE = Rule(START, same_for_batch=True)
Place = tuple[Rule, int | NDArray[Any], NDArray[Any] | None]


def check_given(start: Any, positions: Any, boundaries: Any) -> None:
    """Refuse a call that does not say where its tokens stand, or says it twice."""
    if positions is not None and (start is not None or boundaries is not None):
        given = "start" if start is not None else "cu_seqlens"
        raise TypeError(f"positions: expected none beside {given}; exactly one of them says where tokens stand")
    if start is None and positions is None and boundaries is None:
        raise TypeError("expected start=, positions= or cu_seqlens=: a call must say where its tokens stand")


def resolve(
    layout: Layout,
    shape: tuple[int, ...],
    start: Any,
    positions: Any,
    cu_seqlens: Any,
    readable: bool = True,
    axes: int = 1,
    real: bool = False,
) -> Place:
    """The rule of a call, and the number or arrays that it reads: ``start`` or ids or boundaries, and document starts.

    Arrays on a device are not ``readable``: they have a shape and a dtype, and their values are the kernel's to take.
    ``axes``, ``real``: how many coordinates a position of the encoding has, and whether they may be real numbers.
    """
    batch = 1 if layout.batch is None else shape[layout.batch]
    tokens = shape[layout.token]
    check_given(start, positions, cu_seqlens)
    if positions is not None:
        return _ids(layout, batch, tokens, positions, readable, axes, real)
    if cu_seqlens is not None:
        return _documents(layout, tokens, cu_seqlens, start, readable)
    begin = starts_of("start", start, None if layout.batch is None else batch, readable)
    if isinstance(begin, int):
        return START_RULE, begin, None
    stride = begin.strides[0] if begin.ndim else 0
    return Rule(STARTS, (stride, 0), begin.itemsize, same_for_batch=not begin.ndim), begin, None


def _ids(layout: Layout, batch: int, tokens: int, positions: Any, readable: bool, axes: int, real: bool) -> Place:
    ids, fractions = parts(positions, readable) if real else (integers("positions", positions, readable), None)
    lead, named = ((), "") if axes == 1 else ((axes,), "axes, ")
    if layout.batch is None:
        letter = "t" if layout.packed else "s"
        shapes, wanted = [(*lead, tokens)], f"({named}{letter}{'' if lead else ','}) = {(*lead, tokens)}"
    else:
        shapes = [(*lead, tokens), (*lead, 1, tokens), (*lead, batch, tokens)]
        short = f"({named}s{'' if lead else ','})"
        wanted = f"{short} = {(*lead, tokens)} or ({named}b, s) = {(*lead, batch, tokens)}"
    if ids.shape not in shapes:
        raise ValueError(
            f"positions: expected shape {wanted}, got {ids.shape} (the arrays are read as {layout.letters!r}; give layout= "
            "if their axes stand otherwise)"
        )
    if ids.dtype not in (np.int64, np.int32):
        ids = ids.astype(np.int64)
    if ids.ndim == len(lead) + 1:
        ids, fractions = ids[..., None, :], None if fractions is None else fractions[..., None, :]
    return _ids_rule(ids, fractions)


def parts(positions: Any, readable: bool = True) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Integers, or the whole parts and the fractions of real numbers, side by side in memory."""
    given = positions if isinstance(positions, np.ma.MaskedArray) else np.asarray(positions)
    if given.dtype.name not in ("float32", "float64"):
        return integers("positions", positions, readable), None
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError("positions: expected plain numbers, got a masked array, whose mask would be lost")
    numbers = given.astype(np.float64, order="C")
    outside = ~(np.abs(numbers) <= HIGHEST)
    if outside.any():
        raise ValueError(f"positions: expected finite numbers within +-2**62, got {numbers[outside][0]}")
    whole = np.floor(numbers)
    return whole.astype(np.int64), numbers - whole


def _ids_rule(ids: NDArray[Any], fractions: NDArray[np.float64] | None = None) -> Place:
    """``ids``: (b, s), or (axes, b, s); as ``fractions``, which lie in memory as they do."""
    shared, axes = ids.shape[-2] == 1, len(ids) if ids.ndim == 3 else 1
    strides = (0 if shared else ids.strides[-2], ids.strides[-1])
    apart = ids.strides[0] if ids.ndim == 3 else 0
    real = fractions is not None
    return Rule(IDS, strides, ids.itemsize, 0, shared, axes, apart, real), ids, fractions


def _documents(layout: Layout, tokens: int, boundaries: Any, start: Any, readable: bool) -> Place:
    if not layout.packed:
        raise ValueError(f"cu_seqlens: expected a layout with packed tokens 't' (as 'thd'), got {layout.letters!r}")
    edges = integers("cu_seqlens", boundaries, readable)
    if edges.ndim != 1 or len(edges) < 1:
        raise ValueError(f"cu_seqlens: expected shape (documents + 1,), got {edges.shape}")
    documents = len(edges) - 1
    if readable:
        edges = np.ascontiguousarray(edges, np.int64)
        _check_boundaries(edges, tokens)
    begin = None if start is None else starts_of("start", start, documents, readable)
    if isinstance(begin, int):
        begin = np.full(documents, begin, np.int64)
    return Rule(PACKED, documents=documents), edges, begin


def _check_boundaries(edges: NDArray[np.int64], tokens: int) -> None:
    if edges[0] != 0 or edges[-1] != tokens:
        raise ValueError(
            f"cu_seqlens: expected boundaries from 0 to t = {tokens}, got {edges[0]} to {edges[-1]}; "
            "from lengths they are fastpos.positions.cu_seqlens(lengths)"
        )
    # Compared, not subtracted: a difference of two int64 can wrap.
    falls = edges[1:] < edges[:-1]
    if falls.any():
        at = int(np.argmax(falls))
        raise ValueError(f"cu_seqlens: expected no decrease, got {edges[at]} then {edges[at + 1]} at index {at + 1}")


def resolve_shift(layout: Layout, shape: tuple[int, ...], by: Any) -> Place:
    """The rule of a shift: all tokens of a row stand at ``by``, its own where there is one a row."""
    batch, tokens = 1 if layout.batch is None else shape[layout.batch], shape[layout.token]
    offsets = starts_of("by", by, None if layout.batch is None else batch)
    column = np.full((1, 1), offsets, np.int64) if isinstance(offsets, int) else offsets[:, None]
    return _ids_rule(np.broadcast_to(column, (len(column), tokens)))


def resolve_lengths(layout: Layout, shape: tuple[int, ...], place: Place, lengths: Any) -> NDArray[np.int64]:
    """How long the sequences of a call are, one number a row or document."""
    rule = place[0]
    batch = None if layout.batch is None else shape[layout.batch]
    tokens = starts_of("seq_lens", lengths, rule.documents if rule.kind == PACKED else batch)
    if isinstance(tokens, int):
        tokens = np.array([tokens], np.int64)
    if (tokens < 0).any():
        raise ValueError(f"seq_lens: expected 0 or more, got {tokens.min()}")
    return tokens


def extremes(place: Place, tokens: int) -> list[tuple[int, str]]:
    """The least and the greatest position of a call with at least one token, each with where it stands."""
    rule, where, starts = place
    if rule.kind == START:
        assert isinstance(where, int)
        return [(where, "token 0"), (where + tokens - 1, f"token {tokens - 1}")]
    assert not isinstance(where, int)
    if rule.kind == IDS:
        found = [np.unravel_index(pick(where), where.shape) for pick in (np.argmin, np.argmax)]
        return [(int(where[place]), f"row {place[0]}, token {place[1]}") for place in found]
    if rule.kind == STARTS:
        low, high = int(np.argmin(where)), int(np.argmax(where))
        return [
            (int(where[low]), f"row {low}, token 0"),
            (int(where[high]) + tokens - 1, f"row {high}, token {tokens - 1}"),
        ]
    lengths = np.diff(where)
    begins = np.zeros(len(lengths), np.int64) if starts is None else starts
    full = np.flatnonzero(lengths)
    low, high = int(full[np.argmin(begins[full])]), int(full[np.argmax((begins + lengths)[full])])
    return [
        (int(begins[low]), f"document {low}, token 0"),
        (int(begins[high] + lengths[high]) - 1, f"document {high}, token {int(lengths[high]) - 1}"),
    ]
