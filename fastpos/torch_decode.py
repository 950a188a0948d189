"""Small calls past the dispatcher: a decoded token's rotation takes 1 us, and the dispatcher 2 to 5 more.

The dispatcher is there for tensors that are not what they seem, so a call goes past it only where nothing is. PyTorch's
own guards (those of its compiler: one call, 0.2 us) compare types, devices, dtypes, shapes, strides, gradients, negation
and transforms with those of a call that an operator has carried out; dispatch modes and forward-mode differentiation are
asked for beside them. Anything else takes the operator, which also refuses what has to be refused.
"""

import sys
import weakref
from typing import Any

import torch
from fastpos_kernels.rules import DONE
from torch._C._dynamo.guards import TensorGuards
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from . import dispatch
from .encodings import Encoding
from .places import HIGHEST, LOWEST
from .torch_request import Tensors
from .torch_run import CHECK, quick_launch

_known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
_count_version = torch._C._increment_version


def _key(
    encoding: Encoding, inputs: Tensors, outputs: Any, positions: Any, layout: Any, backend: Any
) -> tuple[Any, ...]:
    way = 0 if outputs is inputs else 1 if outputs is None else 2
    return id(encoding), way, positions is None, layout, backend, dispatch.process, dispatch.scope.get(), len(inputs)


def in_context_parallel() -> bool:
    """Whether PyTorch's context parallelism is on: plain tensors are then one device's part of a sequence."""
    module: Any = sys.modules.get("torch.distributed.tensor.experimental._context_parallel._attention")
    return module is not None and functional.scaled_dot_product_attention in module._replaced_functions


def run(
    encoding: Encoding, inputs: Tensors, outputs: Any, start: Any, positions: Any, layout: Any, backend: Any
) -> Any:
    """The results of a call like the last of this encoding and kind, or None: then nothing has been done.

    ``outputs``: the inputs themselves, a tuple of tensors, or None for new ones.
    """
    try:
        found = _known.get(_key(encoding, inputs, outputs, positions, layout, backend))
    except TypeError:  # a layout or backend that is no string: the long way says so
        return None
    if found is None or is_in_torch_dispatch_mode() or forward_ad._current_level >= 0:
        return None
    check, kernel, record, counted, _ = found
    tensors = inputs if outputs is inputs or outputs is None else (*inputs, *outputs)
    if positions is not None:
        tensors = (*tensors, positions)
    try:
        for tensor in tensors:
            # The guards ask a nested tensor for its strides, and its error ends the process.
            if tensor.is_nested:
                return None
    except AttributeError:  # no tensor: the long way says so
        return None
    if outputs is not None and len(outputs) != len(inputs):
        return None
    if positions is None:
        if type(start) is not int or not LOWEST < start < HIGHEST or not check(*tensors) or in_context_parallel():
            return None
        place = start
    else:
        if start is not None or not check(*tensors):
            return None
        place = positions.data_ptr()
    made = None
    if outputs is None:
        made = outputs = tuple(torch.empty_like(x) for x in inputs)
    if len(inputs) == 1:
        status = kernel(record, inputs[0].data_ptr(), outputs[0].data_ptr(), 0, 0, place, 0, 0, CHECK)
    elif outputs is inputs:
        here, there = inputs[0].data_ptr(), inputs[1].data_ptr()
        status = kernel(record, here, here, there, there, place, 0, 0, CHECK)
    else:
        (x, y), (to_x, to_y) = inputs, outputs
        status = kernel(record, x.data_ptr(), to_x.data_ptr(), y.data_ptr(), to_y.data_ptr(), place, 0, 0, CHECK)
    if status != DONE:
        return None
    if made is None:
        if counted:
            _count_version(outputs)
        elif not (outputs[0].is_inference() and outputs[-1].is_inference()):
            _count_version([y for y in outputs if not y.is_inference()])
    return outputs


def remember(
    encoding: Encoding,
    inputs: Tensors,
    outputs: Any,
    positions: Any,
    layout: Any,
    backend: Any,
    call: str,
    results: Tensors,
) -> None:
    """Keep the launch of a call that an operator has carried out, if kernels take its addresses and nothing is special."""
    if positions is not None and not isinstance(positions, torch.Tensor):
        return
    ids = () if positions is None else (positions,)
    launch = quick_launch(call, inputs, results, ids)
    tensors = (*inputs, *(outputs if outputs is not None and outputs is not inputs else ()), *ids)
    special = is_in_torch_dispatch_mode() or forward_ad._current_level >= 0
    if launch is None or special or torch._C._functorch.peek_interpreter_stack() is not None:
        return
    if any(type(x) is not torch.Tensor or x.requires_grad or x.is_neg() or not x.is_cpu for x in tensors):
        return
    # Their stubs name lists of numbers; they take one list a tensor.
    shapes: Any = [list(x.shape) for x in tensors]
    strides: Any = [list(x.stride()) for x in tensors]
    guards = TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides)
    key = _key(encoding, inputs, outputs, positions, layout, backend)
    if key not in _known:
        weakref.finalize(encoding, _known.pop, key, None)
    # Guards tell tensors that have a version outside of inference mode from all others, but not those others apart.
    counted = not torch.is_inference_mode_enabled() and not any(y.is_inference() for y in results)
    _known[key] = (guards.check, launch[0], launch[1], counted, launch[2])
