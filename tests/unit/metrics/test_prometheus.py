"""Both ways to Prometheus say what the snapshot says: the text of our own, and the collector of its library."""

from __future__ import annotations

from collections import namedtuple
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.pages import python

from replog.errors import UsageError
from replog.metrics.histogram import Histogram
from replog.metrics.names import BY_NAME, METRICS
from replog.metrics.prometheus import collector
from replog.metrics.snapshot import Sample, Snapshot
from replog.metrics.text import prometheus_text


def snapshot(topic: str = "orders") -> Snapshot:
    times = Histogram()
    for seconds in (0.0002, 0.003, 0.003, 99.0):
        times.observe(seconds)
    samples = [Sample("replog_leaders", (broker,), count) for broker, count in (("1", 3), ("2", 4))]
    samples += [Sample("replog_records_in_total", ("1", topic), 17), Sample("replog_replica_max_lag_seconds", ("1",), 0.25)]
    return Snapshot(1_000, [*samples, Sample("replog_request_seconds", ("1", "produce"), times.observed())])


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series that Prometheus' parser finds."""
    found: dict[Any, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type in ("gauge", "counter", "histogram")
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def test_the_text_is_what_was_counted() -> None:
    found = parsed(prometheus_text(snapshot()))
    assert found["replog_leaders", frozenset({("broker", "2")})] == 4
    assert found["replog_records_in_total", frozenset({("broker", "1"), ("topic", "orders")})] == 17
    of = {("broker", "1"), ("request", "produce")}
    assert found["replog_request_seconds_count", frozenset(of)] == 4
    assert found["replog_request_seconds_sum", frozenset(of)] == pytest.approx(99.0062)
    assert found["replog_request_seconds_bucket", frozenset(of | {("le", "0.0025")})] == 1
    assert found["replog_request_seconds_bucket", frozenset(of | {("le", "60.0")})] == 3
    assert found["replog_request_seconds_bucket", frozenset(of | {("le", "+Inf")})] == 4


@given(st.text())
def test_labels_are_escaped(topic: str) -> None:
    (value,) = (v for (name, labels), v in parsed(prometheus_text(snapshot(topic))).items() if ("topic", topic) in labels)
    assert value == 17


def test_help_and_type_come_once_per_metric() -> None:
    lines = prometheus_text(snapshot()).splitlines()
    assert lines[:2] == [f"# HELP replog_leaders {BY_NAME['replog_leaders'].meaning}", "# TYPE replog_leaders gauge"]
    assert sum(line.startswith("# TYPE ") for line in lines) == 4


def test_the_collector_says_the_same_and_asks_only_when_it_is_collected() -> None:
    asked = []

    class Measured:
        def metrics(self, *, partitions: bool = False) -> Snapshot:
            asked.append(partitions)
            return snapshot()

    registry = CollectorRegistry()
    registry.register(collector(Measured(), partitions=True))
    assert asked == []
    text = generate_latest(registry).decode()
    assert asked == [True]
    assert parsed(text) == parsed(prometheus_text(snapshot()))


def test_what_is_closed_keeps_nothing_else_from_being_scraped() -> None:
    class Measured:
        def metrics(self, *, partitions: bool = False) -> Snapshot:
            raise UsageError("this Broker is closed")

    registry = CollectorRegistry()
    Gauge("another", "Of the application.", registry=registry).set(3)
    registry.register(collector(Measured()))
    assert parsed(generate_latest(registry).decode()) == parsed("# HELP another Of the application.\n# TYPE another gauge\nanother 3.0\n")


def test_one_registry_takes_one_collector() -> None:
    """Else each metric would be there twice, with its type, and without a label that tells one loop from the other."""

    class Measured:
        def metrics(self, *, partitions: bool = False) -> Snapshot:
            return snapshot()

    registry = CollectorRegistry()
    registry.register(first := collector(Measured()))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(collector(Measured(), partitions=True))
    registry.unregister(first)
    registry.register(collector(Measured(), partitions=True))
    assert generate_latest(registry).count(b"# TYPE replog_leaders ") == 1


def test_the_bridge_of_the_page_gives_open_telemetry_every_gauge_and_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = (code for _, code in python("docs/metrics.md") if "def observe" in code)
    (tmp_path / "bridge_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    bridge = import_module("bridge_of_the_page")
    made: dict[str, Any] = {}

    class Meter:
        def create_observable_gauge(self, name: str, **options: Any) -> None:
            made[name] = options

        create_observable_counter = create_observable_gauge

    class Measured:
        def metrics(self) -> Snapshot:
            return snapshot()

    bridge.observe(Measured(), Meter(), namedtuple("Observation", "value attributes"))
    assert set(made) == {metric.name for metric in METRICS if metric.kind != "histogram"}, "also those that have no series yet"
    found = {name: [(o.value, o.attributes) for o in options["callbacks"][0](None)] for name, options in made.items()}
    assert {name: seen for name, seen in found.items() if seen} == {
        "replog_leaders": [(3, {"broker": "1"}), (4, {"broker": "2"})],
        "replog_records_in_total": [(17, {"broker": "1", "topic": "orders"})],
        "replog_replica_max_lag_seconds": [(0.25, {"broker": "1"})],
    }


def test_values_are_summed_over_the_labels_that_are_not_named() -> None:
    one = snapshot()
    assert (one.value("replog_leaders"), one.value("replog_leaders", broker=2), one.value("replog_leaders", broker=3)) == (7, 4, 0)
    assert one.value("replog_request_seconds", request="produce") == 4
    found = one.observed("replog_request_seconds")
    assert found is not None
    assert found.count == 4
    assert one.observed("replog_store_commit_seconds") is None
    assert len(one) == 5
    assert one.to_dict()["replog_leaders"][1] == {"labels": {"broker": "2"}, "value": 4}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="no metric 'replog_leader'"):
        snapshot().value("replog_leader")
    with pytest.raises(UsageError, match="no label 'topic'; it has broker"):
        snapshot().value("replog_leaders", topic="orders")
    with pytest.raises(UsageError, match="is a gauge, and no histogram"):
        snapshot().observed("replog_leaders")
