"""An answer to a fetch fits a frame, whatever was asked for and however much there is to tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.unit.broker.test_sessions import Leader
from tests.unit.partition.copies import IDENTITY, batch, leading, log_of

from replog.broker import sessions
from replog.broker.broker import Broker
from replog.broker.room import ENTRY_BYTES, ROOM_BYTES, SLICE_BYTES, in_its_place, shorten
from replog.codec import encode_parts
from replog.codec.encoding import sized_parts
from replog.config import BATCH_BYTES_MAX, FRAME_BYTES_MAX, BrokerConfig
from replog.errors import Code
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.messages import AdminAnswer, Fetch, Fetched, FetchedEntry, FetchEntry, Produced, Unsent
from replog.model import PartitionId
from replog.records import RecordBatch, encode_values
from replog.slices import MemorySlice
from replog.testing.clock import SeededIds

MIB = 1 << 20
LARGEST = PartitionId(b"\xff" * 16, 2**31 - 1, 2**32 - 1)


class Pinned(MemorySlice):
    """Counts who lets go of it."""

    released = 0

    def release(self) -> None:
        self.released += 1


def pieces(*lengths: int) -> list[Any]:
    return [Pinned(0, 1, bytes(length)) for length in lengths]


def frame_bytes(entries: list[FetchedEntry]) -> int:
    """Of an answer with the largest numbers there are."""
    return sized_parts(Fetched(2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, entries, True))[1]


def largest_entry(*slices: Any) -> FetchedEntry:
    big = 2**63 - 1
    return FetchedEntry(LARGEST, 2**31 - 1, big, 2**31 - 1, big, big, big, 2**31 - 1, big, list(slices), 2**31 - 1)


# ----------------------------------------------------------------------------------------------------------- what it takes


def test_nothing_in_an_answer_takes_more_than_is_counted_for_it() -> None:
    piece = MemorySlice(2**63 - 2, 2**63 - 1, memoryview(bytes(2 * MIB)))
    base, one, two = frame_bytes([]), frame_bytes([largest_entry()]), frame_bytes([largest_entry(piece)])
    assert base + 4 <= FRAME_BYTES_MAX - ROOM_BYTES  # and the length of the list of entries
    assert one - base + 4 <= ENTRY_BYTES
    assert two - one - piece.length <= SLICE_BYTES


def test_the_largest_batch_fits_together_with_a_thousand_partitions_without_records() -> None:
    assert BATCH_BYTES_MAX + SLICE_BYTES + 1_000 * ENTRY_BYTES <= ROOM_BYTES


@pytest.mark.parametrize(
    ("lengths", "room", "alone", "kept", "fits", "error"),
    [
        ([], 0, False, 0, True, 0),  # news alone always fits: its caller has seen to it
        ([100], 100, False, 1, True, 0),
        ([100], 99, False, 0, False, 0),
        ([100], 99, True, 0, True, Code.MESSAGE_TOO_LARGE),
        ([100, 100], 232, False, 2, True, 0),
        ([100, 100], 231, False, 1, True, 0),
        ([100, 100], 231, True, 1, True, 0),
        ([100, 10, 10], 150, False, 2, True, 0),
    ],
)
def test_slices_that_do_not_fit_are_let_go(lengths: list[int], room: int, alone: bool, kept: int, fits: bool, error: int) -> None:
    given = pieces(*lengths)
    entry = FetchedEntry(IDENTITY, 5, 0, slices=list(given))
    assert shorten(entry, ENTRY_BYTES + SLICE_BYTES + room if lengths else 0, alone=alone) is fits
    assert entry.slices == given[:kept]
    assert [piece.released for piece in given] == [0] * kept + [1] * (len(given) - kept)
    assert entry.error == error


class Region(Pinned):
    """In a file, which it keeps open."""

    def fileno(self) -> int:
        return 7


@pytest.mark.parametrize(("files", "kept", "fits"), [(3, 4, True), (2, 3, True), (1, 1, True), (0, 0, False)])
def test_regions_of_more_files_than_are_left_are_let_go(files: int, kept: int, fits: bool) -> None:
    given: list[Any] = [Region(0, 1, b"x"), Region(1, 2, b"x"), Pinned(2, 3, b"x"), Region(3, 4, b"x")]
    entry = FetchedEntry(IDENTITY, 5, 0, slices=list(given))
    assert shorten(entry, MIB, files, alone=False) is fits
    assert entry.slices == given[:kept]
    assert [piece.released for piece in given] == [0] * kept + [1] * (len(given) - kept)


# --------------------------------------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize(("files", "answers"), [(2, [[0, 1], [2, 3], [4]]), (1, [[0], [1], [2], [3], [4]]), (5, [[0, 1, 2, 3, 4]])])
def test_an_answer_keeps_so_many_files_open_and_the_rest_comes_next(
    files: int, answers: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Filed(MemoryLog):
        def read(self, offset: int, limit: int, max_bytes: int) -> list[Any]:
            return [Region(one.base_offset, one.end_offset, one.view()) for one in super().read(offset, limit, max_bytes)]

    monkeypatch.setattr(sessions, "FILES_MAX", files)
    leader = leader_of(5, lambda: log_of(("a", 1), kind=Filed), BrokerConfig())
    (answer,) = ask(leader, MIB)
    assert all_told(leader, answer, MIB) == answers
    assert leader.failures == []


def leader_of(count: int, log: Callable[[], MemoryLog], config: BrokerConfig) -> Leader:
    """Leads so many partitions, which all have the same records."""
    leader = Leader(leading(log()), config)
    for number in range(1, count):
        one = leading(log())
        one.identity = IDENTITY._replace(partition=number)
        leader.partitions[one.identity] = one
    return leader


def ask(leader: Leader, max_bytes: int, *, replica: int = 2) -> list[Fetched]:
    """The first fetch of a session, for everything."""
    leader.requests += 1
    entries = [FetchEntry(identity, 5, 0, -1, max_bytes) for identity in leader.partitions]
    head = (leader.requests, replica, replica, 0, 0 if replica >= 0 else -1, 0, 1, max_bytes)
    leader.sessions.on_fetch("reader", Fetch(*head, entries, [], False), 0)
    return leader.poll()


def all_told(leader: Leader, answer: Fetched, max_bytes: int) -> list[list[int]]:
    """Ask on until there is no more; the partitions with records of each answer."""
    found = [[e.partition.partition for e in answer.entries if e.slices]]
    for epoch in range(1, 50):
        (more,) = leader.fetch(session=answer.session, epoch=epoch, max_bytes=max_bytes, wait_ms=0)
        if not more.entries:
            return found
        assert frame_bytes(more.entries) <= FRAME_BYTES_MAX
        found.append([e.partition.partition for e in more.entries if e.slices])
    raise AssertionError("it does not end")


def test_large_batches_of_many_partitions_share_no_more_than_a_frame() -> None:
    body = encode_values([bytes(15 * MIB)], now_ms=0, compression=None)

    def log() -> MemoryLog:
        made, held = RecordBatch(body), MemoryLog(IDENTITY)
        made.stamp(IDENTITY, 0, 1)
        held.append(made)
        return held

    config = BrokerConfig(fetch_bytes_max=BATCH_BYTES_MAX, fetch_partition_bytes_max=BATCH_BYTES_MAX)
    leader = leader_of(6, log, config)
    (answer,) = ask(leader, BATCH_BYTES_MAX)
    assert frame_bytes(answer.entries) <= FRAME_BYTES_MAX
    assert all_told(leader, answer, BATCH_BYTES_MAX) == [[0, 1, 2, 3], [4, 5]]
    assert leader.failures == []


def test_a_batch_that_does_not_fit_any_more_is_first_in_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = len(batch("x" * 500, 0, 0).to_bytes())
    monkeypatch.setattr(sessions, "ROOM_BYTES", 2 * (one + SLICE_BYTES + ENTRY_BYTES) + one)
    leader = leader_of(5, lambda: log_of(("x" * 500, 1)), BrokerConfig())
    (answer,) = ask(leader, 1 << 20)
    assert all_told(leader, answer, 1 << 20) == [[0, 1], [2, 3], [4]]


def test_partitions_without_records_take_their_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ROOM_BYTES", 3 * ENTRY_BYTES + 50)
    leader = leader_of(7, log_of, BrokerConfig())
    (answer,) = ask(leader, 1 << 20)
    counts = [len(answer.entries)]
    for epoch in (1, 2):
        (answer,) = leader.fetch(session=answer.session, epoch=epoch, wait_ms=0)
        counts.append(len(answer.entries))
    assert counts == [3, 3, 1]


def test_news_of_high_watermarks_take_no_more_room_than_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = leader_of(7, lambda: log_of(("a", 1)), BrokerConfig())
    (answer,) = ask(leader, 1 << 20)
    session = next(iter(leader.sessions._followers.values()))
    for identity in leader.partitions:
        session.asked[identity].told = False
        session.news[identity] = None
    monkeypatch.setattr(sessions, "ROOM_BYTES", 3 * ENTRY_BYTES)
    counts = []
    for epoch in (1, 2, 3):
        (answer,) = leader.fetch(session=answer.session, epoch=epoch, wait_ms=0)
        counts.append(len(answer.entries))
    assert counts == [3, 3, 1]


@pytest.mark.parametrize("replica", [2, -1])
def test_a_batch_that_no_frame_carries_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch, replica: int) -> None:
    """No configuration allows it; a log may have it from a time when one did."""
    leader = leader_of(1, lambda: log_of(("x" * 500, 1)), BrokerConfig())
    leader.partition.high_watermark = 1
    monkeypatch.setattr(sessions, "ROOM_BYTES", 400)
    (answer,) = ask(leader, 1 << 20, replica=replica)
    assert [(entry.error, entry.slices) for entry in answer.entries] == [(Code.MESSAGE_TOO_LARGE, [])]


# -------------------------------------------------------------------------------------------------- when it happens anyway


def test_whoever_waits_for_an_answer_that_no_frame_carries_is_told() -> None:
    broker = Broker(1, MemoryLogDirectory(directory_id="d" * 32), config=BrokerConfig(), ids=SeededIds(1))
    broker.outbox.messages.clear()
    answer = Fetched(7, 3, 2, 0, [FetchedEntry(IDENTITY, 5, 40, slices=pieces(10))], True)
    broker.receive(1, Unsent(("peer", 4), answer, "too large"), 0)
    broker.receive(1, Unsent(("peer", 5), AdminAnswer(8, 0, result={"a": 1}, origin=6), "too large"), 0)
    broker.receive(1, Unsent(2, Produced([]), "too large"), 0)
    refused = FetchedEntry(IDENTITY, 5, 40, Code.MESSAGE_TOO_LARGE)
    assert broker.outbox.messages == [
        (("peer", 4), evolve(answer, entries=[refused])),
        (("peer", 5), AdminAnswer(8, Code.MESSAGE_TOO_LARGE, "too large", origin=6)),
    ]


def test_what_is_said_instead_is_small() -> None:
    answer = Fetched(7, 3, 2, 0, [FetchedEntry(IDENTITY, 5, 40, slices=pieces(MIB))])
    (head,) = encode_parts(in_its_place(Unsent(2, answer, "too large")))
    assert isinstance(head, bytes)
    assert len(head) < 300
