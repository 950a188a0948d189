"""Patching a live model and taking it back: rotary modules by instance, functions where the model's code calls them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from ..encodings import NUMERICS
from .clocks import Mismatch, positions_of
from .examples import examples
from .probe import key_of, roles_of, use_of
from .proof import flaw, fresh
from .report import ALONE, FUSED, IDLE, PARTLY, Part, Report
from .seams import Seam, constants, parameters, rotary_modules
from .trace import Rotation, Trace, watch
from .turns import Forward, Turns, in_place_of_rotation


@dataclass
class _Site:
    """A replaced function, and the models that need it to be."""

    seam: Seam
    original: Any
    replacement: Any
    constants: tuple[tuple[str, Any], ...]
    models: "WeakSet[torch.nn.Module]" = field(default_factory=WeakSet)


_lock = RLock()
_sites: dict[Seam, _Site] = {}
_patched: "WeakKeyDictionary[torch.nn.Module, list[Forward]]" = WeakKeyDictionary()


@contextmanager
def _at_rest(model: torch.nn.Module) -> Iterator[None]:
    """The model without dropout and gradients, and everything as it was afterwards."""
    modes = {module: module.training for module in model.modules()}
    state = torch.get_rng_state()
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        torch.set_rng_state(state)
        for module, training in modes.items():
            module.training = training


def _watched(model: torch.nn.Module, example: Mapping[str, Any] | None) -> tuple[Trace, dict[str, Any]]:
    """The trace of a run, and its arguments: ``example``, or the first kind of arguments that the model takes."""
    kinds = (dict(example),) if example is not None else tuple(examples(model))
    for given in kinds:
        try:
            return watch(model, lambda given=given: model(**fresh(given))), given  # type: ignore[misc]
        except Exception as error:
            if given is kinds[-1]:
                raise ValueError(
                    f"model: expected {type(model).__name__} to run on {', '.join(given)}, got {type(error).__name__}: {error}; "
                    "give arguments that it runs on as example="
                ) from error
    raise AssertionError("there is a kind of arguments")


def _part(
    name: str, module: torch.nn.Module, trace: Trace, numerics: str, sites: dict[Seam, _Site]
) -> tuple[Part, Forward | None]:
    """What becomes of a rotary module."""
    kind = type(module).__name__
    calls = [waves for waves in trace.waves if waves.module == name]
    if not calls:
        return Part(name, kind, IDLE, "it made no cosines and sines in the run that was watched"), None
    others = trace.others.get(name)
    if others:
        return Part(name, kind, ALONE, f"other code reads its waves: {', '.join(sorted(others))}"), None
    tensors = tuple(key for key, value in calls[0].given.items() if isinstance(value, torch.Tensor))
    ways = constants(module.forward, tensors)
    for key, _ in ways:
        if not all(isinstance(waves.given.get(key), int | float | str | None) for waves in calls):
            return Part(name, kind, ALONE, f"it is given {key} besides"), None
    turns: dict[tuple[Any, ...], Turns] = {}
    fused, alone = [], []
    for way in dict.fromkeys(tuple(waves.given.get(key, default) for key, default in ways) for waves in calls):
        waves = [w for w in calls if tuple(w.given.get(key, default) for key, default in ways) == way]
        rotations = [rotation for rotation in trace.rotations if any(rotation.waves is wave for wave in waves)]
        label = ", ".join(str(value) for value in way)
        said = f"{label}: " if label else ""
        found: dict[Seam, _Site] = {}
        if not rotations:
            continue
        try:
            turns[way] = _turns(name, module, rotations, numerics, found)
        except Mismatch as mismatch:
            alone.append(f"{said}{mismatch}")
        except Exception as error:  # whatever code that is not ours raises where it is probed
            alone.append(f"{said}probing it raised {type(error).__name__}: {error}")
        else:
            sites |= found
            fused.append(said + ", ".join(dict.fromkeys(seam.name for seam in found)))
    if not fused and not alone:
        return Part(name, kind, IDLE, "nothing rotated with its waves in the run that was watched"), None
    state = (PARTLY if alone else FUSED) if fused else ALONE
    part = Part(name, kind, state, "; ".join(fused + alone))
    if not turns:
        return part, None
    names = tuple(parameters(module.forward))
    return part, Forward(module, names, positions_of(calls[0]), ways, turns, calls[0].bare)


def _turns(
    name: str, module: torch.nn.Module, rotations: list[Rotation], numerics: str, sites: dict[Seam, _Site]
) -> Turns:
    """What is to be done wherever the module's waves went; ``Mismatch`` where that is not known."""
    turns = Turns(name)
    for rotation in rotations:
        seam = rotation.seam
        function = getattr(seam.module, seam.name)
        if seam in _sites:
            function = _sites[seam].original
        roles = roles_of(function, rotation)
        key = key_of(rotation, roles)
        width = next(rotation.given[x].shape[-1] for x in roles.data if rotation.given.get(x) is not None)
        uses = turns.backwards.uses if rotation.backwards else turns.uses
        known = uses.get(key)
        if known is not None and width in known.encodings:
            continue
        use = use_of(module, module.forward, function, rotation, numerics)
        if known is not None:
            use = replace(use, encodings={**known.encodings, **use.encodings})
        uses[key] = use
        replacement = in_place_of_rotation(function, seam.label, tuple(parameters(function)), roles.constants)
        sites[seam] = _Site(seam, function, replacement, roles.constants)
    return turns


def _install(model: torch.nn.Module, changes: list[Forward], sites: dict[Seam, _Site]) -> None:
    """Put everything in its place."""
    for seam, site in sites.items():
        if seam not in _sites:
            _sites[seam] = site
            setattr(seam.module, seam.name, site.replacement)
        _sites[seam].models.add(model)
    for change in changes:
        change.module.forward = change
    _patched[model] = changes


def _proven(
    model: torch.nn.Module, given: Mapping[str, Any], trace: Trace, numerics: str, parts: list[Part]
) -> list[Part]:
    """The parts; all left alone, and the model as it was, where the patched model does not give what it gave."""
    why: str | None = None
    proven = False
    try:
        with _at_rest(model):
            why = flaw(model, given, trace, numerics)
        proven = why is None
    finally:
        if not proven:
            unpatch(model)
    if why is None:
        return parts
    return [part if part.state == IDLE else replace(part, state=ALONE, why=why) for part in parts]


def patch(model: torch.nn.Module, *, numerics: str = "exact", example: Mapping[str, Any] | None = None) -> Report:
    """Make a live model of transformers rotate queries and keys by fastpos: no cosines, no sines, one kernel a layer.

    The model runs once as it is, on two rows of seven tokens, and is watched: which of its modules make cosines and sines, which
    functions rotate with them, and what else looks at them. Each module and function are then run on random queries and
    keys at positions up to 100,000, with gaps and padding on the left, beside fastpos with the module's own frequencies
    and factor. What does not match stays as it is, and the report says why. At last the patched model runs on the tokens that
    it was watched on, and is given back if its results are not the same: to 0.001 of the largest in float32, and bit by bit in
    bfloat16 and float16 with ``numerics="hf"``.

    Parameters
    ----------
    model
        A model of transformers, or any module with modules named like theirs.
    numerics
        ``"exact"``: angles are exact for the frequencies that the model holds in float32, and results are rounded once:
        what the model's own formula means. ``"hf"``: what transformers computes, rounding by rounding: the same bits in
        bfloat16 and float16, within an ulp in float32.
    example
        Arguments for the run that is watched, where the model takes others than ``input_ids``, ``attention_mask`` and
        ``position_ids``.

    Returns
    -------
    Report
        What was done, module by module: print it. ``with fastpos.hf.patch(model):`` undoes it at the end.

    Raises
    ------
    ValueError, TypeError
        For another ``numerics``, for what is no module, for a model that is patched, and where the run that is watched fails:
        nothing has been changed then.

    Notes
    -----
    A patch is the model's own: other models of its family go on as they were. Patched models train, generate with every
    cache, compile into one graph, export, and lie on several devices. Cast a model before it is patched: frequencies and
    rounding are those that it has then. Under ``torch.autocast`` queries and keys keep their type, where cosines of another
    would widen them. Frequencies of ``longrope`` go by the length of the batch, as in transformers: both are used and one
    result is taken. Frequencies are those of the moment of the patch: what is written to ``inv_freq`` afterwards has no effect
    until the model is patched again. A deep copy of a patched model, and one that was pickled, is not patched.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))
    >>> with patch(model) as report:
    ...     report.state
    'fused'
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__module__}.{type(model).__qualname__}")
    if numerics not in NUMERICS:
        raise ValueError(f"numerics: expected one of {', '.join(NUMERICS)}, got {numerics!r}")
    with _lock:
        if model in _patched:
            raise ValueError(
                f"model: expected one that is not patched, got a patched {type(model).__name__}; call unpatch first"
            )
        _drop_unused()
        with _at_rest(model):
            trace, given = _watched(model, example)
            parts: list[Part] = []
            changes: list[Forward] = []
            sites: dict[Seam, _Site] = {}
            for name, module in rotary_modules(model):
                part, change = _part(name, module, trace, numerics, sites)
                parts.append(part)
                changes += [change] if change is not None else []
        if changes:
            _install(model, changes, sites)
            parts = _proven(model, given, trace, numerics, parts)
    return Report(type(model).__name__, numerics, tuple(parts), lambda: unpatch(model))


def unpatch(model: torch.nn.Module) -> None:
    """Give a model its own code back, as if it had never been patched. A model that is not patched stays as it is.

    Examples
    --------
    >>> unpatch(torch.nn.Linear(2, 2))
    """
    with _lock:
        for change in _patched.pop(model, []):
            change.turns.clear()
            if vars(change.module).get("forward") is change:
                del change.module.forward
                if change.before is not None:
                    change.module.forward = change.before
        for site in _sites.values():
            site.models.discard(model)
        _drop_unused()


def _drop_unused() -> None:
    """Give functions back that no living model needs: also those of models that were collected while they were patched."""
    for seam, site in list(_sites.items()):
        if not site.models:
            if getattr(seam.module, seam.name) is site.replacement:
                setattr(seam.module, seam.name, site.original)
            del _sites[seam]
