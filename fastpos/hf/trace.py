"""One forward pass of a model as it is, watched: who makes cosines and sines, who rotates with them, who else looks at them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

from .seams import Seam, parameters, rotary_modules, seams


@dataclass
class Waves:
    """A call of a rotary module: its arguments by name, and what it returned."""

    module: str
    given: dict[str, Any]
    tensors: tuple[torch.Tensor, ...]
    bare: bool


@dataclass
class Rotation:
    """A call of a function that rotates: its arguments by name, and which of them are waves (their place there).

    ``backwards``: with the negative of its sines, which undoes a rotation.
    """

    seam: Seam
    given: dict[str, Any]
    waves: Waves
    places: dict[str, int]
    backwards: bool


@dataclass
class Trace:
    """What was seen.

    Attributes
    ----------
    waves
        Calls of each rotary module.
    rotations
        Calls of functions that were given waves.
    others
        For each rotary module, what else took its waves.
    result
        What the run gave.
    """

    waves: list[Waves] = field(default_factory=list)
    rotations: list[Rotation] = field(default_factory=list)
    others: dict[str, set[str]] = field(default_factory=dict)
    result: Any = None


class _Watch(TorchFunctionMode):
    """Sees every use of a wave by PyTorch's functions, outside of the modules and functions that are known."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.quiet = 0
        self.known: dict[int, tuple[Waves, int, bool]] = {}
        self.alive: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if self.quiet or not self.known:
            return made
        source = self.seen(args[0]) if args else None
        if source is not None and _only_moves(func, args, kwargs):
            self.keep(made, *source)
            return made
        if source is not None and func is torch.Tensor.neg and source[1] == 1:
            self.keep(made, source[0], source[1], not source[2])
            return made
        for leaf in tree_leaves((args, kwargs)):
            source = self.seen(leaf)
            if source is not None:
                name = resolve_name(func) or getattr(func, "__name__", str(func))
                self.trace.others.setdefault(source[0].module, set()).add(name)
        return made

    def keep(self, wave: torch.Tensor, waves: Waves, place: int, negative: bool = False) -> None:
        """Know a tensor again; it is kept alive, for it is known by its address."""
        self.alive.append(wave)
        self.known[id(wave)] = (waves, place, negative)

    def seen(self, value: Any) -> tuple[Waves, int, bool] | None:
        return self.known.get(id(value)) if isinstance(value, torch.Tensor) else None

    @contextmanager
    def inside(self) -> Iterator[None]:
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1


def _only_moves(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call takes a tensor to a device: positions can go there as well."""
    rest = (*args[1:], *(kwargs or {}).values())
    return func is torch.Tensor.to and all(isinstance(value, torch.device | str | int) for value in rest)


def _bound(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    return {**dict(zip(parameters(function), args, strict=False)), **kwargs}


def _watched_forward(watch: _Watch, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with watch.inside():
            made = forward(*args, **kwargs)
        bare = isinstance(made, torch.Tensor)
        tensors = (made,) if bare else made
        if isinstance(tensors, tuple | list) and all(isinstance(wave, torch.Tensor) for wave in tensors):
            waves = Waves(name, _bound(forward, args, kwargs), tuple(tensors), bare)
            watch.trace.waves.append(waves)
            for place, wave in enumerate(tensors):
                watch.keep(wave, waves, place)
        return made

    return run


def _watched_function(watch: _Watch, seam: Seam, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = _bound(function, args, kwargs)
        found = {name: seen for name, value in given.items() if (seen := watch.seen(value)) is not None}
        if not found or watch.quiet:
            return function(*args, **kwargs)
        with watch.inside():
            made = function(*args, **kwargs)
        backwards = any(negative for _, _, negative in found.values())
        sources = {id(waves): waves for waves, _, _ in found.values()}
        for waves in sources.values():
            places = {name: place for name, (other, place, _) in found.items() if other is waves}
            watch.trace.rotations.append(Rotation(seam, given, waves, places, backwards))
        return made

    return run


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute for a while; one that was not the object's own goes away again."""
    own = vars(owner)
    had, before = name in own, own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def watch(model: torch.nn.Module, run: Callable[[], Any]) -> Trace:
    """Run the model and see."""
    trace = Trace()
    watching = _Watch(trace)
    with ExitStack() as stack:
        for name, module in rotary_modules(model):
            stack.enter_context(replaced(module, "forward", _watched_forward(watching, name, module.forward)))
        for seam in seams(model):
            function = getattr(seam.module, seam.name)
            stack.enter_context(replaced(seam.module, seam.name, _watched_function(watching, seam, function)))
        stack.enter_context(watching)
        trace.result = run()
    return trace
