"""The last proof of a patch: the model on the arguments that it was watched on, patched, beside what it gave before."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from .trace import Trace

SHORT = {torch.bfloat16, torch.float16}
# Of the largest number. Rounding of float32 sums reaches 3e-6 in families with random weights; a wrong turn is of order one.
MOST_APART = 1e-3


class _Detached(TorchFunctionMode):
    """Deep copies of tensors that are parts of graphs, which PyTorch does not make: caches of a run with gradients."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:
            tensor, memo = args
            return memo.setdefault(id(tensor), tensor.detach().clone())
        return func(*args, **(kwargs or {}))


def fresh(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a run that leaves them as they are: caches, which a model writes to, are copied."""
    with _Detached():
        return {name: value if isinstance(value, torch.Tensor) else deepcopy(value) for name, value in given.items()}


def flaw(model: torch.nn.Module, given: Mapping[str, Any], trace: Trace, numerics: str) -> str | None:
    """What is wrong with a patched model; None where nothing is, or where its types are mixed and no bound is known."""
    try:
        made = model(**fresh(given))
    except Exception as error:  # whatever code that is not ours raises
        return f"patched, the model raised {type(error).__name__}: {error}"
    pairs = list(zip(_numbers(trace.result), _numbers(made), strict=True))
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    turned = {tensor.dtype for rotation in trace.rotations for tensor in _numbers(rotation.given)}
    if kinds | turned <= {torch.float32, torch.float64}:
        apart = max((_apart(before, after) for before, after in pairs), default=0.0)
        return None if apart <= MOST_APART else f"patched, the model's results are {apart:.1e} of the largest apart"
    if numerics == "hf" and len(kinds) == 1 and kinds <= SHORT:
        same = all(torch.equal(before.nan_to_num(), after.nan_to_num()) for before, after in pairs)
        return None if same else f"patched, the model gives other bits in {kinds.pop()}"
    return None


def _numbers(results: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _apart(before: torch.Tensor, after: torch.Tensor) -> float:
    if not before.numel():
        return 0.0
    before, after = before.nan_to_num(), after.nan_to_num()
    largest = before.abs().max().clamp(min=torch.finfo(before.dtype).tiny)
    return float((before - after).abs().max() / largest)
