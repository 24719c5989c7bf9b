"""A flush is run once, or given up; and whoever has to know hears what became of it."""

from __future__ import annotations

import threading
from contextlib import suppress

from replog.model import PartitionId
from replog.ports import FlushToken
from replog.runtime.flight import Flight

ENDLESS_S = 20


def flight_of(run: list[str], error: OSError | None = None, until: threading.Event | None = None) -> Flight:
    def work() -> OSError | None:
        run.append("run")
        if until is not None:
            assert until.wait(ENDLESS_S)
        return error

    token = FlushToken(PartitionId(bytes(16), 0, 0), 0, 1, work)
    return Flight(token, token.run)


def test_one_that_has_ended_is_settled() -> None:
    run: list[str] = []
    flight = flight_of(run, OSError(5, "Input/output error"))
    assert flight() is flight.token
    assert flight.settle(0)
    assert flight.settle(0)
    assert flight.token.failed
    assert run == ["run"]


def test_one_that_has_not_begun_is_given_up() -> None:
    run: list[str] = []
    flight = flight_of(run)
    assert flight.settle(0)
    assert flight.settle(0)
    assert flight() is flight.token
    assert run == []


def test_one_that_is_under_way_is_waited_for() -> None:
    run: list[str] = []
    until = threading.Event()
    flight = flight_of(run, OSError(5, "Input/output error"), until)
    thread = threading.Thread(target=flight)
    thread.start()
    while not run:
        thread.join(0.001)
    assert not flight.settle(0.001)
    until.set()
    assert flight.settle(ENDLESS_S)
    assert flight.token.failed
    thread.join(ENDLESS_S)


def test_one_that_raises_is_over() -> None:
    def mistaken() -> FlushToken:
        raise ValueError

    flight = Flight(FlushToken(PartitionId(bytes(16), 0, 0), 0, 1, lambda: None), mistaken)
    thread = threading.Thread(target=flight_ignoring, args=(flight,))
    thread.start()
    thread.join(ENDLESS_S)
    assert flight.settle(0)


def flight_ignoring(flight: Flight) -> None:
    with suppress(ValueError):
        flight()
