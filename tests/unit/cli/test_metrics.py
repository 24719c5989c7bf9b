"""`replog metrics`: of a broker what it has counted, without a status page what any broker knows of all."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.threads import in_thread
from tests.unit.cli.conftest import Ran, Run, run_with

import replog


def values(ran: Ran) -> dict[tuple[str, str], float]:
    """(name, broker) -> value."""
    assert ran.status == 0, ran.stderr
    return {(s.name, s.labels.get("broker", "")): s.value for f in text_string_to_metric_families(ran.stdout) for s in f.samples}


def test_what_is_known_of_all_brokers_is_what_they_count(cluster: replog.Cluster, run: Run) -> None:
    cluster.create_topic("orders", partitions=5, replication_factor=3, min_isr=2)
    cluster.create_topic("alone", assignment={0: [3]}, min_isr=1)
    cluster.kill_broker(3)
    cluster.elect_leaders()
    told, counted = values(run("metrics")), cluster.metrics()
    assert {broker for _, broker in told} == {"1", "2"}
    for (name, broker), value in told.items():
        assert value == counted.value(name, broker=broker), name
    assert sum(value for (name, _), value in told.items() if name == "replog_under_replicated_partitions") == 5
    assert sum(value for (name, _), value in told.items() if name == "replog_offline_partitions") == 1
    assert sum(value for (name, _), value in told.items() if name == "replog_active_controller") == 1


def test_a_broker_is_asked_by_the_url_of_its_page(cluster: replog.Cluster) -> None:
    cluster.create_topic("orders", replication_factor=3)
    cluster.append("orders", 0, ["a", "b", "c"])
    with cluster.serve_status() as page:
        found = values(run_with(None, "metrics", page.url))
        assert sum(value for (name, _), value in found.items() if name == "replog_records_in_total") == 3
        plain = run_with(None, "metrics", page.url, "--format", "json").json
        assert sum(one["value"] for one in plain["replog_records_in_total"]) == 3


def test_series_of_each_partition_come_when_asked_for(cluster: replog.Cluster, run: Run) -> None:
    cluster.create_topic("orders", partitions=2, replication_factor=3)
    cluster.append("orders", 1, ["a", "b", "c"])
    with cluster.serve_status() as page:
        assert "replog_high_watermark" not in run("metrics", page.url).stdout
        told = run("metrics", page.url, "--partitions")
        assert (told.status, 'replog_log_end_offset{topic="orders",partition="1",broker="2"} 3\n' in told.stdout) == (0, True)
        plain = run("metrics", page.url, "--partitions", "--format", "json").json
        assert len(plain["replog_high_watermark"]) == 6
        assert "replog_high_watermark" not in run("metrics", page.url).stdout, "the answer of a moment ago was to another question"
    refused = run("metrics", "--partitions")
    assert (refused.status, "--partitions goes with the URL of a status page" in refused.stderr) == (2, True)


def test_programs_get_plain_values(cluster: replog.Cluster, run: Run) -> None:
    found = run("metrics", "--format", "json").json
    assert [one["labels"]["broker"] for one in found["replog_leaders"]] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("127.0.0.1:8101", "is not the URL of a status page, such as http://127.0.0.1:8101"),
        ("file:///etc/passwd", "is not the URL"),
        ("http://127.0.0.1:secret", "'http://127.0.0.1:***' is not the URL of a status page: the port is no number, and not shown"),
        ("http://anna:12secret/secret?x", "'http://anna:***' is not"),
        ("http://[::1]:80 secret", "'http://[::1]:***' is not"),
        ("HTTP://anna:secret/secret", "'HTTP://anna:***' is not"),
        ("http://127.0.0.1:99999999999999999999", "'http://127.0.0.1:99999999999999999999' is not the URL of a status page"),
        ("http://a:80/a b?token=secret", "'http://a:80/a b?token=***' is not the URL of a status page\n"),
        ("http:/anna:secret", "'http:/anna:***' is not"),
        ("http://[anna:secret]", "'http://[anna:***' is not"),
        ("http://a b", "is not the URL of a status page: URL can't contain control characters"),
        ("http://a:80/x y", "'http://a:80/x y' is not the URL of a status page: URL can't contain control characters"),
        ("http://[::1", "is not the URL"),
        ("http://anna:secret@127.0.0.1:8101", "'http://***@127.0.0.1:8101' has a user or a password, and a status page asks for none"),
        ("http://anna:#secret@127.0.0.1:8101/x?y#z", "a status page asks for none"),
        ("http://anna:se@cret@host", "a status page asks for none"),
        ("anna:secret@127.0.0.1:8101", "'***@127.0.0.1:8101' is not the URL"),
        ("ftp://anna:secret@host", "'ftp://***@host' is not the URL"),
        ("anna:secret://secret@host", "'***@host' is not the URL"),
    ],
)
def test_what_is_no_url_is_refused(url: str, text: str) -> None:
    ran = run_with(None, "metrics", url)
    assert (ran.status, ran.stdout) == (2, "")
    assert text in ran.stderr
    assert "cret" not in ran.stderr, "it may stand in front of others"


_CUT_OFF = b"Transfer-Encoding: chunked\r\n\r\n10\r\nabc"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "does not answer in HTTP"),
        (b"", "does not answer"),
        (b"HTTP/1.1 200 OK\r\n" + _CUT_OFF, "or not to the end"),
        (b"HTTP/1.1 500 Oh\r\n" + _CUT_OFF, "answers 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "is not the status page of a broker"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "is not the status page of a broker"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"a": NaN}', "is not the status page of a broker"),
        (b"HTTP/1.1 404 Oh\r\n\r\nnot here\nreplog: all is well\x1b[2J", "answers 404: not here replog: all is well\\u001b[2J\n"),
    ],
)
def test_somebody_else_answers(answer: bytes, text: str) -> None:
    assert text in somebody(answer, "--format", "json")


@pytest.mark.parametrize("page", [b"<html>\x1b[2J\n<body>", b"# TYPE go_threads gauge\ngo_threads 7\n", b""])
def test_another_page_is_no_metrics(page: bytes) -> None:
    told = somebody(b"HTTP/1.1 200 OK\r\n\r\n" + page)
    assert "is not the status page of a broker: no metric of replog is in what it answers, " in told
    assert "\x1b" not in told


def somebody(answer: bytes, *words: str) -> str:
    """What is said where a page answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(answer)

        thread, _ = in_thread(serve)
        ran = run_with(None, "metrics", f"http://127.0.0.1:{server.getsockname()[1]}", *words)
        thread.join(30)
    assert ran.status == 4
    if words:
        assert (told := json.loads(ran.stdout))["status"] == 4
        assert told["error"] == "Unavailable"
    else:
        assert ran.stdout == ""
    return ran.stderr


def test_a_page_that_comes_byte_by_byte_is_left_when_the_time_is_up() -> None:
    enough, sent = threading.Event(), 0
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            nonlocal sent
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while sent < 100 and not enough.wait(0.1):
                    connection.sendall(b"#")
                    sent += 1

        thread, _ = in_thread(drip)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        ran = run_with(None, "metrics", url, "--timeout", "0.5")
        enough.set()
        thread.join(30)
    assert (ran.status, ran.stdout) == (4, "")
    assert f"{url} does not answer: not all of it came within 0.5 s" in ran.stderr
    assert 0 < sent < 100


@pytest.mark.parametrize("seconds", ["1e10", "inf", "1e300"])
def test_patience_without_end(cluster: replog.Cluster, run: Run, seconds: str) -> None:
    with cluster.serve_status() as page:
        assert run("metrics", page.url, "--timeout", seconds).status == 0
        assert run("top", page.url, "--once", "--interval", "0.1", "--timeout", seconds).status == 0


def test_nobody_answers(cluster: replog.Cluster) -> None:
    page = cluster.serve_status()
    page.close()
    ran = run_with(None, "metrics", page.url)
    assert ran.status not in (0, 2)
    assert "does not answer" in ran.stderr
    with cluster.serve_status() as other:
        ran = run_with(None, "metrics", f"{other.url}x")
        assert "answers 404: nothing is at '/x/metrics'; there are /, /health, /metrics and /status.json" in ran.stderr
