"""What is counted of partitions, and that nobody is woken where all is well."""

from __future__ import annotations

import re

import pytest

from replog.metrics.names import BY_NAME
from replog.metrics.reading import Tally


def alarms(*partitions: tuple[tuple[int, ...], tuple[int, ...], int]) -> set[str]:
    """The metrics of a broker, of those that say at once when they alarm, that do: with partitions of these replicas, ISR and min_isr."""
    tally = Tally("1", 0, False)
    for replicas, isr, least in partitions:
        tally.led(replicas, isr, least, False)
    found = set()
    for name, count in tally.counts.items():
        alert = re.match(r"> 0(?: while (\w+) > 0)?", BY_NAME[f"replog_{name}"].alert)
        if alert is not None and count > 0 and (alert[1] is None or tally.counts[alert[1]] > 0):
            found.add(name)
    return found


@pytest.mark.parametrize(("replicas", "least"), [((1,), 1), ((1, 2), 2), ((1, 2, 3), 3), ((1, 2, 3), 2)])
def test_nobody_is_woken_by_a_topic_that_is_well(replicas: tuple[int, ...], least: int) -> None:
    assert alarms((replicas, replicas, least)) == set()
    tally = Tally("1", 0, False)
    tally.led(replicas, replicas, least, False)
    assert tally.counts["at_min_isr_partitions"] == (len(replicas) == least), "as Kafka counts them"


def test_a_move_misses_nobody_who_is_new() -> None:
    tally = Tally("1", 0, False)
    tally.led((1, 2, 3), (1, 2), 2, True, 1)
    assert tally.counts["under_replicated_partitions"] == 0
    tally.led((1, 2, 3, 4), (1, 3), 2, True, 1)
    assert tally.counts["under_replicated_partitions"] == 1


def test_who_is_woken_where_a_replica_is_missing() -> None:
    assert alarms(((1, 2, 3), (1, 2), 2)) == {"under_replicated_partitions", "at_min_isr_partitions"}
    assert alarms(((1, 2, 3), (1,), 2)) == {"under_replicated_partitions", "under_min_isr_partitions"}
