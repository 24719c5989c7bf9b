"""`replog topic alter|add-partitions|remove-partitions`."""

from __future__ import annotations

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.topics import show

__all__ = ["add_partitions", "alter", "remove_partitions"]


def alter(context: Context) -> int:
    """Change keys of a topic's configuration, and say what it is then."""
    asked = context.arguments
    with context.client() as client:
        client.alter_topic(asked.topic, config=asked.settings, timeout_s=context.timeout_s)
        show(context, client.describe(asked.topic, timeout_s=context.timeout_s))
    return OK


def add_partitions(context: Context) -> int:
    """Give a topic more partitions, and say what it is then."""
    asked = context.arguments
    with context.client() as client:
        client.add_partitions(asked.topic, asked.total, timeout_s=context.timeout_s)
        show(context, client.describe(asked.topic, timeout_s=context.timeout_s))
    return OK


def remove_partitions(context: Context) -> int:
    """Remove partitions. On a terminal it asks; --yes is the answer beforehand, --dry-run only says what would go."""
    asked, output = context.arguments, context.output
    numbers = sorted(set(asked.partitions))
    with context.client() as client:
        if asked.dry_run or (not asked.yes and context.stdin.isatty()):
            topic = client.describe(asked.topic, timeout_s=context.timeout_s)
            going = [p for p in topic.partitions if p.partition in numbers]
            records = sum((p.high_watermark or 0) - (p.start_offset or 0) for p in going)
            what = f"{len(going)} of {len(topic.partitions)} partitions of topic {asked.topic}, {records} records"
            if asked.dry_run:
                if output.is_json:
                    output.json({"topic": asked.topic, "partitions": [p.partition for p in going], "records": records, "removed": False})
                else:
                    output.line(f"would remove {what}")
                return OK
            context.confirm(f"remove {what}", asked.topic, "nothing was removed")
        client.remove_partitions(asked.topic, numbers, timeout_s=context.timeout_s)
    if output.is_json:
        output.json({"topic": asked.topic, "partitions": numbers, "removed": True})
    else:
        output.line(f"removed {', '.join(f'{asked.topic}-{number}' for number in numbers)}")
    return OK
