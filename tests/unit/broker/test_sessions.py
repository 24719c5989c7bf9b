"""Fetches as a leader serves them: incremental sessions, their epochs, and what is told when (KIP-227)."""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs
import pytest
from tests.unit.partition.copies import IDENTITY, LIMITS, batch, leading, log_of, notice

from replog.broker import sessions as sessions_module
from replog.broker.refusals import AGAIN_MS
from replog.broker.sessions import Sessions
from replog.config import BrokerConfig
from replog.errors import Code
from replog.messages import Fetch, Fetched, FetchEntry
from replog.model import ACKS_LEADER, PartitionId
from replog.partition.partition import Partition
from replog.ports import Outbox


class Leader:
    """A broker reduced to its sessions and one partition it leads in epoch 5."""

    def __init__(self, partition: Partition | None = None, config: BrokerConfig = LIMITS) -> None:
        self.partition = partition or leading(log_of(("a", 1)))
        self.outbox = Outbox()
        self.partitions: dict[PartitionId, Partition] = {IDENTITY: self.partition}
        self.moves: list[tuple[int, int]] = []
        self.failures: list[str] = []
        self.full: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.sessions = Sessions(
            self.outbox, self.partitions, config,
            moved=self._moved, failed=lambda p, why: self.failures.append(why), full=lambda p, why: self.full.append(str(why)),
            event=lambda name, **what: self.events.append((name, what)),
        )  # fmt: skip
        self.requests = 0

    def _moved(self, partition: Partition, before: int, now_ms: int) -> None:
        if partition.high_watermark != before:
            self.moves.append((before, partition.high_watermark))
            self.sessions.committed(partition)

    def fetch(
        self,
        *entries: tuple[int, int],
        session: int = 0,
        epoch: int = 0,
        replica: int = 2,
        life: int | None = None,
        catch_up: bool = False,
        wait_ms: int = 500,
        now_ms: int = 0,
        leader_epoch: int = 5,
        max_bytes: int = 1 << 20,
        identity: PartitionId = IDENTITY,
        forgotten: tuple[PartitionId, ...] = (),
        reader: str = "reader",
    ) -> list[Fetched]:
        """A fetch with (offset, last epoch) entries, to the end of the poll; the answers that went out."""
        self.requests += 1
        asked = [FetchEntry(identity, leader_epoch, offset, last, max_bytes) for offset, last in entries]
        head = (self.requests, replica, (replica if life is None else life) if replica >= 0 else -1, session, epoch, wait_ms, 1, max_bytes)
        self.sessions.on_fetch(reader, Fetch(*head, asked, list(forgotten), catch_up), now_ms)
        return self.poll(now_ms)

    def read(self, offset: int, reader: str = "reader", **options: Any) -> list[Fetched]:
        """A client's fetch."""
        return self.fetch((offset, -1), replica=-1, epoch=-1, leader_epoch=-1, reader=reader, **options)

    def poll(self, now_ms: int = 0) -> list[Fetched]:
        self.sessions.answer_waiting(now_ms)
        sent = [message for _, message in self.outbox.messages]
        self.outbox.messages.clear()
        return sent

    def append(self, text: str) -> None:
        assert self.partition.append(batch(text, 0, 0), ACKS_LEADER, 0).error == 0
        self.sessions.appended(self.partition)

    def opened(self, offset: int = 1, last: int = 1) -> int:
        """Open a session; its number."""
        (answer,) = self.fetch((offset, last))
        return answer.session


def told(answers: list[Fetched]) -> list[list[tuple[int, int, int, int]]]:
    """Per answer: (error, offset, high watermark, records' end or -1) of each entry."""
    return [
        [(entry.error, entry.offset, entry.high_watermark, entry.slices[-1].end_offset if entry.slices else -1) for entry in answer.entries]
        for answer in answers
    ]


def test_the_first_answer_comes_at_once_then_only_news() -> None:
    leader = Leader()
    assert told(leader.fetch((1, 1))) == [[(0, 1, 0, -1)]]
    assert leader.fetch(session=1, epoch=1) == []  # parked
    leader.append("b")
    assert told(leader.poll()) == [[(0, 1, 0, 2)]]
    assert told(leader.fetch((2, 5), session=1, epoch=2)) == []


def test_what_was_told_is_not_told_again_until_it_is_named() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1)
    leader.append("b")
    leader.poll()
    leader.append("c")
    assert leader.fetch(session=number, epoch=2) == []
    assert told(leader.fetch((2, 5), session=number, epoch=3)) == [[], [(0, 2, 0, 3)]]


def test_a_superseded_fetch_is_answered_with_nothing() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1)
    first = leader.requests
    (answer,) = leader.fetch((1, 1), session=number, epoch=2)
    assert (answer.request, answer.entries, answer.error) == (first, [], 0)
    leader.append("b")
    assert [a.request for a in leader.poll()] == [first + 1]


def test_a_fetch_waits_no_longer_than_it_says() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1, now_ms=100)
    leader.sessions.answer_waiting(599)
    assert leader.poll() == []
    assert leader.sessions.parked.due_ms == 600
    leader.sessions.answer_waiting(600)
    assert told(leader.poll()) == [[]]
    assert leader.sessions.parked.due_ms is None


@pytest.mark.parametrize(
    ("session", "epoch", "life", "catch_up", "code"),
    [
        (1, 1, 2, False, None),
        (1, 2, 2, False, Code.INVALID_FETCH_SESSION_EPOCH),  # one was lost
        (2, 1, 2, False, Code.FETCH_SESSION_ID_NOT_FOUND),
        (1, 1, 3, False, Code.FETCH_SESSION_ID_NOT_FOUND),  # of another life
        (1, 1, 2, True, Code.FETCH_SESSION_ID_NOT_FOUND),  # of the other lane
    ],
)
def test_a_session_is_checked(session: int, epoch: int, life: int, catch_up: bool, code: int | None) -> None:
    leader = Leader()
    assert leader.opened() == 1
    answers = leader.fetch((1, 1), session=session, epoch=epoch, life=life, catch_up=catch_up)
    assert [a.error for a in answers] == ([] if code is None else [code])


def test_a_repeated_fetch_is_refused_and_does_not_count_twice() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1)
    assert [a.error for a in leader.fetch(session=number, epoch=1)] == [Code.INVALID_FETCH_SESSION_EPOCH]


def test_opening_again_replaces_the_session() -> None:
    leader = Leader()
    leader.opened()
    leader.fetch(session=1, epoch=1)
    assert leader.opened() == 2
    assert [a.error for a in leader.fetch(session=1, epoch=2)] == [Code.FETCH_SESSION_ID_NOT_FOUND]
    assert len(leader.partition.sessions) == 1
    leader.append("b")
    assert leader.fetch(session=2, epoch=1) != []


def test_two_lanes_of_one_follower_do_not_wait_for_each_other() -> None:
    leader = Leader()
    other = IDENTITY._replace(partition=1)
    leader.partitions[other] = leading(log_of(("x", 1), ("y", 1)))
    (tail,) = leader.fetch((1, 1))
    (behind,) = leader.fetch((0, -1), identity=other, catch_up=True)
    assert behind.entries[0].slices
    assert tail.session != behind.session
    leader.fetch(session=tail.session, epoch=1)
    leader.append("b")
    assert told(leader.poll()) == [[(0, 1, 0, 2)]]


def test_a_late_opening_fetch_of_a_closed_lane_takes_nothing_back() -> None:
    leader = Leader()
    leader.append("b")
    leader.requests = 9
    leader.fetch((1, 1), catch_up=True)  # 10: the catch-up lane opens at 1
    leader.fetch((2, 5))  # 11: at the end, in the other lane
    leader.fetch(session=1, epoch=-1, catch_up=True)  # 12: the catch-up lane is closed
    assert leader.partition.leading is not None
    assert leader.partition.leading.replicas[2].end_offset == 2
    leader.requests = 8
    leader.fetch((1, 1), catch_up=True)  # 9: sent before all of them, arrives now
    assert leader.partition.leading.replicas[2].end_offset == 2
    leader.requests = 12
    leader.fetch((1, 1), catch_up=True)  # 13: it fell behind, and says so
    assert leader.partition.leading.replicas[2].end_offset == 1


def test_closing_ends_what_waits() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1)
    assert leader.fetch(session=number, epoch=-1) == []
    leader.append("b")
    assert leader.poll() == []
    assert leader.partition.sessions == ()


def test_forgotten_partitions_are_no_news() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1, forgotten=(IDENTITY,))
    leader.append("b")
    assert leader.poll() == []
    assert leader.partition.sessions == ()


def test_an_epoch_is_welcomed_once_and_each_epoch_anew() -> None:
    leader = Leader()
    number = leader.opened()
    assert leader.fetch((1, 1), session=number, epoch=1) == []
    leader.partition.become(notice(1, 6, (1, 2, 3), partition_epoch=1), 0)
    leader.sessions.changed(leader.partition)
    assert [[entry[0] for entry in answer] for answer in told(leader.poll())] == [[Code.FENCED_LEADER_EPOCH]]
    assert told(leader.fetch((1, 1), session=number, epoch=2, leader_epoch=6)) == [[(0, 1, 0, -1)]]


def test_a_diverging_fetch_is_answered_and_counts_for_nothing() -> None:
    leader = Leader(leading(log_of(("a", 1), ("b", 3))))
    ((entry,),) = [answer.entries for answer in leader.fetch((2, 2))]
    assert (entry.diverging_epoch, entry.diverging_end, entry.slices) == (1, 1, [])
    assert leader.moves == []


@pytest.mark.parametrize("asked", [(1, 6), (2, 6)])
def test_who_was_refused_gets_nothing_before_it_has_asked_again(asked: tuple[int, int]) -> None:
    """Seed 37481570: the leader of epoch 7 had not heard of it, followed in epoch 6 for a moment, and sent records that nobody compared."""
    leader = Leader(leading(log_of(("a", 1), ("b", 3))))
    (refused,) = leader.fetch(asked, leader_epoch=7)
    assert told([refused]) == [[(Code.UNKNOWN_LEADER_EPOCH, asked[0], 0, -1)]]
    for epoch, leads in ((6, 3), (7, 1)):
        leader.partition.become(notice(leads, epoch, (1, 2, 3), partition_epoch=epoch), 0)
        leader.sessions.changed(leader.partition)
        assert leader.poll() == []
    leader.append("c")
    assert leader.fetch(session=refused.session, epoch=1) == []
    (_, parted) = leader.fetch(asked, session=refused.session, epoch=2, leader_epoch=7)
    ((entry),) = parted.entries
    assert (entry.diverging_epoch, entry.diverging_end, entry.slices) == (3, 2, [])


def test_who_was_refused_hears_no_more_of_a_copy_that_is_taken_away() -> None:
    leader = Leader()
    (refused,) = leader.fetch((1, 1), leader_epoch=7)
    leader.sessions.dropped(leader.partition)
    assert leader.fetch(session=refused.session, epoch=1) == []


def test_the_high_watermark_alone_wakes_no_follower_and_comes_with_the_next_answer() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1, 2)))
    (third,) = leader.fetch((1, 1), replica=3)
    assert leader.fetch(replica=3, session=third.session, epoch=1) == []
    leader.opened()  # follower 2 acknowledges: the high watermark moves
    assert leader.moves == [(0, 1)]
    assert leader.poll() == []  # KAFKA-9952
    leader.sessions.answer_waiting(500)
    assert told(leader.poll()) == [[(0, 1, 1, -1)]]


def test_a_client_is_woken_by_the_high_watermark_and_is_answered_once() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1, 2)))
    leader.fetch((0, -1), replica=-1, epoch=-1, leader_epoch=-1)
    answers = leader.fetch((1, 1))
    assert sorted(told(answers)) == [[(0, 0, 1, 1)], [(0, 1, 1, -1)]]
    assert leader.poll() == []
    assert len(leader.partition.sessions) == 1


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "code"),
    [
        (0, 5, 0),
        (2, 5, Code.OFFSET_OUT_OF_RANGE),
        (0, 4, Code.FENCED_LEADER_EPOCH),
        (0, 6, Code.UNKNOWN_LEADER_EPOCH),
        (0, -1, 0),
    ],
)
def test_a_client_is_refused_at_once(offset: int, leader_epoch: int, code: int) -> None:
    leader = Leader()
    answers = leader.fetch((offset, -1), replica=-1, epoch=-1, leader_epoch=leader_epoch, wait_ms=0)
    assert [[entry[0] for entry in answer] for answer in told(answers)] == [[code]]


@pytest.mark.parametrize("wait_ms", [0, 100])
def test_a_client_at_the_end_is_told_that_there_is_nothing(wait_ms: int) -> None:
    """An answer that does not name the partition would say nothing about it."""
    leader = Leader()
    answers = leader.fetch((1, -1), replica=-1, wait_ms=wait_ms)
    if wait_ms:
        assert answers == []
        leader.sessions.answer_waiting(wait_ms)
        answers = leader.poll(wait_ms)
    assert told(answers) == [[(0, 1, 0, -1)]]


def test_an_unknown_partition_is_said_to_be_unknown() -> None:
    leader = Leader()
    stranger = IDENTITY._replace(creation=9)
    assert told(leader.fetch((0, -1), identity=stranger)) == [[(Code.UNKNOWN_TOPIC_ID, 0, -1, -1)]]


def test_who_waits_for_a_partition_that_leaves_hears_it() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1)
    del leader.partitions[IDENTITY]
    leader.sessions.dropped(leader.partition)
    assert told(leader.poll()) == [[(Code.UNKNOWN_TOPIC_ID, 1, -1, -1)]]


def test_a_follower_that_waits_is_present() -> None:
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1, now_ms=70)
    assert leader.partition.leading is not None
    contact = leader.partition.leading.replicas[2].contact
    assert (contact.parked, contact.last_fetch_ms) == (1, 70)
    leader.append("b")
    leader.poll()
    assert contact.parked == 0
    leader.fetch(session=number, epoch=2)
    leader.sessions.disconnected("reader")
    assert contact.parked == 0


def test_retention_passes_a_follower_that_waits() -> None:
    """The position was in range when it was asked for; in the same poll the log has grown, and retention has trimmed it."""
    leader = Leader()
    number = leader.opened()
    leader.fetch(session=number, epoch=1)
    leader.append("b")
    leader.partition.log.trim_to(2)
    ((entry,),) = (answer.entries for answer in leader.poll())
    assert (entry.error, entry.offset, entry.start_offset, entry.end_offset) == (Code.OFFSET_OUT_OF_RANGE, 1, 2, 2)
    assert entry.slices == []


def test_limits_are_kept() -> None:
    leader = Leader(config=BrokerConfig(fetch_sessions_max=1, waiting_fetches_max=1))
    leader.opened()
    assert [a.error for a in leader.fetch((1, 1), replica=3)] == [Code.QUOTA_EXCEEDED]
    assert leader.fetch((0, -1), replica=-1, epoch=-1, leader_epoch=-1) == []
    assert [a.error for a in leader.fetch((0, -1), replica=-1, epoch=-1, leader_epoch=-1)] == [Code.QUOTA_EXCEEDED]
    assert [a.error for a in leader.read(0, wait_ms=0)] == [0], "it would not have waited"


def test_a_follower_that_is_refused_a_session_is_told_of_once_until_it_has_one() -> None:
    leader = Leader(config=BrokerConfig(fetch_sessions_max=1))
    leader.opened()
    for _ in range(3):
        assert [a.error for a in leader.fetch((1, 1), replica=3)] == [Code.QUOTA_EXCEEDED]
    assert leader.events == [("fetch_session_refused", {"follower": 3, "catch_up": False, "limit": 1})]
    for now_ms, times in ((AGAIN_MS - 1, 1), (AGAIN_MS, 2)):
        leader.sessions.close((2, False))
        assert [a.error for a in leader.fetch((1, 1), replica=3)] == [0]
        leader.sessions.close((3, False))
        leader.opened()
        for _ in range(2):
            assert [a.error for a in leader.fetch((1, 1), replica=3, now_ms=now_ms)] == [Code.QUOTA_EXCEEDED]
        assert len(leader.events) == times, "not so soon again"
    assert [a.error for a in leader.fetch((1, 1), replica=3, now_ms=9 * AGAIN_MS)] == [Code.QUOTA_EXCEEDED]
    assert len(leader.events) == 2, "it has got none since"


def test_a_lane_that_gets_a_session_makes_no_news_of_what_the_other_is_refused() -> None:
    leader = Leader(config=BrokerConfig(fetch_sessions_max=2))
    leader.opened()
    leader.fetch((1, 1), replica=4)
    assert [a.error for a in leader.fetch((1, 1), replica=3)] == [Code.QUOTA_EXCEEDED]
    leader.sessions.close((4, False))
    assert [a.error for a in leader.fetch((1, 1), replica=3, catch_up=True)] == [0]
    assert [a.error for a in leader.fetch((1, 1), replica=3, now_ms=AGAIN_MS)] == [Code.QUOTA_EXCEEDED]
    assert [(what["follower"], what["catch_up"]) for _, what in leader.events] == [(3, False)]
    leader.fetch((1, 1), replica=4, catch_up=True)
    assert [(what["follower"], what["catch_up"]) for _, what in leader.events] == [(3, False), (4, True)]


def test_two_lanes_that_have_the_last_session_in_turns_are_told_of_once_each() -> None:
    leader = Leader(config=BrokerConfig(fetch_sessions_max=1))
    for _ in range(4):
        for catch_up in (False, True):
            assert [a.error for a in leader.fetch((1, 1), replica=3, catch_up=catch_up)] == [0]
            assert [a.error for a in leader.fetch((1, 1), replica=3, catch_up=not catch_up)] == [Code.QUOTA_EXCEEDED]
            leader.sessions.close((3, catch_up))
    assert [what["catch_up"] for _, what in leader.events] == [True, False]


def test_whoever_waits_keeps_nobody_from_reading_what_is_there() -> None:
    leader = Leader(leading(log_of(("a", 1), ("b", 1)), (1,)), config=BrokerConfig(waiting_fetches_max=2))
    assert [leader.read(2, reader) for reader in ("one", "two")] == [[], []], "they have all the places"
    assert told(leader.read(1, "three")) == [[(0, 1, 2, 2)]]
    assert told(leader.read(5, "three")) == [[(Code.OFFSET_OUT_OF_RANGE, 5, 2, -1)]]
    assert [answer.error for answer in leader.read(2, "three")] == [Code.QUOTA_EXCEEDED]
    assert leader.sessions.parked.due_ms == 500, "nothing more becomes due"
    assert len(leader.partition.readers) == 2


def test_one_reader_has_half_of_the_places_and_beyond_that_hears_at_once_what_there_is() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1, 2)), config=BrokerConfig(waiting_fetches_max=6))
    leader.opened()  # by a follower that has it
    first = leader.requests + 1
    assert [leader.read(1) for _ in range(3)] == [[]] * 3
    due_ms = leader.sessions.parked.due_ms
    for offset, found in ((1, (0, 1, 1, -1)), (0, (0, 0, 1, 1)), (5, (Code.OFFSET_OUT_OF_RANGE, 5, 1, -1))):
        assert told(leader.read(offset, wait_ms=1)) == [[found]]
    assert leader.sessions.parked.due_ms == due_ms, "nothing becomes due by it"
    assert [leader.read(1, "another") for _ in range(3)] == [[]] * 3, "who asks less finds room"
    assert [answer.error for answer in leader.read(1, "a third")] == [Code.QUOTA_EXCEEDED]
    leader.append("b")
    answers = leader.fetch((2, 5), session=1, epoch=1)
    assert [answer.request for answer in answers] == [*range(first, first + 3), *range(first + 6, first + 9)]
    assert leader.partition.sessions == tuple(leader.sessions._followers.values())
    assert [leader.read(2) for _ in range(3)] == [[]] * 3, "its places are its own again"
    leader.sessions.disconnected("reader")
    assert leader.sessions._of_reader == {}
    assert [leader.read(2) for _ in range(3)] == [[]] * 3


def test_each_of_many_that_wait_for_one_partition_is_told_once_and_in_order() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1, 2)), config=BrokerConfig(waiting_fetches_max=2_000))
    number = leader.opened()
    first = leader.requests + 1
    for _ in range(900):
        assert leader.read(1) == []
    assert [*leader.partition.sessions] == [*leader.sessions._followers.values()]
    assert [*leader.partition.readers] == [*leader.sessions._clients]
    leader.append("b")
    answers = leader.fetch((2, 5), session=number, epoch=1)
    assert [answer.request for answer in answers] == list(range(first, first + 900))
    assert leader.partition.readers == ()
    assert leader.sessions._of_reader == {}


def test_of_the_clients_that_one_append_wakes_so_many_are_answered_in_a_turn_and_followers_at_once() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1, 2)), config=BrokerConfig(slice_partitions_max=3))
    number = leader.opened()
    first = leader.requests + 1
    for n in range(8):
        assert leader.read(1, f"reader {n}", wait_ms=500 + n) == []
    leader.sessions.disconnected("reader 1")
    leader.append("b")
    turns = [leader.fetch((2, 5), session=number, epoch=1, now_ms=7)]
    while leader.sessions.parked.is_behind:
        assert leader.sessions.parked.due_ms == 7, "the next turn comes at once"
        leader.append("c")  # nobody is woken twice by it
        leader.sessions.committed(leader.partition)
        turns.append(leader.poll(7))
    follower = leader.requests
    assert [[answer.request - first for answer in turn] for turn in turns] == [[0, 2, 3], [follower - first, 4, 5, 6], [7]]
    assert told(turns[0]) == [[(0, 1, 2, 2)]] * 3
    assert leader.sessions.parked.due_ms == 507, "when the follower has waited"
    assert (leader.sessions._of_reader, leader.sessions.parked._woken) == ({}, deque())


def test_of_those_that_have_waited_so_many_are_answered_in_a_turn() -> None:
    leader = Leader(config=BrokerConfig(slice_partitions_max=2))
    first = leader.requests + 1
    for n in range(5):
        assert leader.read(0, f"reader {n}", wait_ms=500) == []
    turns = []
    while leader.sessions.parked.due_ms is not None:
        turns.append([answer.request - first for answer in leader.poll(500)])
    assert turns == [[0, 1], [2, 3], [4]]
    assert not leader.sessions.parked.is_behind


def test_a_fetch_of_nothing_takes_a_place_in_a_turn() -> None:
    leader = Leader(config=BrokerConfig(slice_partitions_max=2))
    for n in range(5):
        assert leader.fetch(replica=-1, epoch=-1, reader=f"reader {n}") == []
    assert [len(leader.poll(500)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_client_names_four_partitions_at_most_and_takes_none_back() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1,)))
    others = [IDENTITY._replace(partition=number) for number in range(100, 104)]
    for count, forgotten, error in ((3, 0, Code.NONE), (4, 0, Code.INVALID_REQUEST), (0, 1, Code.INVALID_REQUEST)):
        entries = [FetchEntry(one, -1, 0, -1, 1_000) for one in (IDENTITY, *others[:count])]
        leader.sessions.on_fetch("reader", Fetch(1, -1, -1, 0, -1, 0, 1, 1_000, entries, others[:forgotten]), 0)
        (answer,) = leader.poll()
        assert (answer.error, len(answer.entries)) == (error, 0 if error else 4)
    assert leader.sessions._of_reader == {}


def test_a_client_that_has_something_to_hear_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each append would look at all that wait for their turn."""
    leader = Leader(leading(log_of(("a", 1)), (1,)), config=BrokerConfig(slice_partitions_max=1))
    for n in range(3):
        assert leader.read(1, f"reader {n}") == []
    leader.append("b")
    leader.sessions.committed(leader.partition)
    assert len(leader.partition.readers) == 3, "only at the end of the poll, however much is appended"
    assert len(leader.poll()) == 1
    assert leader.partition.readers == ()
    leader.append("c")
    leader.sessions.committed(leader.partition)
    assert not leader.sessions.parked.moved
    assert [len(leader.poll()), len(leader.poll()), len(leader.poll())] == [1, 1, 0]


def test_a_partition_that_leaves_in_the_poll_in_which_a_reader_of_news_goes() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1,)))
    for reader in ("goes", "stays"):
        assert leader.read(1, reader) == []
    leader.append("b")
    leader.sessions.committed(leader.partition)
    del leader.partitions[IDENTITY]
    leader.sessions.dropped(leader.partition)
    leader.sessions.disconnected("goes")
    assert [[entry.error for entry in answer.entries] for answer in leader.poll()] == [[Code.UNKNOWN_TOPIC_ID]]
    assert (leader.sessions.parked.moved, leader.sessions._of_reader) == ({}, {})


def test_a_turn_answers_few_of_those_who_want_what_they_get_checked() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1,)))
    for n in range(9):
        entry = FetchEntry(IDENTITY, 5, 1, -1, 1 << 20)
        leader.sessions.on_fetch(f"reader {n}", Fetch(n, -1, -1, 0, -1, 500, 1, 1 << 20, [entry], verify=True), 0)
    assert leader.poll() == []
    leader.append("b")
    leader.sessions.committed(leader.partition)
    assert [len(leader.poll()) for _ in range(4)] == [4, 4, 1, 0]


@pytest.mark.parametrize(("replica", "checked"), [(-1, 2), (2, 5)], ids=["client", "follower"])
def test_a_client_has_so_much_checked_in_one_fetch(monkeypatch: pytest.MonkeyPatch, replica: int, checked: int) -> None:
    one = len(batch("x" * 200, 0, 0).to_bytes())
    monkeypatch.setattr(sessions_module, "VERIFY_BYTES_MAX", 2 * one)
    leader = Leader(leading(log_of(*[("x" * 200, 1)] * 5), (1,)))
    other = IDENTITY._replace(partition=7)
    leader.partitions[other] = leading(log_of(*[("x" * 200, 1)] * 5), (1,))
    for verify, count in ((False, 5), (True, checked)):
        entries = [FetchEntry(IDENTITY, 5, 0, -1, 1 << 20), *([FetchEntry(other, 5, 0, -1, 1 << 20)] if verify and replica < 0 else [])]
        fetch = Fetch(1, replica, replica, 0, min(replica, 0), 0, 1, 1 << 20, entries, verify=verify)
        leader.sessions.on_fetch("reader", attrs.evolve(fetch, request=1 + verify), 0)
        (found,) = told(leader.poll())
        assert [end for *_, end in found] == [count], "of all that it names together"


def test_each_is_answered_when_it_has_waited_and_nothing_is_kept_of_those_that_were_answered_before() -> None:
    leader = Leader(leading(log_of(("a", 1)), (1,)), config=BrokerConfig(waiting_fetches_max=20_000))
    first = leader.requests + 1
    waits = [100 + 37 * n % 500 for n in range(300)]
    for n, wait_ms in enumerate(waits):
        assert leader.read(1, f"reader {n % 7}", wait_ms=wait_ms) == []
    leader.sessions.disconnected("reader 3")
    heard: dict[int, int] = {}
    while (due_ms := leader.sessions.parked.due_ms) is not None:
        leader.sessions.answer_waiting(due_ms)
        heard.update((answer.request, due_ms) for answer in leader.poll(due_ms))
    assert heard == {first + n: wait_ms for n, wait_ms in enumerate(waits) if n % 7 != 3}
    for _ in range(5_000):
        assert leader.read(1, wait_ms=10_000) == []
        leader.sessions.disconnected("reader")
    assert len(leader.sessions.parked._deadlines) <= 1_001
    leader.sessions.answer_waiting(0)
    assert (leader.sessions.parked._deadlines, leader.sessions.parked.due_ms) == ([], None)


@pytest.mark.parametrize(("replica", "epoch"), [(2, 1), (-1, -1)])
def test_no_fetch_is_held_for_longer_than_a_minute(replica: int, epoch: int) -> None:
    leader = Leader()
    number = leader.opened() if replica >= 0 else 0
    assert leader.fetch((1, 1), replica=replica, session=number, epoch=epoch, wait_ms=2**40, now_ms=5) == []
    leader.sessions.answer_waiting(60_004)
    assert leader.poll() == []
    assert leader.sessions.parked.due_ms == 60_005
    leader.sessions.answer_waiting(60_005)
    assert [answer.error for answer in leader.poll()] == [0]


def test_an_answer_has_as_many_bytes_as_asked_and_goes_on_next_time() -> None:
    one = len(batch("x" * 200, 0, 0).to_bytes())
    leader = Leader(leading(log_of(*[("x" * 200, 1)] * 4)))
    other = IDENTITY._replace(partition=1)
    leader.partitions[other] = leading(log_of(*[("x" * 200, 1)] * 4))
    leader.partitions[other].identity = other
    leader.requests += 1
    entries = [FetchEntry(i, 5, 0, -1, 1 << 20) for i in (IDENTITY, other)]
    leader.sessions.on_fetch("reader", Fetch(1, 2, 2, 0, 0, 500, 1, 2 * one, entries, [], False), 0)
    (first,) = leader.poll()
    assert [(e.partition, e.slices[-1].end_offset) for e in first.entries] == [(IDENTITY, 2)]
    (second,) = leader.fetch(session=first.session, epoch=1, max_bytes=1 << 20)
    assert [(e.partition, e.slices[-1].end_offset) for e in second.entries] == [(other, 4)]
