"""`register`: makes the format `replog` known to a Spark session, whatever thread it is used from."""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from replog.spark.datasource import ReplogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `.format("replog")` known to this session, for reading and writing, batches and streams. May be called again.

    It also makes the session the active one of this thread: without one, Spark does not find a data source in Python from a new
    thread (SPARK-45600, SPARK-44694), so call it there too. Warns if Spark's workers run another Python than this process.
    """
    spark.dataSource.register(ReplogDataSource)
    if getattr(spark, "_jsparkSession", None) is not None:  # a session of Spark Connect is in no Java of this process
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
        _compare_pythons(spark.sparkContext.pythonExec)


def _compare_pythons(of_workers: str) -> None:
    """Two names in one folder are one environment; links are not followed, because environments share an interpreter through them."""
    found = shutil.which(of_workers)
    if found is None or Path(found).absolute().parent != Path(sys.executable).absolute().parent:
        text = f"Spark's workers run {found or of_workers!r}, this process runs {sys.executable!r}: workers may not find replog, or find "
        text += "another one; set the environment variable PYSPARK_PYTHON to the Python that has it, before the session is made"
        warnings.warn(text, stacklevel=3)
