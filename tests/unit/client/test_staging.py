"""`append_once`, `stage` and `publish`: what is sent again and what is not, what comes back, and what a caller is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake import CLIENT, FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.client.operations import RETRIED, SAME_PLACE
from replog.errors import (
    CODES,
    Code,
    InvalidRecord,
    MessageTooLarge,
    ReplogError,
    TimedOut,
    Unavailable,
    UnknownStage,
    UnknownTopicOrPartition,
    UsageError,
    error_name,
)
from replog.marks import KEY_BYTES_MAX, VERSION_MAX, made_ms_of, mark_of
from replog.messages import Metadata, Produce, Produced, ProducedEntry, Publish, Published, Stage
from replog.records import Record, RecordBatch, decode_records, encode_records

WORK: dict[str, Any] = {"writer": "job/0", "version": 7}


def asked_for(message: Any) -> Any:
    """What has the request number and the partition."""
    return message.entries[0] if isinstance(message, Produce) else message.entry if isinstance(message, Stage) else message


class Leaders:
    """What brokers do with work that is repeated, over the logs of a fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.asked: list[tuple[int, Any]] = []
        self.refuse: list[int] = []
        """Codes of the next answers."""
        self.staged: dict[tuple[str, int, str, int], bytes] = {}
        self.done: dict[str, tuple[int, int, int]] = {}
        self.no_room: tuple[int, int] | None = None
        """What stages ask for, and the limit: said to each while it is there."""
        cluster.override = self.answer

    def answer(self, message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce | Stage | Publish):
            return None
        self.asked.append((broker, message))
        entry = asked_for(message)
        partition = self.cluster.partitions.get(entry.partition)
        code, base, end = 0, -1, -1
        if self.refuse:
            code = self.refuse.pop(0)
        elif partition is None:
            code = Code.UNKNOWN_TOPIC_ID
        elif partition.leader != broker:
            code = Code.NOT_LEADER_OR_FOLLOWER
        else:
            code, base, end = getattr(self, f"_{type(message).__name__.lower()}")(message, partition)
        if isinstance(message, Produce) and (code or base < 0 or end - base == RecordBatch(entry.body).count):
            return [Produced([ProducedEntry(entry.request, code, base, 0)])]
        return [Published(entry.request, entry.partition, code, base, end)]

    def _known(self, writer: str, version: int) -> tuple[int, int, int] | None:
        last, base, end = self.done.get(writer, (-1, -1, -1))
        return None if version > last else (0, base if version == last else -1, end)

    def _produce(self, message: Produce, partition: Any) -> tuple[int, int, int]:
        batch = RecordBatch(message.entries[0].body)
        batch.check_body(length_max=2**30, records_max=10**6)
        mark = mark_of(batch)
        assert mark is not None
        assert mark.group_offset == 0
        known = self._known(mark.key, mark.version)
        if known is None:
            base = partition.append(batch)
            self.done[mark.key] = (mark.version, base, partition.end)
        return self._known(mark.key, mark.version) if known is None else known  # type: ignore[return-value]

    def _stage(self, message: Stage, partition: Any) -> tuple[int, int, int]:
        if self.no_room is not None:
            return Code.QUOTA_EXCEEDED, *self.no_room
        self.staged.setdefault((message.writer, message.version, message.attempt, message.number), message.entry.body)
        return self._known(message.writer, message.version) or (0, -1, -1)

    def _publish(self, message: Publish, partition: Any) -> tuple[int, int, int]:
        known = self._known(message.writer, message.version)
        if known is not None:
            return known
        base = partition.end
        keys = [(message.writer, message.version, one.attempt, n) for one in message.attempts for n in range(one.pieces)]
        if any(key not in self.staged for key in keys):
            return Code.UNKNOWN_STAGE, -1, -1
        for key in keys:
            partition.append(RecordBatch(self.staged[key]))
        self.done[message.writer] = (message.version, base, partition.end)
        return 0, base, partition.end


def leaders(**options: Any) -> tuple[Leaders, FakeDriver, Client]:
    cluster, driver, client = make({"t": 3}, **options)
    return Leaders(cluster), driver, client


def stage(client: Client, number: int = 0, *values: str, attempt: str = "a", **more: Any) -> bool:
    return client.stage("t", 0, list(values or ("x", "y")), **{**WORK, "attempt": attempt, "number": number, **more})


CALLS: dict[str, Callable[[Client], Any]] = {
    "append_once": lambda client: client.append_once("t", 0, ["x"], **WORK, timeout_s=20),
    "stage": lambda client: stage(client, timeout_s=20),
    "publish": lambda client: client.publish("t", 0, [("a", 1)], **WORK, timeout_s=20),
}
SAID = {
    "append_once": "an append",
    "stage": "a stage of version 7 of writer 'job/0'",
    "publish": "the publication of version 7 of writer 'job/0'",
}


def called(name: str, desk: Leaders, client: Client) -> Any:
    """Call with what it needs in place."""
    if name == "publish":
        desk.staged["job/0", 7, "a", 0] = encode_records(["x"], now_ms=1)
    return CALLS[name](client)


# ---------------------------------------------------------------------------------------------------------- what comes back


def test_work_that_is_repeated_has_the_receipt_of_the_first_time() -> None:
    desk, _, client = leaders()
    assert client.append_once("t", 0, ["a", "b"], **WORK) == ("t", 0, 0, 1)
    assert client.append_once("t", 0, ["a", "b"], **WORK) == ("t", 0, 0, 1)
    assert client.append_once("t", 0, ["c"], writer="job/0", version=8) == ("t", 0, 2, 2)
    assert client.append_once("t", 0, ["a", "b"], **WORK) == ("t", 0, None, None), "a later one is there"
    assert client.append_once("t", 1, ["a"], writer="job/1", version=0) == ("t", 1, 0, 0)
    assert desk.cluster.partition("t").values() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_work_that_was_done_with_another_number_of_records_has_the_receipt_of_the_first_time(count: int) -> None:
    desk, _, client = leaders()
    client.append_once("t", 0, ["before"], writer="another", version=1)
    assert client.append_once("t", 0, ["a", "b"], **WORK) == ("t", 0, 1, 2)
    assert client.append_once("t", 0, ["again"] * count, **WORK) == ("t", 0, 1, 2)
    assert desk.cluster.partition("t").values() == [b"before", b"a", b"b"]


def test_a_stage_without_room_names_the_limit_and_what_it_asked_for() -> None:
    desk, _, client = leaders()
    desk.no_room = (700, 5_000)
    text = (
        "the last answer was QuotaExceeded: stage_bytes_max of broker 1 is 5000 (one principal may have half of it), and what is put aside "
        "there leaves no room for 700 bytes"
    )
    with pytest.raises(TimedOut, match=re.escape(text)):
        stage(client, timeout_s=20)
    desk.no_room = None
    assert stage(client) is True


def test_what_is_staged_is_published_as_one() -> None:
    desk, _, client = leaders()
    for number in (1, 0):
        assert stage(client, number, f"{number}", "and", "more") is True
    assert stage(client, 0, "late", attempt="b") is True
    assert desk.cluster.partition("t").values() == []
    assert client.publish("t", 0, [("b", 1), ("a", 2)], **WORK) == ("t", 0, 0, 6)
    assert desk.cluster.partition("t").values() == [b"late", b"0", b"and", b"more", b"1", b"and", b"more"]
    assert client.publish("t", 0, [("c", 5)], **WORK) == ("t", 0, 0, 6)
    assert stage(client, 0) is False
    assert client.publish("t", 0, [("c", 5)], writer="job/0", version=6) == ("t", 0, None, None)
    (publish, *_) = [message for _, message in desk.asked if isinstance(message, Publish)]
    assert [(one.attempt, one.pieces) for one in publish.attempts] == [("b", 1), ("a", 2)]


def test_records_are_sent_as_they_were_given() -> None:
    desk, _, client = leaders()
    client.append_once("t", 0, [b"bytes", "text", None], writer="é" * 127, version=VERSION_MAX)
    ((_, message),) = desk.asked
    assert message.acks == -1
    batch = RecordBatch(message.entries[0].body)
    assert [record.value for record in decode_records(batch)] == [b"bytes", b"text", None]
    mark = mark_of(batch)
    assert mark is not None
    assert (mark.key, mark.version) == ("é" * 127, VERSION_MAX)


def test_work_bears_the_time_of_its_call_whatever_times_its_records_have() -> None:
    desk, driver, client = leaders()
    client.append_once("t", 0, [Record("old", timestamp_ms=5)], **WORK)
    stage(client, 0, version=8)
    client.publish("t", 0, [("a", 1)], writer="job/0", version=8)
    appended, *_, published = [message for _, message in desk.asked]
    batch = RecordBatch(appended.entries[0].body)
    assert batch.max_timestamp_ms == 5
    assert made_ms_of(batch) == published.made_ms == driver.wall_ms() > 10**12


# -------------------------------------------------------------------------------------------------------- asked again, or not


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("code", sorted(RETRIED))
def test_what_another_try_can_overcome_is_tried_again(name: str, code: int) -> None:
    desk, _, client = leaders()
    desk.refuse = [code] * 3
    called(name, desk, client)
    assert len(desk.asked) == 4
    assert len({asked_for(message).request for _, message in desk.asked}) == 4, "an answer that comes late belongs to another request"
    if code in SAME_PLACE:
        assert {broker for broker, _ in desk.asked} == {1}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("code", sorted(CODES.keys() - RETRIED - {0, Code.CORRUPT_MESSAGE}))
def test_everything_else_is_final_and_says_where(name: str, code: int) -> None:
    desk, _, client = leaders()
    desk.refuse = [code]
    with pytest.raises(CODES[code]) as caught:
        called(name, desk, client)
    assert len(desk.asked) == 1
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("t", 0, 1)  # type: ignore[attr-defined]
    assert ("this client may not write topic 't'" in str(caught.value)) == (code == Code.TOPIC_AUTHORIZATION_FAILED)


DOUBT = [0, Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER, Code.STORAGE_ERROR, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("first", DOUBT, ids=error_name)
def test_a_refusal_of_a_repetition_does_not_say_that_nothing_was_stored(name: str, first: int) -> None:
    """The first request was answered with doubt, or (0) carried out and its answer lost."""
    desk, driver, client = leaders()
    desk.refuse = [first, Code.INVALID_RECORD]
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if not first and to == CLIENT and isinstance(message, Produced | Published) and not lost:
            lost.append(message)
            return True
        return False

    driver.filter = drop
    client._deadline = lambda timeout_s: driver.now_ms() + 200_000  # type: ignore[method-assign]
    said = re.escape(f"{SAID[name]}: InvalidRecord was the answer to a repetition (t-0: ")
    with pytest.raises(Unavailable, match=f"{said}.*whether it was carried out before is unknown") as caught:
        called(name, desk, client)
    assert isinstance(caught.value.__cause__, InvalidRecord)
    assert not isinstance(caught.value, TimedOut)
    assert len(desk.asked) == 2


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("gone", ["topic", "partition"])
def test_who_finds_the_partition_gone_when_it_repeats_may_have_been_served_before(name: str, gone: str) -> None:
    desk, driver, client = leaders()
    lost: list[Any] = []

    def lose(to: Any, message: Any) -> bool:
        if to != CLIENT or lost or not isinstance(message, Produced | Published):
            return False
        lost.append(message)
        if gone == "topic":
            desk.cluster.delete("t")
        else:
            del desk.cluster.partitions[desk.cluster.partition("t").identity]
            desk.cluster.version += 1
        return True

    driver.filter = lose
    with pytest.raises(Unavailable, match=r"UnknownTopicOrPartition.*whether it was carried out before is unknown") as caught:
        called(name, desk, client)
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartition)
    assert len(desk.asked) == len(lost) == 1


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("first", [Code.NOT_ENOUGH_REPLICAS, Code.LOG_DIRECTORY_FULL, Code.CORRUPT_MESSAGE, Code.QUOTA_EXCEEDED])
def test_a_refusal_after_one_that_stored_nothing_is_certain(name: str, first: int) -> None:
    desk, _, client = leaders()
    desk.refuse = [first, Code.INVALID_RECORD]
    with pytest.raises(InvalidRecord):
        called(name, desk, client)


@pytest.mark.parametrize("first", DOUBT[1:], ids=error_name)
def test_a_stage_that_is_not_with_the_next_leader_is_certainly_not_published(first: int) -> None:
    """It has looked for the version in its log before: the caller is to stage again."""
    desk, _, client = leaders()
    desk.refuse = [first, Code.UNKNOWN_STAGE]
    with pytest.raises(UnknownStage):
        called("publish", desk, client)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "code", [Code.QUOTA_EXCEEDED, Code.NOT_ENOUGH_REPLICAS, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.LOG_DIRECTORY_FULL]
)
def test_a_timeout_says_what_was_waited_for_and_what_came_last(name: str, code: int) -> None:
    desk, _, client = leaders()
    desk.refuse = [code] * 1_000
    waited = re.escape(f"waited 20 s for an answer of broker 1, leader of t-0 to {SAID[name]}; the last answer was {error_name(code)}")
    with pytest.raises(TimedOut, match=waited):
        called(name, desk, client)
    assert 5 < len(desk.asked) < 200, "neither given up nor asked all the time"


@pytest.mark.parametrize("name", CALLS)
def test_without_an_answer_it_names_the_leader(name: str) -> None:
    desk, driver, client = leaders()
    client.topics()
    driver.filter = lambda to, message: isinstance(message, Produce | Stage | Publish)
    with pytest.raises(TimedOut, match=re.escape(f"for an answer of broker 1, leader of t-0 to {SAID[name]}")):
        called(name, desk, client)


@pytest.mark.parametrize("name", CALLS)
def test_a_lost_answer_costs_a_repetition_and_nothing_else(name: str) -> None:
    desk, driver, client = leaders()
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if to == CLIENT and isinstance(message, Produced | Published) and len(lost) < 2:
            lost.append(message)
            return True
        return False

    driver.filter = drop
    client._deadline = lambda timeout_s: driver.now_ms() + 200_000  # type: ignore[method-assign]
    found = called(name, desk, client)
    assert len(lost) == 2
    assert len(desk.asked) == 3
    assert found == (True if name == "stage" else ("t", 0, 0, 0))
    assert len(desk.cluster.partition("t").values()) == (0 if name == "stage" else 1)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dies", [True, False])
def test_the_next_leader_is_asked(name: str, dies: bool) -> None:
    desk, _, client = leaders()
    client.topics()
    desk.cluster.move("t", 0, 2)
    if dies:
        desk.cluster.down = {1}
    called(name, desk, client)
    assert desk.asked[-1][0] == 2
    assert len(desk.asked) == (1 if dies else 2)


@pytest.mark.parametrize("seed", range(8))
def test_through_a_bad_network_everything_is_stored_once(seed: int) -> None:
    desk, _, client = leaders(seed=seed, chaos=0.25)
    expected: list[bytes] = []
    for version in range(12):
        value = f"{version}".encode()
        expected += [value, value + b"+"]
        if version % 2:
            client.append_once("t", 0, expected[-2:], writer="w", version=version, timeout_s=600)
            continue
        for number in (0, 1):
            client.stage("t", 0, [expected[number - 2]], writer="w", version=version, attempt="a", number=number, timeout_s=600)
        client.publish("t", 0, [("a", 2)], writer="w", version=version, timeout_s=600)
    assert desk.cluster.partition("t").values() == expected


def test_a_missing_piece_is_the_callers_to_stage_again() -> None:
    desk, _, client = leaders()
    stage(client, 0)
    with pytest.raises(UnknownStage, match="is not with the leader, or not whole") as caught:
        client.publish("t", 0, [("a", 2)], **WORK)
    assert not caught.value.retriable
    assert isinstance(caught.value, ReplogError)
    assert len([message for _, message in desk.asked if isinstance(message, Publish)]) == 1
    stage(client, 1)
    assert client.publish("t", 0, [("a", 2)], **WORK).base_offset == 0


@pytest.mark.parametrize("name", CALLS)
def test_a_topic_that_is_made_again_is_another_one(name: str) -> None:
    """What was staged in the one is not there in the other; whatever is stored in it is new."""
    desk, _, client = leaders()
    stage(client)
    desk.cluster.delete("t")
    desk.staged.clear()
    desk.cluster.create("t", 3)
    if name == "publish":
        with pytest.raises(UnknownStage):
            CALLS[name](client)
    else:
        CALLS[name](client)
    _, last = desk.asked[-1]
    assert asked_for(last).partition == desk.cluster.partition("t").identity


@pytest.mark.parametrize("name", CALLS)
def test_a_topic_that_does_not_exist_is_said_with_those_that_do(name: str) -> None:
    desk, _, client = leaders()
    desk.cluster.delete("t")
    desk.cluster.create("orders")
    with pytest.raises(UnknownTopicOrPartition, match="orders"):
        CALLS[name](client)
    assert [message for _, message in desk.asked if not isinstance(message, Metadata)] == []


# --------------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"writer": ""}, "the key of a writer has 0 bytes; allowed are 1 to 255"),
        ({"writer": "x" * (KEY_BYTES_MAX + 1)}, "the key of a writer has 256 bytes; allowed are 1 to 255"),
        ({"writer": b"job"}, "the key of a writer is a str, not b'job'"),
        ({"writer": None}, "the key of a writer is a str, not None"),
        ({"writer": "\udc80"}, "the key of a writer is not valid Unicode"),
        ({"version": -1}, "version is -1; allowed are 0 to"),
        ({"version": VERSION_MAX + 1}, f"allowed are 0 to {VERSION_MAX}"),
        ({"version": 2**70}, "version is 1180591620717411303424; allowed are 0 to"),
        ({"version": 1.0}, "version is an int, not 1.0"),
        ({"version": True}, "version is an int, not True"),
        ({"topic": ""}, "topic"),
        ({"topic": "a/b"}, "a/b"),
        ({"partition": -1}, "-1"),
        ({"records": []}, "records is empty; there is nothing to append"),
        ({"records": "text"}, "records is a list of values or Records, not one str"),
        ({"records": [5]}, "a value is bytes, str or None, not int"),
        ({"attempt": ""}, "attempt '' has 0 bytes; allowed are 1 to 255"),
        ({"attempt": "x" * 256}, "has 256 bytes; allowed are 1 to 255"),
        ({"attempt": 3}, "attempt is 3; it is a str"),
        ({"number": -1}, "number is -1; allowed are 0 to 999999"),
        ({"number": 1_000_000}, "number is 1000000; allowed are 0 to 999999"),
        ({"number": "0"}, "number is an int, not '0'"),
        ({"attempts": []}, "attempts is empty; there is nothing to publish"),
        ({"attempts": "ab"}, "attempts is a list of (attempt, number of pieces), not 'ab'"),
        ({"attempts": ["ab"]}, "attempts has 'ab'; each is (attempt, number of pieces)"),
        ({"attempts": [("a",)]}, "attempts has ('a',); each is (attempt, number of pieces)"),
        ({"attempts": [("a", 0)]}, "pieces is 0; allowed are 1 to 1000000"),
        ({"attempts": [("a", 1_000_001)]}, "pieces is 1000001; allowed are 1 to 1000000"),
        ({"attempts": [("", 1)]}, "attempt '' has 0 bytes"),
        ({"attempts": [("a", 1), ("b", 1), ("a", 2)]}, "attempt 'a' is given twice; its records would be stored twice"),
    ],
)
def test_bad_input_is_named_before_anything_is_sent(changes: dict[str, Any], says: str) -> None:
    desk, _, client = leaders()
    good: dict[str, dict[str, Any]] = {
        "append_once": {"topic": "t", "partition": 0, "records": ["x"], **WORK},
        "stage": {"topic": "t", "partition": 0, "records": ["x"], **WORK, "attempt": "a", "number": 0},
        "publish": {"topic": "t", "partition": 0, "attempts": [("a", 1)], **WORK},
    }
    concerned = [name for name, arguments in good.items() if changes.keys() <= arguments.keys()]
    assert concerned
    for name in concerned:
        with pytest.raises(UsageError, match=re.escape(says)):
            getattr(client, name)(**{**good[name], **changes})
    assert desk.asked == []


def test_too_much_for_a_batch_is_final() -> None:
    desk, _, client = leaders()
    desk.refuse = [Code.MESSAGE_TOO_LARGE]
    with pytest.raises(MessageTooLarge):
        client.append_once("t", 0, ["x" * 100], **WORK)
    assert len(desk.asked) == 1
