"""What one message may cost whoever decodes it, and what the largest honest ones need."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from replog import messages as m
from replog.codec import FRAME_BYTES_MAX, HEADER, CodecError, decode, encode
from replog.codec.stepwise import SEEN_MAX, _Reader
from replog.config import SCATTERED_KEYS_MAX, BrokerConfig, TopicConfig
from replog.metadata.layout import TopicEntry, encode_topic
from replog.model import Assignment, PartitionId, PartitionState
from replog.transport.tcp import TcpLimits

P = PartitionId(b"t" * 16, 2**31 - 1, 2**32 - 1)
FAR = 2**63 - 1
LIMITS = TcpLimits()


def frame_of(message: Any) -> bytes:
    return b"".join(encode(message))


def of_client(frame: bytes) -> Any:
    return decode(frame, meta_bytes_max=LIMITS.client_meta_bytes_max, items_max=LIMITS.client_items_max)


ITEMS: dict[str, tuple[Callable[[int], Any], str]] = {
    "lists": (lambda n: m.Admin(1, "x", {"a": [[]] * (n - 1)}), "Admin.arguments"),
    "nested lists": (lambda n: m.Admin(1, "x", {"a": [[0] * (n - 3), 0]}), "Admin.arguments"),
    "dicts": (lambda n: m.Admin(1, "x", dict.fromkeys(map(str, range(n)))), "Admin.arguments"),
    "dicts in dicts": (lambda n: m.Admin(1, "x", {"a": dict.fromkeys(range(n - 1))}), "Admin.arguments"),
    "two fields": (lambda n: m.Fetch(1, -1, -1, 0, -1, 0, 1, 1, [m.FetchEntry(P, 0, 0, -1, 1)], [P] * (n - 1)), "Fetch.forgotten"),
    "rows": (lambda n: m.ListOffsets(1, [m.ListOffsetsEntry(P, 0, 5)] * n), "ListOffsets.entries"),
    "rows, quickly": (lambda n: m.Produced([m.ProducedEntry(1)] * n), "Produced.entries"),
    "batches": (lambda n: m.Produce(-1, 0, [m.ProduceEntry(1, P, b"")] * n), "Produce.entries"),
}


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("most", [20, 1_000])
def test_all_items_of_a_message_are_counted_together(name: str, most: int) -> None:
    make, where = ITEMS[name]
    frame = frame_of(make(most))
    assert decode(frame, items_max=most) == make(most)
    with pytest.raises(CodecError, match=rf"^{where}: up to here the message claims {most + 1} items; allowed are {most}$"):
        decode(frame_of(make(most + 1)), items_max=most)


def test_a_message_without_its_batches_has_a_limit_of_its_own() -> None:
    frame = frame_of(m.Produce(-1, 0, [m.ProduceEntry(1, P, bytes(100_000))]))
    size = len(frame) - 100_000 - HEADER.size
    assert decode(frame, meta_bytes_max=size).entries[0].body == bytes(100_000)
    with pytest.raises(CodecError, match=rf"a message of {size} bytes beside its batches; allowed are {size - 1}$"):
        decode(frame, meta_bytes_max=size - 1)


def test_what_is_refused_costs_no_more_than_what_is_allowed() -> None:
    frames = [frame_of(m.Admin(1, "x", {"a": [[]] * count})) for count in (300_000, 2_000_000)]
    for frame in frames:
        tracemalloc.start()
        with pytest.raises(CodecError, match="allowed are"):
            of_client(frame)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40 << 20


# ----------------------------------------------------------------------------------------------------- the largest honest ones


def largest_wish(replicas: int) -> dict[int, list[int]]:
    """As many partitions with so many replicas as the store takes in one topic."""
    limit = BrokerConfig().topic_bytes_max

    def size(count: int) -> int:
        partitions = {n: Assignment(tuple(range(replicas)), 0) for n in range(count)}
        entry = TopicEntry(b"i" * 16, {}, partitions, next_creation=1)
        return len(encode_topic(entry))

    each = (size(1_000) - size(500)) / 500
    count = int(limit / each)
    while size(count) <= limit:
        count += max(1, int((limit - size(count)) / each))
    return {n: list(range(replicas)) for n in range(count)}


@pytest.mark.parametrize("replicas", [1, 3, 64])
def test_the_largest_wish_that_the_store_takes_fits(replicas: int) -> None:
    assignment = largest_wish(replicas)
    items = len(assignment) * (1 + replicas)
    assert items > 20_000
    arguments = {"name": "t" * 249, "partitions": None, "replication_factor": None, "config": {}, "assignment": assignment}
    assert of_client(frame_of(m.Admin(1, "create_topic", arguments))).arguments == arguments


@pytest.mark.parametrize(
    "message",
    [
        m.Fetch(FAR, -1, -1, 0, -1, 60_000, 1, FAR, [m.FetchEntry(P, 2**31 - 1, FAR, 2**31 - 1, FAR)] * 10_000),
        m.ListOffsets(FAR, [m.ListOffsetsEntry(P, 2**31 - 1, FAR)] * 10_000),
        m.OffsetsForLeaderEpoch(FAR, [m.EpochsEntry(P, 2**31 - 1, 2**31 - 1)] * 10_000),
        m.Produce(-1, 30_000, [m.ProduceEntry(FAR, P, b"batch")] * 10_000),
        m.Admin(1, "reassign", {"partitions": [["t" * 249, 99_999, list(range(64))]] * 1_000}),
        m.Admin(1, "elect", {"partitions": [["t" * 80, 99_999]] * 10_000, "unclean": False}),
        m.Admin(1, "remove_partitions", {"name": "t", "partitions": list(range(100_000)), "creations": [2**32 - 1] * 100_000}),
        m.Metadata(1, -1, -1, ["t" * 249] * 1_000),
    ],
    ids=lambda message: f"{type(message).__name__} {getattr(message, 'verb', '')}".strip(),
)
def test_what_a_client_says_about_many_partitions_fits(message: Any) -> None:
    assert of_client(frame_of(message)) == message


def test_a_complete_view_fits_on_its_way_to_clients_and_brokers() -> None:
    isr = (100_001, 100_002, 100_003)
    views = tuple(m.PartitionView(n, 2**32 - 1, isr[0], 2**31 - 1, isr, (), isr, 2**31 - 1) for n in range(10_000))
    topics = [m.TopicView(f"t{n}", n.to_bytes(16, "big"), TopicConfig(), views, 10_000) for n in range(10)]
    view = m.ClusterView(1, 1, -1, 1, [], topics, cluster_id="c")
    frame = frame_of(view)
    assert len(frame) < FRAME_BYTES_MAX / 8
    with pytest.raises(CodecError, match="allowed are"):
        of_client(frame)  # nobody's client says such a thing
    assert decode(frame, items_max=LIMITS.items_max) == view
    items = 100_000 * (1 + 2 * len(isr))
    assert items < LIMITS.items_max / 10


def test_what_thousands_of_partitions_have_in_common_is_there_once() -> None:
    """A broker keeps it for as long as it has the copies: twice its share of memory otherwise."""
    config, assignment = TopicConfig(min_isr=2), Assignment((1, 2, 3))
    entries = [
        m.PartitionNotice(PartitionId(b"t" * 16, n, 0), "orders", PartitionState(1, n, (1, 2)), assignment, config) for n in range(3)
    ]
    other = m.PartitionNotice(
        PartitionId(b"u" * 16, 0, 0), "others", PartitionState(1, 0, (2, 1)), Assignment((2, 1)), TopicConfig(min_isr=1)
    )
    message = m.LeaderAndIsr(1, 1, 1, 0, True, 600_000, [*entries, other], as_of=0)
    read = decode(frame_of(message))
    assert read == message
    first, *same = read.entries[:3]
    for one in same:
        assert one.config is first.config
        assert one.assignment is first.assignment
        assert one.topic is first.topic
        assert one.partition.topic_id is first.partition.topic_id
        assert one.state.isr is first.state.isr


def test_a_configuration_that_only_equals_one_before_it_is_judged_by_itself() -> None:
    """True equals 1, and is no number of copies."""
    config, strange = TopicConfig(min_isr=1), TopicConfig(min_isr=1)
    object.__setattr__(strange, "min_isr", True)
    state = PartitionState(1, 0, (1,))
    notices = [m.PartitionNotice(PartitionId(b"t" * 16, 0, 0), "t", state, Assignment((1,)), one) for one in (config, strange)]
    with pytest.raises(CodecError, match="min_isr"):
        decode(frame_of(m.LeaderAndIsr(1, 1, 1, 0, True, 600_000, notices, as_of=0)))


def test_values_that_collide_in_a_dict_cost_no_more_than_others() -> None:
    """Whole numbers hash to themselves, modulo a prime: a peer can make thousands of lists of them that hash alike."""
    prime, count = 2**61 - 1, 2_000
    compared = 0

    class Counted(tuple[int, ...]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)

        __hash__ = tuple.__hash__

    reader = _Reader(memoryview(b""), 0, version=1, items_max=0)
    for number in range(count):
        alike = Counted(1 + (number >> bit & 1) * prime for bit in range(11))
        assert reader.keep(alike, alike) is alike
    assert len(reader.seen) == SEEN_MAX
    assert compared < 3 * count * SEEN_MAX < count**2 / 2


def on_one_way(bits: int) -> list[int]:
    """Half as many numbers as a table of 2**bits has places, each in the place where Python looks after that of the one before."""
    way = [1]
    while len(way) < 2 ** (bits - 1):
        way.append((5 * way[-1] + 1) % 2**bits)
    return way


NEXT = SCATTERED_KEYS_MAX + 1


@pytest.mark.parametrize(
    "keys",
    [on_one_way(12), range(0, 7 * NEXT, 7), range(NEXT, 0, -1), [*range(NEXT - 1), 2**40], [*range(NEXT), -1], [-(2**63), *range(NEXT)]],
    ids=["on one way", "with gaps", "backwards", "far away", "late", "far below"],
)
@pytest.mark.parametrize("nested", [lambda a: a, lambda a: {"a": a}, lambda a: {"b": [0, {"c": a}]}], ids=["bare", "in a dict", "deeper"])
def test_many_numbers_that_do_not_follow_one_another_are_no_keys(keys: list[int], nested: Callable[[Any], Any]) -> None:
    """Whoever chooses them can have each looked up where all before it are: 175,000 in one request took 14 s."""
    few = m.Admin(1, "x", nested(dict.fromkeys(keys[:SCATTERED_KEYS_MAX])))
    assert of_client(frame_of(few)) == few
    says = rf"^Admin.arguments has 100\d whole numbers as keys, and -?\d+ follows -?\d+; allowed are {SCATTERED_KEYS_MAX} unless in a run$"
    with pytest.raises(CodecError, match=says):
        of_client(frame_of(m.Admin(1, "x", nested(dict.fromkeys(keys)))))


@pytest.mark.parametrize(
    "many",
    [
        dict.fromkeys(range(80_000, 100_000)),  # partitions that are added to others
        dict.fromkeys(range(-5, NEXT)),
        dict.fromkeys(map(str, range(100_000))),
        {key: None for n in range(NEXT) for key in (n, str(n))},
        {"a": [dict.fromkeys((2**40, n)) for n in range(NEXT)]},
    ],
    ids=["from 80,000", "from below 0", "strings", "both", "many of few"],
)
def test_a_run_of_numbers_may_be_as_long_as_a_message(many: dict[Any, Any]) -> None:
    asked = m.Admin(1, "x", many)
    assert of_client(frame_of(asked)) == asked
