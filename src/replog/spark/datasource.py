"""The data source `replog` as Spark meets it: it reads options and hands over to whoever does the work.

Importing this module costs next to nothing: Spark imports it in every process that plans, reads or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from replog.errors import ReplogError
from replog.spark.sentences import in_a_sentence

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["ReplogDataSource"]


class ReplogDataSource(DataSource):
    """`spark.read.format("replog")`, and the same for `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """What `.format(...)` is given."""
        return "replog"

    def schema(self) -> StructType:
        """The columns that are read."""
        from replog.spark.columns import read_schema
        from replog.spark.options import include_headers

        with in_a_sentence():
            return read_schema(headers=include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from replog.spark.batch_reading import BatchReading
        from replog.spark.options import ReadOptions

        with in_a_sentence():
            return BatchReading(ReadOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read. It never raises: Spark would lose the error, because it stops the reader that it did not get."""
        from replog.spark.options import ReadOptions
        from replog.spark.stream_reading import Refused, StreamReading

        try:
            return StreamReading(ReadOptions.parse(self.options, streaming=True), schema)
        except ReplogError as error:
            return Refused(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from replog.spark.batch_writing import BatchWriting
        from replog.spark.options import WriteOptions

        with in_a_sentence():
            return BatchWriting(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write. Spark passes both arguments by name."""
        from replog.spark.options import WriteOptions
        from replog.spark.stream_writing import StreamWriting

        with in_a_sentence():
            return StreamWriting(WriteOptions.parse(self.options), schema, overwrite)
