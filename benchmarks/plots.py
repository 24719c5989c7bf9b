"""Three plots of what was measured in one run: throughput against batch size, latency against load, cost against number of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["PLOTS", "lines_of", "save"]

LIMIT: Final = "limit: "
"""How the name of a line begins that is drawn as a limit."""


@attrs.frozen(slots=True)
class Plot:
    """One picture; benchmarks name it when they add a line (`measuring.draw`)."""

    title: str
    x: str
    y: str
    x_log: bool = True
    y_log: bool = False


PLOTS: Final = {
    "throughput": Plot("Throughput against batch size", "bytes in a batch", "MB/s acknowledged by three copies", y_log=True),
    "latency": Plot("Latency against load", "offered load, of the highest rate", "ms until acknowledged", x_log=False, y_log=True),
    "partitions": Plot("Cost against number of partitions", "partitions", "cost, as a multiple of that with ten"),
}

Line = tuple[str, list[tuple[float, float]]]


def lines_of(benchmarks: Iterable[Mapping[str, Any]]) -> dict[str, list[Line]]:
    """The lines in the `benchmarks` of a document of pytest-benchmark, by plot; limits last. KeyError: there is no such plot."""
    found: dict[str, list[Line]] = {name: [] for name in PLOTS}
    for one in benchmarks:
        for line in one["extra_info"].get("lines", ()):
            found[line["plot"]].append((line["line"], [(x, y) for x, y in sorted(line["points"])]))
    return {name: sorted(lines, key=lambda line: line[0].startswith(LIMIT)) for name, lines in found.items() if lines}


def save(lines: Mapping[str, list[Line]], folder: Path) -> list[tuple[str, Path]]:
    """Draw them into `folder`: (title, file) of each. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, some in lines.items():
        plot, figure = PLOTS[name], Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        for label, points in some:
            dashed = label.startswith(LIMIT)
            axes.plot(*zip(*points, strict=True), label=label, linestyle="--" if dashed else "-", marker="" if dashed else "o")
        axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
        if plot.x_log:
            axes.set_xscale("log")
        if plot.y_log:
            axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=120)
        made.append((plot.title, path))
    return made
