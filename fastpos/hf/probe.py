"""Whether an encoding of fastpos does what a model's rotary module and function do together: both are run, and compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from ..api import apply
from ..axes import Axes
from ..encodings import Rotary
from ..scaling import AttentionFactor
from .clocks import Clock, Mismatch, axes_of, clocks_of, positions_of, table_of
from .seams import constants, parameters
from .trace import Rotation
from .turns import Use

# Float32's own cosine is not the nearest number for 1 to 5 % of all angles, which a short type shows once in some 50,000.
MOST_DIFFERENT = 1e-3


@dataclass(frozen=True)
class Roles:
    """What a function's parameters are for.

    Attributes
    ----------
    data
        Those before the first wave: what is rotated.
    constants
        Those that are neither data nor waves, each with its default: how it is done.
    """

    data: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]


def roles_of(function: Callable[..., Any], rotation: Rotation) -> Roles:
    """Read a function's parameters off a call."""
    label, names = rotation.seam.name, tuple(parameters(function))
    first = min((names.index(name) for name in rotation.places), default=0)
    data = names[:first]
    roles = Roles(data, constants(function, (*data, *rotation.places)))
    tensors = [rotation.given.get(name) for name in data]
    shapes = [tuple(tensor.shape) for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if not shapes or not all(tensor is None or isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise Mismatch(f"{label} takes nothing to rotate before its waves")
    if any(len(shape) != 4 for shape in shapes):
        raise Mismatch(f"{label} rotates tensors of shape {shapes[0]}, not batch, heads, sequence and channels")
    if len({shape[-1] for shape in shapes}) > 1:
        raise Mismatch(
            f"{label} rotates heads of {' and '.join(str(shape[-1]) for shape in shapes)} channels in one call"
        )
    if sorted(rotation.places.values()) != list(range(len(rotation.waves.tensors))):
        raise Mismatch(f"{label} is given a part of what the module makes")
    for name, _ in roles.constants:
        if not isinstance(rotation.given.get(name), int | float | str | None):
            raise Mismatch(f"{label} is given {name} besides")
    return roles


def key_of(rotation: Rotation, roles: Roles) -> tuple[Any, ...]:
    """What tells the ways apart in which a function is called."""
    return (rotation.seam.label, *(rotation.given.get(name, default) for name, default in roles.constants))


def use_of(
    module: torch.nn.Module,
    forward: Callable[..., Any],
    function: Callable[..., Any],
    rotation: Rotation,
    numerics: str,
) -> Use:
    """How fastpos does what ``function`` did with the waves of ``forward``; ``Mismatch`` where it does not."""
    roles = roles_of(function, rotation)
    clocks, original = clocks_of(module, forward, rotation.waves)
    data = tuple(name for name in roles.data if rotation.given.get(name) is not None)
    place = next(name for name, index in rotation.places.items() if index == 0)
    uses = []
    for clock in clocks:
        trial = _Trial(
            forward, function, rotation, positions_of(rotation.waves), data, clock.farthest, table_of(module)
        )
        width = rotation.given[data[0]].shape[-1]
        layout, encoding, bare = _structure(trial, list(_encodings(clock, width, axes_of(module, trial.positions))))
        made = (replace(encoding, numerics=numerics),)
        use = Use(roles.data, place, layout, {width: made}, False, bare, original)
        results, _ = trial.expected(trial.dtype)
        uses.append(use if numerics == "exact" else _rounded(trial, use, encoding, results))
    first, last = uses[0], uses[-1]
    if (first.layout, first.single) != (last.layout, last.single):
        raise Mismatch(f"{rotation.seam.name} does two things for short and long batches")
    return (
        first
        if original is None
        else replace(first, encodings={width: (*first.encodings[width], *last.encodings[width])})
    )


class _Trial:
    """A rotary module and a function on random queries and keys at random positions, of the shapes that were seen."""

    def __init__(
        self,
        forward: Callable[..., Any],
        function: Callable[..., Any],
        rotation: Rotation,
        positions: str,
        data: tuple[str, ...],
        farthest: int,
        table: torch.Tensor | None,
    ) -> None:
        self.forward, self.function, self.rotation = forward, function, rotation
        self.name, self.data = positions, data
        self.dtype = rotation.given[data[0]].dtype
        seen = rotation.waves.given[positions]
        draw = torch.Generator().manual_seed(0)
        self.eps = max(
            torch.finfo(kind).eps for kind in (torch.float32, torch.float32 if table is None else table.dtype)
        )
        ids = torch.randint(0, farthest, seen.shape, generator=draw)
        # Gaps, and rows padded on the left.
        ids[..., : seen.shape[-1] // 3] = 0
        ids[..., -1] = farthest - 1
        self.positions = ids.to(seen.device, seen.dtype)
        self.numbers = {
            name: torch.randn(rotation.given[name].shape, generator=draw, dtype=torch.float64) for name in data
        }

    def inputs(self, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.empty_like(self.rotation.given[name], dtype=dtype).copy_(self.numbers[name]) for name in self.data
        )

    def expected(self, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], bool]:
        """What the model's own code gives, and whether that is one tensor."""
        given = dict(self.rotation.waves.given)
        given[self.name] = self.positions
        for name, value in given.items():
            if isinstance(value, torch.Tensor) and name != self.name:
                given[name] = torch.zeros_like(value, dtype=value.dtype if dtype == self.dtype else dtype)
        made = self.forward(**given)
        waves = (made,) if isinstance(made, torch.Tensor) else tuple(made)
        if self.rotation.backwards:
            waves = (waves[0], -waves[1])
        arguments = dict(self.rotation.given)
        arguments |= {name: waves[place] for name, place in self.rotation.places.items()}
        arguments |= dict(zip(self.data, self.inputs(dtype), strict=True))
        turned = self.function(**arguments)
        bare = isinstance(turned, torch.Tensor)
        results = (turned,) if bare else tuple(result for result in turned if result is not None)
        shapes = [tuple(self.rotation.given[name].shape) for name in self.data]
        if [tuple(result.shape) for result in results] != shapes:
            raise Mismatch(f"{self.rotation.seam.name} gives other shapes than it takes")
        if any(result.dtype != dtype for result in results):
            raise Mismatch(f"{self.rotation.seam.name} gives {results[0].dtype} for {dtype}")
        return results, bare

    def turned(
        self, encoding: Rotary, layout: str, dtype: torch.dtype, single: bool = False, backend: str | None = None
    ) -> tuple[torch.Tensor, ...]:
        """What fastpos gives."""
        inputs = self.inputs(dtype)
        ids = self.positions.expand(*self.positions.shape[:-2], inputs[0].shape[0], self.positions.shape[-1])
        if backend is not None:
            inputs, ids = tuple(x.cpu() for x in inputs), ids.cpu()
        rows = tuple(x.float() for x in inputs) if single else inputs
        made = apply(encoding, *rows, positions=ids, layout=layout, backend=backend)
        return tuple(y.to(dtype) for y in ((made,) if len(rows) == 1 else made))


def _encodings(clock: Clock, width: int, axes: list[Axes | None]) -> Iterator[Rotary]:
    """Every way to lay out these frequencies in a head, the usual ones first."""
    turning = 2 * len(clock.inv_freq)
    if turning > width:
        return
    factor = None if clock.factor == 1 else AttentionFactor(clock.factor)
    pairings = ((False, False), (True, False), (True, True))
    starts = dict.fromkeys((0, width - turning))
    for clockwise, start, (interleaved, deinterleaved), own in product((False, True), starts, pairings, axes):
        if own is not None and sum(own.sections) != len(clock.inv_freq):
            continue
        yield Rotary(
            width,
            inv_freq=clock.inv_freq,
            rotary_dim=turning,
            rotary_start=start,
            interleaved=interleaved,
            deinterleaved=deinterleaved,
            clockwise=clockwise,
            scaling=factor,
            axes=own,
            numerics="hf",
        )


def _structure(trial: _Trial, encodings: list[Rotary]) -> tuple[str, Rotary, bool]:
    """Layout and encoding, in float32, to a few of its ulps (of the type of a table, where there is one)."""
    results, bare = trial.expected(torch.float32)
    tokens = trial.positions.shape[-1]
    shape = trial.rotation.given[trial.data[0]].shape
    layouts = [letters for letters, axis in (("bhsd", 2), ("bshd", 1)) if shape[axis] == tokens]
    scale = max(float(result.abs().max()) for result in results)
    for layout, encoding in product(layouts, encodings):
        turned = trial.turned(encoding, layout, torch.float32, backend="numpy")
        apart = max(float((y - z.cpu()).abs().max()) for y, z in zip(turned, results, strict=True))
        if apart <= 4 * trial.eps * scale:
            return layout, encoding, bare
    raise Mismatch(f"{trial.rotation.seam.name} with its waves is no rotation that fastpos knows")


def _rounded(trial: _Trial, use: Use, encoding: Rotary, results: tuple[torch.Tensor, ...]) -> Use:
    """How the function rounds in the model's own type."""
    dtype = trial.dtype
    total = sum(result.numel() for result in results)
    for single in dict.fromkeys((False, dtype in (torch.bfloat16, torch.float16))):
        turned = trial.turned(encoding, use.layout, dtype, single)
        if dtype in (torch.float32, torch.float64):
            scale = max(float(result.abs().max()) for result in results)
            apart = max(float((y - z).abs().max()) for y, z in zip(turned, results, strict=True))
            if apart <= 4 * torch.finfo(torch.float32).eps * scale:
                return use
        elif sum(int((y != z).sum()) for y, z in zip(turned, results, strict=True)) <= 1 + MOST_DIFFERENT * total:
            return replace(use, single=single)
    raise Mismatch(f"{trial.rotation.seam.name} rounds {dtype} in a way that numerics='hf' does not repeat")
