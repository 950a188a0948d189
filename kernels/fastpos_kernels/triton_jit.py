"""How kernels are compiled: one policy, in one place."""

import triton
import triton.language as tl

from .triton_machine import WARPS

# Fused multiply-adds are written out, and the compiler adds none: a row's bits must not depend on what it is beside.
OPTIONS = {"num_warps": WARPS, "enable_fp_fusion": False}


def entry(function):
    """A kernel whose integers have the types that they are annotated with, whatever their values.

    Triton would compile one binary more for an integer of 1 and one for multiples of 16: 0.1 s of standstill in the middle
    of decoding. Where tokens stand may lie at any address.
    """
    fixed = [name for name, kind in function.__annotations__.items() if isinstance(kind, tl.dtype)]
    return triton.jit(do_not_specialize=fixed, do_not_specialize_on_alignment=["where", "starts"])(function)
