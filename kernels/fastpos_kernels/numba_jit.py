"""How kernels are compiled: one policy, in one place.

Only entries, the functions that Python calls, are cached; what they call is compiled into them. An entry has one
signature of integers. It is made by a function around it (``storage`` and ``fingerprint`` are closure variables), because Numba's cache looks at the
entry's own file alone: ``fingerprint``, a digest of all kernel sources, makes it see a change in any of them.
"""

import hashlib
import warnings
from pathlib import Path

from numba import njit, types


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("numba_*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


FINGERPRINT = _fingerprint()
# The error model of C: Python's would test every division of two integers.
OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def compile_entry(function, arguments: int):
    """Compile ``function`` of so many integers, from the cache where there is one."""
    try:
        compiled = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:
        warnings.warn(
            "fastpos: no folder for compiled kernels is writable (package folder, home, NUMBA_CACHE_DIR), so every "
            "process compiles its own: set NUMBA_CACHE_DIR to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )
        compiled = njit(**OPTIONS)(function)
    compiled.compile((types.int64,) * arguments)
    compiled.disable_compile()
    return compiled
