"""Whoever is turned away is told of seldom; whoever was let in is told of each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.transport.harness import Party, Stranger, settle

from replog.testing.clock import ManualClock
from replog.transport.tcp.telling import COMINGS_MAX, SUBJECTS_MAX, TELL_MS, Strangers

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]
GARBAGE = b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n" + bytes(64)


def throw(broker: Party, stranger: Bare, count: int) -> None:
    """So many connections, one after the other, that say nothing which is a frame."""
    for _ in range(count):
        one = stranger(broker.endpoint)
        one.socket.sendall(GARBAGE)
        settle([broker], one.is_cut_off)


def test_garbage_costs_a_line_a_minute(party: Make, stranger: Bare, clock: ManualClock) -> None:
    broker = party(1)
    throw(broker, stranger, 20)
    assert [(name, fields["more"]) for name, fields in broker.events] == [("peer_disconnected", 0)]
    clock.advance(TELL_MS - 1)
    throw(broker, stranger, 1)
    assert len(broker.events) == 1
    clock.advance(1)
    throw(broker, stranger, 1)
    assert [fields["more"] for _, fields in broker.events] == [0, 20]
    clock.advance(TELL_MS)
    throw(broker, stranger, 1)
    assert [fields["more"] for _, fields in broker.events] == [0, 20, 0]


def test_handshakes_that_are_refused_cost_a_line_a_minute(party: Make, stranger: Bare, clock: ManualClock) -> None:
    broker = party(1)
    for _ in range(5):
        one = stranger(broker.endpoint)
        one.hello(cluster_id="another")
        settle([broker], one.is_cut_off)
    assert [fields["more"] for fields in broker.told("peer_refused")] == [0]
    clock.advance(TELL_MS)
    one = stranger(broker.endpoint)
    one.hello(cluster_id="another")
    settle([broker], one.is_cut_off)
    assert [fields["more"] for fields in broker.told("peer_refused")] == [0, 4]


def test_whoever_was_let_in_is_told_of_each_time(party: Make, stranger: Bare) -> None:
    broker = party(1)
    throw(broker, stranger, 2)
    for _ in range(3):
        one = stranger(broker.endpoint)
        one.hello()
        settle([broker], lambda: broker.open == 1)
        one.socket.sendall(GARBAGE)
        settle([broker], one.is_cut_off)
    known = [fields for fields in broker.told("peer_disconnected") if fields["peer"] is not None]
    assert [fields["peer"] for fields in known] == [("peer", 1), ("peer", 2), ("peer", 3)]
    assert all("more" not in fields for fields in known)


@pytest.fixture
def told() -> list[tuple[str, dict[str, Any]]]:
    """What gets through."""
    return []


def test_addresses_and_events_count_apart(told: list[tuple[str, dict[str, Any]]], clock: ManualClock) -> None:
    strangers = Strangers(lambda name, fields: told.append((name, fields)), now_ms=clock.now_ms)
    for port in (1, 2):
        for host in ("10.0.0.1", "[fe80::1]"):
            strangers("peer_disconnected", {"peer": None, "at": f"{host}:{port}", "reason": "no"})
            strangers("connection_refused", {"from": f"{host}:{port}", "reason": "no"})
    assert [fields.get("at") or fields["from"] for _, fields in told] == ["10.0.0.1:1"] * 2 + ["[fe80::1]:1"] * 2
    strangers("dial_failed", {"endpoint": "10.0.0.1:1"})
    strangers("dial_failed", {"endpoint": "10.0.0.1:1"})
    assert told[-2:] == [("dial_failed", {"endpoint": "10.0.0.1:1"})] * 2


def test_of_clients_that_come_and_go_very_often_some_are_told(told: list[tuple[str, dict[str, Any]]], clock: ManualClock) -> None:
    """Each of the first hundred of an address in a minute; brokers always."""
    strangers = Strangers(lambda name, fields: told.append((name, fields)), now_ms=clock.now_ms)
    for number in range(COMINGS_MAX + 50):
        strangers("peer_connected", {"peer": ("peer", number), "at": f"10.0.0.1:{number}"})
        strangers("peer_disconnected", {"peer": ("peer", number), "at": f"10.0.0.1:{number}", "reason": "closed"})
    assert [name for name, _ in told] == ["peer_connected", "peer_disconnected"] * COMINGS_MAX
    assert not any("more" in fields for _, fields in told)
    strangers("peer_connected", {"peer": ("peer", 900), "at": "10.0.0.2:1"})
    strangers("peer_connected", {"peer": 2, "at": "10.0.0.1:1"})
    assert len(told) == 2 * COMINGS_MAX + 2
    clock.advance(TELL_MS)
    strangers("peer_connected", {"peer": ("peer", 901), "at": "10.0.0.1:2"})
    assert told[-1] == ("peer_connected", {"peer": ("peer", 901), "at": "10.0.0.1:2", "more": 50})


def test_many_addresses_take_no_more_memory_and_no_more_lines(told: list[tuple[str, dict[str, Any]]], clock: ManualClock) -> None:
    strangers = Strangers(lambda name, fields: told.append((name, fields)), now_ms=clock.now_ms)
    for _ in range(59):
        clock.advance(1_000)
        for number in range(SUBJECTS_MAX + 5):
            strangers("connection_refused", {"from": f"10.0.{number // 256}.{number % 256}:1", "reason": "no"})
    assert len(told) == SUBJECTS_MAX + 1
    assert len(strangers._seldom._told) == SUBJECTS_MAX
    strangers("authentication_failed", {"from": "10.0.0.5:1", "reason": "no"})  # another event, which is not lost among those
    assert [fields["more"] for _, fields in told] == [0] * len(told)
    assert len(told) == SUBJECTS_MAX + 2
    clock.advance(TELL_MS)
    strangers("connection_refused", {"from": "10.0.0.5:1", "reason": "no"})
    assert (told[-1][1]["from"], told[-1][1]["more"]) == ("10.0.0.5:1", 58)


def test_a_network_of_which_one_host_may_have_all_is_told_of_once(told: list[tuple[str, dict[str, Any]]], clock: ManualClock) -> None:
    strangers = Strangers(lambda name, fields: told.append((name, fields)), now_ms=clock.now_ms)
    for number in range(500):
        strangers("authentication_failed", {"from": f"2001:db8::{number:x}:4000", "reason": "no"})
        strangers("authentication_failed", {"from": f"127.0.{number // 250}.{number % 250}:4000", "reason": "no"})
    strangers("authentication_failed", {"from": "2001:db8:0:1::1:4000", "reason": "no"})
    assert [fields["from"] for _, fields in told] == ["2001:db8::0:4000", "127.0.0.0:4000", "2001:db8:0:1::1:4000"]


def test_who_was_told_of_last_is_remembered_longest(told: list[tuple[str, dict[str, Any]]], clock: ManualClock) -> None:
    strangers = Strangers(lambda name, fields: told.append((name, fields)), now_ms=clock.now_ms)

    def comes(number: int) -> None:
        strangers("connection_refused", {"from": f"10.0.{number // 256}.{number % 256}:1", "reason": "no"})

    comes(0)
    for number in range(1, SUBJECTS_MAX):
        comes(number)
    clock.advance(TELL_MS)
    comes(0)
    comes(SUBJECTS_MAX)  # for whom somebody is forgotten, who came before
    count = len(told)
    comes(0)
    assert len(told) == count
