"""The ``fastpos`` command. What a command does lies in ``fastpos.commands`` and is loaded when it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Position encodings for attention, made inside the kernel that applies them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class EncodingName(StrEnum):
    """Kinds of encodings that kernels are compiled for."""

    rotary = "rotary"
    sinusoidal = "sinusoidal"
    learned = "learned"


class DtypeName(StrEnum):
    """Types of arrays that kernels are compiled for."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float64 = "float64"


def _version(asked: bool) -> None:
    if asked:
        from . import __version__

        typer.echo(f"fastpos {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Position encodings for attention, made inside the kernel that applies them."""


@contextmanager
def _plainly() -> Iterator[None]:
    """Say what a user can put right in one line, with exit code 1: first of all the environment variables."""
    from .commands.console import Refused
    from .dispatch import choose
    from .threads import get_num_threads

    try:
        try:
            choose(None)
            get_num_threads()
        except ValueError as error:
            raise Refused(str(error)) from error
        yield
    except Refused as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def info(
    config: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Show the positions of a checkpoint instead: its config.json or folder."),
    ] = None,
) -> None:
    """Show the machine, the backends and why, the threads and where compiled kernels are kept."""
    with _plainly():
        from .commands import config as positions
        from .commands import info

        if config is None:
            info.run()
        elif not positions.run(config):
            raise typer.Exit(1)


@app.command()
def verify(
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write the table as Markdown.")
    ] = None,
) -> None:
    """Compare every usable backend on this machine with 50-digit arithmetic; exit code 1 when a bound is missed."""
    with _plainly():
        from .commands import verify

        if not verify.run(markdown):
            raise typer.Exit(1)


@app.command()
def warmup(
    encoding: Annotated[
        list[EncodingName] | None, typer.Option(help="Only this kind; may be given several times.", show_default="all")
    ] = None,
    dtype: Annotated[
        list[DtypeName] | None,
        typer.Option(help="Only this type; may be given several times.", show_default="float32, float16, bfloat16"),
    ] = None,
) -> None:
    """Compile kernels ahead of the first call. They do not depend on sizes, layout or positions."""
    with _plainly():
        from .commands import warmup

        warmup.run([name.value for name in encoding or ()], [name.value for name in dtype or ()])


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="The main cases: a minute; with --against, some.")] = False,
    only: Annotated[str, typer.Option(metavar="SUBSTRING", help="Only cases with this in their name.")] = "",
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of fastpos and of peers; a copy and NumPy have one.")
    ] = 1,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write all figures as JSON.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write the tables as Markdown.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", dir_okay=False, help="Draw the ratios to a copy (matplotlib).")
    ] = None,
    against: Annotated[
        str,
        typer.Option(metavar="auto|NAMES", help="Compare with other libraries instead: all installed, or a,b,c."),
    ] = "",
    position: Annotated[
        int | None,
        typer.Option(min=0, max=1 << 30, help="With --against: where the first token stands (learned rows: at 0)."),
    ] = None,
) -> None:
    """Time fastpos against NumPy as it is used today and against a plain copy."""
    with _plainly():
        from .commands import bench

        bench.run(
            quick=quick,
            only=only,
            threads=threads,
            json_file=json,
            markdown_file=markdown,
            plot_file=plot,
            against=against,
            position=position,
        )
