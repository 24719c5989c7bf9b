"""Spark: partitions written and read from PySpark. The data source `replog`, and `PartitionWriter` for `foreachPartition`.

Each name is loaded when it is first used: importing this package loads neither pyspark nor pyarrow (extra `spark`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replog.spark.partition_writer import PartitionWriter
    from replog.spark.session import register

__all__ = ["PartitionWriter", "register"]

_HOME = {"PartitionWriter": "replog.spark.partition_writer", "register": "replog.spark.session"}

if not TYPE_CHECKING:  # a type checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'replog.spark' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value  # found without this function from now on
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
