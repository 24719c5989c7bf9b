"""What the benchmarks left behind, as one page: a table per subject, with what was measured, what it should reach, and how to repeat it.

Pure: documents in, text out. A subject is a file of benchmarks; its title is the first line of that file.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from benchmarks.targets import Target

__all__ = ["Figure", "Missing", "Subject", "figures_of", "missing_of", "render"]


@attrs.frozen(slots=True)
class Figure:
    """One number of one benchmark."""

    benchmark: str
    """Its node id, such as `benchmarks/test_log.py::test_append[16KiB]`."""
    table: str
    """What was compared with what."""
    name: str
    value: float
    target: Target | None = None

    @property
    def verdict(self) -> str:
        """Whether the target was reached; empty without one."""
        if self.target is None:
            return ""
        return "yes" if self.target.reached(self.value) else "**no**"


@attrs.frozen(slots=True)
class Missing:
    """A benchmark that brought nothing, and why."""

    benchmark: str
    reason: str


@attrs.frozen(slots=True)
class Subject:
    """One file of benchmarks."""

    path: str
    title: str
    seconds: float
    figures: Sequence[Figure] = ()
    missing: Sequence[Missing] = ()


def figures_of(benchmarks: Iterable[Mapping[str, Any]]) -> list[Figure]:
    """The figures in the `benchmarks` of a document that pytest-benchmark wrote."""
    found = []
    for one in benchmarks:
        for table in one["extra_info"].get("tables", ()):
            targets = {target["figure"]: Target(**target) for target in table["targets"]}
            for name, value in table["figures"].items():
                found.append(Figure(one["fullname"], table["name"], name, value, targets.get(name)))
    return found


def missing_of(cases: Iterable[Mapping[str, str]]) -> list[Missing]:
    """What was skipped or failed, of (`benchmark`, `outcome`, `reason`); a reason is cut to its first line."""
    bad = [(case, case["reason"].strip().splitlines() or ["no reason"]) for case in cases if case["outcome"] != "passed"]
    return [Missing(case["benchmark"], f"{case['outcome']}: {reason[0]}") for case, reason in bad]


def command(benchmark: str) -> str:
    """How one benchmark is measured alone."""
    return f"python -m pytest {shlex.quote(benchmark)} --benchmark-enable -s"


def shown(value: float) -> str:
    """Three digits that count, and no exponents where people read."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 6 else f"{value:.2e}"


def cell(text: str) -> str:
    """Text that does not end a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def summary(subjects: Sequence[Subject]) -> list[str]:
    """How many targets were reached, and a table of those that were not."""
    aimed = [figure for subject in subjects for figure in subject.figures if figure.target is not None]
    missed = [figure for figure in aimed if figure.target is not None and not figure.target.reached(figure.value)]
    lines = [f"{len(aimed) - len(missed)} of {len(aimed)} targets are reached."]
    if missed:
        lines += ["", "| missed | figure | value | target |", "|---|---|---|---|"]
        lines += [f"| {cell(one.table)} | {one.name} | {shown(one.value)} | {one.target} |" for one in missed]
    return lines


def table(subject: Subject) -> list[str]:
    """The section of one subject."""
    lines = [f"## {subject.title.rstrip('.')}", "", f"`{subject.path}`, {subject.seconds:.0f} s.", ""]
    if subject.figures:
        lines += ["| measured | figure | value | target | reached |", "|---|---|---|---|---|"]
        before = ""
        for one in subject.figures:
            name = "" if one.table == before else cell(one.table)
            before = one.table
            lines.append(f"| {name} | {one.name} | {shown(one.value)} | {one.target or ''} | {one.verdict} |")
        alone = dict.fromkeys(figure.benchmark for figure in subject.figures)
        lines += ["", "Alone:", "", "```sh", *(command(benchmark) for benchmark in alone), "```", ""]
    if subject.missing:
        lines += ["Not measured:", "", *(f"- `{one.benchmark}`: {one.reason}" for one in subject.missing), ""]
    return lines


def render(facts: Mapping[str, str], plots: Sequence[tuple[str, str]], subjects: Sequence[Subject]) -> str:
    """The page: facts about the run, how many targets were reached, plots as (title, file), and a section per subject."""
    lines = ["# Benchmarks", "", "Ratios compare what took turns in this run; other figures are those of this machine and its load.", ""]
    lines += ["| | |", "|---|---|", *(f"| {cell(name)} | {cell(value)} |" for name, value in facts.items()), ""]
    lines += [*summary(subjects), ""]
    for title, file in plots:
        lines += [f"![{title}]({file})", ""]
    for subject in subjects:
        lines += table(subject)
    return "\n".join(lines)
