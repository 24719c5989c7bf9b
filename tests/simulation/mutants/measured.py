"""What was measured, kept beside the stored plans: by what each mutant is caught, and after how many schedules of random search.

The file is written by `python -m tests.simulation.mutants --starts 3 --cap 5000 --write tests/simulation/mutants/measured.json`, which
takes hours; a row is there as soon as its mutant was measured, and a later measurement of some mutants leaves the rows of the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.measure import Measured

from replog.testing.simulator.versions import code_version, simulator_version

__all__ = ["MEASURED", "read_measured", "write_measured", "wrong_with"]

MEASURED = Path(__file__).parent / "measured.json"
SCHEDULES_MAX = 5_000
"""No search takes more."""
MEDIAN_MAX = 200
"""Of the searches for one of the `COMMON` bugs."""
COMMON = tuple(f"M{n:02}" for n in range(1, 14) if n not in (5, 8, 9))
SEARCHES_MIN = 3

Row = dict[str, Any]


def read_measured(path: Path) -> dict[str, Row]:
    """Rows by the number of the mutant. Raises OSError if the file cannot be read, ValueError if it is no measurement."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rows, dict) or not all(isinstance(one, dict) for one in rows.values()):
        raise ValueError(f"{path} does not hold rows by the number of a mutant")
    return rows


def write_measured(path: Path, rows: Iterable[tuple[Measured, list[str]]]) -> None:
    """Put rows, as `measure.row` gives them, into a file: over earlier ones of the same mutants, the others stay.

    Rows of mutants that are no more go. Raises OSError; ValueError if the file is there and is no measurement.
    """
    kept = read_measured(path) if path.exists() else {}
    kept.update({measured.mutant.number: _row(measured, evidence) for measured, evidence in rows})
    lines = [f'"{one.number}": {json.dumps(kept[one.number])}' for one in MUTANTS if one.number in kept]
    whole = path.with_name(f"{path.name}.new")
    whole.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(whole, path)  # hours of work are never half written


def _row(measured: Measured, evidence: list[str]) -> Row:
    mutant = measured.mutant
    searched: Row = {"schedules": list(measured.schedules), "cap": measured.cap} if mutant.invariants else {}
    versions = {"code": code_version(), "simulator": simulator_version()}
    return {"name": mutant.name, "engine": next(iter(mutant.engines), None), **searched, "also": evidence, **versions}


def wrong_with(rows: Mapping[str, Row]) -> list[str]:
    """What a measurement of the whole catalogue lacks, and what is beyond the limits. Rows of none but the searched are needed."""
    return [f"{mutant.number} {why}" for mutant in MUTANTS if mutant.invariants for why in _wrong(mutant.number, rows)]


def _wrong(number: str, rows: Mapping[str, Row]) -> Iterator[str]:
    row = rows.get(number)
    if row is None:
        yield "was not measured"
        return
    taken = [float("inf") if one is None else one for one in row["schedules"]]
    if len(taken) < SEARCHES_MIN:
        yield f"was searched for {len(taken)} times, not {SEARCHES_MIN}"
    if max(taken, default=0) == float("inf"):
        yield f"was not caught in {row['cap']} schedules"
    elif max(taken, default=0) > SCHEDULES_MAX:
        yield f"took {max(taken)} schedules, more than {SCHEDULES_MAX}"
    if taken and number in COMMON and median(taken) > MEDIAN_MAX:
        yield f"took {median(taken):g} schedules in the median, more than {MEDIAN_MAX}"
