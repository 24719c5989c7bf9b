"""What waits for a client keeps files open, however few bytes it has: so many for one, and for all together."""

from __future__ import annotations

import os
import resource

import pytest
from tests.unit.transport.harness import Party, fetched, idle, question, settle
from tests.unit.transport.test_hostile import Bare, Make, guest

from replog.slices import MemorySlice
from replog.transport.tcp import TcpLimits
from replog.transport.tcp.sockets import most_files

FEW = TcpLimits(output_files_max=8)


class Region(MemorySlice):
    """Of a file that stays open until it is released."""

    open = 0
    stale = False
    position = 0

    def __init__(self, data: bytes = b"x" * 50) -> None:
        super().__init__(0, 1, data)
        self.is_open = True
        Region.open += 1

    def fileno(self) -> int:
        return 0

    def release(self) -> None:
        Region.open -= self.is_open
        self.is_open = False


@pytest.fixture(autouse=True)
def _none_open() -> None:
    Region.open = 0


def files(broker: Party) -> list[int]:
    """For each connection, and for all."""
    connections = broker.transport._connections
    return [*(one.outgoing.files for one in connections.open.values()), connections.output_files]


def test_a_client_that_does_not_read_keeps_so_many_files_open_and_gets_the_rest_when_it_asks_again(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=FEW)
    one = guest(broker, stranger)
    for at in range(100):
        broker.say(("peer", 1), fetched(at, Region(), Region(), high_watermark=7))
        assert Region.open == files(broker)[0] == min(2 * (at + 1), 8)
    (connection,) = broker.transport._connections.open.values()
    assert connection.paused, "it is not read either"
    one.send(question(2))
    settle([broker], lambda: not connection.paused)
    settle([broker], lambda: len(broker.items) == 1)
    assert (Region.open, files(broker)) == (0, [0, 0])
    answers = [one.read() for _ in range(100)]
    assert [len(answer.entries[0].slices) for answer in answers] == [2] * 4 + [0] * 96
    assert {answer.entries[0].high_watermark for answer in answers} == {7}


def test_where_all_keep_many_files_open_who_has_any_gets_no_more(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TcpLimits(output_files_max=3))
    for _ in range(8):
        guest(broker, stranger)
    for number in range(1, 7):
        for at in range(2):
            broker.say(("peer", number), fetched(at, Region()))
    assert files(broker) == [2] * 6 + [0, 0, 12]
    for number in (1, 7, 8, 8):
        broker.say(("peer", number), fetched(9, Region()))
    assert files(broker) == [2] * 6 + [1, 1, 14]
    assert Region.open == 14
    broker.transport._connections.end(next(iter(broker.transport._connections.open.values())), "gone", abort=True)
    assert (Region.open, files(broker)[-1]) == (12, 12)
    idle([broker])
    assert (Region.open, files(broker)[-1]) == (0, 0)


def test_a_region_counts_until_all_of_it_is_gone(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=FEW)
    one = guest(broker, stranger)
    for at in range(4):
        broker.say(("peer", 1), fetched(at, Region(bytes(15_000)), Region(bytes(15_000))))
    held: list[int] = []
    (connection,) = broker.transport._connections.open.values()
    sent = connection.socket

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(sent, name)

        def sendmsg(self, buffers: list[bytes], *rest: object) -> int:
            if held and held[-1]:
                held.append(0)
                raise BlockingIOError
            held.append(Region.open)
            assert connection.paused == (Region.open > 4), "it is read again when half of them are gone"
            return os.write(sent.fileno(), b"".join(buffers)[:10_000])

    connection.socket = Slow()  # type: ignore[assignment]
    idle([broker])
    assert held[::2] == sorted(held[::2], reverse=True)
    assert set(held) == set(range(9))
    assert (Region.open, files(broker)) == (0, [0, 0])
    assert [len(one.read().entries) for _ in range(4)] == [1] * 4


@pytest.mark.parametrize(("allowed", "wanted", "most"), [(4_096, 128, 128), (1_024, 128, 32), (256, 128, 8), (16, 128, 1), (4_096, 5, 5)])
def test_one_client_never_has_more_than_its_share_of_the_descriptors(
    allowed: int, wanted: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert most_files(wanted) == most
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert most_files(wanted) == wanted
