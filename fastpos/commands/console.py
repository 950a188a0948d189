"""One way to write to the terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Item = TypeVar("Item")


class Refused(Exception):
    """What was asked for cannot be had here; the text says why, and what to do. Shown without a traceback."""


# Room for the widest table where nobody looks at a window: a file or a pipe.
PIPED_WIDTH = 140


def console() -> Console:
    """Where results go: a console that takes ``[`` as it is, and does not fold tables that go to a file."""
    made = Console(markup=False, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, PIPED_WIDTH)
    return made


def table(title: str, headings: Iterable[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """Make a table whose first ``left`` columns are words, which fold in a narrow window; the others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=box.SIMPLE)
    made.padding, made.pad_edge = (0, 1, 0, 0), False
    for index, heading in enumerate(headings):
        made.add_column(heading, justify="left" if index < left else "right", no_wrap=index >= left, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def progress(out: Console, items: Sequence[Item], name: Callable[[Item], str]) -> Iterator[Iterator[Item]]:
    """Walk over ``items`` under a bar that names the one at work and goes away in the end.

    Where standard output is no terminal, a line for each item goes to standard error instead.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn only between items: a thread that redraws ten times a second would take the processor from what is timed.
    with Progress(*columns, console=out, transient=True, auto_refresh=False, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=len(items))

        def walk() -> Iterator[Item]:
            for number, item in enumerate(items):
                if not out.is_terminal:
                    print(f"{number + 1}/{len(items)} {name(item)}", file=sys.stderr, flush=True)
                bar.update(task, description=name(item), refresh=True)
                yield item
                bar.advance(task)

        yield walk()
