"""What ``fastpos.hf.patch`` did: a report, module by module, that can be left like a context."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

FUSED, PARTLY, ALONE, IDLE = "fused", "partly", "left alone", "not used"


@dataclass(frozen=True)
class Part:
    """A rotary module of the model.

    Attributes
    ----------
    name, kind
        Its name in the model, and its class.
    state
        ``"fused"``: it hands positions on and queries and keys are rotated by one kernel. ``"left alone"``: it runs as it
        did. ``"partly"``: for some types of layers. ``"not used"``: it was not called, and runs as it did where it is.
    why
        Which functions rotate, or what was in the way.
    """

    name: str
    kind: str
    state: str
    why: str


@dataclass(frozen=True)
class Report:
    """What was patched; as a context manager it undoes that at the end, after an error too.

    Attributes
    ----------
    model
        The model's class.
    numerics
        ``"exact"`` or ``"hf"``.
    parts
        Every rotary module of the model.
    """

    model: str
    numerics: str
    parts: tuple[Part, ...]
    _undo: Callable[[], None] = field(repr=False, compare=False)

    @property
    def state(self) -> str:
        """``"fused"`` where every rotary module in use is, ``"left alone"`` where none is, else ``"partly"``."""
        states = {part.state for part in self.parts} - {IDLE}
        return states.pop() if len(states) == 1 else PARTLY if states else ALONE

    def __enter__(self) -> "Report":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._undo()

    def __str__(self) -> str:
        """A table; what ``print`` shows."""
        from ..commands.console import console, table

        out = console()
        title = f"{self.model}: {self.state}, numerics={self.numerics!r}"
        if not self.parts:
            return f"{title}\nit has no rotary module"
        rows = [(part.name, part.kind, part.state, part.why) for part in self.parts]
        with out.capture() as captured:
            out.print(table(title, ("module", "class", "state", "by, or why not"), rows, left=4))
        return captured.get().rstrip()
