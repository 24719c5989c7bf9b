"""A Spark session for benchmarks: two tasks at a time, quiet, with the Java that the tests use and the Python that runs here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tools.java import java_home

import replog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
}


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """`local[2]`, with the data source registered."""
    source = str(Path(replog.__file__).resolve().parents[1])
    os.environ |= {
        "JAVA_HOME": str(java_home(folder)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([source, str(Path(__file__).resolve().parents[1])]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    from pyspark.sql import SparkSession

    from replog.spark import register

    builder = SparkSession.builder.master("local[2]").appName("replog benchmarks")
    for key, value in _QUIET.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        register(session)
        yield session
    finally:
        session.stop()
