"""A launch without Triton's own search for the binary: 1 us of Python where ``kernel[grid](...)`` takes 9.

A handle keeps the binary that an ordinary launch has found. It uses what Triton calls private, so it serves only the
versions it was tried with, and only arrays aligned as that binary needs them; all else is launched the ordinary way.
"""

import torch
import triton
from triton.runtime import driver

from .triton_jit import OPTIONS
from .triton_machine import ACCESS_BYTES, LANES

TRIED = (3, 6), (3, 9)
KNOWN = TRIED[0] <= tuple(int(part) for part in triton.__version__.split(".")[:2]) <= TRIED[1]


def is_interpreted(kernel) -> bool:
    """Whether Triton's interpreter runs this kernel, on the CPU."""
    return not isinstance(kernel, triton.JITFunction)


def target_of(kernel) -> tuple[str, int]:
    """What a kernel is compiled for, ``cuda``, ``hip`` or ``interpreter``, and the lanes of its warps."""
    if is_interpreted(kernel):
        return "interpreter", LANES
    target = driver.active.get_current_target()
    return target.backend, target.warp_size


class Handle:
    """A kernel with all its arguments but arrays and positions, on one device.

    ``constants`` are the tensors after the arrays, ``fixed`` the integers and compile-time values at the end.
    """

    def __init__(self, kernel, programs: int, constants, fixed):
        self.kernel, self.programs, self.constants, self.fixed = kernel, programs, constants, fixed
        self.addresses = [tensor.data_ptr() for tensor in constants]
        self.run = None

    def _keep(self, compiled) -> None:
        self.function, self.metadata = compiled.function, compiled.packed_metadata
        self.stream, self.hooks = driver.active.get_current_stream, triton.knobs.runtime
        self.run = compiled.run

    def __call__(self, device: int, arrays, where, starts, start: int) -> None:
        """Launch on the current stream; ``where`` and ``starts`` are any tensors where the rule reads none."""
        pointers = [array.data_ptr() for array in arrays]
        bits = 0
        for pointer in pointers:
            bits |= pointer
        aligned = bits % ACCESS_BYTES == 0
        if self.run is not None and aligned:
            hooks = self.hooks
            if not hooks.launch_enter_hook.calls and not hooks.launch_exit_hook.calls:
                self.run(
                    self.programs,
                    1,
                    1,
                    self.stream(device),
                    self.function,
                    self.metadata,
                    None,
                    None,
                    None,
                    *pointers,
                    *self.addresses,
                    where.data_ptr(),
                    starts.data_ptr(),
                    start,
                    *self.fixed,
                )
                return
        compiled = self.kernel[(self.programs,)](*arrays, *self.constants, where, starts, start, *self.fixed, **OPTIONS)
        if KNOWN and aligned and not is_interpreted(self.kernel):
            self._keep(compiled)


def on_device(index: int, function, *arguments) -> None:
    """Call with this GPU as the current one; a negative index is main memory, which the interpreter uses."""
    if index < 0 or index == torch.cuda.current_device():
        function(*arguments)
    else:
        with torch.cuda.device(index):
            function(*arguments)
