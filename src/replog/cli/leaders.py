"""`replog elect`, `replog topic explain`, `replog broker drain`: who leads, why, and how to move it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from replog.cli.context import Context
from replog.cli.exits import BAD, OK, REFUSED
from replog.cli.output import Output
from replog.cli.side_by_side import explained
from replog.client.client import Client
from replog.client.explaining import Explanation
from replog.client.vacancies import Vacancy
from replog.client.view import View
from replog.errors import Code, UnknownTopicOrPartition, UsageError
from replog.metrics.troubles import WRONG, troubles
from replog.status.acting import MAY_HIDE, look

__all__ = ["drain", "elect", "explain"]

_LED: Final = "every partition has a leader"
_EXPLAINED_MAX: Final = 20
_MOVING: Final = "moving"
_ORDER: Final = (*WRONG, _MOVING)
"""The worst first."""


def elect(context: Context) -> int:
    """Elect preferred leaders, or --to; with --unclean any live replica where nobody leads. Refused if one of those named was not."""
    asked, output = context.arguments, context.output
    _check(context)
    with context.client() as client:
        named = None if asked.all else [place for word in asked.partitions for place in _named(context, client, word)]
        if asked.unclean and (asked.dry_run or not asked.yes):
            vacant = client._vacancies(named, context.timeout_s)
            if asked.dry_run:
                return _show(output, vacant)
            _ask(context, vacant)
        found = client.elect_leaders(named, to=asked.to, unclean=asked.unclean, timeout_s=context.timeout_s)
    rows = []
    failed = 0
    for (topic, partition), problem in found.items():
        not_needed = problem is not None and problem.code == Code.ELECTION_NOT_NEEDED
        failed += problem is not None and not not_needed
        result = "elected" if problem is None else "not needed" if not_needed else "not elected"
        rows.append((topic, partition, result, "" if problem is None else str(problem)))
    head = ("topic", "partition", "result", "why")
    if output.is_json:
        output.json([dict(zip(head, row, strict=True)) for row in rows])
    elif rows:
        output.table(head, rows)
    else:
        output.note(_LED if asked.unclean else "every partition is led by its preferred leader")
    return REFUSED if failed else OK


def _check(context: Context) -> None:
    """Raise UsageError for what does not go together, and for what nobody has said yes to."""
    asked = context.arguments
    if bool(asked.partitions) == asked.all:
        raise UsageError("name the partitions (TOPIC, or TOPIC:NUMBER), or give --all")
    if asked.preferred and (asked.to is not None or asked.unclean):
        raise UsageError("--preferred elects preferred leaders: neither --to nor --unclean goes with it")
    if asked.to is not None and (asked.all or asked.unclean):
        raise UsageError("--to names who is to lead: neither --all nor --unclean goes with it")
    if asked.dry_run and not asked.unclean:
        raise UsageError("--dry-run shows who could be elected at the price of records: it goes with --unclean")
    if asked.unclean:
        context.check_asked("an unclean election may lose records for good", "shows who could lead, and how far each reaches")


def _show(output: Output, vacant: list[Vacancy]) -> int:
    if output.is_json:
        output.json([one.to_dict() for one in vacant])
        return OK
    for one in vacant:
        output.line(str(one))
    if not vacant:
        output.note(_LED)
    return OK


def _ask(context: Context, vacant: list[Vacancy]) -> None:
    """Raises UsageError unless somebody says that records may be lost."""
    for one in vacant:
        context.output.note(str(one))
    context.output.note("an unclean election may lose records for good. Type 'lose records' to do it:")
    if context.stdin.readline().decode("utf-8", "replace").strip() != "lose records":
        raise UsageError("nobody was elected")


def _named(context: Context, client: Client, word: str) -> list[tuple[str, int]]:
    """TOPIC: all of its partitions; TOPIC:NUMBER: one of them."""
    topic, colon, number = word.partition(":")
    if not colon:
        return [(topic, partition) for partition in _numbers(context, client, topic)]
    if not (number.isascii() and number.isdigit()) or len(number) > 10:
        raise UsageError(f"{word!r}: {number!r} is not the number of a partition")
    return [(topic, int(number))]


def _numbers(context: Context, client: Client, topic: str) -> list[int]:
    """Those that a topic has. It is not sought, as `partitions_for` does: with `auto_create_topics` that makes what is misspelt."""
    return client._topic(topic, context.timeout_s).numbers()


def explain(context: Context) -> int:
    """Why the partitions of a topic, or one of them, are as they are; without a topic those that are not well, and the status says so."""
    asked, output = context.arguments, context.output
    if asked.topic is None:
        return _explain_what_is_wrong(context)
    if asked.limit is not None:
        raise UsageError("--limit goes without a topic: of one all partitions are explained")
    with context.client() as client:
        numbers = [asked.partition] if asked.partition is not None else _numbers(context, client, asked.topic)
        try:
            found = explained(client, ((asked.topic, number) for number in numbers), context.timeout_s)
        except UnknownTopicOrPartition as refused:
            _numbers(context, client, asked.topic)  # refused as well if it is the topic
            refused.topic, refused.partition = asked.topic, asked.partition
            raise
    if output.is_json:
        output.json([one.to_dict() for one in found])
    else:
        _tell(context, found)
    return OK


def _explain_what_is_wrong(context: Context) -> int:
    """Those partitions that are not well or are moved, the worst first."""
    output, most = context.output, context.arguments.limit or _EXPLAINED_MAX
    with context.client() as client:
        view, no_controller, may_hide, _ = look(client, context.timeout_s)
        total = sum(len(topic.partitions) for topic in view.topics.values())
        wrong = sorted(_not_well(view))
        shown = {(topic, number): kinds for _, topic, number, kinds in wrong[:most]} if not no_controller else {}
        told = explained(client, shown, context.timeout_s, may_be_gone=True)
    more = len(wrong) if no_controller else max(len(wrong) - most, 0)
    if output.is_json:
        found = [{**one.to_dict(), "wrong": shown[one.topic, one.partition]} for one in told]
        output.json({"explained": found, "more": more, "partitions": total, "no_controller": no_controller, "may_hide_topics": may_hide})
    elif no_controller:
        output.line(f"{no_controller}; what can be explained, the controller knows")
        heard = f"as far as the brokers have heard, {len(wrong)} of {total} partitions are not well"
        output.line(f"{heard}: {context.typed('health')} names them")
    elif wrong:
        _tell(context, told)
        if more:
            rest = f"--limit {len(wrong)} explains them all, {context.typed('health')} names them"
            output.line(f"\nand {more} more that are not well: {rest}")
    else:
        output.line(f"all is well: each of {total} partitions has a leader and all its replicas in sync, and none is moved")
    if may_hide and not output.is_json:
        output.line(MAY_HIDE)
    return BAD if no_controller or any(kinds != [_MOVING] for *_, kinds in wrong) else OK


def _not_well(view: View) -> Iterator[tuple[int, str, int, list[str]]]:
    """(how bad, topic, partition, what is wrong with it); 0 is the worst."""
    for name, topic in view.topics.items():
        for number, p in topic.partitions.items():
            found = troubles(p, topic.config.min_isr)
            kinds = [kind for kind in WRONG if kind in found] + ([_MOVING] if p.adding or p.removing else [])
            if kinds:
                yield _ORDER.index(kinds[0]), name, number, kinds


def _tell(context: Context, found: Iterable[Explanation]) -> None:
    for at, one in enumerate(found):
        if at:
            context.output.line("")
        for sentence in one.sentences:
            context.output.line(sentence)


def _short_of(view: View, broker: int) -> set[tuple[str, int]]:
    """Partitions that this broker has a copy of, and for which too few replicas are in sync."""
    return {
        (name, number)
        for name, topic in view.topics.items()
        for number, p in topic.partitions.items()
        if broker in p.replicas and "under_min_isr" in troubles(p, topic.config.min_isr)
    }


def drain(context: Context) -> int:
    """Move what a broker leads to others; it goes on running."""
    output, broker = context.output, context.arguments.broker
    with context.client() as client:
        left = client.drain_broker(broker, timeout_s=context.timeout_s)
        short = sorted(_short_of(client._view(context.timeout_s), broker) - set(left))
    if output.is_json:
        named = {"remaining": left, "under_min_isr": short}
        told = {name: [{"topic": topic, "partition": partition} for topic, partition in places] for name, places in named.items()}
        output.json({"broker": broker, **told})
        return OK
    if short:
        places = ", ".join(f"{topic}-{partition}" for topic, partition in short)
        output.line(f"with fewer replicas in sync than min_isr now, so that acks=all is refused: {places}")
        output.line(f"restart broker {broker}, or bring back who else is away: {context.typed('explain')} names them")
    if not left:
        output.line(f"broker {broker} is drained: it may be stopped; it serves again after a restart")
        return OK
    these = "this partition" if len(left) == 1 else f"these {len(left)} partitions"
    output.line(f"broker {broker} has given away what others can lead; it serves again after a restart")
    output.line(f"nobody else can lead now: {', '.join(f'{topic}-{partition}' for topic, partition in left)}")
    output.line(f"stopping it takes {these} offline; {context.typed('explain')} says who is missing")
    return OK
