"""Lanes, limits and timers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tests.unit.samples import messages

from replog import messages as m
from replog.errors import UsageError
from replog.testing.clock import ManualClock
from replog.transport.tcp import BULK, CONTROL, DATA, TcpLimits, TcpTransport, lane_of
from replog.transport.tcp.timers import Timers

SAMPLES = {type(each): each for each in messages().values()}
OF_DATA = {m.Produce, m.Produced, m.Fetch, m.Fetched, m.Flushed, m.ListOffsets, m.ListedOffsets, m.OffsetsForLeaderEpoch, m.Epochs}


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_each_message_has_its_lane(kind: type[Any]) -> None:
    message = SAMPLES[kind]
    if kind in (m.Fetch, m.Fetched):
        assert lane_of(attrs.evolve(message, catch_up=True)) == BULK
        message = attrs.evolve(message, catch_up=False)
    assert lane_of(message) == (DATA if kind in OF_DATA else CONTROL)
    assert lane_of(message, "client") == (BULK if kind is m.Fetch else DATA)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(TcpLimits)])
def test_a_limit_that_cannot_work_is_refused_by_name(name: str) -> None:
    for value in (*([] if name == "connections_per_address_max" else [0]), -1, 1.5, True, None):  # 0: as many as there are
        with pytest.raises(UsageError, match=name):
            TcpLimits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("role", "broker_id"), [("broker", -1), ("client", 0), ("king", 1)])
def test_role_and_id_fit_together(role: Any, broker_id: int) -> None:
    with pytest.raises(UsageError, match=role):
        TcpTransport(role=role, broker_id=broker_id, now_ms=ManualClock().now_ms)


def test_timers_tell_each_once_at_the_earliest_time_asked_for() -> None:
    timers: Timers[str] = Timers()
    assert timers.next_ms() is None
    for name, at in [("a", 50), ("b", 20), ("a", 30), ("a", 90), ("c", 10)]:
        timers.look(name, at)
    timers.forget("c")
    timers.forget("c")
    assert len(timers) == 2
    assert timers.next_ms() == 20
    assert list(timers.due(19)) == []
    assert list(timers.due(30)) == ["b", "a"]
    assert list(timers.due(1_000)) == []
    timers.look("a", 5)
    assert timers.next_ms() == 5


def test_what_was_forgotten_takes_no_room() -> None:
    timers: Timers[int] = Timers()
    for number in range(10_000):
        timers.look(number, number)
        timers.forget(number)
    assert len(timers.heap) < 100
