"""The one table of peers, and which of them a run takes."""

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec

from ..console import Refused
from ..workloads import Case

ROTATIONS, ADDITIONS = "rotations", "additions"
# Rotations of neighbouring channels.
PAIRS = "pairs"


class Result(StrEnum):
    """Where a contender writes, which decides the form of fastpos that it is compared with."""

    IN_PLACE = "in place"
    GIVEN = "given memory"
    NEW = "new arrays"


class Table(StrEnum):
    """Where sines and cosines, or the rows of a learned table, come from."""

    NONE = "none"
    GIVEN = "given"
    MADE = "made in the call"


@dataclass(frozen=True)
class Peer:
    """A way to encode positions: ``form`` names a module, here or anywhere, and its function."""

    name: str
    what: str
    modules: tuple[str, ...]
    form: str
    table: Table
    result: Result
    only: str | None = None

    def missing(self) -> str | None:
        """Why it cannot run here, as far as can be told without importing anything."""
        absent = [module for module in self.modules if find_spec(module) is None]
        return f"not installed: pip install {' '.join(absent)}" if absent else None

    def unfit(self, case: Case) -> str | None:
        """Why it does not take part in a case."""
        kinds = (None, ROTATIONS, PAIRS if case.interleaved else "halves") if case.heads else (None, ADDITIONS)
        return None if self.only in kinds else f"{self.only} only"


IN_PLACE, GIVEN, NEW = Result.IN_PLACE, Result.GIVEN, Result.NEW
TORCH, HUGGING_FACE, ONNX = ("torch",), ("torch", "transformers"), ("onnxruntime", "onnx")
COPY = Peer("copy", "", ("numpy",), ".fastpos_forms:copy", Table.NONE, GIVEN)
OURS = (
    Peer("fastpos", "", ("numpy",), ".fastpos_forms:in_place", Table.NONE, IN_PLACE),
    Peer("fastpos", "", ("numpy",), ".fastpos_forms:given", Table.NONE, GIVEN),
    Peer("fastpos", "", ("numpy",), ".fastpos_forms:new", Table.NONE, NEW),
)
PEERS = (
    Peer("numpy", "the fastest short form", ("numpy",), ".numpy_forms:ready", Table.GIVEN, GIVEN),
    Peer("numpy-made", "the same", ("numpy",), ".numpy_forms:made", Table.MADE, GIVEN),
    Peer("torch", "eager, rotate-half or x + rows", TORCH, ".torch_forms:eager", Table.GIVEN, NEW),
    Peer("torch-complex", "eager, complex product", TORCH, ".torch_forms:complex_product", Table.GIVEN, NEW, PAIRS),
    Peer("torch-out", "torch.add with out=", TORCH, ".torch_forms:add_out", Table.GIVEN, GIVEN, ADDITIONS),
    Peer("torch-made", "eager", TORCH, ".torch_forms:eager_made", Table.MADE, NEW, ADDITIONS),
    Peer("torch-compiled", "torch.compile", TORCH, ".torch_forms:compiled", Table.GIVEN, NEW),
    Peer("torch-compiled-made", "torch.compile", TORCH, ".torch_forms:compiled_made", Table.MADE, NEW),
    Peer(
        "transformers", "apply_rotary_pos_emb", HUGGING_FACE, ".transformers_forms:ready", Table.GIVEN, NEW, ROTATIONS
    ),
    Peer(
        "transformers-made",
        "rotary_emb, then apply",
        HUGGING_FACE,
        ".transformers_forms:made",
        Table.MADE,
        NEW,
        ROTATIONS,
    ),
    Peer("onnxruntime", "RotaryEmbedding, bound buffers", ONNX, ".onnx_forms:bound", Table.GIVEN, GIVEN, ROTATIONS),
    Peer("jax", "jitted", ("jax",), ".jax_forms:ready", Table.GIVEN, NEW),
    Peer("jax-made", "jitted", ("jax",), ".jax_forms:made", Table.MADE, NEW),
    Peer("fastpos-torch", "fastpos on tensors", TORCH, ".fastpos_forms:on_tensors", Table.NONE, IN_PLACE),
)


def choose(asked: str) -> tuple[list[Peer], dict[str, str]]:
    """Peers to run, and those that ``auto`` leaves out with the reason; ``asked`` is ``auto`` or names with commas.

    Raises
    ------
    Refused
        When a name is unknown, or what it needs is not installed; the text lists all peers and why they cannot run.
    """
    reasons = {peer.name: peer.missing() for peer in PEERS}
    missing = {name: reason for name, reason in reasons.items() if reason}
    if asked == "auto":
        return [peer for peer in PEERS if peer.name not in missing], missing
    names = list(dict.fromkeys(name.strip() for name in asked.split(",")))
    for name in names:
        if reasons.get(name, "unknown"):
            listed = "\n".join(f"  {known}: {reason or 'can be imported'}" for known, reason in reasons.items())
            said = f"{name!r} is not installed" if name in reasons else f"no peer is called {name!r}"
            raise Refused(f"--against: {said}; expected auto or, with commas between them, names of\n{listed}")
    return [peer for peer in PEERS if peer.name in names], {}
