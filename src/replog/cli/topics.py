"""`replog topic create|list|describe|delete`."""

from __future__ import annotations

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.client.results import TopicDescription

__all__ = ["create", "delete", "describe", "list_topics"]


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
        lacking = sum(len(p.isr) < len(p.replicas) for p in partitions)
        rows.append((name, len(partitions), copies, lacking, sum(p.leader is None for p in partitions)))
    head = ("topic", "partitions", "replicas", "under_replicated", "leaderless")
    if context.output.is_json:
        context.output.json([dict(zip(head, row, strict=True)) for row in rows])
    elif rows:
        context.output.table(head, rows)
    else:
        context.output.note("there are no topics")
    return OK


def describe(context: Context) -> int:
    """One topic: leader, epoch, replicas, in-sync set and offsets of each partition."""
    with context.client() as client:
        show(context, client.describe(context.arguments.topic, timeout_s=context.timeout_s))
    return OK


def show(context: Context, topic: TopicDescription) -> None:
    """A topic, in the format asked for."""
    if context.output.is_json:
        context.output.json(topic.to_dict())
        return
    head = ("partition", "leader", "epoch", "replicas", "ISR", "ELR", "start", "HW", "LEO")
    rows = [
        (p.partition, p.leader, p.leader_epoch, p.placed, p.isr, p.elr, p.start_offset, p.high_watermark, p.end_offset)
        for p in topic.partitions
    ]
    config = "".join(f", {key}={value}" for key, value in sorted(topic.config.items()))
    count = len(topic.partitions)
    context.output.table(head, rows, f"{topic.topic} ({count} partition{'' if count == 1 else 's'}{config})")


def delete(context: Context) -> int:
    """Delete a topic. On a terminal it asks; --yes is the answer beforehand, --dry-run only says what would go."""
    asked, output = context.arguments, context.output
    with context.client() as client:
        if asked.dry_run or (not asked.yes and context.stdin.isatty()):
            topic = client.describe(asked.topic, timeout_s=context.timeout_s)
            records = sum((p.high_watermark or 0) - (p.start_offset or 0) for p in topic.partitions)
            what = f"topic {asked.topic}: {len(topic.partitions)} partitions, {records} records"
            if asked.dry_run:
                if output.is_json:
                    output.json({"topic": asked.topic, "partitions": len(topic.partitions), "records": records, "deleted": False})
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
