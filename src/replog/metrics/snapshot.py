"""A snapshot: every metric at one moment, as plain numbers. Nothing outside the standard library is needed to make or read one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from replog.errors import UsageError
from replog.metrics.histogram import Observed
from replog.metrics.names import BY_NAME, METRICS, Metric

__all__ = ["Sample", "Snapshot"]


class Sample(NamedTuple):
    """One series at one moment."""

    name: str
    labels: tuple[str, ...]
    """Values of the labels of its metric, in their order."""
    value: float | Observed


class Snapshot:
    """What a broker, or all brokers of a cluster, had counted at `time_ms` (milliseconds since 1970).

    >>> snapshot = Snapshot(0, [Sample("replog_leaders", ("1",), 3), Sample("replog_leaders", ("2",), 4)])
    >>> snapshot.value("replog_leaders", broker=2), snapshot.value("replog_leaders")
    (4, 7)
    """

    __slots__ = ("_samples", "time_ms")

    def __init__(self, time_ms: int, samples: Iterable[Sample]) -> None:
        self.time_ms = time_ms
        self._samples: dict[str, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.name, []).append(sample)

    def __iter__(self) -> Iterator[tuple[Metric, list[Sample]]]:
        """Metrics that have series, in the order of the table, each with its series."""
        return ((metric, self._samples[metric.name]) for metric in METRICS if metric.name in self._samples)

    def __len__(self) -> int:
        """How many series there are."""
        return sum(map(len, self._samples.values()))

    def value(self, name: str, **labels: object) -> float:
        """The sum over all series with these labels, of a histogram the number of observations; 0 if there is none.

        UsageError for a name or a label that no metric has.
        """
        return sum((s.value.count if isinstance(s.value, Observed) else s.value for s in self._found(name, labels)), 0)

    def observed(self, name: str, **labels: object) -> Observed | None:
        """The observations of a histogram over all series with these labels; None if there is no series. UsageError as for `value`."""
        found: Observed | None = None
        for sample in self._found(name, labels):
            if not isinstance(sample.value, Observed):
                raise UsageError(f"{name} is a {BY_NAME[name].kind}, and no histogram")
            found = sample.value if found is None else found + sample.value
        return found

    def _found(self, name: str, labels: dict[str, object]) -> list[Sample]:
        metric = BY_NAME.get(name)
        if metric is None:
            raise UsageError(f"there is no metric {name!r}; docs/metrics.md lists them")
        for label in labels:
            if label not in metric.labels:
                raise UsageError(f"{name} has no label {label!r}; it has {', '.join(metric.labels) or 'none'}")
        wanted = [(metric.labels.index(label), str(value)) for label, value in labels.items()]
        return [s for s in self._samples.get(name, ()) if all(s.labels[at] == value for at, value in wanted)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: name -> series, each with `labels` and `value`, of a histogram `buckets`, `sum` and `count`."""
        return {metric.name: [_plain(metric, sample) for sample in samples] for metric, samples in self}


def _plain(metric: Metric, sample: Sample) -> dict[str, Any]:
    labels = dict(zip(metric.labels, sample.labels, strict=True))
    if isinstance(sample.value, Observed):
        buckets = [["+Inf" if edge == float("inf") else edge, count] for edge, count in sample.value.cumulative()]
        return {"labels": labels, "buckets": buckets, "sum": sample.value.sum, "count": sample.value.count}
    return {"labels": labels, "value": sample.value}
