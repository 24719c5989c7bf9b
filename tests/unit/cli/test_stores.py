"""`replog store list` and `get`: what they show, and that they change nothing, neither of a live store nor of a dead one."""

from __future__ import annotations

import base64
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.threads import in_thread
from tests.unit.cli.conftest import Ran, run_with

from replog.metadata.file import FileStore
from replog.metadata.looking import look_at_file
from replog.ports import Create, Put

WRITER = """
import os, signal, sys
from replog.metadata.file import FileStore
from replog.ports import Create
store = FileStore(sys.argv[1], session_ms=60_000)
for n in range(20):
    store.commit([Create(f"/brokers/topics/t{n}", b'{"version":1}')])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.db")


@pytest.fixture
def store(path: str) -> Iterator[FileStore]:
    """A store that somebody has open."""
    with FileStore(path, session_ms=60_000) as store:
        store.commit([
            Create("/cluster", b'{"version":1,"cluster_id":"c"}'),
            Create("/brokers/ids/1", b'{"version":1,"rack":"r1"}', ephemeral=True),
            Create("/brokers/ids/2", b'{"version":1,"rack":"r2"}'),
        ])
        yield store


def look(path: str, *words: str) -> Ran:
    return run_with(None, "store", *words, "--store", f"file://{path}")


def files(path: str) -> dict[str, tuple[bytes, int]]:
    """Every file of a store that outlives a restart of the machine, and when it was written. (`-shm` is an index, made anew at will.)"""
    folder = Path(path).parent
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(folder.iterdir()) if not file.name.endswith("-shm")}


def test_list(path: str, store: FileStore) -> None:
    plain = {one["path"]: one for one in look(path, "list", "/brokers/ids", "--format", "json").json}
    assert sorted(plain) == ["/brokers/ids/1", "/brokers/ids/2"]
    assert plain["/brokers/ids/1"]["value"] == {"version": 1, "rack": "r1"}
    assert (plain["/brokers/ids/1"]["ephemeral"], plain["/brokers/ids/2"]["ephemeral"]) == (True, False)
    table = look(path, "list", "/brokers/ids")
    assert table.status == 0
    assert [line.split() for line in table.lines] == [
        ["node", "version", "below", "value"],
        ["1", "0", "-", '{"version":1,"rack":"r1"}'],
        ["2", "0", "-", '{"version":1,"rack":"r2"}'],
    ]
    assert [line.split()[0] for line in look(path, "list").lines[1:]] == ["/brokers", "/cluster"]
    everything = look(path, "list", "-r", "--format", "json").json
    assert [one["path"] for one in everything] == ["/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/2", "/cluster"]
    assert [one["children"] for one in everything] == [1, 2, 0, 0, 0]
    empty = look(path, "list", "/cluster")
    assert (empty.status, empty.stdout, empty.stderr) == (0, "", "there is nothing below /cluster\n")


def test_get(path: str, store: FileStore) -> None:
    store.commit([Put("/cluster", b'{"version":1,"cluster_id":"d"}', 0)])
    shown = look(path, "get", "/cluster")
    assert shown.status == 0
    assert shown.lines[0] == "/cluster: version 1, 30 bytes, 0 nodes below"
    assert "".join(line.strip() for line in shown.lines[1:]) == '{"version": 1,"cluster_id": "d"}'
    assert look(path, "get", "/brokers/ids/1").lines[0].endswith(", ephemeral")
    assert look(path, "get", "/cluster", "--raw").stdout == '{"version":1,"cluster_id":"d"}'
    assert look(path, "get", "/cluster", "--format", "json").json["version"] == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("get", "/brokres/ids"), "there is no node /brokres/ids; below / are brokers, cluster; did you mean 'brokers'?"),
        (("get", "/brokers/ids/7"), "there is no node /brokers/ids/7; below /brokers/ids are 1, 2"),
        (("list", "/brokers/id"), "did you mean 'ids'?"),
        (("list", "brokers"), "does not begin with '/'"),
        (("get", "/"), "2 to 1024"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is_near(path: str, store: FileStore, words: tuple[str, ...], says: str) -> None:
    refused = look(path, *words)
    assert (refused.status, refused.stdout) == (2, "")
    assert says in refused.stderr


def test_values_that_cannot_be_decoded_hide_no_others(path: str, store: FileStore) -> None:
    store.commit([Create("/x/binary", b"\xff\xfe"), Create("/x/newer", b'{"version":9,"a":1}'), Create("/x/well", b'{"version":1}')])
    with sqlite3.connect(path) as changed:
        changed.execute("UPDATE nodes SET value = ? WHERE path = '/brokers/ids/2'", (b'{"version":1,"rack":"r3"}',))
    changed.close()
    listed = look(path, "list", "/x", "--format", "json")
    assert listed.status == 1
    by_path: dict[str, Any] = {one["path"]: one for one in listed.json}
    assert by_path["/x/well"]["value"] == {"version": 1}
    assert "problem" not in by_path["/x/well"]
    assert by_path["/x/binary"]["value_base64"] == "//4="
    assert "not JSON" in by_path["/x/binary"]["problem"]
    assert by_path["/x/newer"]["value"] == {"version": 9, "a": 1}
    assert "version 9" in by_path["/x/newer"]["problem"]
    table = look(path, "list", "/x")
    assert (table.status, len([line for line in table.lines if line.startswith("DAMAGED: /x/")])) == (1, 2)
    altered = look(path, "list", "/brokers/ids", "--format", "json")
    assert (altered.status, [("problem" in one) for one in altered.json]) == (1, [False, True])
    assert "does not match its checksum" in altered.json[1]["problem"]
    assert look(path, "get", "/x/binary").status == 1
    assert look(path, "get", "/x/well").status == 0


@pytest.mark.parametrize("value", [b'{"version":1,"n":NaN}', b'{"version":1,"n":-1e999}'])
def test_numbers_that_json_does_not_have_are_damage(path: str, store: FileStore, value: bytes) -> None:
    store.commit([Create("/x/number", value)])
    (listed,) = look(path, "list", "/x", "--format", "json").json
    got = look(path, "get", "/x/number", "--format", "json")
    assert (got.status, got.json, "value" in listed) == (1, listed, False)
    assert base64.b64decode(listed["value_base64"]) == value
    assert "cannot be decoded; base64" in look(path, "list", "/x").stdout


def test_values_are_shown_so_that_a_terminal_does_not_obey_them(path: str, store: FileStore) -> None:
    store.commit([Create("/x/value", '{"version":1,"a":"\x9b2J\\u001b\u202e","b":"\\ud800"}'.encode())])
    for words in (("list", "/x"), ("get", "/x/value")):
        told = look(path, *words)
        assert (told.status, told.stdout.replace("\n", "").isprintable()) == (0, True)
        assert all(seen in told.stdout for seen in ("\\u009b2J", "\\u001b", "\\u202e", "\\ud800"))
        assert look(path, *words, "--format", "json").stdout[:-1].isprintable()


def test_a_live_store_goes_on(path: str, store: FileStore) -> None:
    before = files(path)
    assert look(path, "list", "-r").status == 0
    assert files(path) == before
    store.commit([Create("/later", b'{"version":1}')])
    assert [one["path"] for one in look(path, "list", "--format", "json").json] == ["/brokers", "/cluster", "/later"]


def test_what_a_dead_broker_left_is_not_folded_in(path: str) -> None:
    ended = subprocess.run([sys.executable, "-P", "-c", WRITER, path], check=False)
    assert ended.returncode == -signal.SIGKILL
    before = files(path)
    assert len(before[f"{os.path.basename(path)}-wal"][0]) > 0
    assert len(look(path, "list", "/brokers/topics", "--format", "json").json) == 20
    assert look(path, "get", "/brokers/topics/t3").status == 0
    assert files(path) == before


def test_a_closed_store_gets_no_neighbours(path: str, store: FileStore) -> None:
    store.close()
    before = files(path)
    assert look(path, "list", "-r").status == 0
    assert files(path) == before
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_who_opens_a_closed_store_meanwhile_is_seen(path: str, store: FileStore) -> None:
    store.close()
    looks: list[list[str]] = []

    def collect(look: Any) -> list[str]:
        looks.append(look.children("/"))
        if len(looks) == 1:
            with FileStore(path, session_ms=60_000) as other:
                other.commit([Create("/later", b'{"version":1}')])
        return looks[-1]

    assert look_at_file(path, 5, collect) == ["brokers", "cluster", "later"]
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///nowhere/metadata.db", "/nowhere/metadata.db: there is no metadata store"),
        ("etcd://host/path", "'etcd://host/path' cannot be looked at; known are file://PATH and zookeeper://HOSTS/CHROOT"),
        ("metadata.db", "'metadata.db' cannot be looked at"),
        ("zookeeper://user:secret@host/x", "no place for credentials"),
        ("memory://", "is seen by this process alone"),
    ],
)
def test_what_is_no_store_is_refused(url: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = run_with(None, "store", "list", "--store", url)
    told = refused.stderr + capsys.readouterr().err
    assert (refused.status, refused.stdout) == (2, "")
    assert says in told
    assert "secret" not in told


@pytest.mark.parametrize(("content", "says"), [(b"x" * 5_000, "not a SQLite database"), (None, "SQLite database of something else")])
def test_another_file_is_refused(path: str, content: bytes | None, says: str) -> None:
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE t(x)")
        other.close()
    else:
        Path(path).write_bytes(content)
    refused = look(path, "list")
    assert refused.status == 2
    assert says in refused.stderr


def test_a_newer_format_is_refused(path: str, store: FileStore) -> None:
    store.close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 2")
    newer.close()
    refused = look(path, "list")
    assert (refused.status, "is a metadata store of format 2; this version of replog reads format 1" in refused.stderr) == (2, True)


def test_no_zookeeper_within_the_time() -> None:
    told = run_with(None, "store", "list", "--store", "zookeeper://127.0.0.1:1/x", "--timeout", "0.2")
    assert (told.status, told.stdout) == (4, "")
    words = "no ZooKeeper server of 127.0.0.1:1 opened a session within 0.2 s; the last that was tried: Connection refused"
    assert told.stderr.splitlines()[0].endswith(words)
    assert told.stderr.splitlines()[1] == "next: see whether the store is up; --timeout waits for longer"


def test_a_silent_zookeeper_is_left_when_the_time_is_up() -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(4_096))
                while connection.recv(4_096):  # until it goes
                    pass

        thread, _ = in_thread(listen)
        place = f"127.0.0.1:{server.getsockname()[1]}"
        told = run_with(None, "store", "list", "--store", f"zookeeper://{place}/x", "--timeout", "0.5")
        thread.join(30)
    assert (told.status, f"no ZooKeeper server of {place} opened a session within 0.5 s" in told.stderr) == (4, True)
    _, _, _, session_ms = struct.unpack_from(">iiqi", asked[0])
    assert session_ms == 500, "kazoo waits for a session time before it gives a server up"
