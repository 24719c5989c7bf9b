"""Metrics for `prometheus_client` (the extra `metrics`): a collector, on a registry that the application passes.

    from prometheus_client import CollectorRegistry
    registry = CollectorRegistry()
    registry.register(replog.metrics.prometheus.collector(broker))

Nothing is registered unasked: on the global registry two brokers of one process would clash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from replog.errors import ReplogError
from replog.metrics.histogram import Observed
from replog.metrics.names import METRICS, Metric
from replog.metrics.snapshot import Snapshot

__all__ = ["Collector", "collector"]


class Measured(Protocol):
    """A Broker or a Cluster."""

    def metrics(self, *, partitions: bool = False) -> Snapshot: ...


class Collector:
    """Takes a snapshot whenever the registry collects."""

    def __init__(self, measured: Measured, *, partitions: bool = False) -> None:
        self._measured = measured
        self._partitions = partitions

    def describe(self) -> list[Any]:
        """The names, so that a registry refuses a second collector with a ValueError: every scrape would have each metric twice, which
        Prometheus does not take. To register it takes no snapshot."""
        return [_family(metric) for metric in METRICS if self._partitions or not metric.per_partition]

    def collect(self) -> Iterator[Any]:
        """A family for each metric; none once what is measured is closed, so that everything else on the registry can still be scraped."""
        try:
            snapshot = self._measured.metrics(partitions=self._partitions)
        except ReplogError:
            return
        for metric, samples in snapshot:
            family = _family(metric)
            for sample in samples:
                value = sample.value
                if isinstance(value, Observed):
                    buckets = [("+Inf" if edge == float("inf") else repr(edge), count) for edge, count in value.cumulative()]
                    family.add_metric(sample.labels, buckets=buckets, sum_value=value.sum)
                else:
                    family.add_metric(sample.labels, value)
            yield family


def collector(measured: Measured, *, partitions: bool = False) -> Collector:
    """A collector of a Broker or a Cluster, for `registry.register`. `partitions`: with series for each partition."""
    return Collector(measured, partitions=partitions)


def _family(metric: Metric) -> Any:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    kind = HistogramMetricFamily if metric.kind == "histogram" else GaugeMetricFamily
    return kind(metric.name, metric.meaning, labels=metric.labels)
