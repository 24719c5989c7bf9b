"""Limits, timeouts, names: what is refused, and how it is said."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from replog.config import (
    BATCH_BYTES_MAX,
    FRAME_BYTES_MAX,
    BrokerConfig,
    ClientConfig,
    TopicConfig,
    check_partition_number,
    check_topic_name,
    default_min_isr,
)
from replog.errors import UsageError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_isr": 0}, "min_isr is 0; allowed are 1 to 64"),
        ({"min_isr": True}, "min_isr is an int, not True"),
        ({"min_isr": "2"}, "min_isr is an int, not '2'"),
        ({"flush": "always"}, "flush is 'always'; allowed are 'os', 'interval', 'ack'"),
        ({"retention_ms": -1}, "retention_ms is -1; allowed are 1 to 9223372036854775807"),
        ({"unclean_leader_election": 1}, "unclean_leader_election is True or False, not 1"),
        ({"min_irs": 2}, "unknown configuration key 'min_irs'; did you mean 'min_isr'?"),
        ({"min_isr": 2, "min_insync_replicas": 2}, "'min_isr' is given twice: as 'min_isr' and as 'min_insync_replicas', which are"),
    ],
)
def test_a_bad_topic_value_is_named_with_its_limits(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        TopicConfig.from_mapping(values)
    assert message in str(caught.value)


def test_an_unknown_key_without_a_near_one_lists_all() -> None:
    with pytest.raises(UsageError, match="known are flush, flush_interval_ms"):
        TopicConfig.from_mapping({"zzzzz": 1})


def test_kafka_names_are_aliases() -> None:
    config = TopicConfig.from_mapping({"min_insync_replicas": 2, "max_message_bytes": 1_000, "unclean_leader_election_enable": True})
    assert config == TopicConfig(min_isr=2, max_batch_bytes=1_000, unclean_leader_election=True)


def test_a_topic_stores_only_what_differs() -> None:
    config = TopicConfig(min_isr=2, flush="ack")
    assert config.to_mapping() == {"min_isr": 2, "flush": "ack"}
    assert TopicConfig.from_mapping(config.to_mapping()) == config
    assert TopicConfig().to_mapping() == {}


@pytest.mark.parametrize("kind", [BrokerConfig, ClientConfig])
def test_every_limit_of_a_broker_and_a_client_is_an_int_in_range(kind: type[BrokerConfig] | type[ClientConfig]) -> None:
    for attribute in attrs.fields(kind):
        for bad in (-1, 2**80, 1 if attribute.type == "bool" else True, "1", 1.5, None):
            with pytest.raises(UsageError, match=attribute.name):
                kind.from_mapping({attribute.name: bad})
    with pytest.raises(UsageError, match="did you mean"):
        kind.from_mapping({attrs.fields(kind)[0].name + "x": 1})


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (TopicConfig, "max_batch_bytes"),
        (TopicConfig, "max_message_bytes"),
        (BrokerConfig, "fetch_bytes_max"),
        (BrokerConfig, "fetch_partition_bytes_max"),
        (ClientConfig, "batch_bytes"),
        (ClientConfig, "fetch_bytes"),
        (ClientConfig, "max_record_bytes"),
    ],
)
def test_nothing_may_be_configured_that_no_frame_can_carry(kind: Any, key: str) -> None:
    assert BATCH_BYTES_MAX < FRAME_BYTES_MAX
    name = {"max_message_bytes": "max_batch_bytes"}.get(key, key)
    assert getattr(kind.from_mapping({key: BATCH_BYTES_MAX}), name) == BATCH_BYTES_MAX
    with pytest.raises(UsageError, match=rf"^{name} is {BATCH_BYTES_MAX + 1}; allowed are \d+ to {BATCH_BYTES_MAX}$"):
        kind.from_mapping({key: BATCH_BYTES_MAX + 1})


@pytest.mark.parametrize("key", ["max_batch_bytes", "max_message_bytes"])
@pytest.mark.parametrize(
    ("stored", "kept"),
    [(1_000, 1_000), (BATCH_BYTES_MAX, BATCH_BYTES_MAX), (512 << 20, BATCH_BYTES_MAX), ("x", "x"), (True, True), (0, 0)],
)
def test_what_was_stored_when_more_was_allowed_is_kept_within_what_is(key: str, stored: object, kept: object) -> None:
    values = {key: stored, "segment_bytes": 2**31 - 1}
    assert TopicConfig.kept(values) == {key: kept, "segment_bytes": 2**31 - 1}
    assert values[key] is stored


@pytest.mark.parametrize("name", ["a", "orders.eu-1_x", "A" * 249, "..."])
def test_topic_names(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "a\0", "A" * 250, None, 1, b"a"])
def test_topic_names_that_are_refused(name: object) -> None:
    with pytest.raises(UsageError, match="topic name"):
        check_topic_name(name)


@pytest.mark.parametrize("partition", [-1, 2**31, True, "0", None, 0.0])
def test_partition_numbers_that_are_refused(partition: object) -> None:
    with pytest.raises(UsageError, match="partition"):
        check_partition_number(partition)


def test_the_default_min_isr() -> None:
    assert [default_min_isr(n) for n in range(1, 8)] == [1, 1, 2, 3, 3, 4, 4]
