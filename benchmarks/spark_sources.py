"""Data sources for comparison: what Spark and Python cost without a log behind them. Spark's workers import this module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from replog.spark.columns import arrow_schema, read_schema

__all__ = ["ROWS_PER_BATCH", "RowsFromNothing"]

ROWS_PER_BATCH = 8_000
"""As many as one fetch brings by default."""


class RowsFromNothing(DataSource):
    """Rows of the shape of replog's, 8 and 100 bytes: one Arrow batch, made once by each task, and given to Spark again and again."""

    @classmethod
    def name(cls) -> str:
        return "rows_from_nothing"

    def schema(self) -> Any:
        return read_schema(headers=False)

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(int(self.options["records"]), int(self.options["partitions"]))


class _Reader(DataSourceReader):
    def __init__(self, records: int, partitions: int) -> None:
        self._records = records
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        count = ROWS_PER_BATCH
        schema = arrow_schema(headers=False)
        columns = [
            pa.array([os.urandom(8) for _ in range(count)], pa.binary()),
            pa.array([os.urandom(100) for _ in range(count)], pa.binary()),
            pa.array(["t"] * count, pa.string()),
            pa.array([partition.value] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            pa.array([0] * count, pa.int32()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        left = self._records // self._partitions
        while left > 0:
            yield batch.slice(0, min(left, count))
            left -= count
