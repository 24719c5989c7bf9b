"""The committed ledger of counts: which seeds were run with which code, and what came of them.

Bars that take hours are reached in pieces, on several machines and days. A line of the ledger tells of one batch of
consecutive seeds. Lines stand alone, so that a merge of two ledgers is both their lines. What counts is what ran the present
protocol code (`versions`: the sources that a simulated run imports, comments apart). A seed that was run again with the same
code and the same simulator is the same run, and counts once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
from attrs import define, field, frozen

from replog.testing.simulator.corpus import Found
from replog.testing.simulator.marks import EXPECTED
from replog.testing.simulator.running import Outcome
from replog.testing.simulator.versions import code_version, simulator_version, version_of

__all__ = ["Batch", "append", "code_version", "counted", "fold", "next_seed", "read", "simulator_version", "totals", "version_of"]

HITS_WANTED: Final = 100
"""R09: how often each mark shall be hit."""
_POWER: Final = ("power-all", "power-some")
"""Series for R15."""
_COUNTS: Final = ("count", "events", "faults", "virtual_ms", "cpu_ms", "acknowledged")
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    int: ("first", *_COUNTS),
    str: ("code", "simulator", "direction"),
    dict: ("violated", "marks"),
}


_BEGINNING: Final = b'{"code":'
"""Of every line."""


@define
class Batch:
    """What came of `count` consecutive seeds from `first` on."""

    code: str
    simulator: str
    first: int
    count: int = 0
    events: int = 0
    faults: int = 0
    virtual_ms: int = 0
    cpu_ms: int = 0
    """Time of one processor; the only figure here that depends on the machine."""
    acknowledged: int = 0
    violated: dict[str, str] = field(factory=dict)
    """Seed -> invariant."""
    marks: dict[str, int] = field(factory=dict)
    direction: str = ""
    """The series that the seeds are drawn for (`directions`)."""

    @property
    def series(self) -> tuple[str, str, str]:
        """Seeds of one series are the same run whenever they are run."""
        return self.code, self.simulator, self.direction

    @property
    def end(self) -> int:
        """The seed after the last one."""
        return self.first + self.count

    def take(self, outcome: Outcome) -> None:
        """Count the run of the next seed."""
        self.count += 1
        self.events += outcome.events
        self.faults += sum(outcome.befallen.values())
        self.virtual_ms += outcome.time_ms
        self.acknowledged += outcome.acknowledged
        if outcome.violation is not None:
            self.violated[str(outcome.plan.seed)] = outcome.violation.invariant
        self._mark(outcome.marks)

    def join(self, other: Batch) -> None:
        """Take in another batch."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.violated.update(other.violated)
        self._mark(other.marks)

    def _mark(self, marks: dict[str, int]) -> None:
        self.marks = dict(sorted((Counter(self.marks) + Counter(marks)).items()))


# ------------------------------------------------------------------------------------------------------------- the file


def read(file: Path) -> list[Batch]:
    """All batches of a ledger; none if there is no file. Raises ValueError with the number of a line that is none of its own."""
    batches = []
    for number, line in enumerate(_lines(file), 1):
        try:
            batch = Batch(**json.loads(line))
            _check_types(batch)
        except (TypeError, ValueError, RecursionError) as problem:
            raise ValueError(f"{file}, line {number}: {problem}") from problem
        batches.append(batch)
    return batches


def _lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    try:
        return _whole(file.read_bytes()).decode().splitlines()
    except UnicodeDecodeError as problem:
        raise ValueError(f"{file} is no ledger: {problem}") from problem


def _whole(text: bytes) -> bytes:
    """Without what a full disk, or the end of its writer, has left of a last line."""
    end = text.rfind(b"\n") + 1
    begun = text[end:]
    if not begun or not (begun.startswith(_BEGINNING) or _BEGINNING.startswith(begun)):
        return text  # not ours to judge
    try:
        json.loads(begun)
    except ValueError:
        return text[:end]
    return text + b"\n"


def _check_types(batch: Batch) -> None:
    """Raise TypeError for a value that is not of its type, and ValueError for a count below 0."""
    fields = attrs.asdict(batch, recurse=False)
    for kind, names in _FIELDS.items():
        for name in names:
            _check_type(name, fields[name], kind)
    for kind, counts in ((int, batch.marks), (str, batch.violated)):
        for name, value in counts.items():
            _check_type(name, value, kind)


def _check_type(name: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        raise TypeError(f"{name} is {value!r}, not of type {kind.__name__}")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} is {value}, and must be 0 or more")


def append(file: Path, batch: Batch) -> None:
    """Add one line, if there is anything to tell; a last line that was not written to its end goes. Raises FileNotFoundError if the folder
    does not exist."""
    if not batch.count:
        return
    with file.open("ab+") as stream:
        stream.seek(0)
        written = stream.read()
        whole = _whole(written)
        if len(whole) < len(written):
            stream.truncate(len(whole))
        stream.write(whole[len(written) :] + _line(batch).encode())


def fold(file: Path) -> int:
    """Join lines of one code and one simulator whose seeds follow each other; how many lines remain.

    Lines that do not count (see `counted`) are dropped: joined to one that does, they would take it with them.
    """
    joined: list[Batch] = []
    for batch in counted(read(file)):
        last = joined[-1] if joined else None
        if last is not None and (*last.series, last.end) == (*batch.series, batch.first):
            last.join(batch)
        else:
            joined.append(batch)
    spare = file.with_name(f"{file.name}.new")
    spare.write_text("".join(_line(batch) for batch in joined), encoding="utf-8")
    spare.replace(file)
    return len(joined)


def next_seed(batches: Sequence[Batch]) -> int:
    """The first seed after all that were run with any code."""
    return max((batch.end for batch in batches), default=1)


def _line(batch: Batch) -> str:
    return json.dumps(attrs.asdict(batch), separators=(",", ":")) + "\n"


# ------------------------------------------------------------------------------------------------------------- the sums


@frozen
class _Bar:
    """One line of the summary: what is counted, and what is wanted of it."""

    rule: str
    what: str
    found: float
    wanted: float
    at_most: bool = False

    def __str__(self) -> str:
        reached = self.found <= self.wanted if self.at_most else self.found >= self.wanted
        found = f"{self.found:,.0f}" if self.found >= 100 or self.found == int(self.found) else f"{self.found:,.1f}"
        wanted = f"{'<=' if self.at_most else '>='} {self.wanted:,.0f}"
        return f"{self.rule}  {self.what:<26} {found:>16}   {wanted:>14}   {'reached' if reached else 'not yet'}"


def counted(batches: Iterable[Batch]) -> list[Batch]:
    """Those batches that count: not those of which a seed was run before with the same code and simulator.

    What such a batch violated counts all the same: with the batch before it, of its series, which counts.
    """
    kept: list[Batch] = []
    for batch in sorted(batches, key=lambda one: (*one.series, one.first, -one.count)):
        last = kept[-1] if kept else None
        if last is None or last.series != batch.series or last.end <= batch.first:
            kept.append(batch)
        elif batch.violated:
            kept[-1] = attrs.evolve(last, violated=_all_of(last.violated, batch.violated))
    return kept


def _all_of(violated: Mapping[str, str], further: Mapping[str, str]) -> dict[str, str]:
    """Of two batches. A seed that violates one thing and then another does not give the same run twice: neither hides the other."""
    names = {seed: sorted({*violated.get(seed, name).split(" and "), *name.split(" and ")}) for seed, name in further.items()}
    return {**violated, **{seed: " and ".join(each) for seed, each in names.items()}}


def totals(batches: Sequence[Batch], code: str, *, wrong_checks: Collection[Found] = ()) -> list[str]:
    """The summary, in lines: the bars for one version of the protocol code, its marks, and how much belongs to which version.

    `wrong_checks`: what turned out to be a mistake of the simulator that found it. It is told, and not counted.
    """
    kept = counted(batches)
    counting = [batch for batch in kept if batch.code == code]
    mine = _sum(counting)
    found = {(int(seed), one.direction, invariant, one.simulator) for one in counting for seed, invariant in one.violated.items()}
    violated = {one[:3] for one in found if one not in wrong_checks}
    wrong = sorted(found.intersection(wrong_checks))
    hours, cpu_s = mine.virtual_ms / 3_600_000, max(mine.cpu_ms, 1) / 1_000
    marks = dict.fromkeys(EXPECTED, 0) | mine.marks
    rare = [name for name, hits in marks.items() if hits < HITS_WANTED]
    bars = [
        _Bar("R01", "schedules", mine.count, 30_000),
        _Bar("R01", "faults", mine.faults, 1_000_000),
        _Bar("R01", "virtual hours", hours, 500),
        _Bar("R01", "violations", len(violated), 0, at_most=True),
        _Bar("R02", "events per CPU second", mine.events / cpu_s, 30_000),
        _Bar("R02", "x real time", mine.virtual_ms / 1_000 / cpu_s, 100),
        *(_Bar("R15", f"schedules {name}", _sum(one for one in counting if one.direction == name).count, 5_000) for name in _POWER),
        _Bar("R27", "hours of long runs", _sum(one for one in counting if one.direction == "long").virtual_ms / 3_600_000, 1_000),
        _Bar("R09", f"marks with {HITS_WANTED} hits", len(marks) - len(rare), 40),
        _Bar("R09", "marks with fewer hits", len(rare), 0, at_most=True),
    ]
    lines = [f"protocol code {code}", *map(str, bars)]
    lines += [f"violated: {_seed(seed, direction)}: {invariant}" for seed, direction, invariant in sorted(violated)]
    lines += [f"a wrong check of simulator {by}: {_seed(seed, direction)}: {invariant}" for seed, direction, invariant, by in wrong]
    lines += ["marks:", *(f"  {hits:>12,} {name}{'   rare' if name in rare else ''}" for name, hits in sorted(marks.items()))]
    lines.append("by code and simulator:")
    for versions in sorted({(batch.code, batch.simulator) for batch in kept}, key=lambda one: (one[0] != code, one)):
        part = _sum([batch for batch in kept if (batch.code, batch.simulator) == versions])
        told = f"{part.count:,} schedules, {part.faults:,} faults, {part.virtual_ms / 3_600_000:,.1f} virtual hours"
        other = "" if versions[0] == code else " (other code)"
        lines.append(f"  {versions[0]} {versions[1]}: {told}, {len(part.violated)} violations{other}")
    if len(kept) < len(batches):
        lines.append(f"{len(batches) - len(kept)} batches are not counted: their seeds were run before with the same code and simulator")
    return lines


def _seed(seed: int, direction: str) -> str:
    return f"seed {seed} of {direction}" if direction else f"seed {seed}"


def _sum(batches: Iterable[Batch]) -> Batch:
    total = Batch("", "", 0)
    for batch in batches:
        total.join(batch)
    return total
