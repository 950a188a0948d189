"""What runs in a patched model: positions instead of cosines and sines, and one call of ``fastpos.apply`` on q and k."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, update_wrapper, wraps
from typing import Any

import torch

from ..api import apply
from ..encodings import Rotary


@dataclass(frozen=True)
class Use:
    """One way in which a model calls a function that rotates, as it was seen and probed.

    Attributes
    ----------
    data
        The function's parameters for what it rotates; such an argument may be None.
    positions
        The parameter that is given positions in a patched model.
    layout
        Of the data, as ``fastpos.apply`` takes it.
    encodings
        By the channels of a head: one, or those of batches up to ``original_length`` and of longer ones.
    original_length
        Where frequencies go by the length of the batch (``longrope``): the longest that has the first ones.
    single
        Whether the function computes in float32, whatever type its data has.
    bare
        Whether it returns one tensor, not a tuple.
    """

    data: tuple[str, ...]
    positions: str
    layout: str
    encodings: Mapping[int, tuple[Rotary, ...]]
    single: bool
    bare: bool
    original_length: int | None = None

    def turned(self, rows: tuple[torch.Tensor, ...], ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Rotate; for batches of either kind both are made and one is taken, which needs no look at positions on the host."""
        made = []
        for encoding in self.encodings[rows[0].shape[-1]]:
            turned = apply(encoding, *rows, positions=ids, layout=self.layout)
            made.append((turned,) if len(rows) == 1 else turned)
        if self.original_length is None:
            return made[0]
        longer = ids.max() >= self.original_length
        return tuple(torch.where(longer, long, short) for short, long in zip(*made, strict=True))


class Turns:
    """Stands for the sines that a patched rotary module does not make: what is to be done with queries and keys instead.

    It holds no tensor, so that compiled graphs, gradient checkpoints and hooks that move tensors pass it on.
    """

    def __init__(self, module: str, forwards: "Turns | None" = None) -> None:
        self.module = module
        # The same the other way round, for code that negates sines.
        self.backwards: Turns = Turns(module, self) if forwards is None else forwards
        # By the function and by its arguments that are no tensors.
        self.uses: dict[tuple[Any, ...], Use] = {}

    def __neg__(self) -> "Turns":
        return self.backwards

    def rotate(self, key: tuple[Any, ...], given: Mapping[str, Any], positions: torch.Tensor | None) -> Any:
        """The results of the function for its arguments."""
        use = self.uses.get(key)
        if use is None:
            raise ValueError(
                f"{self.module}: {key[0]} was called in a way that was not seen when the model was patched, with "
                f"{key[2:]}; give fastpos.hf.patch an example= that does, or unpatch the model"
            )
        tensors = tuple(given[name] for name in use.data if given.get(name) is not None)
        width = tensors[0].shape[-1]
        if width not in use.encodings:
            raise ValueError(
                f"{self.module}: {key[0]} was called with heads of {width} channels, but with {list(use.encodings)} when "
                "the model was patched; give fastpos.hf.patch an example= that does so, or unpatch the model"
            )
        where = given[use.positions] if positions is None else positions
        ids = where.expand(*where.shape[:-2], tensors[0].shape[0], where.shape[-1])
        rows = tuple(x.float() for x in tensors) if use.single else tensors
        # Channels apart in memory: results lie as the model's own code leaves them, or attention would round in other orders.
        rows = tuple(x if x.stride(-1) == 1 else x.contiguous() for x in rows)
        turned = use.turned(rows, ids)
        if use.single:
            turned = tuple(y.to(x.dtype) for x, y in zip(tensors, turned, strict=True))
        if use.bare:
            return turned[0]
        results = iter(turned)
        return tuple(None if given.get(name) is None else next(results) for name in use.data)


class Placed:
    """Stands for complex waves, which are one tensor: positions, and what is to be done there."""

    def __init__(self, positions: torch.Tensor, turns: Turns) -> None:
        self.positions = positions
        self.turns = turns

    def to(self, *device: Any, **options: Any) -> "Placed":
        """The positions on another device."""
        return Placed(self.positions.to(*device, **options), self.turns)


class Forward:
    """The forward of a rotary module that hands positions on; ``turns``: by its arguments that are no tensors.

    ``before``: the forward that the module's instance had, if any. Copies and pickles hold that instead of this, or the one of
    the module's class: they are of no patched model.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        names: tuple[str, ...],
        positions: str,
        constants: tuple[tuple[str, Any], ...],
        turns: dict[tuple[Any, ...], Turns],
        single: bool,
    ) -> None:
        original = module.forward
        # The signature, which accelerate and the next patch read.
        update_wrapper(self, original, updated=())
        self.module, self.before, self.original = module, vars(module).get("forward"), original
        self.names, self.positions, self.constants = names, positions, constants
        self.turns, self.single = turns, single

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.names, args, strict=False))
        given.update(kwargs)
        found = self.turns.get(tuple(given.get(name, default) for name, default in self.constants))
        if found is None:
            return self.original(*args, **kwargs)
        return Placed(given[self.positions], found) if self.single else (given[self.positions], found)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.before is not None:
            return partial, (self.before,)
        # The copy has no attributes yet when it is asked, so that this is the forward of its class, bound to the copy.
        return getattr, (self.module, "forward")


def in_place_of_rotation(
    original: Callable[..., Any], label: str, names: tuple[str, ...], constants: tuple[tuple[str, Any], ...]
) -> Callable[..., Any]:
    """A function that rotates as it did, and by fastpos where it is given positions.

    ``constants``: its parameters with a default, and that.
    """

    # With the original's signature, which the next patch reads.
    @wraps(original)
    def rotate(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        given.update(kwargs)
        turns, positions = None, None
        for value in given.values():
            if isinstance(value, Turns):
                turns = value
            elif isinstance(value, Placed):
                turns, positions = value.turns, value.positions
        if turns is None:
            return original(*args, **kwargs)
        return turns.rotate((label, *(given.get(name, default) for name, default in constants)), given, positions)

    return rotate
