"""Which backends exist, which one a call gets, and why.

Precedence: the call's ``backend=``, then ``with use_backend(...)``, then ``set_backend``, then the environment variable
FASTPOS_BACKEND (read once), then ``auto``. A name that is unknown or cannot run here is an error: nothing falls back in
silence.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

NAMES = ("numpy", "numba", "triton")
VARIABLE = "FASTPOS_BACKEND"
OLDEST_TRITON = (3, 6)

scope: ContextVar[str | None] = ContextVar("fastpos_backend", default=None)
process: str | None = None


@dataclass(frozen=True)
class Backend:
    """One backend as it stands on this machine: ``reason`` says why it is not usable, None when it is."""

    name: str
    reason: str | None
    versions: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether calls can run on it."""
        return self.reason is None


def _versions(*packages: str) -> tuple[str, ...]:
    from importlib import metadata

    found = []
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def _why_not_numba() -> str | None:
    try:
        known = import_module("fastpos_kernels.numba_record").header_is_known()
    except NotImplementedError:
        return "its kernels must be compiled, which NUMBA_DISABLE_JIT forbids"
    except Exception as error:  # numba refuses some NumPy versions with an ImportError, some hosts with others
        return f"numba cannot be imported: {error}"
    if not known:
        return "this NumPy lays out its arrays in a way that is not known here"
    return None


def _why_not_triton() -> str | None:
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            return f"{package} is not installed: pip install 'fastpos[gpu]'"
    try:
        torch, triton = import_module("torch"), import_module("triton")
    except Exception as error:  # libraries that do not fit raise errors of many kinds
        return f"torch or triton cannot be imported: {error}"
    if tuple(map(int, triton.__version__.split(".")[:2])) < OLDEST_TRITON:
        wanted = ".".join(map(str, OLDEST_TRITON))
        return f"triton {triton.__version__} is older than {wanted}: pip install --upgrade 'fastpos[gpu]'"
    if not triton.knobs.runtime.interpret and not torch.cuda.is_available():
        return "PyTorch finds no GPU (TRITON_INTERPRET=1 lets Triton's interpreter run its kernels on the CPU, slowly)"
    return None


@cache
def find(name: str) -> Backend:
    """One backend by name, looked into once."""
    if name == "numpy":
        return Backend(name, None, _versions("numpy"))
    if name == "numba":
        return Backend(name, _why_not_numba(), _versions("numba", "llvmlite"))
    return Backend(name, _why_not_triton(), _versions("triton", "torch"))


def backends() -> tuple[Backend, ...]:
    """Every backend, usable or why not, with the versions of what it stands on.

    Examples
    --------
    >>> [backend.name for backend in backends()]
    ['numpy', 'numba', 'triton']
    """
    return tuple(find(name) for name in NAMES)


def _listing() -> str:
    return "; ".join(f"{b.name}: {'usable' if b.usable else b.reason}" for b in backends())


def _checked(name: object, source: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{source}: expected a name, got {name!r}")
    if name != "auto" and name not in NAMES:
        raise ValueError(f"{source}: unknown backend {name!r}; expected auto, {', '.join(NAMES)} ({_listing()})")
    if name != "auto" and not find(name).usable:
        raise ValueError(f"{source}: backend {name!r} cannot run here; {_listing()}")
    return name


@cache
def _environment() -> tuple[str, str]:
    name = os.environ.get(VARIABLE)
    return (_checked(name, VARIABLE), VARIABLE) if name else ("auto", "the default")


def request(argument: str | None) -> tuple[str, str]:
    """The name that is asked for, and who asks: the highest in the order of precedence."""
    if argument is not None:
        return _checked(argument, "backend"), "backend="
    if (inside := scope.get()) is not None:
        return inside, "use_backend"
    if process is not None:
        return process, "set_backend"
    return _environment()


def choose(argument: str | None, device: str | None = None) -> str:
    """The backend that a call gets on NumPy arrays (``device`` None) or on tensors of a device, as ``"cuda:0"``."""
    name, source = request(argument)
    what = "NumPy arrays" if device is None else f"tensors on {device}"
    in_main_memory = device is None or device == "cpu"
    if name == "auto":
        name = "numba" if in_main_memory else "triton"
        if not find(name).usable:
            raise ValueError(f"backend: auto means {name} for {what}, which cannot run here; {_listing()}")
    elif name != "triton" and not in_main_memory:
        raise ValueError(f"{source}: backend {name!r} works on main memory, got {what}; choose 'triton' or 'auto'")
    elif name == "triton" and (device is None or (in_main_memory and not interpreted())):
        raise ValueError(
            f"{source}: backend 'triton' works on PyTorch tensors on a GPU (on the CPU in Triton's interpreter, with "
            f"TRITON_INTERPRET=1), got {what}"
        )
    return name


def interpreted() -> bool:
    """Whether Triton's interpreter, which works on CPU tensors, takes the place of its compiler."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run the calls inside the ``with`` block (of this thread or task) on one backend.

    Raises
    ------
    ValueError
        When the name is unknown or that backend cannot run here.

    Examples
    --------
    >>> with use_backend("numpy"):
    ...     choose(None)
    'numpy'
    """
    token = scope.set(_checked(name, "use_backend"))
    try:
        yield
    finally:
        scope.reset(token)


def set_backend(name: str | None) -> None:
    """Run this process's calls on one backend from now on; None: as if never called.

    Raises
    ------
    ValueError
        When the name is unknown or that backend cannot run here.

    Examples
    --------
    >>> set_backend("numpy")
    >>> choose(None)
    'numpy'
    >>> set_backend(None)
    """
    global process
    process = None if name is None else _checked(name, "set_backend")


def kernels(name: str) -> Any:
    """The module that binds launches of a backend."""
    return import_module(f"fastpos_kernels.{name}_launch")
