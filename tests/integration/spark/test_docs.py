"""The Python blocks of docs/spark.md work as printed, one after the other, with a session and brokers; so does the README's for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compiled(page: str) -> list[Any]:
    """Its blocks, with the lines that they have on it."""
    path = ROOT / page
    return [compile("\n" * line + code, str(path), "exec") for line, code in blocks(path.read_text(encoding="utf-8"))]


def test_the_guide_works(spark: SparkSession, servers: str) -> None:
    names: dict[str, Any] = {"spark": spark, "servers": servers}
    found = compiled("docs/spark.md")
    assert len(found) >= 3
    for code in found:
        run(code, names)


def test_the_readme_works(spark: SparkSession, servers: str) -> None:
    found = [code for code in compiled("README.md") if "replog.spark" in code.co_names]
    assert len(found) == 1
    run(found[0], {"spark": spark, "servers": servers})


def run(code: Any, names: dict[str, Any]) -> None:
    """Run a block with the names of those before it."""
    function = type(run)(code, names)
    function()
