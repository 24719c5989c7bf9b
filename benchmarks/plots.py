"""Three plots of what was measured in one run: throughput against batch size, latency against load, cost against number of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["PEER", "PLOTS", "lines_of", "peers_of", "save"]

LIMIT: Final = "limit: "
"""How the name of a line begins that is drawn as a limit."""
PEER: Final = "peer: "
"""How the name of another system's begins. It has one figure, whatever it was measured with: a line across the plot."""


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
    """The lines in the `benchmarks` of a document of pytest-benchmark, by plot; last peers, each once, and limits.

    A plot that has nothing but peers is left out. KeyError: there is no such plot.
    """
    found: dict[str, list[Line]] = {name: [] for name in PLOTS}
    for one in benchmarks:
        for line in one["extra_info"].get("lines", ()):
            lines, name = found[line["plot"]], line["line"]
            if not name.startswith(PEER) or name not in [label for label, _ in lines]:
                lines.append((name, [(x, y) for x, y in sorted(line["points"])]))
    return {name: sorted(lines, key=_place) for name, lines in found.items() if any(_place(line) != 1 for line in lines)}


def _place(line: Line) -> int:
    """Ours first, then peers, then limits."""
    return 1 if line[0].startswith(PEER) else 2 if line[0].startswith(LIMIT) else 0


def peers_of(left: Iterable[Mapping[str, Any]], measured: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the `benchmarks` that a run of peers has left, those that this run did not measure itself, with nothing but their peers' lines."""
    own = {one["fullname"] for one in measured}
    kept = []
    for one in left:
        lines = [line for line in one["extra_info"].get("lines", ()) if line["line"].startswith(PEER)]
        if lines and one["fullname"] not in own:
            kept.append({"fullname": one["fullname"], "extra_info": {"lines": lines}})
    return kept


def save(lines: Mapping[str, list[Line]], folder: Path) -> list[tuple[str, Path]]:
    """Draw them into `folder`: (title, file) of each. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, some in lines.items():
        plot, figure = PLOTS[name], Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        for number, (label, points) in enumerate(some):
            if label.startswith(PEER):
                axes.axhline(points[0][1], label=label, linestyle=":", color=f"C{number}")
                continue
            dashed = label.startswith(LIMIT)
            style = {"linestyle": "--" if dashed else "-", "marker": "" if dashed else "o", "color": f"C{number}"}
            axes.plot(*zip(*points, strict=True), label=label, **style)
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
