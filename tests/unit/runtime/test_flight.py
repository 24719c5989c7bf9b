"""A flush is run once, or given up; and whoever has to know hears what became of it."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from replog.model import PartitionId
from replog.ports import FlushToken
from replog.runtime import flight as flights
from replog.runtime.flight import Flight
from replog.testing.eventually import eventually

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
    assert flight.settle()
    assert flight.settle()
    assert flight.token.failed
    assert run == ["run"]


def test_one_that_has_not_begun_is_given_up() -> None:
    run: list[str] = []
    flight = flight_of(run)
    assert flight.settle(ENDLESS_S)
    assert flight.settle(ENDLESS_S)
    assert flight() is flight.token
    assert run == []


def test_it_is_over_when_it_has_ended_or_never_will_begin() -> None:
    until, run = threading.Event(), list[str]()
    begun, given_up, waiting = flight_of(run, until=until), flight_of([]), flight_of([])
    thread = threading.Thread(target=begun)
    thread.start()
    eventually(lambda: run == ["run"])
    given_up.settle()
    begun.settle()
    assert (begun.is_over, given_up.is_over, waiting.is_over) == (False, True, False)
    until.set()
    thread.join()
    assert begun.is_over


def test_what_follows_is_called_at_the_end_whatever_comes_of_it() -> None:
    run: list[str] = []
    flight = flight_of(run)
    flight.then = lambda: run.append("then")
    flight()
    assert run == ["run", "then"]


def test_one_that_it_came_into_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler, above it on the same stack."""
    settled: list[bool] = []

    def run() -> FlushToken:
        settled.append(flight.settle(60))
        return token

    token = FlushToken(PartitionId(bytes(16), 0, 0), 0, 1, lambda: None)
    flight = Flight(token, run)
    monkeypatch.setattr(flights, "Event", None)
    flight()
    assert settled == [False]
    assert flight.settle()


def test_one_that_is_under_way_is_waited_for() -> None:
    run: list[str] = []
    until = threading.Event()
    flight = flight_of(run, OSError(5, "Input/output error"), until)
    thread = threading.Thread(target=flight)
    thread.start()
    while not run:
        thread.join(0.001)
    assert not flight.settle()
    assert not flight.settle(0.001)
    until.set()
    assert flight.settle(ENDLESS_S)
    assert flight._heard is not None
    assert flight._heard.is_set()  # it was called up
    assert flight.token.failed
    thread.join(ENDLESS_S)


def test_one_that_raises_is_over() -> None:
    def mistaken() -> FlushToken:
        raise ValueError

    flight = Flight(FlushToken(PartitionId(bytes(16), 0, 0), 0, 1, lambda: None), mistaken)
    thread = threading.Thread(target=flight_ignoring, args=(flight,))
    thread.start()
    thread.join(ENDLESS_S)
    assert flight.settle()


def flight_ignoring(flight: Flight) -> None:
    with suppress(ValueError):
        flight()
