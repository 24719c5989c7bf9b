"""Who may command a broker, which notices count as applied, and what becomes of copies (KIP-380, KIP-570)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.partition.copies import IDENTITY, notice

from replog.broker.commands import TOPIC_DELETED, Commands
from replog.config import TopicConfig
from replog.errors import Code, LogDamaged, LogFull
from replog.log.memory import MemoryLogDirectory
from replog.messages import LeaderAndIsr, LeaderAndIsrAnswer, PartitionNotice, StopEntry, StopReplica
from replog.model import PartitionId
from replog.ports import Log, LogStart


class FullDirectory(MemoryLogDirectory):
    """Makes no log while there is no room, or after that never again."""

    problem: type[Exception] | None = LogFull

    def create(self, starts: Iterable[LogStart]) -> list[Log]:
        if self.problem is not None:
            raise self.problem("no room")
        return super().create(starts)


def commands(life: int = 3) -> Commands:
    directory = FullDirectory(directory_id="d")
    directory.problem = None
    made = Commands(directory)
    made.registered(life)
    return made


def told(
    number: int,
    *,
    as_of: int | None = None,
    complete: bool = False,
    epoch: int = 1,
    life: int = 3,
    entries: list[PartitionNotice] | None = None,
) -> LeaderAndIsr:
    """A notice; made in the order of the numbers, if nothing else is said."""
    return LeaderAndIsr(9, epoch, life, number, complete, 1_000, entries or [], as_of=number if as_of is None else as_of)


def apply(to: Commands, message: LeaderAndIsr, error: int = 0) -> list[PartitionId]:
    """Deliver a notice; the partitions it reached."""
    reached: list[PartitionId] = []

    def become(entry: PartitionNotice) -> int:
        reached.append(entry.partition)
        return error

    to.on_leader_and_isr(message, become)
    return reached


def not_attempted(to: Commands, message: LeaderAndIsr) -> list[PartitionId]:
    """Deliver a notice that is answered as one that is to come again; the partitions that it reached all the same."""
    reached: list[PartitionId] = []
    answer = to.on_leader_and_isr(message, lambda entry: reached.append(entry.partition) or 0)
    assert answer.error == Code.OPERATION_NOT_ATTEMPTED
    return reached


def _without_room(to: Commands, message: LeaderAndIsr) -> LeaderAndIsrAnswer:
    """Deliver a notice while no log can be made, or altered."""
    directory = to._directory
    assert isinstance(directory, FullDirectory)
    directory.problem = LogFull
    answer = to.on_leader_and_isr(message, lambda entry: 0)
    directory.problem = None
    return answer


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "code"),
    [
        (5, 3, Code.NONE),
        (4, 3, Code.STALE_CONTROLLER_EPOCH),
        (5, 2, Code.STALE_BROKER_EPOCH),
        (5, 4, Code.NONE),  # the broker may be the last to learn its own epoch (KAFKA-9839)
        (6, 3, Code.NONE),
    ],
)
def test_who_may_command(controller_epoch: int, broker_epoch: int, code: int) -> None:
    to = commands()
    assert to.fence(9, 5, 3) == Code.NONE
    assert to.fence(8, controller_epoch, broker_epoch) == code
    assert to.controller == (8 if code == 0 else 9)
    assert to.controller_epoch == (controller_epoch if code == 0 else 5)


def test_a_process_that_was_never_registered_obeys_nobody() -> None:
    to = Commands(MemoryLogDirectory(directory_id="d"))
    assert to.fence(9, 1, 1) == Code.STALE_BROKER_EPOCH


def test_a_refusal_names_the_controller_epoch_that_it_obeys() -> None:
    to = commands()
    to.fence(9, 7, 3)
    answer = to.on_leader_and_isr(told(0, epoch=6), lambda entry: pytest.fail("not for this controller"))
    assert (answer.error, answer.controller_epoch) == (Code.STALE_CONTROLLER_EPOCH, 7)
    stopped = to.on_stop_replica(StopReplica(9, 6, 3, 0, [], as_of=0), lambda entry: pytest.fail("not for this controller"))
    assert (stopped.error, stopped.controller_epoch) == (Code.STALE_CONTROLLER_EPOCH, 7)


@pytest.mark.parametrize(
    ("notices", "applied"),
    [
        ([(0, True)], 0),
        ([(0, False)], -1),  # nothing counts before the first complete one
        ([(0, True), (1, False), (2, False)], 2),
        ([(0, True), (2, False)], 0),  # 1 is missing
        ([(0, True), (2, False), (3, False), (1, False)], 3),
        ([(0, True), (2, False), (5, True)], 5),  # a complete one closes every gap before it
        ([(1, False), (0, True)], 1),
        ([(5, True), (0, True)], 5),
        ([(0, True), (1, False), (1, False)], 1),
    ],
)
def test_notices_count_without_a_gap(notices: list[tuple[int, bool]], applied: int) -> None:
    to = commands()
    for number, complete in notices:
        apply(to, told(number, complete=complete))
    assert to.notice == applied


def test_what_was_applied_behind_a_gap_takes_no_more_room_than_the_gap() -> None:
    """A notice that waits for room on a full disk leaves a gap for as long as the disk is full (P-62)."""
    to = commands()
    apply(to, told(0, complete=True))
    for number in range(2, 2_002):
        apply(to, told(number))
    assert (to.notice, to.gaps) == (0, 1)
    for number in range(2_004, 2_002, -1):  # 2002 is lost
        apply(to, told(number))
    apply(to, told(2_004))
    assert (to.notice, to.gaps) == (0, 2)
    apply(to, told(1))
    assert (to.notice, to.gaps) == (2_001, 1)
    apply(to, told(2_002))
    assert (to.notice, to.gaps) == (2_004, 0)


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=40))
def test_counting_is_that_of_a_set(notices: list[tuple[int, bool]]) -> None:
    to, highest, applied = commands(), -1, set()
    for number, complete in notices:
        apply(to, told(number, complete=complete))
        if complete:
            highest = max(highest, number)
        applied.add(number)
        while highest >= 0 and highest + 1 in applied:
            highest += 1
        ahead = {n for n in applied if n > highest}
        assert (to.notice, to.gaps) == (highest, sum(n - 1 not in ahead for n in ahead))


def test_stops_are_notices_too() -> None:
    to = commands()
    apply(to, told(0, complete=True))
    apply(to, told(2))
    to.on_stop_replica(StopReplica(9, 1, 3, 1, [], as_of=1), lambda entry: 0)
    assert to.notice == 2


def test_another_controller_or_another_life_counts_from_the_start() -> None:
    to = commands()
    apply(to, told(0, complete=True))
    apply(to, told(7, epoch=2))
    assert to.notice == -1
    apply(to, told(6, epoch=2, complete=True))
    assert to.notice == 7
    to.registered(4)
    assert to.notice == -1


def test_without_room_a_notice_does_not_count_and_the_copies_that_are_here_go_on() -> None:
    directory = FullDirectory(directory_id="d")
    MemoryLogDirectory.create(directory, [LogStart(IDENTITY, "t", TopicConfig(min_isr=1))])
    to = Commands(directory)
    to.registered(3)
    apply(to, told(0, complete=True))
    other = IDENTITY._replace(partition=7)
    entries = [notice(1, 0, (1,)), evolve(notice(1, 0, (1,)), partition=other)]
    reached: list[PartitionId] = []

    def become(entry: PartitionNotice) -> int:
        reached.append(entry.partition)
        return 0

    answer = to.on_leader_and_isr(told(1, entries=entries), become)
    assert (answer.error, answer.errors, reached, to.notice) == (0, [(other, Code.LOG_DIRECTORY_FULL)], [IDENTITY], 0)
    apply(to, told(2))
    assert to.notice == 0  # 1 is a gap
    directory.problem = None
    assert to.on_leader_and_isr(told(1, entries=entries), become).errors == []
    assert (reached, to.notice) == ([IDENTITY, IDENTITY, other], 2)


def test_without_room_a_complete_notice_counts_all_the_same() -> None:
    to = Commands(FullDirectory(directory_id="d"))
    to.registered(3)
    answer = to.on_leader_and_isr(told(0, complete=True, entries=[notice(1, 0, (1,))]), lambda _: 0)
    assert (answer.errors, to.notice) == ([(IDENTITY, Code.LOG_DIRECTORY_FULL)], 0)


def test_on_a_damaged_directory_a_copy_fails_for_good() -> None:
    directory = FullDirectory(directory_id="d")
    directory.problem = LogDamaged
    to = Commands(directory)
    to.registered(3)
    apply(to, told(0, complete=True))
    answer = to.on_leader_and_isr(told(1, entries=[notice(1, 0, (1,))]), lambda _: pytest.fail("it has no log"))
    assert (answer.errors, to.notice) == ([(IDENTITY, Code.STORAGE_ERROR)], 1)


def with_an_altered_flush(directory: MemoryLogDirectory, before: str, after: str, refused: int = 0) -> tuple[LeaderAndIsrAnswer, list[str]]:
    """A copy that is here has had flush `before`, the notice says `after`; the answer, and what the log had when the copy was told."""
    (log,) = MemoryLogDirectory.create(directory, [LogStart(IDENTITY, "t", TopicConfig.from_mapping({"flush": before}))])
    to = Commands(directory)
    to.registered(3)
    apply(to, told(0, complete=True))
    found: list[str] = []

    def become(entry: PartitionNotice) -> int:
        found.append(log.config.flush)
        return refused

    return to.on_leader_and_isr(told(1, entries=[notice(1, 0, (1,), flush=after)]), become, lambda entry: refused), found


@pytest.mark.parametrize(("before", "after"), [("ack", "os"), ("ack", "interval"), ("interval", "ack"), ("os", "ack")])
def test_another_flush_is_taken_over_by_the_directory_before_the_copy_is_told(before: str, after: str) -> None:
    """What is recorded of it decides what a power cut costs: it must not stay as it was when the log was made."""
    directory = MemoryLogDirectory(directory_id="d")
    answer, found = with_an_altered_flush(directory, before, after)
    assert (answer.errors, found) == ([], [after])
    directory.crash(power=True)
    assert directory.reopened().loss.lossy == (() if after == "ack" else (IDENTITY,))


def test_a_notice_that_a_copy_refuses_alters_nothing() -> None:
    directory = MemoryLogDirectory(directory_id="d")
    _, found = with_an_altered_flush(directory, "os", "ack", refused=Code.INVALID_UPDATE_VERSION)
    assert found == ["os"]
    directory.crash(power=True)
    assert directory.reopened().loss.lossy == (IDENTITY,)


@pytest.mark.parametrize(("problem", "code"), [(LogFull, Code.LOG_DIRECTORY_FULL), (LogDamaged, Code.STORAGE_ERROR)])
def test_a_flush_that_cannot_be_recorded_does_not_hold(problem: type[Exception], code: int) -> None:
    directory = FullDirectory(directory_id="d")
    directory.problem = problem
    answer, found = with_an_altered_flush(directory, "ack", "os")
    assert (answer.errors, found) == ([(IDENTITY, code)], []), "records would count that a power cut takes"


def test_a_copy_that_there_was_no_room_for_does_not_let_an_older_command_in() -> None:
    directory = FullDirectory(directory_id="d")
    to = Commands(directory)
    to.registered(3)
    apply(to, told(0, complete=True))
    to.on_stop_replica(StopReplica(9, 1, 3, 2, [StopEntry(IDENTITY, 1, True)], as_of=2), lambda entry: 0)
    apply(to, told(3, entries=[notice(1, 4, (1,))]))
    directory.problem = None
    assert apply(to, told(1, entries=[notice(1, 0, (1,))])) == []  # from before the stop, and late


def test_logs_are_made_before_anybody_leads_them() -> None:
    to = commands()
    directory = to._directory
    entry = notice(1, 0, (1,))

    def become(_: PartitionNotice) -> int:
        assert directory.get(IDENTITY) is not None
        return 0

    assert to.on_leader_and_isr(told(0, entries=[entry]), become).errors == []


@pytest.mark.parametrize(
    ("error", "reported"),
    [(0, False), (Code.FENCED_LEADER_EPOCH, False), (Code.INVALID_UPDATE_VERSION, False), (Code.STORAGE_ERROR, True)],
)
def test_old_news_is_no_failure(error: int, reported: bool) -> None:
    answer = commands().on_leader_and_isr(told(0, entries=[notice(1, 0, (1,))]), lambda entry: error)
    assert answer.errors == ([(IDENTITY, error)] if reported else [])


def test_a_complete_notice_reports_what_it_did_not_name() -> None:
    to = commands()
    other = IDENTITY._replace(partition=4)
    apply(to, told(0, entries=[notice(1, 0, (1,))]))
    answer = to.on_leader_and_isr(told(1, complete=True, entries=[PartitionNotice(other, *_rest())]), lambda entry: 0)
    assert answer.strays == [IDENTITY]
    assert to.on_leader_and_isr(told(2), lambda entry: 0).strays == []


def test_what_a_partial_notice_does_not_name_is_reported_and_goes_on() -> None:
    """The controller could not read all topics: a later notice names it perhaps, and an earlier copy of that is as good."""
    to = commands()
    apply(to, told(0, entries=[notice(1, 0, (1,))]))
    partial = evolve(told(1, complete=True), is_partial=True)
    assert to.on_leader_and_isr(partial, lambda entry: 0).strays == [IDENTITY]
    assert apply(to, told(1, entries=[notice(1, 0, (1,))])) == [IDENTITY]


def test_an_earlier_copy_of_a_complete_notice_brings_back_nothing_that_a_later_one_left_out() -> None:
    to = commands()
    apply(to, told(0, complete=True, entries=[notice(1, 0, (1,))]))
    assert to.on_leader_and_isr(told(0, complete=True), lambda entry: 0).strays == [IDENTITY]  # its topic was deleted in between
    assert apply(to, told(0, complete=True, entries=[notice(1, 0, (1,))])) == []
    assert apply(to, told(1, entries=[notice(1, 0, (1,))])) == [IDENTITY]  # assigned again, by a newer one


def _rest() -> tuple[object, ...]:
    made = notice(1, 0, (1,))
    return made.topic, made.state, made.assignment, made.config


def test_an_older_notice_does_not_bring_a_stopped_copy_back() -> None:
    to = commands()
    apply(to, told(0, complete=True))
    to.on_stop_replica(StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, TOPIC_DELETED, True)], as_of=5), lambda entry: 0)
    entry = notice(1, 0, (1,))
    assert apply(to, told(4, entries=[entry])) == []
    assert apply(to, told(5, entries=[entry])) == []
    assert apply(to, told(6, entries=[entry])) == [IDENTITY]
    assert apply(to, told(4, entries=[entry])) == []  # what was named since knows better


def test_a_late_copy_of_an_older_notice_does_not_bring_an_older_configuration_back() -> None:
    """A topic that is altered gives no new partition epoch: as of when a notice was made tells which one is newer."""
    to = commands()
    entry = notice(1, 0, (1,))
    assert apply(to, told(0, complete=True, entries=[entry])) == [IDENTITY]
    assert apply(to, told(1, entries=[entry])) == [IDENTITY]
    assert apply(to, told(0, complete=True, entries=[entry])) == []
    assert apply(to, told(1, entries=[entry])) == [IDENTITY]  # the same one again is no harm


def test_a_late_copy_of_an_older_notice_does_not_bring_back_what_a_newer_copy_of_the_complete_one_left_out() -> None:
    """Each is sent again under its number with what is true then, so numbers do not say which is newer."""
    to = commands()
    entry = notice(1, 0, (1,))
    assert apply(to, told(0, as_of=3, complete=True, entries=[entry])) == [IDENTITY]
    assert to.on_leader_and_isr(told(0, as_of=7, complete=True), lambda entry: 0).strays == [IDENTITY]
    assert apply(to, told(1, as_of=2, entries=[entry])) == []
    assert apply(to, told(4, as_of=7, entries=[entry])) == []
    assert apply(to, told(4, as_of=8, entries=[entry])) == [IDENTITY]  # assigned again


def test_a_late_notice_makes_no_copy_that_a_newer_complete_one_left_out() -> None:
    """The registration was not seen for a while, and a stop that was under way then is not said again: nobody would ever end this copy."""
    to = commands()
    entry = notice(1, 0, (1,))
    assert to.on_leader_and_isr(told(4, as_of=7, complete=True), lambda entry: 0).strays == []
    assert apply(to, told(0, as_of=6, complete=True, entries=[entry])) == []
    assert apply(to, told(1, as_of=6, entries=[entry])) == []
    assert apply(to, told(5, as_of=7, entries=[entry])) == [IDENTITY]  # of the same time: there was no room for it


def test_a_late_notice_makes_no_copy_that_a_partial_one_left_out_and_comes_again() -> None:
    """That one does not say that the copy is not wanted: as of now, the late one will."""
    to = commands()
    entry = notice(1, 0, (1,))
    to.on_leader_and_isr(evolve(told(0, as_of=7, complete=True), is_partial=True), lambda entry: 0)
    assert not_attempted(to, told(1, as_of=6, entries=[entry])) == []
    assert to.notice == 0
    assert apply(to, told(1, as_of=7, entries=[entry])) == [IDENTITY]
    assert to.notice == 1


OTHER = IDENTITY._replace(partition=9)


@pytest.mark.parametrize("how", ["named", "stopped", "full", "refused"])
def test_what_was_overtaken_comes_again_for_the_newer_one_may_not_have_been_applied(how: str) -> None:
    to = commands()
    entry = notice(1, 0, (1,))
    apply(to, told(0, as_of=1, complete=True))
    if how == "named":
        apply(to, told(2, as_of=3, entries=[entry]))
    elif how == "stopped":
        to.on_stop_replica(StopReplica(9, 1, 3, 2, [StopEntry(IDENTITY, 0, True)], as_of=3), lambda entry: 0)
    elif how == "full":  # there was no room to make it
        assert _without_room(to, told(1, as_of=3, entries=[entry])).errors == [(IDENTITY, Code.LOG_DIRECTORY_FULL)]
    else:  # there was none for what it has to do first
        assert apply(to, told(1, as_of=3, entries=[entry]), Code.LOG_DIRECTORY_FULL) == [IDENTITY]
    before = to.notice
    assert not_attempted(to, told(1, as_of=2, entries=[entry, PartitionNotice(OTHER, *_rest())])) == [OTHER]
    assert to.notice == before == 0
    assert apply(to, told(1, as_of=4, entries=[entry])) == [IDENTITY]
    assert to.notice == (1 if how in ("full", "refused") else 2)


def test_a_copy_that_was_left_out_when_there_was_no_room_for_it_is_named_no_more() -> None:
    to = commands()
    _without_room(to, told(0, as_of=1, complete=True, entries=[notice(1, 0, (1,))]))
    apply(to, told(0, as_of=2, complete=True))
    assert not to._named


def test_of_a_copy_that_has_no_room_for_another_flush_no_older_state_is_taken() -> None:
    to = commands()
    entry = notice(1, 0, (1,))
    apply(to, told(0, complete=True, entries=[entry]))
    altered = evolve(entry, config=evolve(entry.config, flush="ack"))
    _without_room(to, told(2, as_of=7, entries=[altered]))
    assert not_attempted(to, told(1, as_of=5, entries=[entry])) == []


def test_after_a_stop_was_forgotten_nothing_older_is_applied() -> None:
    to = commands()
    apply(to, told(0, complete=True))
    to.on_stop_replica(StopReplica(9, 1, 3, 1, [StopEntry(IDENTITY, 0, True)], as_of=5), lambda entry: 0)
    to.age(1)
    to.age(10**9)
    assert not to._stopped
    assert not_attempted(to, told(2, as_of=4, entries=[notice(1, 0, (1,))])) == []
    assert apply(to, told(2, as_of=6, entries=[notice(1, 0, (1,))])) == [IDENTITY]


def test_a_late_stop_leaves_a_copy_alone_that_a_complete_notice_has_named_since() -> None:
    to = commands()
    stopped: list[StopEntry] = []
    stop = StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, 0, True)], as_of=5)
    assert apply(to, told(0, as_of=6, complete=True, entries=[notice(1, 0, (1,))])) == [IDENTITY]
    to.on_stop_replica(stop, lambda entry: stopped.append(entry) or 0)
    assert stopped == []
    to.on_stop_replica(evolve(stop, as_of=7), lambda entry: stopped.append(entry) or 0)
    assert stopped == stop.entries


def test_a_stop_without_room_to_put_the_copy_away_is_remembered() -> None:
    to = commands()
    apply(to, told(0, complete=True))
    stop = StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, TOPIC_DELETED, True)], as_of=5)
    assert to.on_stop_replica(stop, lambda entry: Code.STORAGE_ERROR).errors == [(IDENTITY, Code.STORAGE_ERROR)]
    assert apply(to, told(4, entries=[notice(1, 0, (1,))])) == []


def test_what_may_go_is_put_away_at_once() -> None:
    """A topic of ten thousand partitions is not ten thousand writes to the disk; what is only stopped, or refused, stays."""
    to = commands()
    others = [IDENTITY._replace(partition=number) for number in range(10, 14)]
    apply(to, told(0, complete=True, entries=[PartitionNotice(one, *_rest()) for one in (IDENTITY, *others[:3])]))
    stops = [StopEntry(one, TOPIC_DELETED, one != IDENTITY) for one in (IDENTITY, *others)]
    asked: list[list[PartitionId]] = []

    def put_away(identities: list[PartitionId]) -> int:
        asked.append(identities)
        return Code.STORAGE_ERROR

    def stop(entry: StopEntry) -> int:
        return Code.FENCED_LEADER_EPOCH if entry.partition == others[0] else Code.NONE

    answer = to.on_stop_replica(StopReplica(9, 1, 3, 1, stops, as_of=1), stop, put_away)
    assert asked == [others[1:3]]  # the last one has no log
    assert answer.errors == [
        (others[0], Code.FENCED_LEADER_EPOCH),
        (others[1], Code.STORAGE_ERROR),
        (others[2], Code.STORAGE_ERROR),
    ]


def test_a_late_stop_does_not_take_the_place_of_a_newer_one() -> None:
    to = commands()
    for number in (5, 3):
        to.on_stop_replica(StopReplica(9, 1, 3, number, [StopEntry(IDENTITY, TOPIC_DELETED, True)], as_of=number), lambda entry: 0)
    assert apply(to, told(4, entries=[notice(1, 0, (1,))])) == []


def test_a_new_life_forgets_what_was_stopped_in_the_last_one() -> None:
    to = commands()
    to.on_stop_replica(StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, TOPIC_DELETED, True)], as_of=5), lambda entry: 0)
    to.registered(4)  # what it is told is counted anew
    assert apply(to, told(0, life=4, complete=True, entries=[notice(1, 0, (1,))])) == [IDENTITY]


def test_what_came_early_for_a_new_life_is_not_taken_back_by_what_comes_late_for_it() -> None:
    """The broker may be the last to learn its own epoch (KAFKA-9839): the controller has spoken to the new life by then."""
    to = commands()
    entry = notice(1, 0, (1,))
    assert apply(to, told(0, as_of=9, complete=True, entries=[entry])) == [IDENTITY]
    to.on_stop_replica(StopReplica(9, 1, 4, 1, [StopEntry(IDENTITY, 0, True)], as_of=2), lambda entry: 0)
    to.registered(4)
    assert apply(to, told(0, as_of=1, life=4, complete=True, entries=[entry])) == []
    assert apply(to, told(2, as_of=3, life=4, entries=[entry])) == [IDENTITY]


def test_what_came_early_for_a_new_life_is_newer_than_all_that_its_last_one_was_told() -> None:
    """Both count from the beginning."""
    to = commands()
    entry = notice(1, 0, (1,))
    to.on_stop_replica(StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, 0, True)], as_of=9), lambda entry: 0)
    assert apply(to, told(0, as_of=1, life=4, complete=True, entries=[entry])) == [IDENTITY]
    assert apply(to, told(6, as_of=10, entries=[entry])) == []
    to.registered(4)
    assert apply(to, told(0, as_of=1, life=4, complete=True, entries=[entry])) == [IDENTITY]


def test_a_stop_that_was_refused_is_not_remembered() -> None:
    to = commands()
    stop = StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, 3, True)], as_of=5)
    assert to.on_stop_replica(stop, lambda entry: Code.FENCED_LEADER_EPOCH).errors == [(IDENTITY, Code.FENCED_LEADER_EPOCH)]
    assert apply(to, told(4, entries=[notice(1, 0, (1,))])) == [IDENTITY]


def test_a_late_stop_leaves_a_copy_alone_that_was_assigned_again_since() -> None:
    """A move away was cancelled, or the partition came back: the leader epoch need not have grown (KAFKA-13972)."""
    to = commands()
    apply(to, told(0, complete=True))
    assert apply(to, told(6, entries=[notice(1, 0, (1,))])) == [IDENTITY]
    stopped: list[StopEntry] = []
    late = StopReplica(9, 1, 3, 5, [StopEntry(IDENTITY, 0, True)], as_of=5)
    assert to.on_stop_replica(late, lambda entry: stopped.append(entry) or 0).errors == []
    assert stopped == []
    newer = StopReplica(9, 1, 3, 7, [StopEntry(IDENTITY, 0, True)], as_of=7)
    to.on_stop_replica(newer, lambda entry: stopped.append(entry) or 0)
    assert stopped == newer.entries
