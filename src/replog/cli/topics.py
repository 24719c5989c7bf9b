"""`replog topic create|list|describe|delete`."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.going import Going
from replog.cli.side_by_side import described
from replog.client.client import Client
from replog.client.results import TopicDescription
from replog.metrics.troubles import MEANINGS, troubles

__all__ = ["create", "delete", "describe", "list_topics", "show"]


def create(context: Context) -> int:
    """Create a topic, and say what it is."""
    asked = context.arguments
    with context.client() as client:
        client.create_topic(
            asked.topic,
            partitions=asked.partitions,
            replication_factor=asked.replication_factor,
            exist_ok=asked.exist_ok,
            config=asked.settings,
            timeout_s=context.timeout_s,
        )
        show(context, client.describe(asked.topic, timeout_s=context.timeout_s))
    return OK


def list_topics(context: Context) -> int:
    """All topics, with how many of their partitions are in trouble."""
    rows = []
    with context.client() as client:
        topics = client._view(context.timeout_s).topics
    for name in sorted(topics):
        partitions = topics[name].partitions.values()
        copies = max((len(p.replicas) for p in partitions), default=0)
        wrong = [troubles(p, topics[name].config.min_isr) for p in partitions]
        counts = (sum(kind in found for found in wrong) for kind in ("under_replicated", "leaderless"))
        rows.append((name, len(partitions), copies, *counts))
    head = ("topic", "partitions", "replicas", "under_replicated", "leaderless")
    if context.output.is_json:
        context.output.json([dict(zip(head, row, strict=True)) for row in rows])
    elif rows:
        context.output.table(head, rows)
    else:
        context.output.note("there are no topics")
    return OK


def describe(context: Context) -> int:
    """A topic, or all of them: leader, epoch, replicas, in-sync set and offsets of each partition, or of those that are chosen."""
    asked, output = context.arguments, context.output
    kinds = [kind for kind in MEANINGS if getattr(asked, kind)]
    with context.client() as client:
        if asked.topic is not None:
            found = [client.describe(asked.topic, timeout_s=context.timeout_s)]
        else:
            names = _with_some(context, client, kinds)
            found = [one.topic for one in described(client, names, client._deadline(context.timeout_s))]
    chosen = [_chosen(topic, kinds) for topic in found]
    if asked.topic is None:
        chosen = [topic for topic in chosen if topic.partitions or not kinds]
    if output.is_json:
        output.json(chosen[0].to_dict() if asked.topic is not None else [topic.to_dict() for topic in chosen])
        return OK
    shown = [topic for topic in chosen if topic.partitions]
    for at, topic in enumerate(shown):
        if at:
            output.line("")
        show(context, topic, of=len(next(one.partitions for one in found if one.topic == topic.topic)))
    if not shown:
        output.note(f"no partition {' or '.join(MEANINGS[kind].partition(':')[0] for kind in kinds)}" if kinds else "there are no topics")
    return OK


def _with_some(context: Context, client: Client, kinds: Sequence[str]) -> list[str]:
    """The topics of which some partition is chosen, by name: the others are not asked for their offsets."""
    topics = client._view(context.timeout_s).topics
    return sorted(
        name
        for name, topic in topics.items()
        if not kinds or any(troubles(p, topic.config.min_isr).intersection(kinds) for p in topic.partitions.values())
    )


def _chosen(topic: TopicDescription, kinds: Sequence[str]) -> TopicDescription:
    """The topic with those of its partitions with one of these troubles; with all of them if none is named."""
    if not kinds:
        return topic
    min_isr = topic.config.get("min_isr")
    return evolve(topic, partitions=tuple(p for p in topic.partitions if troubles(p, min_isr).intersection(kinds)))


def show(context: Context, topic: TopicDescription, *, of: int | None = None) -> None:
    """A topic, in the format asked for; `of` how many partitions it has, if it is shown with some of them."""
    if context.output.is_json:
        context.output.json(topic.to_dict())
        return
    head = ("partition", "leader", "epoch", "replicas", "ISR", "ELR", "start", "HW", "LEO")
    rows = [
        (p.partition, p.leader, p.leader_epoch, p.placed, p.isr, p.elr, p.start_offset, p.high_watermark, p.end_offset)
        for p in topic.partitions
    ]
    config = "".join(f", {context.output.units.setting(key, value)}" for key, value in sorted(topic.config.items()))
    count = len(topic.partitions)
    total = count if of is None else of
    some = f"{count} of " if count < total else ""
    context.output.table(head, rows, f"{topic.topic} ({some}{total} partition{'' if total == 1 else 's'}{config})")


def delete(context: Context) -> int:
    """Delete a topic. On a terminal it asks; --yes is the answer beforehand, --dry-run only says what would go."""
    asked, output = context.arguments, context.output
    context.check_asked(f"topic {asked.topic} would be deleted with all its records, for good", "says how many")
    with context.client() as client:
        if asked.dry_run or not asked.yes:
            topic = client.describe(asked.topic, timeout_s=context.timeout_s)
            going = Going.of(topic.partitions)
            what = f"topic {asked.topic}: {len(topic.partitions)} partitions, {going}"
            if asked.dry_run:
                if output.is_json:
                    output.json({"topic": asked.topic, "partitions": len(topic.partitions), **going.to_plain(), "deleted": False})
                else:
                    output.line(f"would delete {what}")
                return OK
            context.confirm(f"delete {what}", asked.topic, "not deleted")
        client.delete_topic(asked.topic, timeout_s=context.timeout_s)
    if output.is_json:
        output.json({"topic": asked.topic, "deleted": True})
    else:
        output.line(f"deleted topic {asked.topic}")
    return OK
