"""The status page over HTTP: true, small, and no way to hold a broker up or to learn more than it shows."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

import replog
from replog.errors import UsageError
from replog.metrics.text import prometheus_text
from replog.status import server as serving
from replog.status import source as sources
from replog.status.acting import Look
from replog.status.server import CONNECTIONS_MAX, StatusServer
from replog.testing.eventually import eventually

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """(status, body, headers)."""
    try:
        with DIRECT.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode(), dict(refused.headers)


def status_of(page: StatusServer, query: str = "") -> dict[str, Any]:
    status, body, _ = get(f"{page.url}status.json{query}")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def said(page: StatusServer, data: bytes) -> bytes:
    """What comes back for these bytes, until the server closes."""
    with socket.create_connection(("127.0.0.1", int(page.url.rsplit(":", 1)[1].rstrip("/")))) as connection:
        connection.settimeout(60)
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=4, replication_factor=3, min_isr=2)
        cluster.append("orders", 0, [b"x"] * 10)
        yield cluster


@pytest.fixture
def page(cluster: replog.Cluster) -> Iterator[StatusServer]:
    with cluster.serve_status() as page:
        yield page


def test_every_replica_is_there_with_its_position(page: StatusServer) -> None:
    found = status_of(page)
    assert found["health"]["healthy"]
    assert found["reason"] == ""
    assert [(b["broker"], b["state"], b["replicas"]) for b in found["brokers"]] == [(n, "serving", 4) for n in (1, 2, 3)]
    rows = found["partitions"]["rows"]
    assert [row["partition"] for row in rows] == [0, 1, 2, 3]
    assert (rows[0]["end_offset"], rows[0]["high_watermark"], rows[0]["isr"]) == (10, 10, [1, 2, 3])
    replicas = [(r["broker"], r["end_offset"], r["lag_records"], r["in_sync"]) for r in rows[0]["replicas"]]
    assert replicas == [(n, 10, 0, True) for n in (1, 2, 3)]
    assert found["topics"] == [{"topic": "orders", "partitions": 4, "wrong": 0}]


def test_the_controller_says_since_when_it_is_one_and_what_waits_there(
    cluster: replog.Cluster, page: StatusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = status_of(page)
    said = found["controller"]
    assert (said["broker_id"], said["controller_epoch"]) == (found["health"]["controller"], found["health"]["controller_epoch"])
    assert found["time_ms"] - 600_000 < said["since_ms"] <= found["time_ms"]
    assert said.keys() == {"broker_id", "controller_epoch", "since_ms", "queued_events", "due_partitions"}
    monkeypatch.setattr(sources, "FRESH_S", 0)
    known = cluster.describe_features().controller
    assert known is not None
    for waiting in (7, 8):  # nothing else changes: it is told all the same
        look = Look(cluster._view(30), "", False, evolve(known, queued_events=waiting))
        monkeypatch.setattr(sources, "look", lambda _client, _timeout_s, look=look: look)
        assert status_of(page)["controller"]["queued_events"] == waiting
    monkeypatch.setattr(sources, "look", lambda _client, _timeout_s: Look(cluster._view(30), "", False))
    assert status_of(page)["controller"] is None


def test_a_lost_broker_is_seen_and_explained(cluster: replog.Cluster, page: StatusServer) -> None:
    assert get(f"{page.url}health")[0] == 200
    cluster.kill_broker(3)
    cluster.append("orders", 0, ["y"])
    found = eventually(lambda: None if (now := status_of(page))["health"]["healthy"] else now)
    assert found["health"]["under_replicated_total"] == 4
    assert found["reason"].startswith("brokers that hold copies and are not there: 3; 4 partitions with fewer replicas in sync")
    assert [b["state"] for b in found["brokers"]] == ["serving", "serving", "away"]
    (row,) = (row for row in found["partitions"]["rows"] if row["partition"] == 0)
    assert [(r["broker"], r["live"], r["in_sync"]) for r in row["replicas"]] == [(1, True, True), (2, True, True), (3, False, False)]
    assert any("Broker 3 is not in sync: it is not registered" in text for one in found["explained"] for text in one["sentences"])
    assert {"isr", "election"} <= {one.get("kind") for one in found["changes"]}
    status, body, _ = get(f"{page.url}health")
    assert status == 503
    assert json.loads(body)["missing_brokers"] == [3]
    cluster.start_broker(3)
    cluster.wait_until_in_sync()
    assert eventually(lambda: get(f"{page.url}health")[0] == 200)


def test_pages_filters_and_trouble_first(cluster: replog.Cluster, page: StatusServer) -> None:
    cluster.create_topic("wrong", assignment={0: [2, 3]}, min_isr=1)
    cluster.create_topic("right", partitions=25, assignment={n: [1] for n in range(25)}, min_isr=1)
    cluster.kill_broker(3)
    eventually(lambda: status_of(page)["health"]["under_replicated_total"] == 5)
    first = status_of(page, "?size=10")["partitions"]
    assert (first["total"], first["pages"], first["page"], len(first["rows"])) == (30, 3, 1, 10)
    assert [row["topic"] for row in first["rows"][:5]] == ["orders"] * 4 + ["wrong"]
    last = status_of(page, "?size=10&page=9")["partitions"]
    assert (last["page"], len(last["rows"])) == (3, 10)
    some = status_of(page, "?filter=RIGHT-2")["partitions"]
    assert [row["partition"] for row in some["rows"]] == [2, 20, 21, 22, 23, 24]
    assert (some["total"], some["of"]) == (6, 30)
    assert status_of(page, "?unhealthy=1&filter=wrong")["partitions"]["total"] == 1


def test_moves_are_shown_until_they_are_done(cluster: replog.Cluster, page: StatusServer) -> None:
    cluster.create_topic("moved", assignment={0: [1]}, min_isr=1)
    cluster.stop_broker(3)
    cluster.reassign({("moved", 0): [3]})
    (move,) = eventually(lambda: status_of(page)["reassignments"])
    assert (move["topic"], move["target"]) == ("moved", [3])
    cluster.start_broker(3)
    assert eventually(lambda: status_of(page)["reassignments"] == [])


def test_metrics_are_those_of_the_cluster(cluster: replog.Cluster, page: StatusServer) -> None:
    status, body, headers = get(f"{page.url}metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    values = {f.name: sum(s.value for s in f.samples) for f in text_string_to_metric_families(body) if f.type == "gauge"}
    assert (values["replog_leaders"], values["replog_active_controller"]) == (4, 1)
    assert json.loads(get(f"{page.url}metrics?format=json")[1])["replog_leaders"][0]["labels"] == {"broker": "1"}


def test_programs_are_told_when_numbers_were_taken(page: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FRESH_S", 3_600.0)
    before = time.time_ns() // 1_000_000
    taken = [int(get(f"{page.url}metrics?format=json")[2]["Replog-Taken-At-Ms"]) for _ in range(2)]
    assert before <= taken[0] <= time.time_ns() // 1_000_000
    assert taken[1] == taken[0], "the second one is the first one's"


def test_the_page_may_load_nothing_from_elsewhere(page: StatusServer) -> None:
    status, body, headers = get(page.url)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "://" not in body


@pytest.mark.parametrize(
    ("path", "headers", "expected", "why"),
    [
        ("nothing", {}, 404, "nothing is at '/nothing'"),
        ("../../etc/passwd", {}, 404, "nothing is at '/"),
        ("status.json?page=0", {}, 400, "page is '0'; it is a number from 1 to"),
        ("status.json?size=501", {}, 400, "size is '501'; it is a number from 1 to 500"),
        ("status.json?size=%C3%BC%0A" + "5" * 100, {}, 400, r"size is '\xfc\n" + "5" * 58 + "...'"),
        ("status.json?pages=1", {}, 400, "the query has 'pages'; it knows filter, page"),
        ("status.json?unhealthy=yes", {}, 400, "unhealthy is 'yes'; it is 1 or true, 0 or false"),
        ("metrics?partitions=all", {}, 400, "partitions is 'all'; it is 1 or true"),
        ("metrics?format=yaml", {}, 400, "format is 'yaml'; it is text or json"),
        ("health", {"Host": "evil.example"}, 421, "under the name 'evil.example'"),
    ],
)
def test_what_is_not_served(page: StatusServer, path: str, headers: dict[str, str], expected: int, why: str) -> None:
    status, body, _ = get(page.url + path, **headers)
    assert status == expected
    assert why in body


def test_nothing_can_be_changed_and_head_has_no_body(page: StatusServer) -> None:
    for method in (b"POST", b"PUT", b"DELETE", b"OPTIONS"):
        answer = said(page, method + b" /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"\r\nAllow: GET, HEAD\r\n" in answer
    answer = said(page, b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_however_many_look_the_cluster_is_asked_once_while_an_answer_is_fresh(
    cluster: replog.Cluster, page: StatusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FRESH_S", 3_600.0)
    before = cluster._embedded._pump.delivered
    times = {status_of(page)["time_ms"] for _ in range(20)}
    assert len(times) == 1
    first = cluster._embedded._pump.delivered
    assert first > before
    status_of(page)
    assert cluster._embedded._pump.delivered == first


def test_connections_that_say_nothing_keep_nobody_out(page: StatusServer) -> None:
    port = int(page.url.rsplit(":", 1)[1].rstrip("/"))
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS_MAX)]
    try:
        eventually(lambda: len(page._silent) == CONNECTIONS_MAX)
        assert [get(f"{page.url}health")[0] for _ in range(3)] == [200] * 3
        assert held[0].recv(1) == b"", "the first has made room"
    finally:
        for one in held:
            one.close()
    eventually(lambda: not page._connections)
    assert page._silent == {}


def test_metrics_are_written_once_for_each_snapshot(page: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FRESH_S", 3_600.0)
    written: list[object] = []

    def counted(snapshot: Any) -> str:
        written.append(snapshot)
        return prometheus_text(snapshot)

    monkeypatch.setattr(serving, "prometheus_text", counted)
    bodies = {get(f"{page.url}metrics?partitions=1")[1] for _ in range(5)}
    assert (len(bodies), len(written)) == (1, 1)
    assert get(f"{page.url}metrics")[1] not in bodies
    assert len(written) == 2


def test_too_many_connections_are_turned_away_and_slow_ones_cut_off(page: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    port, goes_on, answers = int(page.url.rsplit(":", 1)[1].rstrip("/")), threading.Event(), page._answer

    def slow(request: Any) -> Any:
        goes_on.wait()
        return answers(request)

    with monkeypatch.context() as patch:
        patch.setattr(page, "_answer", slow)
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS_MAX)]
        try:
            for one in held:
                one.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            eventually(lambda: len(page._connections) == CONNECTIONS_MAX and not page._silent)
            assert get(f"{page.url}health")[0] == 503
        finally:
            goes_on.set()
            for one in held:
                one.close()
    eventually(lambda: not page._connections)
    monkeypatch.setattr(serving, "REQUEST_S", 0.2)
    assert said(page, b"GET /health HTTP/1.1\r\n").startswith(b"HTTP/1.1 408 ")
    assert get(f"{page.url}health")[0] == 200


class _Exhausted:
    """A listener in a process that has no descriptors left, for so many tries; then the real one."""

    def __init__(self, real: socket.socket, tries: int) -> None:
        self._real = real
        self.left = tries

    def accept(self) -> tuple[socket.socket, Any]:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_out_of_descriptors_it_says_so_once_a_minute_and_goes_on_afterwards(
    page: StatusServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [1_000_000.0]
    monkeypatch.setattr(serving, "_PAUSE_S", 0.0)
    monkeypatch.setattr(serving, "monotonic", lambda: now_s[0])

    def warned() -> int:
        return sum("accepts nobody for now" in record.getMessage() for record in caplog.records)

    for minutes, (passed_s, expected) in enumerate([(0.0, 1), (59.0, 1), (2.0, 2)]):
        now_s[0] += passed_s
        exhausted = _Exhausted(page._listener, 100)
        monkeypatch.setattr(page, "_listener", exhausted)
        assert get(f"{page.url}health")[0] == 200  # whoever was accepted before
        eventually(lambda one=exhausted: one.left == 0)
        assert warned() == expected, f"step {minutes}"
        assert get(f"{page.url}health")[0] == 200


def test_a_reader_that_does_not_read_is_cut_off(cluster: replog.Cluster, page: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ANSWER_S", 0.2)
    monkeypatch.setattr(serving, "prometheus_text", lambda snapshot: "x" * (32 << 20))  # more than buffers of sockets take
    port = int(page.url.rsplit(":", 1)[1].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(lambda: page._connections)
        eventually(lambda: not page._connections)
    cluster.append("orders", 0, ["goes on"])


def test_a_mistake_of_ours_tells_peers_nothing(
    page: StatusServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(serving, "prometheus_text", fail)
    status, body, _ = get(f"{page.url}metrics")
    assert (status, body) == (500, "something went wrong; the log of the broker says what\n")
    assert "a secret" in caplog.text
    assert get(f"{page.url}health")[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "8.8.8.8", "example.com"])
def test_beyond_loopback_nobody_is_served_unless_insecure(cluster: replog.Cluster, host: str) -> None:
    with pytest.raises(UsageError, match="can be reached from other machines"):
        cluster.serve_status(host=host)


def test_bad_addresses_are_refused(cluster: replog.Cluster, page: StatusServer) -> None:
    with pytest.raises(UsageError, match="port is 70000; allowed are 0 to 65535"):
        cluster.serve_status(port=70_000)
    with pytest.raises(UsageError, match="Address already in use"):
        cluster.serve_status(port=int(page.url.rsplit(":", 1)[1].rstrip("/")))


def test_closing_leaves_nothing(cluster: replog.Cluster) -> None:
    before = set(os.listdir("/proc/self/fd")), threading.active_count()
    page = cluster.serve_status()
    with socket.create_connection(("127.0.0.1", int(page.url.rsplit(":", 1)[1].rstrip("/")))):
        eventually(lambda: page._connections)
        assert get(f"{page.url}health")[0] == 200
        page.close()
    page.close()
    assert (set(os.listdir("/proc/self/fd")), threading.active_count()) == before
    with pytest.raises(OSError, match="refused"):
        DIRECT.open(page.url, timeout=5)
    cluster.append("orders", 0, ["its client is not closed"])


def test_a_broker_serves_its_page_and_says_so_when_it_has_ended(tmp_path: Path) -> None:
    broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b1", store=f"file://{tmp_path / 'store.db'}")
    with broker, broker.serve_status() as page:
        broker.wait_until_ready()
        with broker.client() as client:
            client.create_topic("orders", replication_factor=1)
        assert eventually(lambda: get(f"{page.url}health")[0] == 200)
        assert [row["replicas"][0]["leader"] for row in status_of(page)["partitions"]["rows"]] == [True]
        broker.stop()
        assert eventually(lambda: get(f"{page.url}health")[0] == 503)
        assert "nobody answers" in eventually(lambda: (found := get(f"{page.url}metrics"))[0] == 503 and found[1])


def test_a_leader_that_hangs_holds_up_pages_and_neither_health_nor_metrics(
    cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release, waited_in_vain = threading.Event(), threading.Event(), threading.Event()

    def hang(self: object, *_: object) -> dict[object, object]:
        entered.set()
        if not release.wait(20):
            waited_in_vain.set()
        return {}

    monkeypatch.setattr(type(cluster), "_followers", hang)
    with cluster.serve_status() as page:
        shown: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: shown.append(status_of(page)))
        thread.start()
        assert entered.wait(20)
        healthy, metrics = get(f"{page.url}health")[0], get(f"{page.url}metrics")[0]
        assert (healthy, metrics, waited_in_vain.is_set()) == (200, 200, False)
        release.set()
        thread.join()
        assert shown[0]["partitions"]["total"] == 4


def test_who_asks_what_is_closed_makes_no_client_any_more() -> None:
    made: list[Any] = []

    def client() -> Any:
        made.append(1)
        raise AssertionError

    source = sources.Source(lambda: pytest.fail("no metrics"), client, list)
    source.close()
    with pytest.raises(UsageError, match="is closed"):
        source.status(sources.Query())
    assert (source.health()["healthy"], made) == (False, [])
