"""``fastpos info --config``: how a checkpoint's layers rotate."""

import re
import warnings
from pathlib import Path

import numpy as np

from ..configs import Checkpoint, LayerGroup
from ..encodings import Rotary
from ..frequencies import rates
from ..scaling import DynamicNTK, LongRoPE
from .console import Refused, console, table

Lines = list[tuple[str, str]]
SHOWN = 8


def run(path: Path) -> bool:
    """Print the rotations of a config, by kinds of layers; whether all of it can be honoured."""
    try:
        checkpoint = Checkpoint(path)
        groups = checkpoint.groups()
    except (ValueError, TypeError, OSError) as error:
        raise Refused(str(error)) from error
    out = console()
    honoured = True
    for group in groups:
        lines: Lines = [("layers", _layers(group, len(checkpoint.layers)))]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                encoding = checkpoint.encoding_of(group.layer)
                lines += rotation(encoding)
                if checkpoint.family.note and encoding.scaling is not None:
                    lines.append(("note", checkpoint.family.note))
            except (ValueError, TypeError) as error:
                lines.append(("refused", str(error)))
                honoured = False
        lines += [("warning", str(one.message)) for one in warned]
        out.print(table(f"Positions of {path} ({checkpoint.model_type})", ("what", "value"), lines, left=2))
    return honoured


def _layers(group: LayerGroup, count: int) -> str:
    if not group.layers:
        return "all"
    numbers = ", ".join(map(str, group.layers[:SHOWN])) + (", ..." if len(group.layers) > SHOWN else "")
    kind = f"{group.name}: " if group.name != "all" else ""
    return f"{kind}all {count}" if len(group.layers) == count else f"{kind}{numbers} ({len(group.layers)} of {count})"


def rotation(rope: Rotary) -> Lines:
    """What there is to say of an encoding."""
    lines: Lines = [("encoding", _called(rope))]
    if rope.query_scale is not None:
        lines.append(("queries", f"scaled by where they stand: the first array of a call is q ({rope.query_scale})"))
    if not rope.pairs:
        return [*lines, ("channels", "none turns: layers without positions")]
    pairs = "(2i, 2i+1)" if rope.interleaved else f"(i, i+{rope.pairs})"
    written = f", written to (i, i+{rope.pairs})" if rope.deinterleaved else ""
    lines.append(("channels", f"{rope.rotary_dim} of {rope.head_dim} turn, in pairs {pairs}{written}"))
    if rope.axes is not None:
        lines.append(("axes", f"time, height, width: {rope.axes.sections} pairs, {rope.axes.order}"))
    scaling = rope.scaling
    if isinstance(scaling, LongRoPE) and rope.by_length:
        trained = scaling.original_max_position_embeddings
        lines += _waves(rope.at_length(trained), f", up to {trained} tokens")
        lines += _waves(rope.at_length(trained + 1), ", beyond")
    elif isinstance(scaling, DynamicNTK) and rope.by_length:
        lines += _waves(
            rope.at_length(scaling.max_position_embeddings), f", up to {scaling.max_position_embeddings} tokens"
        )
    else:
        lines += _waves(rope, "")
    factor = 1.0 if scaling is None else scaling.attention_scaling
    lines.append(("attention factor", f"{factor:.9g}, on cosines and sines"))
    if rope.by_length:
        lines.append(("note", "frequencies go by the length of each sequence: calls want seq_lens="))
    return lines


def _called(rope: Rotary) -> str:
    """The encoding without long rows."""
    return re.sub(r"_factor=\([^)]*\)", "_factor=(...)", repr(rope))


def _waves(rope: Rotary, when: str) -> Lines:
    clock = rates(rope)
    turns = np.abs(clock.turns)
    turning = turns[turns > 0]
    lines = [
        (f"shortest wavelength{when}", f"{1 / turning.max():,.4f} tokens"),
        (f"longest wavelength{when}", f"{1 / turning.min():,.1f} tokens"),
    ]
    still = len(turns) - len(turning)
    return [*lines, ("pairs that stand still", f"{still} of {len(turns)}")] if still else lines
