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


def check_not_captured(device: torch.device) -> None:
    """Refuse to make a launch while a CUDA graph is captured: to copy rates and load a binary would break it off."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"expected a first call of this kind on {device} before a CUDA graph is captured, for it copies and compiles what "
            "the kernel needs; make one call with the same encoding, shapes, strides and dtypes ahead of the capture"
        )


class Handle:
    """A kernel with all its arguments but arrays and positions, on one device.

    ``constants`` are the tensors after the arrays, ``fixed`` the integers and compile-time values at the end.
    """

    def __init__(self, kernel, programs: int, constants, fixed):
        self.kernel, self.programs, self.constants, self.fixed = kernel, programs, constants, fixed
        self.addresses = [tensor.data_ptr() for tensor in constants]
        self.knobs = triton.knobs.runtime
        self.run = None

    def __call__(self, device: int, arrays, where, starts, start: int) -> None:
        """Launch on the current stream; ``where`` and ``starts`` are None where the rule reads none."""
        pointers, bits = [], 0
        for source, target in arrays:
            pointer = source.data_ptr()
            other = pointer if target is source else target.data_ptr()
            pointers += pointer, other
            bits |= pointer | other
        aligned = not bits % ACCESS_BYTES
        knobs = self.knobs
        if aligned and self.run and not (knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls):
            first = pointers[0] if where is None else where.data_ptr()
            second = first if starts is None else starts.data_ptr()
            stream, fixed = self.stream(device), self.fixed
            # fmt: off
            self.run(
                self.programs, 1, 1, stream, *self.binary, None, None, None,
                *pointers, *self.addresses, first, second, start, *fixed,
            )
            # fmt: on
            return
        where = arrays[0][0] if where is None else where
        operands = (array for pair in arrays for array in pair)
        arguments = *operands, *self.constants, where, where if starts is None else starts, start, *self.fixed
        compiled = self.kernel[(self.programs,)](*arguments, **OPTIONS)
        if aligned and KNOWN and not is_interpreted(self.kernel):
            self.stream = driver.active.get_current_stream
            self.binary = compiled.function, compiled.packed_metadata
            # Kept whole: a binary that nobody holds is unloaded.
            self.compiled, self.run = compiled, compiled.run


def on_device(index: int, function, *arguments) -> None:
    """Call with this GPU as the current one."""
    with torch.cuda.device(index):
        function(*arguments)
