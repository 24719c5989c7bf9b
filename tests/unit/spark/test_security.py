"""Tasks of Spark prove who they are by a file that each executor has; what travels names it and holds no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.authorities import CLIENT_SECRET, OTHER_SECRET

import replog
from replog.client.core import ClientCore
from replog.errors import TimedOut, UsageError
from replog.model import BrokerInfo
from replog.spark import PartitionWriter
from replog.spark.connections import Connection, close_clients
from replog.spark.options import ReadOptions, WriteOptions


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of settings."""
    (tmp_path / "client.secret").write_bytes(CLIENT_SECRET)
    path = tmp_path / "security.toml"
    path.write_text("[secret]\nclient='client.secret'\n")
    for each in tmp_path.iterdir():
        each.chmod(0o600)
    return path


def test_a_task_writes_with_the_file_of_its_machine(file: Path) -> None:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0", security=replog.Security(secret={"client": CLIENT_SECRET})) as cluster:
        cluster.create_topic("t")
        try:
            PartitionWriter("t", bootstrap=cluster.endpoints, guarantee="at-least-once", security=str(file))(iter(["a", "b"]))
        finally:
            close_clients()
        assert [record.text() for record in cluster.read("t")] == ["a", "b"]


def test_options_name_the_file() -> None:
    given = {"replog.bootstrap.servers": "h:1", "replog.security.file": "/etc/replog/security.toml"}
    read = ReadOptions.parse({**given, "subscribe": "t"}, streaming=False)
    write = WriteOptions.parse({**given, "topic": "t", "deliveryGuarantee": "at-least-once"})
    assert read.connection == write.connection
    assert read.connection.security == "/etc/replog/security.toml"


def test_settings_themselves_are_refused() -> None:
    with pytest.raises(UsageError, match="security is Security; name a file") as caught:
        PartitionWriter("t", bootstrap="h:1", security=replog.Security(secret={"client": CLIENT_SECRET}))  # type: ignore[arg-type]
    assert CLIENT_SECRET.decode() not in str(caught.value)


PROVE = "tcp://h:1 refused with error 31: you have not proven who you are"
AWAY = "Connection refused"


def said_of(one: Connection, unreached: dict[str | int, str], *brokers: int) -> tuple[str, bool]:
    """What becomes of an error where these were not reached, and whether the client is closed."""
    client = one.client()
    core: ClientCore = client._core
    core.view.brokers = {n: BrokerInfo(n, 10 + n, (f"tcp://h:{n}",)) for n in brokers}
    core.unreached = dict(unreached)
    try:
        with pytest.raises(TimedOut) as caught, one.explained():
            raise TimedOut("too late")
        return str(caught.value), client._driver.closed
    finally:
        close_clients()


def test_who_is_refused_is_told_so(file: Path) -> None:
    one, known = Connection.of("h:1,h:2"), Connection.of("h:1", security=str(file))
    refused = "the brokers at tcp://h:1, tcp://h:2 refuse these credentials (replog.security.file is not given): too late"
    assert said_of(one, {"tcp://h:1": PROVE}) == (refused, True)
    assert said_of(one, {"tcp://h:2": AWAY, "tcp://h:1": PROVE}) == (refused, True)
    named = f"the brokers at tcp://h:1 refuse these credentials (replog.security.file is {file}): too late"
    assert said_of(known, {"tcp://h:1": PROVE}) == (named, True)
    assert said_of(known, {1: PROVE, 2: AWAY}, 1, 2) == (named, True)
    assert said_of(known, {1: PROVE}, 1, 2) == ("too late", False), "the other one was reached, and is what is waited for"
    assert said_of(known, {"tcp://h:1": AWAY})[0].startswith("no broker was reached at tcp://h:1")


def test_credentials_that_are_put_right_count_at_the_next_try(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.secret"
    other.write_bytes(OTHER_SECRET)
    other.chmod(0o600)
    right = file.read_text()
    file.write_text("[secret]\nclient='other.secret'\n")
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0", security=replog.Security(secret={"client": CLIENT_SECRET})) as cluster:
        cluster.create_topic("t")
        config = {"request_timeout_ms": 3_000}
        writer = PartitionWriter("t", bootstrap=cluster.endpoints, guarantee="at-least-once", security=str(file), config=config)
        try:
            with pytest.raises(TimedOut, match=r"^the brokers at tcp://127.0.0.1:\d+ refuse these credentials \(.* is /.*error 31: "):
                writer(iter(["a"]))
            file.write_text(right)
            writer(iter(["b"]))
        finally:
            close_clients()
        assert [record.text() for record in cluster.read("t")] == ["b"]
