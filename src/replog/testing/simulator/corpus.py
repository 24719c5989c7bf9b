"""Failures as files: a plan that once broke an invariant, in JSON that a person can read and edit.

A corpus is a folder of such files. Each is replayed for ever: what was repaired once must not come back. A plan keeps the
seed that it was drawn from, because the seed also decides what the plan does not say: delays, losses, who is chosen.
"""

from __future__ import annotations

import json
import shlex
import types
import typing
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from replog.testing.simulator.plan import Plan

__all__ = ["Failure", "Found", "add", "from_json", "load", "replay_command", "to_json", "write", "wrong_checks"]


Found = tuple[int, str, str, str]
"""What a ledger tells of a finding: seed, direction, invariant, simulator."""


@frozen
class Failure:
    """A plan, and what it broke."""

    plan: Plan
    invariant: str = ""
    """The name of the invariant that spoke first; empty if nobody has said so yet."""
    story: str = ""
    """What was wrong, in one sentence."""
    wrong_check: str = ""
    """If it was a check of the simulator, and not the code that it checks: the version of that simulator, as a ledger has it."""
    direction: str = ""
    """The series (`directions`) whose seed the plan was drawn for."""

    @property
    def found(self) -> Found:
        """As a ledger tells of it."""
        return self.plan.seed, self.direction, self.invariant, self.wrong_check


def to_json(failure: Failure) -> str:
    """The text of a file: one line per fault, every field written out, so that a later default changes nothing."""
    plan = failure.plan
    faults = ",\n".join(f"   {json.dumps(attrs.asdict(fault))}" for fault in plan.faults)
    lines = [
        "{",
        f' "story": {json.dumps(failure.story)},',
        f' "invariant": {json.dumps(failure.invariant)},',
        *(f' "{name}": {json.dumps(value)},' for name in ("wrong_check", "direction") if (value := getattr(failure, name))),
        ' "plan": {',
        f'  "seed": {plan.seed},',
        f'  "shape": {json.dumps(attrs.asdict(plan.shape))},',
        f'  "safety_ms": {plan.safety_ms},',
        *(f'  "{name}": {json.dumps(_plain(getattr(plan, name)))},' for name in _further_fields()),
        f'  "faults": [\n{faults}\n  ]' if faults else '  "faults": []',
        " }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def from_json(text: str) -> Failure:
    """Read a file's text: a failure, or a bare plan.

    A field that is missing has its default. Raises ValueError, which names the field, if a field is unknown, has no default
    and is missing, or holds a value of another type; and if it is no JSON.
    """
    try:
        data = json.loads(text)
    except RecursionError as problem:
        raise ValueError("values are nested too deeply") from problem
    if isinstance(data, dict) and "plan" not in data and "faults" in data:
        data = {"plan": data}
    failure = _read(data, Failure, "the failure")
    assert isinstance(failure, Failure)
    return failure


def load(file: Path) -> Failure:
    """Read a file. Raises ValueError with the name of the file if it cannot be understood, OSError if it cannot be read."""
    try:
        return from_json(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from problem


def write(failure: Failure, folder: Path, *, seed: int) -> Path:
    """Write `failure-SEED.json` into a folder, over an earlier one; the path of the file. `seed` is the one that was run first."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"failure-{seed}.json"
    file.write_text(to_json(failure), encoding="utf-8")
    return file


def add(failure: Failure, folder: Path) -> Path:
    """Keep a failure in a corpus; the path of its file, which is the old one if the same plan is there already, with what it says of whose
    mistake that was.

    Raises ValueError if it has no story or no invariant, and FileNotFoundError if there is no such folder.
    """
    if not failure.story or not failure.invariant:
        raise ValueError("a failure that is kept says what was wrong (its story) and which invariant it broke")
    if not folder.is_dir():
        raise FileNotFoundError(f"no corpus at {folder}")
    name = f"{failure.invariant}-{failure.plan.seed}".replace(" ", "-").replace("/", "-")
    file, number = folder / f"{name}.json", 1
    while file.exists() and load(file).plan != failure.plan:
        number += 1
        file = folder / f"{name}-{number}.json"
    if file.exists():
        known = load(file)
        wrong_check, direction = failure.wrong_check or known.wrong_check, failure.direction or known.direction
        failure = attrs.evolve(failure, wrong_check=wrong_check, direction=direction)
    file.write_text(to_json(failure), encoding="utf-8")
    return file


def wrong_checks(folder: Path) -> frozenset[Found]:
    """What simulators have found that was their own mistake (`Failure.found`), as a corpus says; none if there is no such folder. Raises as
    `load`."""
    failures = [load(file) for file in folder.glob("*.json")]
    return frozenset(one.found for one in failures if one.wrong_check)


def replay_command(file: Path | str) -> str:
    """The command that runs the plan in a file, for a shell."""
    return f"python -m replog.testing.simulator --plan {shlex.quote(str(file))}"


def _further_fields() -> list[str]:
    """Fields of a plan that have no line of their own in `to_json`."""
    return [field.name for field in attrs.fields(Plan) if field.name not in ("seed", "shape", "faults", "safety_ms")]


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        return attrs.asdict(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _read(value: Any, kind: Any, where: str) -> Any:
    """A value of JSON as what a field of type `kind` holds."""
    if isinstance(kind, type) and attrs.has(kind):
        return _read_fields(value, kind, where)
    origin = typing.get_origin(kind)
    if origin is tuple and isinstance(value, list):
        inner = typing.get_args(kind)[0]
        return tuple(_read(one, inner, f"{where}, number {number}") for number, one in enumerate(value, 1))
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(value, typing.get_args(kind)[0], where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where} is {value!r}, not of type {getattr(kind, '__name__', kind)}")
    return value


def _read_fields(value: Any, kind: type[Any], where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r}, not an object with fields")
    fields = {field.name: field for field in attrs.fields(kind)}
    types_of = typing.get_type_hints(kind)
    unknown = [name for name in value if name not in fields]
    if unknown:
        raise ValueError(f"{where} has an unknown field {unknown[0]!r}; it has {', '.join(fields)}")
    missing = [name for name, field in fields.items() if name not in value and field.default is attrs.NOTHING]
    if missing:
        raise ValueError(f"{where} lacks the field {missing[0]!r}")
    return kind(**{name: _read(given, types_of[name], f"{name} of {where}") for name, given in value.items()})
