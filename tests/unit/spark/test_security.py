"""Tasks of Spark prove who they are by a file that each executor has; what travels names it and holds no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.authorities import CLIENT_SECRET

import replog
from replog.errors import UsageError
from replog.spark import PartitionWriter
from replog.spark.connections import close_clients
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
