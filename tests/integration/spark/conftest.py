"""A real Spark session for the tests of a run, and a cluster for each test that Spark's workers reach over TCP."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.spark.brokers import LONG_MS, SHORT_MS, Brokers
from tools.java import java_home
from tools.spark_classes import HASTY, java_options, spark_home

import replog
from replog.spark.connections import close_clients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.pollingDelay": "50ms",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs the extra `spark`, and most need Java. Each pytest process has a Java of its own.

    The longest begin first: one that began last would leave the other processes without work.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What Spark takes from the environment: its Java, the Python of its workers, where these find replog, and the loopback address."""
    source = str(Path(replog.__file__).resolve().parents[1])
    root = str(Path(__file__).resolve().parents[3])  # workers import the faults that tests put into tasks
    wished = {
        "JAVA_HOME": str(java_home(tmp_path_factory.mktemp("java"))),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([source, root, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": f"{HASTY} {java_options()}",
    }
    before = {name: os.environ.get(name) for name in wished}
    os.environ.update(wished)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def spark(spark_environment: None) -> Iterator[SparkSession]:
    """Two tasks at a time, each with four attempts."""
    from pyspark.sql import SparkSession

    from replog.spark import register

    builder = SparkSession.builder.master("local[2,4]").appName("replog")
    for key, value in QUIET.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def active(request: pytest.FixtureRequest) -> None:
    """Whatever a test before has left as the active session of this thread: sources that are registered at another are not found."""
    if "spark" in request.fixturenames:
        from replog.spark import register

        register(request.getfixturevalue("spark"))


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    """One broker in this process, in memory."""
    config = {"retention_check_ms": 20, "deletion_delay_ms": 0}
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0", config=config) as cluster:
        yield cluster
        close_clients()  # those of this process: the tests that need no Spark read in it


@pytest.fixture
def servers(cluster: replog.Cluster) -> str:
    """What `replog.bootstrap.servers` is."""
    return ",".join(cluster.endpoints)


@pytest.fixture(scope="session")
def kept_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three broker processes for all tests."""
    with Brokers(tmp_path_factory.mktemp("brokers"), LONG_MS) as brokers:
        yield brokers


@pytest.fixture(scope="session")
def kept_mortal_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three others."""
    with Brokers(tmp_path_factory.mktemp("mortal-brokers"), SHORT_MS) as brokers:
        yield brokers


@pytest.fixture
def brokers(kept_brokers: Brokers) -> Iterator[Brokers]:
    """Three broker processes, without the topics of earlier tests."""
    yield kept_brokers
    kept_brokers.clear()


@pytest.fixture
def mortal_brokers(kept_mortal_brokers: Brokers) -> Iterator[Brokers]:
    """Three others, which a test may kill."""
    yield kept_mortal_brokers
    kept_mortal_brokers.clear()
    kept_mortal_brokers.whole()
