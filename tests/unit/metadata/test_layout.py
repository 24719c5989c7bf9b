"""Paths and values of the metadata store: everything that is written can be read, nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import StoreCorrupt, UsageError
from replog.features import Levels
from replog.metadata import layout
from replog.metadata.layout import ClusterIdentity, ControllerSeat, Place, Registration, Rejection, TopicEntry
from replog.metadata.paths import check_path
from replog.model import Assignment, PartitionId, PartitionState, TopicPartition
from replog.ports import LossReport, Versioned

TOPIC_ID = bytes(range(16))
HEX = TOPIC_ID.hex()

numbers = st.integers(0, 2**31 - 1)
wide = st.integers(0, 2**63 - 1)
brokers = st.lists(numbers, unique=True, max_size=5).map(tuple)
topic_ids = st.binary(min_size=16, max_size=16)
names = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(lambda name: name not in (".", ".."))
texts = st.text(max_size=20)


# ------------------------------------------------------------------------------------------------------------- paths

PLACES = [
    ("/cluster", Place("/cluster")),
    ("/controller", Place("/controller")),
    ("/controller_epoch", Place("/controller_epoch")),
    ("/brokers/ids", Place("/brokers/ids")),
    (layout.broker_path(3), Place("/brokers/ids", broker_id=3)),
    (layout.draining_path(0), Place("/brokers/draining", broker_id=0)),
    (layout.topic_path("a.b"), Place("/brokers/topics", topic="a.b")),
    (layout.partition_path("t", 7), Place("partition", topic="t", partition=7)),
    (layout.partition_state_path("t", 7), Place("partition_state", topic="t", partition=7)),
    (layout.reassigned_path("t", 7), Place("/admin/partitions_reassigned", topic="t", partition=7)),
    (layout.partition_add_path("t", 7), Place("/admin/partitions_add", topic="t", partition=7)),
    (layout.partition_remove_path("t", 7), Place("/admin/partitions_remove", topic="t", partition=7)),
    (layout.elect_path("t", 7), Place("/admin/elect", topic="t", partition=7)),
    (layout.delete_topic_path("t"), Place("/admin/delete_topics", topic="t")),
    (layout.removed_path(TOPIC_ID), Place("/admin/removed", topic_id=TOPIC_ID)),
    (layout.rejected_path("/admin/elect/t/7"), Place("/admin/rejected", wish="/admin/elect/t/7")),
]


@pytest.mark.parametrize(("path", "place"), PLACES, ids=[path for path, _ in PLACES])
def test_each_path_says_what_it_is_about(path: str, place: Place) -> None:
    assert check_path(path) == path
    assert layout.place_of(path) == place


def test_paths_are_format() -> None:
    assert [path for path, _ in PLACES] == [
        "/cluster",
        "/controller",
        "/controller_epoch",
        "/brokers/ids",
        "/brokers/ids/3",
        "/brokers/draining/0",
        "/brokers/topics/a.b",
        "/brokers/topics/t/7",
        "/brokers/topics/t/7/leaderAndISR",
        "/admin/partitions_reassigned/t/7",
        "/admin/partitions_add/t/7",
        "/admin/partitions_remove/t/7",
        "/admin/elect/t/7",
        "/admin/delete_topics/t",
        f"/admin/removed/{HEX}",
        "/admin/rejected/admin/elect/t/7",
    ]


@given(names, st.integers(0, 2**31 - 1))
def test_a_partition_state_path_names_its_partition(topic: str, partition: int) -> None:
    path = layout.partition_state_path(topic, partition)
    assert layout.place_of(path).topic_partition == TopicPartition(topic, partition)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/other",
        "/brokers",
        "/brokers/ids/",
        "/brokers/ids/x",
        "/brokers/ids/-1",
        "/brokers/ids/01",
        "/brokers/ids/+1",
        "/brokers/ids/1_0",
        "/brokers/ids/\u0661",
        "/brokers/ids/2147483648",
        "/brokers/ids/1/x",
        "/brokers/topics/a b",
        "/brokers/topics/..",
        "/brokers/topics/t/x/leaderAndISR",
        "/brokers/topics/t/1/other",
        "/brokers/topics/t/1/leaderAndISR/x",
        "/admin/elect/t",
        "/admin/removed/00",
        f"/admin/removed/{HEX.upper()}",
        f"/admin/removed/{HEX}/x",
        "/cluster/x",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(StoreCorrupt) as caught:
        layout.place_of(path)
    assert caught.value.path == path


@pytest.mark.parametrize("topic", ["", "a/b", "..", "ü", "x" * 250])
def test_paths_of_topics_that_cannot_be_are_refused(topic: str) -> None:
    for build in (layout.topic_path, layout.delete_topic_path, lambda name: layout.elect_path(name, 0)):
        with pytest.raises(UsageError):
            build(topic)


@pytest.mark.parametrize("partition", [-1, 2**31, True, "0"])
def test_paths_of_partitions_that_cannot_be_are_refused(partition: Any) -> None:
    with pytest.raises(UsageError):
        layout.partition_state_path("t", partition)


# ------------------------------------------------------------------------------------------------------------ values

assignments = st.builds(
    Assignment,
    replicas=st.lists(numbers, unique=True, min_size=1, max_size=5).map(tuple),
    creation=numbers,
    adding=brokers,
    removing=brokers,
    original=brokers,
)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts
reports = st.builds(
    LossReport,
    st.sampled_from(["none", "process", "power", "corrupt", "replaced"]),
    st.lists(st.builds(PartitionId, topic_ids, numbers, numbers), max_size=3).map(tuple),
)
spans = st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1)).map(lambda ends: Levels(*sorted(ends)))
ROUND_TRIPS: list[tuple[str, Any, Callable[[Any], bytes], Callable[[str, bytes], Any]]] = [
    ("cluster", st.builds(ClusterIdentity, texts, numbers, numbers), layout.encode_cluster, layout.decode_cluster),
    ("controller", st.builds(ControllerSeat, numbers, numbers), layout.encode_controller, layout.decode_controller),
    ("controller_epoch", numbers, layout.encode_controller_epoch, layout.decode_controller_epoch),
    (
        "registration",
        st.builds(Registration, st.lists(texts, max_size=3).map(tuple), st.none() | texts, texts, reports, texts, spans),
        layout.encode_registration,
        layout.decode_registration,
    ),
    ("draining", wide, layout.encode_draining, layout.decode_draining),
    (
        "topic",
        st.builds(
            TopicEntry, topic_ids, st.dictionaries(texts, scalars, max_size=3), st.dictionaries(numbers, assignments, max_size=4), numbers
        ),
        layout.encode_topic,
        layout.decode_topic,
    ),
    ("delete_topic", topic_ids, layout.encode_delete_topic, layout.decode_delete_topic),
    ("removed", brokers, layout.encode_removed, layout.decode_removed),
    (
        "rejection",
        st.builds(Rejection, st.binary(max_size=20), st.integers(-1, 200), texts, wide),
        layout.encode_rejection,
        layout.decode_rejection,
    ),
]


@pytest.mark.parametrize(("strategy", "encode", "decode"), [row[1:] for row in ROUND_TRIPS], ids=[row[0] for row in ROUND_TRIPS])
@given(data=st.data())
def test_round_trip(strategy: Any, encode: Any, decode: Any, data: st.DataObject) -> None:
    value = data.draw(strategy)
    stored = encode(value)
    assert decode("/p", stored) == value
    assert json.loads(stored.decode("ascii"))["version"] == 1
    assert encode(decode("/p", stored)) == stored


states = st.builds(
    PartitionState,
    leader=st.none() | numbers,
    leader_epoch=st.integers(-1, 2**31 - 1),
    isr=brokers,
    elr=brokers,
    last_known=brokers,
    anew=brokers,
    recovering=st.booleans(),
    controller_epoch=numbers,
    partition_epoch=numbers,
)


@given(states)
def test_the_partition_epoch_is_the_version_of_its_node(state: PartitionState) -> None:
    stored = Versioned(layout.encode_partition_state(state), state.partition_epoch, 5)
    assert layout.decode_partition_state("/p", stored) == state
    assert b"partition_epoch" not in stored.value


def test_values_are_format() -> None:
    state = PartitionState(None, 4, (1, 2), (3,), (1, 2, 3), True, 9, min_isr=3)
    assert layout.encode_partition_state(state) == (
        b'{"version":1,"leader":-1,"leader_epoch":4,"isr":[1,2],"elr":[3],"last_known":[1,2,3],'
        b'"recovering":true,"controller_epoch":9,"min_isr":3}'
    )
    assert layout.encode_partition_state(evolve(state, anew=(2,))).endswith(b'"min_isr":3,"anew":[2]}')
    topic = TopicEntry(TOPIC_ID, {"min_isr": 2}, {1: Assignment((2, 1), 5, adding=(2,)), 0: Assignment((1,))}, 6)
    assert layout.encode_topic(topic) == (
        b'{"version":1,"topic_id":"' + HEX.encode() + b'","config":{"min_isr":2},'
        b'"partitions":{"0":{"replicas":[1],"creation":0},"1":{"replicas":[2,1],"creation":5,"adding":[2]}},"next_creation":6}'
    )
    shrunk = TopicEntry(TOPIC_ID, {}, {0: Assignment((1,))}, 6, former=(2, 3))
    assert layout.encode_topic(shrunk).endswith(b'"next_creation":6,"former":[2,3]}')
    assert layout.decode_topic("/p", layout.encode_topic(shrunk)) == shrunk


def _decode_state(path: str, value: bytes) -> Any:
    return layout.decode_partition_state(path, Versioned(value, 0, 1))


DECODERS: dict[str, tuple[bytes, Callable[[str, bytes], Any]]] = {
    "cluster": (layout.encode_cluster(ClusterIdentity("c")), layout.decode_cluster),
    "controller": (layout.encode_controller(ControllerSeat(1, 2)), layout.decode_controller),
    "controller_epoch": (layout.encode_controller_epoch(2), layout.decode_controller_epoch),
    "registration": (
        layout.encode_registration(Registration(("tcp://h:1",), "r", "d", LossReport("power", (PartitionId(TOPIC_ID, 1, 2),)))),
        layout.decode_registration,
    ),
    "registration_of_a_later_life": (
        layout.encode_registration(Registration(("tcp://h:1",), "r", "d", LossReport("none", (), ("b" * 32, "a" * 32), "b" * 32))),
        layout.decode_registration,
    ),
    "draining": (layout.encode_draining(7), layout.decode_draining),
    "topic": (layout.encode_topic(TopicEntry(TOPIC_ID, {}, {0: Assignment((1, 2))}, 1)), layout.decode_topic),
    "state": (layout.encode_partition_state(PartitionState(1, 2, (1, 2))), _decode_state),
    "delete_topic": (layout.encode_delete_topic(TOPIC_ID), layout.decode_delete_topic),
    "removed": (layout.encode_removed((1, 2)), layout.decode_removed),
    "rejection": (layout.encode_rejection(Rejection(b"x", 7, "m", 1)), layout.decode_rejection),
}
MALFORMED = {
    "empty": b"",
    "not UTF-8": b'{"version":1,"x":"\xff"}',
    "UTF-16": '{"version":1}'.encode("utf-16"),
    "not JSON": b'{"version":1',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "nested too deep": b"[" * 100_000,
    "a huge number": b'{"version":' + b"9" * 5_000 + b"}",
    "no version": b"{}",
    "a newer version": b'{"version":2}',
    "version 0": b'{"version":0}',
    "version true": b'{"version":true}',
    "version 1.0": b'{"version":1.0}',
    "version as text": b'{"version":"1"}',
    "no fields": b'{"version":1}',
}


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED)
def test_malformed_values_are_refused(kind: str, value: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="/the/path") as caught:
        DECODERS[kind][1]("/the/path", value)
    assert caught.value.path == "/the/path"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400"])
def test_numbers_that_json_has_not_are_refused(number: str) -> None:
    """Whoever read one could not write the value again."""
    value = layout.encode_topic(layout.TopicEntry(b"t" * 16, {"min_isr": 2.5}, {}))
    assert layout.decode_topic("/x", value).config == {"min_isr": 2.5}
    with pytest.raises(StoreCorrupt, match="no number of JSON"):
        layout.decode_topic("/x", value.replace(b"2.5", number.encode()))


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("version", [0, 2, True, 1.0, "1", None, [1]])
def test_other_versions_are_refused_even_if_every_field_is_there(kind: str, version: object) -> None:
    good, decode = DECODERS[kind]
    with pytest.raises(StoreCorrupt, match="version"):
        decode("/p", json.dumps({**json.loads(good), "version": version}).encode())


WRONG: tuple[Any, ...] = (None, True, 1.5, -2, 2**63, "x", [], {}, [1, 1], [-1], ["x"], [True], [[]], {"x": 1}, {"0": {}})


def _field_cases() -> list[tuple[str, str]]:
    return [(kind, name) for kind, (value, _) in DECODERS.items() for name in json.loads(value) if name != "version"]


@pytest.mark.parametrize(("kind", "name"), _field_cases())
def test_every_field_is_needed_and_of_its_type(kind: str, name: str) -> None:
    good, decode = DECODERS[kind]
    fields = json.loads(good)
    without = {key: value for key, value in fields.items() if key != name}
    if (kind, name) == ("state", "min_isr"):  # as the topic says
        assert decode("/p", json.dumps(without).encode()).min_isr == 0
    elif name == "features":  # written before there were levels
        assert decode("/p", json.dumps(without).encode()).features == (1, 1)
    else:
        with pytest.raises(StoreCorrupt, match=name):
            decode("/p", json.dumps(without).encode())
    refused = 0
    for wrong in WRONG:
        value = json.dumps({**fields, name: wrong}).encode()
        try:
            decode("/p", value)
        except StoreCorrupt:
            refused += 1
    assert refused >= len(WRONG) - 4  # some of these are right for some fields


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        ("registration", {"loss": {"kind": "odd", "lossy": []}}, "loss.kind"),
        ("registration", {"loss": {"kind": "none", "lossy": [], "lives": [-1]}}, "loss.lives"),
        ("registration", {"loss": {"kind": "none", "lossy": [[HEX, 1]]}}, "loss.lossy"),
        ("registration", {"loss": {"kind": "none", "lossy": [["zz", 1, 1]]}}, "loss.lossy: topic_id"),
        ("registration", {"loss": {"kind": "none", "lossy": [[HEX, -1, 1]]}}, "loss.lossy: partition"),
        ("registration", {"endpoints": ["a", 1]}, "endpoints"),
        ("registration", {"features": [2, 1]}, "features is .2, 1., not a lowest and a highest number"),
        ("registration", {"features": [0, 1]}, "features is 0"),
        ("registration", {"features": [1]}, "features"),
        ("registration", {"features": [1, 2, 3]}, "features"),
        ("registration", {"features": None}, "features"),
        ("topic", {"partitions": {"00": {"replicas": [1], "creation": 0}}}, "00"),
        ("topic", {"partitions": {"0": {"creation": 0}}}, r"partitions\.0\.replicas"),
        ("topic", {"partitions": {"0": {"replicas": [1], "creation": 0, "adding": None}}}, r"partitions\.0\.adding"),
        ("topic", {"topic_id": HEX.upper().replace("0", "A")}, "topic_id"),
        ("topic", {"topic_id": HEX + "00"}, "topic_id"),
        ("state", {"leader": -2}, "leader"),
        ("state", {"isr": [1, 1]}, "isr has a number twice"),
        ("state", {"recovering": 1}, "recovering"),
        ("rejection", {"wish": "\ud800"}, "wish"),
        ("rejection", {"wish": 1}, "wish"),
        ("rejection", {"message": "\udcff"}, "message"),
        ("registration", {"rack": "\udcff"}, "rack is .*, not a string of UTF-8"),
        ("registration", {"endpoints": ["tcp://a:1", "tcp://\udcff:1"]}, "endpoints"),
        ("registration", {"incarnation": "\ud83d"}, "incarnation"),
    ],
)
def test_fields_are_judged_where_they_are(kind: str, change: dict[str, Any], named: str) -> None:
    good, decode = DECODERS[kind]
    with pytest.raises(StoreCorrupt, match=named):
        decode("/p", json.dumps({**json.loads(good), **change}).encode())


@pytest.mark.parametrize("kind", DECODERS)
def test_unknown_fields_are_ignored(kind: str) -> None:
    good, decode = DECODERS[kind]
    assert decode("/p", json.dumps({**json.loads(good), "later": [1]}).encode()) == decode("/p", good)


# ------------------------------------------------------------------------------------------------- losses of many copies


def told(loss: LossReport) -> tuple[LossReport, bytes]:
    """What is read of a registration with this loss, and how it is stored."""
    value = layout.encode_registration(Registration(loss=loss))
    return layout.decode_registration("/p", value).loss, value


def copies(count: int, topics: int = 1, step: int = 1) -> tuple[PartitionId, ...]:
    each = range(0, count // topics * step, step)
    return tuple(PartitionId(number.to_bytes(16), partition, number % 3) for number in range(topics) for partition in each)


@pytest.mark.parametrize(("count", "topics", "step"), [(100_000, 1, 1), (100_000, 100, 2), (5_001, 3, 1), (5_000, 1, 1)])
def test_a_registration_fits_however_many_copies_are_lossy(count: int, topics: int, step: int) -> None:
    loss = LossReport("power", copies(count, topics, step), ("b", "a"))
    read, value = told(loss)
    assert read == loss
    assert len(value) < 700_000  # ZooKeeper takes 1 MiB


def test_a_registration_names_no_life_by_its_epoch_and_one_that_does_is_read() -> None:
    """Which lives a directory goes on from decides (KIP-966), under whichever epoch they were registered."""
    loss = LossReport("process", (), ("b", "a"))
    read, value = told(loss)
    stored = json.loads(value)
    assert stored["loss"] == {"kind": "process", "lossy": [], "lives": ["b", "a"]}
    stored["loss"]["broker_epoch"] = 7
    assert layout.decode_registration("/p", json.dumps(stored).encode()).loss == read == loss


@pytest.mark.parametrize(("count", "topics"), [(100_000, 100_000), (200_001, 1)])
def test_losses_that_cannot_be_named_are_of_every_copy(count: int, topics: int) -> None:
    read, value = told(LossReport("power", copies(count, topics), ("b", "a")))
    assert read == LossReport("replaced", (), ("b", "a"))
    assert len(value) < 1_000


def test_a_version_that_knows_lists_alone_takes_every_copy_for_lossy() -> None:
    """It ignores the field that it does not know."""
    _, value = told(LossReport("power", copies(5_001)))
    loss = json.loads(value)["loss"]
    assert loss.pop("exact") == {"kind": "power", "lossy": [["00" * 16, 0, "0-5000"]]}
    assert loss == {"kind": "replaced", "lossy": []}


@pytest.mark.parametrize(
    ("exact", "named"),
    [
        ({"kind": "odd", "lossy": []}, "loss.exact.kind"),
        ({"kind": "power"}, "loss.exact.lossy is missing"),
        ([], "loss.exact"),
        *(({"kind": "power", "lossy": [[HEX, 0, text]]}, "loss.exact.lossy") for text in ("", "x", "1,", "3-1", "1-2-3", "-1", 1)),
        *(({"kind": "power", "lossy": [[HEX, 0, text]]}, "more than 200000") for text in ("0-200000", "0-2147483647", "2147483648")),
        ({"kind": "power", "lossy": [[HEX, 0, "0-100000"], [HEX, 1, "0-100000"]]}, "more than 200000"),
        ({"kind": "power", "lossy": [["zz", 0, "1"]]}, "loss.exact.lossy: topic_id"),
        ({"kind": "power", "lossy": [[HEX, -1, "1"]]}, "loss.exact.lossy: creation"),
        ({"kind": "power", "lossy": [[HEX, 0]]}, "loss.exact.lossy"),
    ],
)
def test_a_damaged_account_of_many_losses_is_refused(exact: object, named: str) -> None:
    """Nor does it cost more than it says."""
    value = json.loads(layout.encode_registration(Registration()))
    value["loss"] |= {"kind": "replaced", "exact": exact}
    with pytest.raises(StoreCorrupt, match=named):
        layout.decode_registration("/p", json.dumps(value).encode())
