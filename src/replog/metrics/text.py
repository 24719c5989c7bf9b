"""A snapshot in the text format of Prometheus, version 0.0.4, without its library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from replog.metrics.histogram import Observed
from replog.metrics.names import Metric
from replog.metrics.snapshot import Sample, Snapshot

__all__ = ["CONTENT_TYPE", "prometheus_text"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_IN_LABELS: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_IN_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def prometheus_text(snapshot: Snapshot) -> str:
    """All series, those of one metric together, with their help and type."""
    return "".join(line + "\n" for metric, samples in snapshot for line in _lines(metric, samples))


def _lines(metric: Metric, samples: Sequence[Sample]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning.translate(_IN_HELP)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in samples:
        pairs = list(zip(metric.labels, sample.labels, strict=True))
        value = sample.value
        if isinstance(value, Observed):
            for edge, count in value.cumulative():
                yield f"{metric.name}_bucket{_labels([*pairs, ('le', _number(edge))])} {count}"
            yield f"{metric.name}_sum{_labels(pairs)} {_number(value.sum)}"
            yield f"{metric.name}_count{_labels(pairs)} {value.count}"
        else:
            yield f"{metric.name}{_labels(pairs)} {_number(value)}"


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{value.translate(_IN_LABELS)}"' for name, value in pairs)
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(value)
