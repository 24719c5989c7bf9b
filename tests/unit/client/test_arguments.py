"""What callers pass by mistake is refused with its name and what is allowed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from tests.unit.client.fake import make

from replog.client.arguments import check_broker_id, check_count, check_timeout, merged_config, parse_position
from replog.client.client import Client
from replog.codec import encode
from replog.config import check_partition_number, check_topic_name
from replog.errors import Code, InvalidRequest, TimedOut, UsageError
from replog.messages import Admin, AdminAnswer


@pytest.mark.parametrize(("given", "kept"), [(None, None), (float("inf"), None), (1e300, None), (10**400, None), (0, 0.0), (1.5, 1.5)])
def test_a_timeout_that_nobody_lives_to_see_is_none(given: Any, kept: float | None) -> None:
    assert check_timeout(given) == kept


def test_a_count_out_of_range_is_said_however_long() -> None:
    """Python makes no text of more than 4,300 digits."""
    for given, said in ((-1, "-1"), (2**63, str(2**63)), (10**5_000, r"\(a number of 16610 bits\)")):
        with pytest.raises(UsageError, match=f"^count is {said}; allowed are 0 to {2**63 - 1}$"):
            check_count("count", given, 0)


@pytest.mark.parametrize("given", [float("nan"), -1, -0.1, float("-inf"), "1", True, []])
def test_other_timeouts_are_refused_everywhere(given: Any) -> None:
    cluster, _, client = make({"t": 1})
    producer = client.producer()
    delivery = producer.send("t", "a")
    before = dict(cluster.counts)
    calls: list[Any] = [
        lambda: client.append("t", 0, ["a"], timeout_s=given),
        lambda: client.create_topic("u", timeout_s=given),
        lambda: client.delete_topic("t", timeout_s=given),
        lambda: client.topics(timeout_s=given),
        lambda: client.read("t", timeout_s=given),
        lambda: client.offset("t", 0, "latest", timeout_s=given),
        lambda: client.consumer("t").poll(timeout_s=given),
        lambda: producer.flush(timeout_s=given),
        lambda: delivery.result(timeout_s=given),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"timeout_s is .*; allowed are seconds from 0 up, or None for no limit"):
            call()
    with pytest.raises(UsageError, match="wait_s is"):
        client.fetch("t", 0, 0, wait_s=given)
    assert cluster.counts == before


def test_inf_is_taken_everywhere() -> None:
    _, driver, client = make({"t": 1})
    inf = float("inf")
    client.create_topic("u", timeout_s=inf)
    assert client.append("t", 0, ["a"], timeout_s=inf).base_offset == 0
    assert client.topics(timeout_s=inf) == ["t", "u"]
    assert client.describe("t", timeout_s=inf).partitions[0].high_watermark == 1
    assert [r.text() for r in client.read("t", timeout_s=inf)] == ["a"]
    assert client.offset("t", 0, "latest", timeout_s=inf) == 1
    assert client.consumer("t").position("t", 0, timeout_s=inf) == 1
    with client.producer() as producer:
        assert producer.send("t", "b").result(timeout_s=inf).offset == 1
        producer.flush(timeout_s=inf)
    client.delete_topic("u", timeout_s=inf)
    driver.filter = lambda to, message: True
    with pytest.raises(TimedOut, match="waited 1 s"):
        client.append("t", 0, ["a"], timeout_s=1)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda c: c.create_topic("u", config=5), "config is a mapping of configuration keys to values, not 5"),
        (lambda c: c.create_topic("u", assignment={0: 1}), "the assignment of partition 0 is a list of broker ids, not 1"),
        (lambda c: c.create_topic("u", assignment={0: "12"}), "the assignment of partition 0 is a list of broker ids, not '12'"),
        (lambda c: c.create_topic("u", assignment=[1]), "assignment is a mapping"),
        (lambda c: c.producer().send(["t"], "x"), r"a topic name is a str, not \['t'\]"),
        (lambda c: c.producer().send({"t": 1}, "x", partition=0), "a topic name is a str, not {'t': 1}"),
        (lambda c: c.consumer(["t"]), r"a topic name is a str, not \['t'\]"),
        (lambda c: c.consumer("t").seek(["t"], 0, 0), r"a topic name is a str, not \['t'\]"),
        (lambda c: c.consumer("t").position(["t"], 0), r"a topic name is a str, not \['t'\]"),
        (lambda c: c.create_topic("u", config={1: 2}), "a configuration key is a str, not 1"),
        (lambda c: c.alter_topic("t", config={1: 2}), "a configuration key is a str, not 1"),
        (lambda c: c.append("t", 0, None), "records is a list of values or Records, not None"),
        (lambda c: c.append("t", 0, 5), "records is a list of values or Records, not 5"),
        (lambda c: c.append("t", 0, {"k": "v"}), "records is a list of values or Records, not {'k': 'v'}"),
        (lambda c: c.append("t", 0, {"k"}), "records is a list of values or Records, not {'k'}"),
        (lambda c: c.append("t", 0, memoryview(b"k")), "records is a list of values or Records, not one memoryview"),
        (lambda c: c.append_once("t", 0, {"k": "v"}, writer="w", version=1), "records is a list of values or Records, not {'k': 'v'}"),
        (lambda c: c.stage("t", 0, {"k"}, writer="w", version=1, attempt="a", number=0), "a list of values or Records, not {'k'}"),
        (lambda c: c.producer().send_many("t", {"k": "v"}), "values is a list of values, not {'k': 'v'}"),
        (lambda c: c.producer().send_many("t", ["v"], keys={"k"}), "keys is a list of keys, not {'k'}"),
        (lambda c: c.producer().send_many("t", "v"), "values is a list of values, not one str"),
        (lambda c: c.producer().send_many("t", None), "values is a list of values, not None"),
        (lambda c: c.read("t", partitions=1), "partitions is a list of partition numbers, not 1"),
        (lambda c: c.consumer("t", partitions=1.5), "partitions is a list of partition numbers, not 1.5"),
    ],
)
def test_the_wrong_kind_is_refused_before_anything_is_sent(call: Any, match: str) -> None:
    cluster, _, client = make({"t": 1})
    with pytest.raises(UsageError, match=match):
        call(client)
    assert not cluster.counts


@pytest.mark.parametrize("moment", [datetime.min, datetime.min.replace(tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)])
def test_before_1970_there_are_no_records(moment: datetime) -> None:
    with pytest.raises(UsageError, match=re.escape(f"start is {moment.isoformat()}; times before 1970 hold no records")):
        parse_position(moment, "start")


def test_the_end_of_time_is_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as east:
        east.setenv("TZ", "UTC-9")  # where Python looks for the difference beyond the year 9999
        time.tzset()
        assert parse_position(datetime.max) == (None, 253_402_300_800_000)
    time.tzset()


def test_what_cannot_be_called_is_no_callback() -> None:
    """Neither of a delivery that is under way nor of one that is done."""
    _, _, client = make({"t": 1})
    nothing: Any = None
    with client.producer() as producer:
        delivery = producer.send("t", "x")
        with pytest.raises(UsageError, match="a callback is called with the delivery; None cannot be called"):
            delivery.add_done_callback(nothing)
        assert delivery.result().offset == 0
        with pytest.raises(UsageError, match="None cannot be called"):
            delivery.add_done_callback(nothing)


@pytest.mark.parametrize(
    ("config", "keys", "expected"),
    [
        ({"min_insync_replicas": 1, "flush": "ack"}, {"min_isr": 2}, {"min_isr": 2, "flush": "ack"}),
        ({"min_isr": 1}, {"min_insync_replicas": 2}, {"min_isr": 2}),
        (None, {"max_message_bytes": 2_000}, {"max_batch_bytes": 2_000}),
    ],
)
def test_a_keyword_overrides_the_key_whichever_of_its_names_is_said(config: Any, keys: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merged_config(config, keys) == expected


class Name(StrEnum):
    """Names as an application may keep them."""

    NEW = "new"
    THERE = "t"
    FLUSH = "flush"
    ACK = "ack"


class Number(IntEnum):
    """Numbers as well."""

    ZERO = 0
    ONE = 1
    THREE = 3


def test_what_is_checked_is_of_its_type_and_of_no_other() -> None:
    assert (type(check_topic_name(Name.NEW)), check_topic_name(Name.NEW)) == (str, "new")
    checked = check_partition_number(Number.ONE), check_count("count", Number.ONE, 0), check_broker_id(Number.ONE)
    assert [(type(number), number) for number in checked] == [(int, 1)] * 3


WISHES: list[tuple[str, Callable[[Client], object]]] = [
    ("create_topic", lambda c: c.create_topic(Name.NEW, partitions=Number.THREE, replication_factor=Number.ONE, min_isr=Number.ONE)),
    ("create_topic", lambda c: c.create_topic(Name.NEW, assignment={Number.ZERO: [Number.ONE]}, config={Name.FLUSH: Name.ACK})),
    ("create_topic", lambda c: c.create_topic(Name.NEW, validate_only=True, unclean_leader_election=True)),
    ("add_partitions", lambda c: c.add_partitions(Name.THERE, Number.THREE, assignment={Number.ONE: [Number.ONE]})),
    ("remove_partitions", lambda c: c.remove_partitions(Name.THERE, [Number.ONE])),
    ("alter_topic", lambda c: c.alter_topic(Name.THERE, config={Name.FLUSH: Name.ACK}, min_isr=Number.ONE)),
    ("delete_topic", lambda c: c.delete_topic(Name.THERE)),
    ("elect", lambda c: c.elect_leaders([(Name.THERE, Number.ZERO)], to=Number.ONE)),
    ("explain", lambda c: c.explain(Name.THERE, Number.ZERO)),
    ("drain", lambda c: c.drain_broker(Number.ONE)),
    ("raise_feature_level", lambda c: c.raise_feature_level(Number.ONE)),
    ("reassign", lambda c: c.reassign({(Name.THERE, Number.ZERO): [Number.ONE]})),
]
"""Every wish, of arguments that pass for texts and numbers."""


@pytest.mark.parametrize(("verb", "call"), WISHES)
def test_a_frame_carries_whatever_passes_for_a_text_or_a_number(verb: str, call: Callable[[Client], object]) -> None:
    cluster, _, client = make({"t": 2})
    wished: list[str] = []

    def said(message: Any, broker: int) -> list[Any] | None:
        assert encode(message)
        if not isinstance(message, Admin) or message.verb == "find_topic":
            return None
        wished.append(message.verb)
        return [AdminAnswer(message.request, Code.INVALID_REQUEST, "heard")]

    cluster.override = said
    with pytest.raises(InvalidRequest, match="heard"):
        call(client)
    assert wished == [verb]
