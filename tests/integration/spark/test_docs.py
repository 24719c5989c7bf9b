"""The Python blocks of docs/spark.md work as printed, one after the other, with a session and brokers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"


def test_the_guide_works(spark: SparkSession, servers: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"spark": spark, "servers": servers}
    found = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert len(found) >= 3
    for line, code in found:
        compiled = compile("\n" * line + code, str(PAGE), "exec")
        run(compiled, names)


def run(code: Any, names: dict[str, Any]) -> None:
    """Run a block with the names of those before it."""
    function = type(run)(code, names)
    function()
