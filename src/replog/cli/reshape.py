"""`replog topic alter|add-partitions|remove-partitions`."""

from __future__ import annotations

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.going import Going
from replog.cli.topics import show
from replog.client.administration import check_removable

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
    context.check_asked(f"partitions of topic {asked.topic} would be removed with all their records, for good", "says how many")
    with context.client() as client:
        if asked.dry_run or not asked.yes:
            topic = client.describe(asked.topic, timeout_s=context.timeout_s)
            check_removable(asked.topic, numbers, [p.partition for p in topic.partitions])
            going = Going.of(p for p in topic.partitions if p.partition in numbers)
            what = f"{len(numbers)} of {len(topic.partitions)} partitions of topic {asked.topic}, {going}"
            if asked.dry_run:
                if output.is_json:
                    output.json({"topic": asked.topic, "partitions": numbers, **going.to_plain(), "removed": False})
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
