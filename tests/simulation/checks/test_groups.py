"""Rules about work that is run again, and what the workload that does so finds wrong."""

from __future__ import annotations

import pytest
from tests.simulation.checks.situations import PID, booted, copy_of, entry, header, holds, ledger, node_with, partition, violates

from replog.log.memory import MemoryLog
from replog.marks import WriterMark, framing, marked, writer_id
from replog.messages import (
    Fetch,
    FetchedEntry,
    FetchEntry,
    ListedOffset,
    ProducedEntry,
    ProduceEntry,
    Publish,
    Published,
    Stage,
    StagedAttempt,
)
from replog.model import ACKS_ALL
from replog.partition.partition import Partition
from replog.records import CONTROL_BIT, BatchHeader, RecordBatch, encode_values, read_header
from replog.testing.simulator import Shape, draw, run
from replog.testing.simulator.corpus import Failure, from_json, to_json
from replog.testing.simulator.forks import Fork
from replog.testing.simulator.invariants import (
    Asked,
    Claim,
    DoneIsCommitted,
    FailedDisksConfirmNothing,
    GroupsAreWhole,
    NothingIsInvented,
    OldMessagesChangeNothing,
    VersionsGrow,
)
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger
from replog.testing.simulator.once import Once, _Done, judge

W = writer_id("w")


def body(*, into: int = 0, last: bool = True, version: int = 1, count: int = 1, key: str = "w") -> bytes:
    """A batch of a group, as it is stored."""
    return marked(encode_values([b"x"] * count, now_ms=0), WriterMark(key, version, into), is_last=last)


def said_again(version: int, key: str = "w") -> bytes:
    return encode_values([None], now_ms=0, **framing(WriterMark(key, version)), attributes=CONTROL_BIT)  # type: ignore[call-overload,no-any-return]


def stored(*bodies: bytes) -> Copy:
    """A mirror of these batches, one after the other."""
    made = Copy(1)
    for one in bodies:
        take(made, one)
    return made


def take(copy: Copy, one: bytes, rule: GroupsAreWhole | None = None) -> None:
    batch = RecordBatch(one)
    batch.stamp(PID, copy.end, 3)
    book = ledger(0)

    def look(copy: Copy, header: BatchHeader) -> None:
        if rule is not None:
            rule.batch(book, copy, header)

    copy.take(memoryview(batch.front + one), look)


def committed(*bodies: bytes) -> Ledger:
    book = ledger(0)
    book.entries = stored(*bodies).entries
    return book


PLAIN = encode_values([b"y"], now_ms=0)


def test_a_mirror_knows_groups() -> None:
    copy = stored(body(last=False, count=2, version=(5 << 31) + 7), body(into=2, version=(5 << 31) + 7), PLAIN, said_again(3))
    found = [(one.into, one.version, one.is_open, one.is_control) for one in copy.entries]
    assert found == [
        (0, (5 << 31) + 7, True, False),
        (1, (5 << 31) + 7, True, False),
        (2, (5 << 31) + 7, False, False),
        (-1, -1, False, False),
        (0, 3, False, True),
    ]


@pytest.mark.parametrize(
    ("before", "then", "fires"),
    [
        ((), body(into=3), False),  # where the log starts
        ((body(last=False),), body(into=1), False),
        ((body(last=False, count=3),), body(into=3, last=False), False),
        ((body(),), body(version=2), False),
        ((PLAIN,), PLAIN, False),
        ((body(last=False),), PLAIN, True),
        ((body(last=False),), body(), True),  # it begins anew
        ((body(last=False),), body(into=2), True),
        ((body(last=False),), body(into=1, version=2), True),
        ((body(last=False),), body(into=1, version=1 << 31), True),
        ((body(last=False),), body(into=1, key="v"), True),
        ((body(),), body(into=1), True),
        ((PLAIN,), body(into=1), True),
    ],
)
def test_s25_nothing_lies_between_the_batches_of_a_group(before: tuple[bytes, ...], then: bytes, fires: bool) -> None:
    copy, rule = stored(*before), GroupsAreWhole()
    if fires:
        violates("S25", take, copy, then, rule)
    else:
        holds(take, copy, then, rule)


@pytest.mark.parametrize(("watermark", "fires"), [(0, False), (1, False), (2, True), (3, True), (4, False), (5, False)])
def test_s25_no_copy_has_its_high_watermark_inside_a_group(watermark: int, fires: bool) -> None:
    rule, leader = GroupsAreWhole(), partition()
    copy = stored(PLAIN, body(last=False), body(into=1, last=False), body(into=2), PLAIN)
    leader.high_watermark = watermark
    (violates if fires else holds)(*(("S25",) if fires else ()), rule.changed, ledger(0), copy, leader)
    copy.start = watermark  # retention has removed whole segments
    holds(rule.changed, ledger(0), copy, leader)


@pytest.mark.parametrize(("watermark", "fires"), [(0, False), (1, True), (2, False), (9, False)])
def test_s25_no_reader_is_told_of_half_a_group(watermark: int, fires: bool) -> None:
    rule, leader, book = GroupsAreWhole(), partition(), committed(body(last=False), body(into=1))
    fetched = FetchedEntry(PID, 3, 0, 0, watermark, 0, 0, -1, -1, [])
    latest = ListedOffset(PID, offset=watermark, timestamp_ms=-1, start_offset=0)
    for call, told in ((rule.shown, (fetched, [])), (rule.listed, (latest,))):
        (violates if fires else holds)(*(("S25",) if fires else ()), call, ("client", 1), book, leader, *told)
        (violates if fires else holds)(*(("S25",) if fires else ()), call, ("client", 1), book, None, *told)
    cut = Partition(PID, "t", MemoryLog(PID, start_offset=watermark), broker_id=1, limits=leader.limits, brokers={})
    holds(rule.shown, ("client", 1), book, cut, fetched, [])
    holds(rule.listed, ("client", 1), book, leader, ListedOffset(PID, offset=1, timestamp_ms=-1, start_offset=1))


@pytest.mark.parametrize(
    ("bodies", "fires"),
    [
        ((body(), body(version=2), body(key="v")), False),
        ((body(last=False), body(into=1), PLAIN, body(version=5)), False),
        ((body(version=2), said_again(2), said_again(2), body(version=3)), False),
        ((body(), body()), True),
        ((body(version=2), body()), True),
        ((body(version=1 << 31), body(version=2)), True),
        ((body(version=2), said_again(1)), True),
        ((said_again(1),), True),
        ((body(version=2), said_again(2), body(version=2)), True),
    ],
)
def test_s17_versions_of_a_writer_grow(bodies: tuple[bytes, ...], fires: bool) -> None:
    rule, book = VersionsGrow(), committed(*bodies)
    (violates if fires else holds)(*(("S17",) if fires else ()), rule.committed, book, {}, copy_of(1, []), partition())


def test_s17_what_nobody_has_seen_may_have_been_said() -> None:
    book = committed(said_again(1))
    book.entries.insert(0, NEVER_SEEN)
    holds(VersionsGrow().committed, book, {}, copy_of(1, []), partition())
    book.entries.append(stored(body()).entries[0])
    violates("S17", VersionsGrow().committed, book, {}, copy_of(1, []), partition())


@pytest.mark.parametrize(("start", "fires"), [(0, True), (2, False)])
def test_s17_an_unclean_leader_says_again_what_is_in_front_of_its_log(start: int, fires: bool) -> None:
    """It brings back a line that parted from what is committed below where its own log begins."""
    rule, book = VersionsGrow(), committed(body(version=2), PLAIN)
    rule.committed(book, {}, copy_of(1, []), partition())
    book.forks.append(Fork(4, 1, start, book.entries[1:], 0))
    book.entries = [*book.entries[:1], *stored(said_again(2 if start else 1), said_again(2)).entries]
    rule.parted(book)
    (violates if fires else holds)(*(("S17",) if fires else ()), rule.committed, book, {}, copy_of(1, []), partition())
    book.entries += stored(said_again(1)).entries
    violates("S17", rule.committed, book, {}, copy_of(1, []), partition())


@pytest.mark.parametrize(("version", "is_back", "fires"), [(2, True, False), (2, False, True), (9, True, True)])
def test_s17_only_what_an_unclean_election_brings_back_was_in_front_of_a_log(version: int, is_back: bool, fires: bool) -> None:
    """Not what its leader says later, nor what is in no line."""
    rule, book = VersionsGrow(), committed(body(version=2), PLAIN)
    rule.committed(book, {}, copy_of(1, []), partition())
    book.forks.append(Fork(4, 1, 1, [*book.entries[1:], *stored(said_again(2)).entries], 0))
    again = stored(said_again(version)).entries
    book.entries = [*book.entries[:1], *(again if is_back else ())]
    rule.parted(book)
    book.entries += () if is_back else again
    (violates if fires else holds)(*(("S17",) if fires else ()), rule.committed, book, {}, copy_of(1, []), partition())


def test_s17_what_a_leader_says_again_was_sent_by_nobody() -> None:
    rule, book = NothingIsInvented(), committed(body())
    violates("S17", rule.committed, book, {}, copy_of(1, []), partition())
    rule = NothingIsInvented()
    rule.asked(Asked(book, ACKS_ALL, body()))
    book.entries += stored(said_again(1)).entries
    holds(rule.committed, book, {}, copy_of(1, []), partition())


def done(*bodies: bytes, hidden: int = 0, watermark: int | None = None, start: int = 0) -> tuple[DoneIsCommitted, Ledger, Partition]:
    rule, book = DoneIsCommitted(), committed(*bodies)
    leader = Partition(PID, "t", MemoryLog(PID, start_offset=start), broker_id=1, limits=partition().limits, brokers={})
    leader.high_watermark = book.end if watermark is None else watermark
    book.hidden = hidden
    rule.committed(book, {}, copy_of(1, []), leader)
    return rule, book, leader


GROUP = (PLAIN, body(last=False), body(into=1, count=2))


@pytest.mark.parametrize(
    ("bodies", "version", "place", "fires"),
    [
        (GROUP, 1, (1, 4), False),
        (GROUP, 1, (0, 4), True),
        (GROUP, 1, (1, 3), True),
        (GROUP, 1, (2, 4), True),
        (GROUP, 2, (1, 4), True),
        (GROUP, 1, (-1, 4), True),  # it is there
        ((*GROUP, body(version=2)), 1, (-1, 5), False),  # or later work is
        ((*GROUP, body(version=2)), 2, (-1, 5), True),
        ((*GROUP, said_again(1)), 1, (-1, 5), False),  # that is all that may be known of it
        (GROUP[:2], 1, (1, 2), True),
        ((PLAIN,), 1, (0, 1), True),
    ],
)
def test_s12_done_is_committed_and_whole(bodies: tuple[bytes, ...], version: int, place: tuple[int, int], fires: bool) -> None:
    rule, book, leader = done(*bodies)
    answer = Published(1, PID, 0, *place)
    (violates if fires else holds)(*(("S12",) if fires else ()), rule.published, book, leader, answer, Claim(W, version))
    (violates if fires else holds)(*(("S12",) if fires else ()), rule.published, book, None, answer, Claim(W, version))
    rule, book, leader = done(*bodies, hidden=99)
    holds(rule.published, book, leader, answer, Claim(W, version))  # a damaged disk hides more


def test_s12_done_is_below_the_high_watermark_of_who_says_so() -> None:
    rule, book, leader = done(*GROUP, watermark=3)
    violates("S12", rule.published, book, leader, Published(1, PID, 0, 1, 4), Claim(W, 1))


def test_s12_the_offsets_of_what_is_gone_are_not_told() -> None:
    rule, book, leader = done(*GROUP, start=2)
    holds(rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, 1))
    rule, book, leader = DoneIsCommitted(), committed(*GROUP), done(*GROUP)[2]
    rule.committed(book, {}, copy_of(1, []), leader)
    damaged = copy_of(1, [])
    rule.changed(book, damaged, leader)
    violates("S12", rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, 1))
    damaged.suspect = True
    rule.changed(book, damaged, leader)
    holds(rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, 1))
    violates("S12", rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, 2))  # a disk hides nothing that was never there
    damaged.suspect = False
    rule.changed(book, damaged, leader)  # all of it was read again
    violates("S12", rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, 1))
    other = copy_of(2, [])
    other.suspect = True
    rule.changed(book, other, leader)
    violates("S12", rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, 1))


def test_s12_whose_reads_fail_need_not_know_where_work_begins() -> None:
    """That it is done it must know."""
    rule, book, leader = done(*GROUP)
    node = node_with(leader)
    for fails, version, fires in ((True, 1, False), (True, 2, True), (False, 1, True)):
        node.reads_fail = fails
        rule.said(node, ("client", 1), None)
        call = (rule.published, book, leader, Published(1, PID, 0, -1, 4), Claim(W, version))
        (violates if fires else holds)(*(("S12",) if fires else ()), *call)


def test_s12_of_two_attempts_either_may_be_there() -> None:
    rule, book, leader = DoneIsCommitted(), ledger(0), partition()
    mark = framing(WriterMark("w", 1))
    first, second = (encode_values(values, now_ms=0, **mark) for values in ([b"a", b"b"], [b"c"]))
    book.entries = stored(PLAIN, first).entries
    leader.high_watermark = 3
    rule.committed(book, {}, copy_of(1, []), leader)
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 1), Asked(book, ACKS_ALL, second))
    holds(rule.produced, book, leader, ProducedEntry(1, 0, 0), Asked(book, ACKS_ALL, PLAIN))  # S12 of others
    violates("S12", rule.produced, book, leader, ProducedEntry(1, 0, 0), Asked(book, ACKS_ALL, second))


def test_s22_a_failed_disk_calls_nothing_done() -> None:
    rule, node = FailedDisksConfirmNothing(), node_with(partition())
    rule._failed[node.broker_id] = node.life
    holds(rule.said, node, ("client", 1), Published(1, PID))  # a piece is put aside
    holds(rule.said, node, ("client", 1), Published(1, PID, 56))
    violates("S22", rule.said, node, ("client", 1), Published(1, PID, 0, 1, 2))


@pytest.mark.parametrize("is_marked", [True, False])
def test_s14_a_leader_goes_on_publishing_whatever_comes(is_marked: bool) -> None:
    """Only by itself, and only so: the ISR is no part of that."""
    rule, leader = OldMessagesChangeNothing(), partition()
    assert leader.leading is not None
    node = node_with(leader)
    old = Fetch(1, 2, 1, 0, -1, 0, 1, 1, [FetchEntry(PID, 2, 3, -1, 1)])
    made = body() if is_marked else PLAIN
    for change in ("nothing else", "a position"):
        rule.received(node, 2, old)
        leader.append(RecordBatch(made if change == "nothing else" else PLAIN), -1, 0)
        if change != "nothing else":
            leader.leading.replicas[2].position = 2
        rule.changed(ledger(0), stored(made), leader)
        if is_marked and change == "nothing else":
            holds(rule.handled, node)
        else:
            violates("S14", rule.handled, node)


# -------------------------------------------------------------------------------------------------------- what is judged

ROWS = {("w", 1): [["once|w|1|a|0", "once|w|1|a|1"], ["once|w|1|b|0"]], ("w", 2): [["once|w|2|c|0"]]}


@pytest.mark.parametrize(
    ("read", "places"),
    [
        ({}, {}),
        ({0: "other", 1: "once|w|1|b|0"}, {("w", 1): (1, 2)}),
        ({3: "once|w|1|a|0", 4: "once|w|1|a|1", 6: "once|w|2|c|0"}, {("w", 1): (3, 5), ("w", 2): (6, 7)}),
    ],
)
def test_one_attempt_is_there_and_all_of_it(read: dict[int, str], places: dict[tuple[str, int], tuple[int, int]]) -> None:
    assert judge(read, 0, ROWS) == places


@pytest.mark.parametrize(
    "read",
    [
        ["once|w|1|a|0"],
        ["once|w|1|a|1"],
        ["once|w|1|a|1", "once|w|1|a|0"],
        ["once|w|1|a|0", "between", "once|w|1|a|1"],
        ["once|w|1|a|0", "once|w|1|b|0"],
        ["once|w|1|b|0", "once|w|1|b|0"],
        ["once|w|1|b|0", "once|w|1|a|0", "once|w|1|a|1"],
        ["once|w|2|c|0", "once|w|1|b|0"],
        ["once|w|3|d|0"],
    ],
)
def test_once_means_whole_and_once_and_in_order(read: list[str]) -> None:
    violates("once", judge, dict(enumerate(read)), 0, ROWS)


def test_retention_may_take_the_beginning() -> None:
    assert judge({7: "once|w|1|a|1"}, 7, ROWS) == {("w", 1): (7, 8)}
    violates("once", judge, {7: "once|w|1|a|0"}, 7, ROWS)
    violates("once", judge, {8: "once|w|1|a|1"}, 7, ROWS)


@pytest.mark.parametrize(
    ("places", "may_lack_place", "start", "fires"),
    [
        ({}, True, 0, True),  # nothing of it was ever there
        ({("w", 1): (3, 4)}, True, 0, True),
        ({("v", 3): (3, 4)}, True, 0, True),
        ({("w", 2): (3, 4)}, True, 0, False),
        ({("w", 2): (3, 4)}, False, 0, True),  # then its place is known
        ({("w", 3): (3, 4)}, False, 0, False),
        ({}, True, 5, False),  # retention may have taken it
    ],
)
def test_what_is_called_done_without_a_place_is_there(
    places: dict[tuple[str, int], tuple[int, int]], may_lack_place: bool, start: int, fires: bool
) -> None:
    rule = Once()
    rule._done.append(_Done(PID, ("w", 2), -1, -1))
    call = (rule._check_told, 0, places, start)
    (violates if fires else holds)(*(("once",) if fires else ()), *call, may_lack_place=may_lack_place)


# ---------------------------------------------------------------------------------------------------------- in a cluster


@pytest.mark.simulation
def test_what_is_asked_to_be_published_is_known_before_it_is_stored() -> None:
    world = booted()
    (book,) = world.checks.expected()
    (rule,) = (one for one in world.checks.invariants if isinstance(one, NothingIsInvented))
    identity, client = book.identity, ("client", 1)
    pieces = [encode_values([b"a", b"b"], now_ms=0), encode_values([b"c"], now_ms=0)]
    for number, piece in enumerate(pieces):
        world.checks.staged(client, Stage("w", 7, "a", number, ProduceEntry(number, identity, piece)))
    world.checks.claimed(client, Publish(9, identity, "w", 7, 100, [StagedAttempt("a", 2)], 5))
    marks = [WriterMark("w", 7, into, made_ms=5) for into in (0, 2)]
    expected = stored(marked(pieces[0], marks[0], is_last=False), marked(pieces[1], marks[1], is_last=True))
    assert rule._sent[book] == {(one.producer_id, one.producer_epoch, one.sequence, one.payload_crc) for one in expected.entries}
    world.checks.claimed(client, Publish(10, identity, "w", 8, 100, [StagedAttempt("a", 2)], 5))  # of which nothing was put aside
    assert len(rule._sent[book]) == 3


@pytest.mark.simulation
@pytest.mark.parametrize("files", [False, True])
def test_attempts_race_and_drivers_die_and_all_is_there_once(files: bool) -> None:
    given = {"brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 2, "clients": 2, "think_ms": 60, "retention_bytes": 0}
    missing = {
        "work is appended once",
        "work is published",
        "a version is replayed",
        "a driver dies between the publications of two partitions",
        "a leftover attempt appends",
        "a leftover driver begins",
        "what was put aside is gone",
        "what is put aside is done already",
    }
    for seed in range(1, 6):  # what one schedule does not come upon, another does
        plan = draw(seed, workloads=("once", "append"), slice_bytes=1, stage_ms=700, retention_ms=0, drop=0.01, files=files, **given)
        found = run(seed, plan=plan)
        assert found.violation is None
        missing -= {mark for mark, count in found.marks.items() if count}
        if not missing:
            break
    assert not missing


@pytest.mark.simulation
def test_what_retention_would_forget_is_said_again() -> None:
    marks: set[str] = set()
    for seed in range(4, 9):
        found = run(seed, plan=draw(seed, only=("kill", "rolling"), workloads=("once",), retention_ms=500, files=False, clients=2))
        assert found.violation is None
        marks.update(found.marks)
        if {"a leader says again what a writer had done", "a log starts later than before"} <= marks:
            return
    raise AssertionError(f"nothing of it happens: {sorted(marks)}")


def test_plans_have_groups_of_many_slices_and_no_other_field_depends_on_it() -> None:
    shapes = [draw(seed).shape for seed in range(1, 301)]
    assert 0.2 < sum("once" in shape.workloads for shape in shapes) / len(shapes) < 0.4
    assert {shape.slice_bytes for shape in shapes} == {1, 400, 2_000}
    assert {bool(shape.stage_ms) for shape in shapes} == {True, False}
    given = {"slice_bytes": 5, "slice_ms": 6, "stage_ms": 7}
    assert draw(3, **given).faults == draw(3).faults
    assert [getattr(draw(3, **given).shape, name) for name in given] == [5, 6, 7]
    assert Shape().broker_config().publish_slice_bytes > 1 << 20
    assert (Shape(**given).broker_config().publish_slice_bytes, Shape(**given).broker_config().stage_expiry_ms) == (5, 7)
    assert from_json(to_json(Failure(draw(3, **given)))).plan == draw(3, **given)


def test_entries_of_others_are_as_before() -> None:
    copy = Copy(1)
    assert header(0, 3).extension_bytes == 0
    batch = RecordBatch(PLAIN)
    batch.stamp(PID, 0, 3)
    copy.take(memoryview(batch.front + PLAIN))
    read = read_header(memoryview(batch.front + PLAIN))
    assert copy.entries == [Entry(3, read.header_crc, read.payload_crc, -1, -1, -1)]
    assert entry(1) == Entry(3, 1, 1, 7, 0, 1, -1, -1, False, False)
