"""What reading and writing share: clients of a process, what importing costs, the Python of the workers, errors without a stack."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import replog.spark
from replog.errors import TimedOut, UsageError
from replog.spark import connections, session
from replog.spark.connections import Connection, close_clients
from replog.spark.losses import DataLost, Losses
from replog.spark.sentences import in_a_sentence


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_clients()


def test_a_process_has_one_client_for_a_cluster() -> None:
    one = Connection.of("h:1,h:2", {"fetch_bytes": 2_048})
    client = one.client()
    assert Connection.of(["tcp://h:1", "h:2"], {"fetch_bytes": 2_048}).client() is client
    assert copy.deepcopy(one).client() is client
    assert Connection.of("h:1").client() is not client
    assert client._core.config.fetch_bytes == 2_048
    client.close()
    assert one.client() is not client


def test_a_forked_worker_has_clients_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Connection.of("h:1").client()
    monkeypatch.setattr(os, "getpid", lambda: -5)
    there = Connection.of("h:1").client()
    assert there is not here
    close_clients()
    assert there._driver.closed
    assert not here._driver.closed
    monkeypatch.undo()


@pytest.mark.parametrize(("bootstrap", "settings"), [("", {}), ("h", {}), ("h:1", {"fetch_byte": 1}), ("h:1", {"fetch_bytes": 1})])
def test_a_connection_is_checked_when_it_is_made(bootstrap: str, settings: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Connection.of(bootstrap, settings)
    assert connections._clients == {}


def test_who_was_never_reached_is_named_and_who_was_is_not() -> None:
    one = Connection.of("h:1,h:2")
    says = r"^no broker was reached at tcp://h:1, tcp://h:2 \(replog.bootstrap.servers\): too late$"
    with pytest.raises(TimedOut, match=says), one.explained():
        raise TimedOut("too late")
    one.client()._core.view.brokers[1] = None
    with pytest.raises(TimedOut, match=r"^too late$"), one.explained():
        raise TimedOut("too late")


# ----------------------------------------------------------------------------------------------------------- importing


def loaded(code: str) -> set[str]:
    """The modules that `code` leaves loaded in a new interpreter."""
    script = f"{code}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())


def test_the_package_loads_neither_spark_nor_arrow() -> None:
    modules = loaded("import replog.spark")
    assert not {name.split(".")[0] for name in modules} & {"pyspark", "pyarrow", "attrs", "msgpack"}


def test_what_spark_finds_by_itself_loads_little() -> None:
    modules = loaded("import pyspark_replog; assert pyspark_replog.DefaultSource.name() == 'replog'")
    assert {name for name in modules if name.startswith("replog")} <= {
        "replog", "replog.errors", "replog.errors.codes", "replog.spark", "replog.spark.datasource", "replog.spark.sentences"
    }
    assert "pyarrow" not in modules


def test_what_spark_finds_never_raises() -> None:
    loaded("import sys; sys.modules['pyspark'] = None\nimport pyspark_replog; assert not hasattr(pyspark_replog, 'DefaultSource')")


def test_public_names() -> None:
    assert {"PartitionWriter", "register"} <= set(dir(replog.spark))
    assert replog.spark.register is session.register
    with pytest.raises(AttributeError, match=r"module 'replog.spark' has no attribute 'regsiter'"):
        replog.spark.regsiter  # noqa: B018


# ------------------------------------------------------------------------------------------------------------- pythons


@pytest.mark.parametrize("same", [sys.executable, str(Path(sys.executable).parent / "python")])
def test_workers_of_the_same_environment(same: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session._compare_pythons(same)


@pytest.mark.parametrize("other", ["/usr/bin/env", "no-such-python"])
def test_workers_of_another_environment_are_warned_of(other: str) -> None:
    with pytest.warns(UserWarning, match=f"Spark's workers run '{other}', this process runs .*PYSPARK_PYTHON"):
        session._compare_pythons(other)


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(("main", "hidden"), [("pyspark.daemon", "1"), ("pytest", None)])
def test_only_errors_of_replog_in_a_worker_lose_their_stack(monkeypatch: pytest.MonkeyPatch, main: str, hidden: str | None) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__spec__=types.SimpleNamespace(name=main)))
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(ZeroDivisionError), in_a_sentence():
        raise ZeroDivisionError
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
    said = UsageError("said")
    said.__context__ = KeyError("what it was made of")
    with pytest.raises(UsageError) as caught, in_a_sentence():
        raise said
    assert os.environ.get("SPARK_HIDE_TRACEBACK") == hidden
    assert caught.value.__suppress_context__
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


def test_a_loss_fails_or_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    place = replog.TopicPartition("t", 2)
    with pytest.raises(DataLost, match=r"^t-2: offsets 5 to 7 cannot be read any more: gone; with the option failOnDataLoss=fa") as caught:
        Losses(fail=True).lost(place, 5, 8, "gone")
    again = copy.copy(caught.value)
    assert (str(again), again.topic, again.partition, again.first, again.stop) == (str(caught.value), "t", 2, 5, 8)
    Losses(fail=False).lost(place, 5, 5, "gone")
    assert [record.getMessage() for record in caplog.records] == [
        "t-2: what was read up to offset 5 is not what is there now: gone; the read goes on without them (failOnDataLoss=false)"
    ]
