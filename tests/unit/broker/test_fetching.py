"""Fetches as a follower sends them: one under way per session, two sessions per leader, and what ends one."""

from __future__ import annotations

import pytest
from tests.unit.partition.copies import IDENTITY, LIMITS, batch, log_of, notice, partition_of

from replog.broker.fetching import Fetcher, Fetching
from replog.errors import Code
from replog.messages import Fetch, Fetched, FetchedEntry
from replog.model import PartitionId
from replog.partition.following import Followed
from replog.partition.partition import Partition
from replog.ports import MemorySlice, Outbox
from replog.testing.clock import SeededIds


def follower(number: int = 0, leader: int = 1, epoch: int = 5) -> Partition:
    partition = partition_of(log_of(("a", 1)), broker_id=2)
    partition.identity = IDENTITY._replace(partition=number)
    partition.become(notice(leader, epoch, (1, 2, 3)), 0)
    return partition


class Follower:
    """A broker reduced to what it fetches."""

    def __init__(self, *partitions: Partition, life: int = 2) -> None:
        self.outbox = Outbox()
        self.fetching = Fetching(2, self.outbox, LIMITS, SeededIds(1))
        if life >= 0:
            self.fetching.registered(life)
        for partition in partitions:
            self.fetching.follow(partition)

    def poll(self, now_ms: int = 0) -> list[tuple[object, Fetch]]:
        due = self.fetching.due_ms
        if due is not None and due <= now_ms:
            self.fetching.send_due(now_ms)
        sent = [(to, message) for to, message in self.outbox.messages if isinstance(message, Fetch)]
        self.outbox.messages.clear()
        return sent

    def answer(
        self, fetch: Fetch, *, session: int = 9, error: int = 0, leader: int = 1, now_ms: int = 0, entries: list[FetchedEntry] | None = None
    ) -> bool:
        """A leader's answer; whether its entries count."""
        message = Fetched(fetch.request, session, fetch.session_epoch, error, entries or [])
        fetcher = self.fetching.session_of(message, leader)
        return fetcher is not None and self.fetching.answered(fetcher, message, now_ms)

    def fetcher(self, leader: int = 1, *, catch_up: bool = False) -> Fetcher:
        return self.fetching._fetchers[leader, catch_up]

    def opened(self) -> None:
        ((_, fetch),) = self.poll()
        assert self.answer(fetch)


def head(fetch: Fetch) -> tuple[int, int, list[int]]:
    """(session, epoch, partitions named)."""
    return fetch.session, fetch.session_epoch, [entry.partition.partition for entry in fetch.entries]


def test_the_first_fetch_opens_a_session_and_names_everything() -> None:
    one = Follower(follower(0), follower(1))
    ((to, fetch),) = one.poll()
    assert to == 1
    assert (fetch.replica, fetch.broker_epoch, head(fetch)) == (2, 2, (0, 0, [0, 1]))
    assert [(e.leader_epoch, e.offset, e.last_epoch) for e in fetch.entries] == [(5, 1, 1)] * 2



def test_then_it_names_what_changed() -> None:
    one = Follower(follower(0), follower(1))
    one.opened()
    one.fetching.send_due(0)
    ((_, fetch),) = one.poll()
    assert head(fetch) == (9, 1, [])
    one.answer(fetch)
    one.fetching.follow(follower(1, epoch=6))
    ((_, fetch),) = one.poll()
    assert head(fetch) == (9, 2, [1])


def test_one_under_way_unless_there_is_more_to_name() -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.send_due(0)
    assert len(one.poll()) == 1
    one.fetching.send_due(1)
    assert one.poll() == []
    one.fetching.follow(follower(1))
    ((_, fetch),) = one.poll()
    assert head(fetch) == (9, 2, [1])


def test_an_opening_fetch_is_not_replaced() -> None:
    one = Follower(follower(0))
    assert len(one.poll()) == 1
    one.fetching.follow(follower(1))
    assert one.poll() == []


def test_without_a_registration_nothing_is_sent() -> None:
    one = Follower(follower(0), life=-1)
    assert one.poll() == []
    one.fetching.registered(4)
    ((_, fetch),) = one.poll()
    assert fetch.broker_epoch == 4


def test_a_new_life_opens_new_sessions() -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.registered(3)
    ((_, fetch),) = one.poll()
    assert (head(fetch), fetch.broker_epoch) == ((0, 0, [0]), 3)


def test_a_lost_answer_is_noticed() -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.send_due(0)
    one.poll()
    timeout = LIMITS.fetch_timeout_ms
    assert one.fetching.due_ms == timeout
    assert one.poll(timeout - 1) == []
    assert one.poll(timeout) == []  # not at once
    due = one.fetching.due_ms
    assert due is not None
    assert 0 < due - timeout <= LIMITS.retry_backoff_ms * 1.25
    ((_, fetch),) = one.poll(due)
    assert head(fetch) == (0, 0, [0])


@pytest.mark.parametrize("answered", [False, True])
def test_a_refusal_of_a_repetition_does_not_stand_for_the_answer(answered: bool) -> None:
    """What the answer to a fetch that was replaced has told is told once: nobody would ask for it again."""
    one = Follower(follower(0))
    one.opened()
    one.fetching.send_due(0)
    ((_, replaced),) = one.poll()
    one.fetching.follow(follower(1))
    ((_, fetch),) = one.poll()
    if answered:
        assert one.answer(replaced)
    assert not one.answer(replaced, error=Code.INVALID_FETCH_SESSION_EPOCH)
    assert one.answer(fetch)
    timeout = LIMITS.fetch_timeout_ms
    one.fetching.send_due(timeout - 1)
    ((_, fetch),) = one.poll()
    one.fetching.send_due(timeout)
    assert one.poll() == []
    one.fetching.send_due(timeout + LIMITS.retry_backoff_ms * 2)
    assert [head(fetch) for _, fetch in one.poll()] == ([] if answered else [(0, 0, [0, 1])])


@pytest.mark.parametrize("error", [Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_the_leader_does_not_know_is_opened_again_at_once(error: int) -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.send_due(0)
    ((_, fetch),) = one.poll()
    assert not one.answer(fetch, error=error, now_ms=100)
    ((_, fetch),) = one.poll(100)
    assert head(fetch) == (0, 0, [0])
    one.answer(fetch, error=error, now_ms=100)  # a second time in a row: after a pause
    assert one.poll(100) == []
    due = one.fetching.due_ms
    assert due is not None
    assert due > 100


def test_a_refusal_for_want_of_room_is_tried_again_after_a_pause_that_grows() -> None:
    one = Follower(follower(0))
    now, pauses = 0, []
    for _ in range(8):
        ((_, fetch),) = one.poll(now)
        one.answer(fetch, error=Code.QUOTA_EXCEEDED, now_ms=now)
        assert one.poll(now) == []
        due = one.fetching.due_ms
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses[0] <= LIMITS.retry_backoff_ms * 1.25
    assert pauses[4] > 4 * pauses[0]
    assert max(pauses) <= LIMITS.retry_backoff_ms_max * 1.25


def test_an_answer_belongs_to_its_request_or_its_session() -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.send_due(0)
    ((_, first),) = one.poll()
    one.fetching.follow(follower(1))
    ((_, second),) = one.poll()
    assert one.answer(first)  # superseded, of this session: its entries count
    assert one.fetcher().request == second.request
    assert not one.answer(first, session=8)
    assert not one.answer(second, leader=3)


def test_another_leader_gets_another_session_and_the_old_one_is_closed() -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.follow(follower(0, leader=3, epoch=6))
    closing, opening = one.poll()
    assert (closing[0], head(closing[1])) == (1, (9, -1, []))
    assert (opening[0], head(opening[1])) == (3, (0, 0, [0]))


def test_what_is_dropped_is_forgotten_at_the_leader() -> None:
    one = Follower(follower(0), follower(1))
    one.opened()
    one.fetching.drop(IDENTITY)
    one.fetching.send_due(0)
    ((_, fetch),) = one.poll()
    assert fetch.forgotten == [IDENTITY]
    one.fetching.drop(IDENTITY)  # again: nothing


def entry(partition: Partition, *, end: int, length: int = 0) -> FetchedEntry:
    slices = [MemorySlice(0, 1, bytes(length))] if length else []
    return FetchedEntry(partition.identity, 5, 1, end_offset=end, slices=slices)


def test_a_lagging_partition_moves_to_the_other_session_and_back() -> None:
    partition, near = follower(0), follower(1)
    one = Follower(partition, near)
    one.opened()
    one.fetching.took(partition, entry(partition, end=500, length=LIMITS.fetch_partition_bytes_max), Followed.APPENDED, 0)
    one.fetching.send_due(0)
    tail, behind = one.poll()
    assert (tail[1].catch_up, tail[1].forgotten, head(tail[1])) == (False, [IDENTITY], (9, 1, []))
    assert (behind[1].catch_up, head(behind[1])) == (True, (0, 0, [0]))
    one.answer(behind[1], session=10)
    one.fetching.took(partition, entry(partition, end=1, length=10), Followed.APPENDED, 0)
    one.fetching.send_due(0)
    sent = one.poll()
    assert [(f.catch_up, head(f)) for _, f in sent] == [(True, (10, -1, [])), (False, (9, 2, [0]))]


def test_a_small_answer_of_a_busy_leader_does_not_move_it() -> None:
    partition = follower(0)
    one = Follower(partition)
    one.opened()
    one.fetching.took(partition, entry(partition, end=2, length=len(batch("x", 0, 0).to_bytes())), Followed.APPENDED, 0)
    one.fetching.send_due(0)
    ((_, fetch),) = one.poll()
    assert (fetch.catch_up, head(fetch)) == (False, (9, 1, [0]))


@pytest.mark.parametrize(
    ("outcome", "at_once", "later"),
    [
        (Followed.APPENDED, [0], []),
        (Followed.TRUNCATED, [0], []),
        (Followed.KEPT_UP, [], []),
        (Followed.DROPPED, [], []),
        (Followed.RETRY, [], [0]),
        (Followed.WAIT, [], []),  # only newer metadata helps
    ],
)
def test_what_is_asked_next(outcome: Followed, at_once: list[int], later: list[int]) -> None:
    partition = follower(0)
    one = Follower(partition)
    one.opened()
    one.fetching.took(partition, entry(partition, end=1), outcome, 0)
    one.fetching.send_due(0)
    ((_, fetch),) = one.poll()
    assert head(fetch)[2] == at_once
    one.answer(fetch)
    one.fetching.send_due(1_000)
    ((_, fetch),) = one.poll()
    assert head(fetch)[2] == later


def test_newer_metadata_ends_a_pause() -> None:
    partition = follower(0)
    one = Follower(partition)
    one.opened()
    one.fetching.took(partition, entry(partition, end=1), Followed.RETRY, 0)
    one.fetching.follow(partition)
    ((_, fetch),) = one.poll()
    assert head(fetch)[2] == [0]


@pytest.mark.parametrize("good", [Followed.APPENDED, Followed.KEPT_UP])
def test_what_came_in_vain_is_asked_again_with_a_check(good: Followed) -> None:
    partition = follower(0)
    one = Follower(partition)
    ((_, first),) = one.poll()
    assert not first.verify
    assert one.answer(first)
    one.fetching.took(partition, entry(partition, end=1), Followed.RETRY, 0)
    one.fetching.send_due(0)  # as after every answer
    one.poll()
    ((_, again),) = one.poll(1_000)
    assert (head(again)[2], again.verify) == ([0], True)
    assert one.answer(again)
    one.fetching.took(partition, entry(partition, end=1), good, 1_000)
    one.fetching.took(partition, entry(partition, end=1), Followed.TRUNCATED, 1_000)  # is asked again, whatever was good before
    one.fetching.send_due(1_000)
    ((_, after),) = one.poll(1_000)
    assert (head(after)[2], after.verify) == ([0], False)


def test_a_disconnect_restarts_what_was_under_way() -> None:
    one = Follower(follower(0))
    one.opened()
    one.fetching.send_due(0)
    one.poll()
    one.fetching.disconnected(1, 0)
    one.fetching.disconnected(3, 0)  # nobody we fetch from
    assert one.poll(0) == []
    due = one.fetching.due_ms
    assert due is not None
    ((_, fetch),) = one.poll(due)
    assert head(fetch) == (0, 0, [0])


def test_more_than_a_message_holds_goes_in_several() -> None:
    many: dict[PartitionId, Partition] = {}
    for number in range(LIMITS.slice_partitions_max + 3):
        partition = follower(number)
        many[partition.identity] = partition
    one = Follower(*many.values())
    ((_, fetch),) = one.poll()
    assert (len(fetch.entries), fetch.max_wait_ms) == (LIMITS.slice_partitions_max, 0)
    one.answer(fetch)
    one.fetching.send_due(0)
    ((_, fetch),) = one.poll()
    assert (len(fetch.entries), fetch.max_wait_ms) == (3, LIMITS.fetch_wait_ms)
