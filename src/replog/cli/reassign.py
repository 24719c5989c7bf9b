"""`replog reassign generate|execute|status|cancel`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.moving import NOTHING, bar, missing, watch
from replog.cli.output import shown_cell
from replog.cli.overview import COLUMNS
from replog.cli.plans import Places, keep, moves_in, plan_of, read_plan, tell_away
from replog.cli.spoken import nearest
from replog.client.balancing import balanced
from replog.client.client import Client
from replog.client.reassigning import Judged, Reassignment
from replog.errors import ReplogError, UsageError, error_name

__all__ = ["cancel", "execute", "generate", "status"]

_BAR: Final = 8
"""So that a row fits on a line of 80."""
_LEAST: Final = ("offsets", "removing", "adding")
"""The columns that a row can do without, the least important first."""


def generate(context: Context) -> int:
    """A plan that balances topics over brokers, with the least movement; `execute` takes it."""
    asked = context.arguments
    with context.client() as client:
        goals = _goals(context, client)
        view, known = client._view(context.timeout_s), client.describe_cluster(timeout_s=context.timeout_s)
        racks = {one.broker_id: one.rack for one in known.brokers}
    brokers = sorted(set(asked.brokers or [b.broker_id for b in known.brokers if b.state == "serving"]))
    _check("broker", brokers, racks)
    _check("topic", asked.topic or (), view.topics)
    names = set(asked.topic or view.topics)
    current = {place: goals[place] for place in sorted(goals) if place[0] in names}
    placed = balanced(current, {broker: racks[broker] for broker in brokers})
    changed = {place: replicas for place, replicas in placed.items() if replicas != tuple(current[place])}
    context.output.json(plan_of(changed))
    copies = sum(len(set(replicas) - set(current[place])) for place, replicas in changed.items())
    context.output.note(f"{len(changed)} of {len(current)} partitions change; {copies} replicas would be copied")
    return OK


def _goals(context: Context, client: Client) -> dict[tuple[str, int], tuple[int, ...]]:
    """Where every partition is, or where it is going."""
    ways = {(one.topic, one.partition): _goal(one) for one in client.reassignments(timeout_s=context.timeout_s)}
    topics = client._view(context.timeout_s).topics
    return {(name, n): ways.get((name, n), p.replicas) for name, topic in topics.items() for n, p in topic.partitions.items()}


def _goal(one: Reassignment) -> tuple[int, ...]:
    """Where a partition will be that is queued to move, or moving: on the way it has more replicas than it is to have."""
    return (one.original or one.replicas) if one.target is None else one.target


def _check(what: str, named: Iterable[Any], known: Mapping[Any, Any]) -> None:
    for one in named:
        if one not in known:
            names = list(map(str, sorted(known)))
            hint = nearest(one, names) if isinstance(one, str) else ""
            raise UsageError(f"unknown {what} {one!r}; known are {', '.join(names) or 'none'}{hint}")


def execute(context: Context) -> int:
    """Wish what a plan says. The plan that leads back is kept first, if one is asked for."""
    asked, output = context.arguments, context.output
    targets = moves_in(asked.plan, read_plan(context, asked.plan))
    if asked.dry_run:
        return _rehearse(context, targets)
    with context.client() as client:
        goals = {} if asked.undo is None and not output.is_json else _goals(context, client)
        before = plan_of({place: goals[place] for place in targets if place in goals})
        if asked.undo is not None:
            keep(before, asked.undo)
        judged = _wish(context, client, targets) if targets else Judged(0)
        if output.is_json:
            output.json({"accepted": judged.accepted, "refused": _refused(judged), "before": before})
        if asked.watch and not judged.refused:
            watch(context, client)
            return OK
        if output.is_json:
            context.is_told = True
        elif judged.accepted or not judged.refused:
            look = f"; see {context.typed('reassign', 'status')}" if judged.accepted else ""
            output.line(f"{_partitions(judged.accepted)} accepted{look}")
        judged.check()
    return OK


def _wish(context: Context, client: Client, targets: Places) -> Judged:
    """Ask for these moves, and name the brokers that those which are accepted wait for; these are looked up first."""
    view = client._view(context.timeout_s)
    judged = client._wish_moves(targets, context.timeout_s)
    if judged.accepted:
        tell_away(context, view, targets)
    return judged


def _rehearse(context: Context, targets: Places) -> int:
    from replog.cli.rehearsal import rehearse

    if context.arguments.watch or context.arguments.undo is not None:
        raise UsageError("--dry-run asks for nothing and writes nothing: neither --watch nor --undo goes with it")
    with context.client() as client:
        ways = {(one.topic, one.partition): one for one in client.reassignments(timeout_s=context.timeout_s)}
        return rehearse(context, client._view(context.timeout_s), ways, targets)


def _refused(judged: Judged) -> list[dict[str, Any]]:
    """What is refused, as plain values."""
    return [{"topic": one.topic, "partition": one.partition, "error": error_name(one.code), "why": one.text} for one in judged.refused]


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def cancel(context: Context) -> int:
    """Take wishes back: those of a plan, or all of them."""
    asked = context.arguments
    if (asked.plan is None) != asked.all:
        raise UsageError("name a plan, or give --all")
    with context.client() as client:
        if asked.all:
            places = {(one.topic, one.partition) for one in client.reassignments(timeout_s=context.timeout_s)}
        else:
            places = set(read_plan(context, asked.plan))
        judged = client._wish_moves(dict.fromkeys(sorted(places)), context.timeout_s) if places else Judged(0)
        returning = _returning(context, client, places - {(one.topic, one.partition) for one in judged.refused})
        if context.output.is_json:
            context.output.json({"cancelled": judged.accepted, "returning": returning, "refused": _refused(judged)})
            context.is_told = True
        elif judged.accepted or not judged.refused:
            verb = "goes" if returning == 1 else "go"
            wait = f": {returning} {verb} back when enough of their old replicas are in sync" if returning else ""
            wait = "; nobody could be asked whether some of them have to wait" if returning is None else wait
            context.output.line(f"{_partitions(judged.accepted)} cancelled{wait}")
        judged.check(granted="cancelled")
    return OK


def _returning(context: Context, client: Client, places: set[tuple[str, int]]) -> int | None:
    """How many of these have to wait before they are where they were; None if that cannot be asked: they are cancelled all the same."""
    try:
        left = client.reassignments(timeout_s=context.timeout_s) if places else []
    except ReplogError:
        return None
    return sum(one.returning and (one.topic, one.partition) in places for one in left)


def status(context: Context) -> int:
    """What is queued and under way, and how far the joining replicas are."""
    with context.client() as client:
        if context.arguments.watch is not None:
            watch(context, client, context.arguments.watch)
            return OK
        _show(context, client.reassignments(timeout_s=context.timeout_s))
    return OK


def _show(context: Context, found: list[Reassignment]) -> None:
    if context.output.is_json:
        context.output.json([one.to_dict() for one in found])
        return
    if not found:
        context.output.line(NOTHING)
        return
    head = ("partition", "status", "target", "adding", "removing", "progress", "offsets", "bytes")
    rows = [(f"{one.topic}-{one.partition}", _status(one), _goal(one), one.adding, one.removing, *_progress(context, one)) for one in found]
    moving = sum(one.status == "moving" for one in found)
    returning = sum(one.returning for one in found)
    back = f" ({returning} of them back)" if returning else ""
    context.output.table(*_narrowed(context, head, rows), f"{moving} moving{back}, {len(found) - moving} queued")


def _narrowed(context: Context, head: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """A table without those of its columns that do not fit on a line, the least important first."""
    output, columns = context.output, dict(zip(head, zip(*rows, strict=True), strict=True))
    room, frame = (output.width, 3) if output.pretty else (COLUMNS + 1, 2)  # behind the last column there is no gap
    for name in _LEAST:
        if sum(max(map(len, (key, *map(shown_cell, cells)))) + frame for key, cells in columns.items()) <= room:
            break
        del columns[name]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _status(one: Reassignment) -> str:
    return "moving back" if one.returning else one.status


def _progress(context: Context, one: Reassignment) -> tuple[str, int | None, str | None]:
    """A bar, and how many offsets and bytes are missing; nothing where no leader says it."""
    lacks = missing(one)
    if lacks is None:
        return "-", None, None
    share, offsets, size = lacks
    return bar(share, _BAR), offsets, context.output.units.size(size)
