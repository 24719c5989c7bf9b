"""Options: names as Kafka's connector has them, case-insensitive, and each mistake explained."""

from __future__ import annotations

from typing import Any

import pytest

from replog.errors import UsageError
from replog.model import TopicPartition
from replog.spark.connections import Connection
from replog.spark.offsets import EARLIEST, LATEST
from replog.spark.options import ReadOptions, Subscription, WriteOptions, include_headers

LONG = "9" * 5_000
"""More digits than Python converts."""
NINES = r"9+\.\.\. \(5000 digits\)"
SERVERS = {"replog.bootstrap.servers": "h1:1, tcp://h2:2"}


def read(streaming: bool = False, **options: Any) -> ReadOptions:
    return ReadOptions.parse({**SERVERS, "subscribe": "t", **options}, streaming=streaming)


def write(**options: Any) -> WriteOptions:
    return WriteOptions.parse({**SERVERS, "deliveryGuarantee": "at-least-once", **options})


def test_defaults() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.start, batch.end, stream.start) == (EARLIEST, LATEST, LATEST)
    assert batch.connection == Connection(("tcp://h1:1", "tcp://h2:2"))
    assert batch.subscription == Subscription(topics=("t",))
    assert (batch.fail_on_data_loss, batch.include_headers, batch.rack, batch.min_partitions) == (True, False, None, None)
    assert write() == WriteOptions(Connection(("tcp://h1:1", "tcp://h2:2")), guarantee="at-least-once")


def test_every_option_in_any_case() -> None:
    options = read(
        streaming=True,
        SUBSCRIBE="a, b,a",
        subscribe="a,b",
        FailOnDataLoss="FALSE",
        minpartitions="7",
        maxRecordsPerPartition="8",
        MAXOFFSETSPERTRIGGER="9",
        maxBytesPerTrigger="10",
        includeHeaders="True",
        rack="r1",
        startingTimestamp="5",
        startingOffsetsByTimestampStrategy="Latest",
        checkpointLocation="/somewhere",
        **{
            "replog.fetch.timeout.ms": "11",
            "fetchOffset.numRetries": "0",
            "fetchOffset.retryIntervalMs": "12",
            "replog.fetch.bytes": "4096",
            "Replog.Max_In_Flight": "2",
        },
    )
    assert options.subscription.topics == ("a", "b")
    assert options.connection.settings == (("fetch_bytes", 4096), ("max_in_flight", 2))
    assert (options.start.everywhere, options.start.is_time, options.start.or_latest) == (5, True, True)
    numbers = (options.min_partitions, options.max_records_per_partition, options.max_offsets_per_trigger, options.max_bytes_per_trigger)
    assert numbers == (7, 8, 9, 10)
    assert (options.fetch_timeout_ms, options.offset_retries, options.offset_retry_ms) == (11, 0, 12)
    assert (options.fail_on_data_loss, options.include_headers, options.rack) == (False, True, "r1")
    written = write(
        topic="t", includeHeaders="true", **{"replog.acks": "-1", "replog.partitioner": "murmur2", "replog.compression": "none"}
    )
    assert (written.topic, written.include_headers, written.acks) == ("t", True, -1)
    assert (written.partitioner, written.compression) == ("murmur2", None)
    assert write(**{"replog.acks": "1"}).acks == 1
    assert [include_headers(given) for given in ({}, {"INCLUDEHEADERS": "true"}, {"includeHeaders": "false"})] == [False, True, False]


def test_what_is_read_and_from_where() -> None:
    assert ReadOptions.parse({**SERVERS, "assign": '{"t": [1, 0, 1]}'}, streaming=False).subscription.assigned == (("t", (0, 1)),)
    assert ReadOptions.parse({**SERVERS, "subscribePattern": "t.*"}, streaming=False).subscription.pattern == "t.*"
    options = read(startingOffsets='{"t": {"0": 5, "1": -2}}', endingOffsets='{"t": {"0": -1}}')
    assert options.start.named == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}
    assert options.end.named == {TopicPartition("t", 0): -1}
    precedence = read(startingOffsets="earliest", startingOffsetsByTimestamp='{"t": {"0": 7}}', startingTimestamp="8")
    assert precedence.start.everywhere == 8
    assert read(startingOffsets="earliest", startingOffsetsByTimestamp='{"t": {"0": 7}}').start.named == {TopicPartition("t", 0): 7}
    assert read(endingTimestamp="8").end.or_latest


@pytest.mark.parametrize(
    ("options", "streaming", "says"),
    [
        ({"subscribe": ""}, False, "option subscribe is empty"),
        ({"subscribe": " , "}, False, "option subscribe is ' , '; it is a list of topics separated by commas"),
        ({"subscribe": "a b"}, False, "topic name 'a b' has ' '"),
        ({"subscribePattern": "x"}, False, "exactly one .* given is subscribe and subscribePattern"),
        ({"subscribe": None, "subscribePattern": "("}, False, "option subscribePattern is '\\(', which is no regular expression"),
        ({"subscribe": None, "assign": "[1]"}, False, "option assign is '\\[1\\]'; expected is JSON like"),
        ({"subscribe": None, "assign": '{"t": []}'}, False, "option assign has \\[\\] for topic 't'; a list of partition numbers"),
        ({"subscribe": None, "assign": '{"t": [-1]}'}, False, "partition -1 is out of range"),
        ({"startingOffsets": "latest"}, False, "startingOffsets is 'latest'; allowed here are 'earliest' and JSON of offsets"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, False, "startingOffsets has -1 \\(latest\\) for t-0; allowed are .* -2 \\(earliest\\)$"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, False, "endingOffsets has -2 \\(earliest\\) for t-0; allowed are .* -1 \\(latest\\)$"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets is 'earliest'; allowed here are 'latest' and JSON"),
        ({"startingOffsets": "sometime"}, True, "startingOffsets is 'sometime', which is no JSON"),
        ({"startingOffsets": '{"t": 5}'}, True, "startingOffsets has 5 for topic 't'; expected is earliest, latest or JSON like"),
        ({"startingOffsets": '{"t": {"x": 5}}'}, True, "startingOffsets has 'x' where a partition number of topic 't' is expected"),
        ({"startingOffsets": '{"t": {"0": true}}'}, True, "startingOffsets has True for partition 0 of topic 't'; a whole number"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, True, "startingOffsets has -3 for t-0"),
        ({"startingOffsets": '{"t": {"0": 5, "1": 2, "0": 3}}'}, True, "option startingOffsets has the key '0' twice"),
        ({"startingOffsets": '{"t": {"0": 5}, "u": {"0": 1}, "t": {"1": 5}}'}, False, "option startingOffsets has the key 't' twice"),
        ({"startingOffsets": '{"t": {"0": 5, "00": 3}}'}, True, "startingOffsets names partition 0 of topic 't' twice, once as '00'"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5, "0": 3}}'}, True, "option startingOffsetsByTimestamp has the key '0' twice"),
        ({"endingOffsets": '{"t": {"0": 5, "0": 3}}'}, False, "option endingOffsets has the key '0' twice"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 5, "0": 3}}'}, False, "option endingOffsetsByTimestamp has the key '0' twice"),
        ({"subscribe": None, "assign": '{"t": [1], "t": [2]}'}, False, "option assign has the key 't' twice"),
        ({"subscribe": None, "assign": f'{{"t": [{LONG}]}}'}, False, f"assign has {NINES} for topic 't'; partitions are .* to 21"),
        ({"startingOffsets": f'{{"t": {{"{LONG}": 5}}}}'}, True, f"has {NINES} where a partition number of topic 't' is"),
        ({"startingOffsets": f'{{"t": {{"0": -{LONG}}}}}'}, True, f"has -{NINES} for partition 0 of topic 't'; a whole number"),
        ({"startingOffsets": f'{{"t": {LONG}}}'}, True, f"startingOffsets has {NINES} for topic 't'; expected is earliest"),
        ({"startingTimestamp": LONG}, True, "startingTimestamp is '9{79}; expected are milliseconds since 1970"),
        ({"minPartitions": LONG}, False, "option minPartitions is '9{79}; a whole number is expected, below 2\\^63"),
        ({"minPartitions": str(2**63)}, False, "option minPartitions is '9223372036854775808'; a whole number is expected, below 2\\^63"),
        ({"startingTimestamp": "yesterday"}, True, "startingTimestamp is 'yesterday'; expected are milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -3}}'}, True, "has -3 for t-0; allowed are milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "latst"}, True, "allowed are 'error', 'latest'; did you mean 'latest'\\?"),
        ({"endingOffsets": "latest"}, True, "option endingOffsets: a stream has no end; it is for spark.read"),
        ({"maxOffsetsPerTrigger": "5"}, False, "option maxOffsetsPerTrigger: it limits the batches of a stream"),
        ({"minPartitions": "0"}, False, "option minPartitions is 0; allowed are 1 to"),
        ({"minPartitions": "many"}, False, "option minPartitions is 'many'; a whole number is expected"),
        ({"failOnDataLoss": "no"}, False, "option failOnDataLoss is 'no'; allowed are true and false"),
        ({"topic": "t"}, False, "option topic is for writing, not for reading"),
        ({"replog.acks": "1"}, False, "option replog.acks is for writing, not for reading"),
        ({"subscribes": "t"}, False, "unknown option 'subscribes'; did you mean subscribe\\?"),
        ({"replog.fetch.byte": "1"}, False, "unknown option 'replog.fetch.byte'; did you mean replog.fetch.bytes\\?"),
        ({"replog.fetch.bytes": "1"}, False, "replog.\\*: fetch_bytes is 1; allowed are 1024 to"),
        ({"replog.fetch.bytes": "2048", "replog.fetch_bytes": "2048"}, False, "option replog.fetch.bytes is given twice"),
        ({"replog.bootstrap.servers": "h"}, False, "replog.bootstrap.servers .*h"),
        ({"kafka.bootstrap.servers": "h:1"}, False, "is Kafka's; it is called replog.bootstrap.servers here"),
        ({"kafka.fetch.max.wait.ms": "1"}, False, "is Kafka's; it is called replog.fetch.wait.ms here"),
        ({"kafka.request.timeout.ms": "1"}, False, "is Kafka's; it is called replog.request.timeout.ms here"),
        ({"kafka.sasl.jaas.config": "1"}, False, "is Kafka's, and replog has nothing like it"),
        ({"kafka.group.id": "g"}, False, "kafka.group.id is not supported: Spark keeps the offsets"),
        ({"groupIdPrefix": "g"}, True, "groupIdPrefix is not supported: Spark keeps the offsets"),
        ({"minOffsetsPerTrigger": "5"}, True, "minOffsetsPerTrigger is not supported: a data source in Python can give Spark one limit"),
        ({"kafkaConsumer.pollTimeoutMs": "5"}, True, "is not supported: it is called replog.fetch.timeout.ms here"),
        ({"path": "/x"}, False, "path is not supported: replog has topics, not paths"),
        ({"zzzz": "x"}, False, "unknown option 'zzzz'; known are .*subscribe"),
    ],
)
def test_what_is_wrong_with_reading(options: dict[str, Any], streaming: bool, says: str) -> None:
    given = {name: value for name, value in {**SERVERS, "subscribe": "t", **options}.items() if value is not None}
    with pytest.raises(UsageError, match=says) as caught:
        ReadOptions.parse(given, streaming=streaming)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"deliveryGuarantee": "exactly once"}, "deliveryGuarantee is 'exactly once'; allowed are .*; did you mean 'exactly-once'\\?"),
        ({"txnAppId": "job"}, "txnAppId needs txnVersion beside it"),
        ({"txnVersion": "1"}, "txnVersion needs txnAppId beside it"),
        ({"txnAppId": "job", "txnVersion": "-1"}, "option txnVersion is -1; allowed are 0 to"),
        ({"txnAppId": "job", "txnVersion": "1"}, "txnAppId is for 'exactly-once' and 'atomic'"),
        (
            {"txnAppId": "j" * 245, "txnVersion": "1", "deliveryGuarantee": "atomic"},
            "txnAppId with the number .* has 256 bytes; allowed are 1 to 255",
        ),
        (
            {"txnAppId": "job", "txnVersion": str(2**62), "deliveryGuarantee": "atomic"},
            "txnVersion: version 4611686018427387904 of writer 'job/.*'; allowed are 0 to 4611686018427387903",
        ),
        ({"deliveryGuarantee": "exactly-once", "replog.acks": "1"}, "replog.acks is 1; exactly-once needs 'all'"),
        ({"deliveryGuarantee": "atomic", "replog.acks": "0"}, "replog.acks is 0; atomic needs 'all'"),
        ({"subscribe": "t"}, "option subscribe is for reading, not for writing"),
        ({"topic": "a b"}, "topic name 'a b' has ' '"),
        ({"replog.acks": "2"}, "option replog.acks is '2'; allowed are 'all', '-1', '0', '1'"),
        ({"replog.partitioner": "murmur"}, "did you mean 'murmur2'\\?"),
        ({"kafka.transactional.id": "x"}, "it is called txnAppId here"),
    ],
)
def test_what_is_wrong_with_writing(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        write(**options)
    assert "\n" not in str(caught.value)


def test_servers_are_required() -> None:
    with pytest.raises(UsageError, match=r"option replog.bootstrap.servers is missing: host:port"):
        ReadOptions.parse({"subscribe": "t"}, streaming=False)
