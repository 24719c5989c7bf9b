"""Plans of where partitions are to be: as they are read, made and kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from replog.cli.context import Context
from replog.client.reassigning import checked_wishes
from replog.client.view import View
from replog.errors import UsageError

__all__ = ["Places", "keep", "moves_in", "plan_of", "read_plan", "tell_away"]

Places = dict[tuple[str, int], Any]
"""(topic, partition) -> the ids of its brokers, as a plan says them."""

_VERSION: Final = 1
_SHAPE: Final = '{"partitions": [{"topic": NAME, "partition": N, "replicas": [IDS]}, ...]}'


def plan_of(places: Mapping[tuple[str, int], Sequence[int]]) -> dict[str, Any]:
    """The plan that says this, as plain values."""
    partitions = [{"topic": name, "partition": n, "replicas": list(replicas)} for (name, n), replicas in sorted(places.items())]
    return {"version": _VERSION, "partitions": partitions}


def read_plan(context: Context, name: str) -> Places:
    """The plan in a file, or on stdin for `-`. Raises UsageError, which says what is wrong with it."""
    try:
        if name == "-":
            text = context.stdin.read()
        else:
            with open(name, "rb") as file:
                text = file.read()
    except OSError as problem:
        raise UsageError(f"the plan {name} cannot be read: {problem.strerror}") from problem
    try:
        plan = json.loads(text)
        places: Places = {}
        for place, replicas in _places(plan):
            if place in places:
                raise UsageError(f"{name} names {place[0]}-{place[1]} twice")
            places[place] = replicas
        version = plan.get("version", _VERSION)
    except RecursionError:
        raise UsageError(f"{name} is no plan: it must be {_SHAPE}, and is nested too deeply to be read") from None
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(f"{name} is no plan: it must be {_SHAPE} ({type(problem).__name__}: {problem})") from problem
    if isinstance(version, bool) or version != _VERSION:
        raise UsageError(f"{name} is a plan of version {json.dumps(version)}; this replog knows version {_VERSION}")
    if places:
        try:
            checked_wishes(places)
        except UsageError as problem:
            raise UsageError(f"{name} cannot be a plan: {problem}") from problem
    return places


def _places(plan: Any) -> Iterator[tuple[tuple[str, int], Any]]:
    for one in plan["partitions"]:
        yield (one["topic"], one["partition"]), one["replicas"]


def moves_in(name: str, places: Places) -> Places:
    """The plan, if it may be carried out: where nothing is said of a partition's replicas, nothing can be done."""
    for (topic, number), replicas in places.items():
        if replicas is None:
            text = f"{name} has null for the replicas of {topic}-{number}: a plan that is carried out says where each partition is to be"
            raise UsageError(f"{text}; replog reassign cancel takes moves back")
    return places


def tell_away(context: Context, view: View, places: Places) -> None:
    """Name the brokers of a plan that are not there now: the controller knows who was let in before, and the moves to those wait."""
    away = sorted({broker for replicas in places.values() for broker in replicas} - view.brokers.keys())
    if away:
        named = ", ".join(map(str, away))
        one = f"broker {named} is not there: if it was let in before, what moves there waits until it is started"
        several = f"brokers {named} are not there: what moves to those that were let in before waits until they are started"
        context.output.note(one if len(away) == 1 else several)


def keep(plan: Mapping[str, Any], path: str) -> None:
    """Write a plan to a new file, for good. One that holds just this stays as it is; over anything else nothing is written.

    Raises UsageError.
    """
    data = json.dumps(plan).encode() + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        if _holds(path, data):
            return
        raise UsageError(f"{path} is there already, and holds something else; nothing was asked for") from None
    except OSError as problem:
        raise _unkept(path, problem) from problem
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
    except BaseException as problem:  # half of a plan is none, and would be in the way of the next attempt
        with suppress(OSError):
            os.unlink(path)
        if isinstance(problem, OSError):
            raise _unkept(path, problem) from problem
        raise


def _holds(path: str, data: bytes) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError as problem:
        raise _unkept(path, problem) from problem


def _unkept(path: str, problem: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written: {problem.strerror}; nothing was asked for")
