"""fastpos: position encodings for attention, made inside the kernel that applies them.

``apply`` and ``apply_`` put positions into queries, keys or embeddings; ``Rotary``, ``Sinusoidal`` and ``Learned`` say
which function a model was trained with; ``start=``, ``positions=`` or ``cu_seqlens=`` say where its tokens stand.
"""

from typing import TYPE_CHECKING, Any

from . import positions, scaling
from .api import apply, apply_, explain, table
from .axes import Axes
from .dispatch import backends, set_backend, use_backend
from .encodings import Learned, Rotary, Sinusoidal
from .plan import Plan
from .queries import Llama4Scale, LogScale, MinistralScale
from .shift import shift_, shift_matrix
from .threads import get_num_threads, set_num_threads
from .warm import warmup

if TYPE_CHECKING:
    from .scaling import Linear

__all__ = [
    "Axes",
    "Learned",
    "Linear",
    "Llama4Scale",
    "LogScale",
    "MinistralScale",
    "Plan",
    "Rotary",
    "Sinusoidal",
    "apply",
    "apply_",
    "backends",
    "explain",
    "get_num_threads",
    "positions",
    "scaling",
    "set_backend",
    "set_num_threads",
    "shift_",
    "shift_matrix",
    "table",
    "use_backend",
    "warmup",
]


def __getattr__(name: str) -> Any:
    """What takes long, when it is asked for: ``__version__`` (20 ms to read), ``hf`` and ``nn`` (which import PyTorch)."""
    if name in ("hf", "nn"):
        from importlib import import_module
        from importlib.util import find_spec

        if find_spec("torch") is None:
            raise AttributeError(f"fastpos.{name} needs PyTorch, which is not installed: pip install 'fastpos[torch]'")
        return import_module(f"fastpos.{name}")
    if name == "Linear":
        return scaling.Linear
    if name == "__version__":
        from importlib.metadata import version

        return version("fastpos")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is there, and what is imported when it is asked for."""
    return sorted({*globals(), *__all__})
