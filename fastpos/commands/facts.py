"""Facts about this machine and what is installed on it, as words."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import machine
from ..dispatch import find

PACKAGES = ("fastpos", "numpy", "numba", "llvmlite", "ml_dtypes")
# Of all features of a processor, those that decide how position kernels come out.
SIMD = (
    *("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx512fp16"),
    *("neon", "fullfp16", "bf16", "sve", "sve2"),
)


def processor() -> str:
    """The processor's name, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python and of what a call runs on."""
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cores() -> str:
    """Processors of the machine."""
    return str(os.cpu_count() or "unknown")


def largest_cache() -> str:
    """The largest cache of the first processor."""
    return f"{machine.last_level_cache() / (1 << 20):g} MiB"


def target() -> tuple[str, str]:
    """The processor that numba compiles for, and those of its features that matter here."""
    from numba.core.registry import cpu_target

    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    enabled = set(features.split(","))
    return name, " ".join(name for name in SIMD if f"+{name}" in enabled) or f"as {name} has them"


def kernel_folder() -> str:
    """Where numba keeps compiled kernels."""
    from fastpos_kernels.numba_jit import compile_entry
    from numba import njit

    try:
        return str(njit(cache=True)(compile_entry).stats.cache_path)
    except RuntimeError:
        return "none: no folder is writable (package folder, home, NUMBA_CACHE_DIR), so every process compiles"


def title() -> str:
    """One line that names the machine and the versions, for tables of figures."""
    said = ", ".join(f"{name} {version}" for name, version in versions().items())
    name = target()[0] if find("numba").usable else platform.machine()
    return f"{processor()} ({name}, {cores()} cores, {largest_cache()} largest cache), {platform.system()}; {said}"


def as_dict() -> dict[str, Any]:
    """The same for a JSON file."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "largest_cache_bytes": machine.last_level_cache(),
        "system": f"{platform.system()} {platform.machine()}",
        "compiled_for": target()[0] if find("numba").usable else None,
        "versions": versions(),
    }
