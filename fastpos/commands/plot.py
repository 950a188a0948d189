"""The plot of ``fastpos bench --plot``: time over that of a plain copy, a row a case, a panel a workload."""

from pathlib import Path

from .report import Result, by_workload
from .workloads import COPY, FASTPOS, MADE, READY

MARKS = {
    FASTPOS: ("fastpos", "#c8102e", "o", 46),
    READY: ("NumPy, rows of the table ready", "#3b6ea5", "D", 26),
    MADE: ("NumPy, rows made in the call", "#8a8a8a", "s", 24),
}
ROW_INCHES = 0.22
# A panel taller than this has its scale above it, too.
TALL = 20


def draw(results: list[Result], path: Path, setting: str) -> None:
    """Write the plot to ``path``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    groups = by_workload(results)
    heights = [len(group) + 2.6 for group in groups.values()]
    figure = Figure(figsize=(10, ROW_INCHES * sum(heights) + 1.9), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(groups), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, (title, group) in zip(grid[:, 0], groups.items(), strict=True):
        rows = range(len(group))
        for row, result in zip(rows, group, strict=True):
            ratios = [result.timings[name].over(result.timings[COPY]) for name in MARKS]
            axes.plot([min(*ratios, 1), max(*ratios, 1)], [row, row], color="#e4e4e4", linewidth=1.2, zorder=1)
            for (name, (_, colour, shape, size)), ratio in zip(MARKS.items(), ratios, strict=True):
                front = 3 if name == FASTPOS else 2
                axes.scatter(ratio, row, c=colour, marker=shape, s=size, zorder=front, linewidths=0)
        axes.axvline(1, color="black", linewidth=1.4, zorder=1.5)
        axes.set_yticks(rows, [result.label for result in group], fontsize=8)
        axes.set_ylim(len(group) - 0.4, -0.6)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(LogLocator(subs=()))
        axes.grid(axis="x", color="#ececec", zorder=0)
        axes.tick_params(length=0, labelbottom=True, labeltop=len(group) > TALL, labelsize=8)
        axes.spines[:].set_visible(False)
    grid[-1, 0].set_xlabel(
        "time / time of numpy.copyto of the same bytes (log scale; left of the line: faster than a copy)", fontsize=9
    )
    names = [
        axes.scatter([], [], c=colour, marker=shape, s=size, label=label)
        for label, colour, shape, size in MARKS.values()
    ]
    figure.legend(handles=names, loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    figure.supxlabel(setting, fontsize=7, color="#666666", x=0.01, ha="left", wrap=True)
    figure.savefig(path, dpi=144)
