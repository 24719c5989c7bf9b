"""The Python blocks of docs/spark.md work as printed, one after the other, with a session and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "spark.md"


def test_the_guide_works(spark: SparkSession, servers: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"spark": spark, "servers": servers}
    found = blocks(text)
    assert len(found) >= 3
    for line, code in found:
        compiled = compile("\n" * line + code, str(PAGE), "exec")
        run(compiled, names)


def run(code: Any, names: dict[str, Any]) -> None:
    """Run a block with the names of those before it."""
    function = type(run)(code, names)
    function()
