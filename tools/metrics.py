"""Make the tables of docs/metrics.md from the table of names in the code.

    python tools/metrics.py            write them into the page
    python tools/metrics.py --check    only say whether they are current; the exit status is 1 if they are not
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from replog.metrics.names import METRICS, Metric

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_BETWEEN: Final = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(per_partition: bool) -> Iterator[str]:
    """The lines of a table."""
    yield "| name | kind, unit | labels | meaning | alert | in Kafka |"
    yield "|---|---|---|---|---|---|"
    for metric in METRICS:
        if metric.per_partition == per_partition:
            yield _row(metric)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    alert = f"`{metric.alert}`" if metric.alert else ""
    return f"| `{metric.name}` | {metric.kind}, {metric.unit} | {labels} | {metric.meaning} | {alert} | {metric.kafka} |"


def page(text: str) -> str:
    """The page with its tables as the code has them."""
    tables = {"all": "\n".join(table(False)), "partitions": "\n".join(table(True))}
    return _BETWEEN.sub(lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}", text)


def main(words: list[str]) -> int:
    """Write the page, or say how it differs."""
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if words == ["--check"]:
        print("\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "page", "code", lineterm="")))
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
