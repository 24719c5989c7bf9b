"""Messages through frames, and frames that nobody should believe."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from struct import pack
from typing import Any

import attrs
import msgpack
import pytest
from attrs import field, frozen
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.samples import P0, batches, messages

from replog import messages as m
from replog.codec import FRAME_BYTES_MAX, HEADER, LOCAL_MESSAGES, MESSAGE_TYPES, CodecError, decode, encode, frame_length, stepwise
from replog.codec.frames import SINCE
from replog.config import TopicConfig
from replog.model import PartitionId, PartitionState
from replog.slices import MemorySlice

SAMPLES = messages()
NUMBERS = {kind.__name__: number for number, kind in MESSAGE_TYPES.items()}


def frame_of(meta: bytes, name: str = "Heartbeat", *, version: int = 1, number: int | None = None, attached: bytes = b"") -> bytes:
    """A correctly sealed frame around any bytes: what a hostile peer can send."""
    fields = (12 + len(meta) + len(attached), version, 0, NUMBERS[name] if number is None else number, len(meta))
    return HEADER.pack(*fields, crc32c(meta, crc32c(HEADER.pack(*fields, 0)[4:12]))) + meta + attached


def comparable(message: Any) -> Any:
    """Slices compare by what they carry."""
    if not isinstance(message, m.Fetched):
        return message
    entries = [
        attrs.evolve(entry, slices=[(each.base_offset, each.end_offset, each.length, bytes(each.view())) for each in entry.slices])
        for entry in message.entries
    ]
    return attrs.evolve(message, entries=entries)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_message_survives_a_frame(name: str) -> None:
    frame = b"".join(encode(SAMPLES[name]))
    assert comparable(decode(frame)) == comparable(SAMPLES[name])
    assert comparable(decode(memoryview(bytearray(frame)))) == comparable(SAMPLES[name])
    assert frame_length(frame[:4]) == len(frame)


def test_what_only_the_store_has_of_a_state_is_not_sent() -> None:
    state = PartitionState(1, 4, (1,), last_known=(1, 2), min_isr=2)
    with_it, without = (
        m.AlterIsrAnswer(1, 0, [m.AlterIsrResult(PartitionId(b"t" * 16, 0, 0), 0, one)]) for one in (attrs.evolve(state, anew=(2,)), state)
    )
    assert b"".join(encode(with_it)) == b"".join(encode(without))
    assert decode(b"".join(encode(with_it))) == without


def test_every_class_of_messages_is_a_message_or_part_of_one() -> None:
    def classes(value: Any) -> set[str]:
        parts: list[Any] = list(value) if isinstance(value, list | tuple) else []
        if attrs.has(type(value)):
            parts += [getattr(value, field.name) for field in attrs.fields(type(value))]
        return {type(value).__name__}.union(*map(classes, parts))

    known = {name for name in m.__all__ if attrs.has(getattr(m, name))}
    local = {kind.__name__ for kind in LOCAL_MESSAGES}
    assert known - {name for sample in SAMPLES.values() for name in classes(sample)} == local
    assert set(SAMPLES) == {kind.__name__ for kind in MESSAGE_TYPES.values()}


def test_samples_have_no_defaults_left() -> None:
    """A default in a sample would hide a field that the codec loses."""
    for sample in SAMPLES.values():
        for each in (one for one in attrs.fields(type(sample)) if one.init):
            default = each.default.factory() if isinstance(each.default, attrs.Factory) else each.default  # type: ignore[arg-type]
            assert getattr(sample, each.name) != default, f"{type(sample).__name__}.{each.name}"


def test_what_a_driver_adds_to_a_message_is_said_by_nobody_else() -> None:
    """A field that no constructor takes is not on the wire, in either direction."""
    message = m.Stage("w", 1, "a", 0, m.ProduceEntry(7, P0, b"x"))
    frame = b"".join(map(bytes, encode(message)))
    message.principal = "client/a"
    assert b"".join(map(bytes, encode(message))) == frame
    assert decode(frame).principal == ""


def test_batches_travel_untouched_and_uncopied() -> None:
    data = batches()["plain"]
    part = MemorySlice(0, 3, data)
    message = m.Fetched(1, 0, -1, 0, [m.FetchedEntry(P0, 4, 0, slices=[part])])
    buffers = encode(message)
    assert buffers[1] is part.view()
    frame = b"".join(buffers)
    (read,) = decode(frame).entries[0].slices
    assert read.view().obj is frame
    body = b"the body of a batch"
    assert encode(m.Produce(1, 1, [m.ProduceEntry(1, P0, body)]))[1] is body


def test_topic_configuration_travels_as_what_differs() -> None:
    view = m.TopicView("t", b"i" * 16, TopicConfig(min_isr=2), ())
    frame = encode(m.ClusterView(0, 0, 0, 0, [], [view]))[0]
    assert b"min_isr" in bytes(frame)
    assert b"segment_bytes" not in bytes(frame)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (object(), "object is no message"),
        (P0, "PartitionId is no message"),
        (m.Registered(1, 2), "Registered is no message"),
        (m.Heartbeat(1, 2, 3, 2**64), "value of type int, which no frame can carry"),
        (m.Heartbeat(1, 2, 3, object()), "value of type object"),  # type: ignore[arg-type]
        (m.AdminAnswer(1, 0, "\ud800"), "AdminAnswer cannot be encoded"),
        (m.Admin(1, "v", {"a": 1.5}), "Admin.arguments holds a float"),
        (m.Admin(1, "v", {"a": {(1, 2): 3}}), "Admin.arguments has a key of type tuple"),
        (m.Admin(1, "v", {"a": {True: 3}}), "Admin.arguments has a key of type bool"),
        (m.Admin(1, "v", {"a": [[[[[[[[[1]]]]]]]]]}), "Admin.arguments nests deeper than 8"),
        (m.AdminAnswer(1, 0, "", {"a": {1, 2}}), "AdminAnswer.result holds a set"),
        (m.Admin(1, "v", {}, object()), "Admin.origin holds a object"),
    ],
)
def test_what_no_frame_can_carry_is_refused(message: Any, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        encode(message)


PACK = msgpack.packb
HEARTBEAT = PACK([1, 2, 3, 4])
PARTITION = [b"t" * 16, 0, 0]


def flushed(partition: Any, epoch: Any = 1, end: Any = 1) -> bytes:
    return frame_of(PACK([1, 1, [[partition, epoch, end]]]), "Flushed")


def view_with(config: Any) -> bytes:
    return frame_of(PACK([0, 0, -1, 0, [], [["t", b"i" * 16, config, [], -1]], [], [], "", -1, [], []]), "ClusterView")


def fetched(slices: Any, attached: bytes = b"") -> bytes:
    return frame_of(PACK([1, 0, -1, 0, [[PARTITION, 0, 0, 0, 0, 0, 0, -1, -1, slices, -1]], False]), "Fetched", attached=attached)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"", "begins with 4 bytes"),
        (pack("<I", 5) + b"x" * 5, "a frame of 9 bytes; allowed are 16"),
        (pack("<I", FRAME_BYTES_MAX) + b"x" * 20, f"allowed are 16 to {FRAME_BYTES_MAX}"),
        (frame_of(HEARTBEAT) + b"x", "in 22"),
        (frame_of(HEARTBEAT)[:-1], "in 20"),
        (frame_of(HEARTBEAT, version=0), "protocol version 0"),
        (frame_of(HEARTBEAT, number=999), "unknown message type 999"),
        (frame_of(HEARTBEAT, number=0), "unknown message type 0"),
        (HEADER.pack(12, 1, 0, 17, 1, 0), "a message of 1 bytes in a frame of 16"),
        (HEADER.pack(12, 1, 0, 17, 0, 0), "does not match its checksum"),
        (frame_of(b""), "ends too early"),
        (frame_of(PACK([1, 2, 3])), "Heartbeat with 3 fields; it has 4"),
        (frame_of(PACK([1, 2, 3, 4, 5])), "Heartbeat with 5 fields; it has 4"),
        (frame_of(PACK([1, 2, 3]), version=2), "Heartbeat with 3 fields; it has 4"),
        (frame_of(HEARTBEAT[:-1]), "ends too early"),
        (frame_of(HEARTBEAT + b"\xc0"), "1 \\+ 0 bytes are left over"),
        (frame_of(HEARTBEAT, attached=b"xy"), "0 \\+ 2 bytes are left over"),
        (frame_of(PACK({})), "Unexpected type header"),
        (frame_of(PACK(5)), "Unexpected type header"),
        (frame_of(PACK([1, 2, 3, True])), "Heartbeat.notice is True, not an int"),
        (frame_of(PACK([1, 2, 3, None])), "Heartbeat.notice is None, not an int"),
        (frame_of(PACK([1, 2, 3, 1.0])), "Heartbeat.notice is 1.0, not an int"),
        (frame_of(PACK([1, 2, 3, 2**63])), "Heartbeat.notice is 9223372036854775808; allowed"),
        (frame_of(PACK([1, 2, 3, [1]])), "exceeds max_array_len"),
        (frame_of(PACK([1, 2, 3, {1: 1}])), "exceeds max_map_len"),
        (frame_of(PACK([1, 2, 3, msgpack.ExtType(1, b"x")])), "exceeds max_ext_len"),
        (frame_of(b"\x94\x01\x02\x03\xc1"), "Heartbeat: "),
        (flushed([b"t" * 15, 0, 0]), "a topic id is 16 bytes"),
        (flushed(["t" * 16, 0, 0]), "a topic id is 16 bytes"),
        (flushed([b"t" * 16, -1, 0]), "PartitionId.partition is -1"),
        (flushed([b"t" * 16, 0, 2**32]), "PartitionId.creation is 4294967296"),
        (flushed([b"t" * 16, 0]), "PartitionId with 2 fields"),
        (flushed(PARTITION, 2**31), "FlushedEntry.leader_epoch is 2147483648; allowed are -2 to 2147483647"),
        (flushed(PARTITION, -3), "FlushedEntry.leader_epoch is -3"),
        (frame_of(b"\x93\x01\x01\xdd\xff\xff\xff\xff", "Flushed"), "Flushed.entries claims 4294967295 items in the last 0 bytes"),
        (frame_of(PACK([1, 0, 0, 0, 0, -1]), "StopReplica"), "Unexpected type header"),
        (frame_of(PACK([1, 0, 0, 0, [[PARTITION, 0, 1]], -1]), "StopReplica"), "StopEntry.delete is 1, not bool"),
        (frame_of(PACK([1, 0, 0, 0, 0, [[PARTITION, 1, 2]], []]), "LeaderAndIsrAnswer"), "errors holds tuples of 2"),
        (frame_of(PACK([1, b"v", {}, None]), "Admin"), "Admin.verb is b'v', not str"),
        (frame_of(PACK([1, "v", [], None]), "Admin"), "Unexpected type header"),
        (frame_of(PACK([1, "v", {b"k": 1}, None]), "Admin"), "Admin.arguments has a key of type bytes"),
        (frame_of(PACK([1, "v", {}, 1.5]), "Admin"), "Admin.origin holds a float"),
        (frame_of(PACK([1, "v", {"k": [[[[[[[[[1]]]]]]]]]}, None]), "Admin"), "Admin.arguments nests deeper than 8"),
        (frame_of(b"\x94\x01\xa1v\x80" + b"\x91" * 500, "Admin"), "Admin.origin nests deeper than 8"),
        (frame_of(b"\x94\x01\xa1v\xdf\xff\xff\xff\xff", "Admin"), "Admin.arguments: up to here the message claims 4294967295 items"),
        (frame_of(b"\x94\x01\xa1v\xdf\x00\x00\xff\xff", "Admin"), "ends too early"),
        (frame_of(b"\x94\x01\xa2\xff\xffx\x80\xc0", "Admin"), "codec can't decode"),
        (view_with({"min_isr": 0}), "TopicConfig: min_isr is 0"),
        (view_with({"min_irs": 1}), "TopicConfig: unknown configuration key 'min_irs'; did you mean 'min_isr'"),
        (view_with({5: 1}), "TopicConfig: unknown configuration key '5'"),
        (view_with({"flush": ["os"]}), "TopicConfig: flush is"),
        (view_with([]), "Unexpected type header"),
        (frame_of(PACK([1, 0, [[1, PARTITION, 5]]]), "Produce", attached=b"1234"), "ProduceEntry.body claims 5 bytes of the last 4"),
        (frame_of(PACK([1, 0, [[1, PARTITION, -1]]]), "Produce"), "ProduceEntry.body claims -1 bytes"),
        (frame_of(PACK([1, 0, [[1, PARTITION, True]]]), "Produce", attached=b"1"), "ProduceEntry.body claims True bytes"),
        (frame_of(PACK([1, 0, [[1, PARTITION, b"x"]]]), "Produce"), "ProduceEntry.body claims b'x' bytes"),
        (fetched([[0, 1]]), r"a slice is \(base offset, end offset, length\)"),
        (fetched([[1, 0, 0]]), "offsets from 1 to 0"),
        (fetched([[-1, 0, 0]]), "offsets from -1 to 0"),
        (fetched([[None, 0, 0]]), "offsets from None to 0"),
        (fetched([[0, 1, 1]]), "claims 1 bytes of the last 0"),
        (fetched([[0, 1, 1]], b"xy"), "1 bytes are left over"),
    ],
)
def test_a_hostile_frame_is_a_codec_error(frame: bytes, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        decode(frame)


def test_a_newer_version_may_say_more() -> None:
    message = decode(frame_of(PACK([1, 2, 3, 4, "new", [[1], {"deep": []}]]), version=2))
    assert message == m.Heartbeat(1, 2, 3, 4)
    nested = decode(frame_of(PACK([1, 1, [[[b"t" * 16, 0, 0, "new"], 1, 1, None]], 5]), "Flushed", version=2))
    assert nested == m.Flushed(1, 1, [m.FlushedEntry(PartitionId(b"t" * 16, 0, 0), 1, 1)])


@frozen
class Grown:
    """A message that has got one field with version 2 of the protocol, and two with version 3."""

    first: int
    second: str = field(default="2", metadata={SINCE: 2})
    third: int = field(default=3, metadata={SINCE: 3})
    fourth: int = field(default=4, metadata={SINCE: 3}, kw_only=True)


@pytest.mark.parametrize(
    ("version", "row", "means"),
    [
        (1, [1], Grown(1)),
        (2, [1, "x"], Grown(1, "x")),
        (3, [1, "x", 9, 8], Grown(1, "x", 9, fourth=8)),
        (4, [1, "x", 9, 8, "skipped"], Grown(1, "x", 9, fourth=8)),
    ],
)
def test_an_older_version_leaves_out_what_came_later(monkeypatch: pytest.MonkeyPatch, version: int, row: list[Any], means: Grown) -> None:
    monkeypatch.setattr(stepwise, "PROTOCOL_VERSION", 3)
    assert stepwise.read(Grown, memoryview(meta := frame_of(PACK(row), version=version)), len(meta), version=version) == means


@pytest.mark.parametrize(
    ("version", "row", "known"),
    [(1, [], 1), (1, [1, "x"], 1), (1, [1, "x", 9, 8], 1), (2, [1], 2), (2, [1, "x", 9], 2), (3, [1, "x", 9], 4), (4, [1, "x", 9], 4)],
)
def test_a_field_more_or_less_than_its_version_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: int, row: list[Any], known: int
) -> None:
    monkeypatch.setattr(stepwise, "PROTOCOL_VERSION", 3)
    with pytest.raises(CodecError, match=f"Grown with {len(row)} fields; it has {known}"):
        stepwise.read(Grown, memoryview(meta := frame_of(PACK(row), version=version)), len(meta), version=version)


def test_the_limit_of_a_receiver() -> None:
    frame = b"".join(encode(SAMPLES["Heartbeat"]))
    assert decode(frame, frame_bytes_max=len(frame)) == SAMPLES["Heartbeat"]
    with pytest.raises(CodecError, match=f"allowed are 16 to {len(frame) - 1}"):
        decode(frame, frame_bytes_max=len(frame) - 1)


def test_nested_claims_allocate_nothing() -> None:
    """A thousand arrays inside each other, each claiming as many items as the frame has bytes: eight gigabytes, if believed."""
    evil = b"\xdd\x00\x0f\x42\x40" * 1_000 + b"\x00" * 1_000_000
    for name, meta in (("Admin", b"\x94\x01\xa1v\x80" + evil), ("Flushed", b"\x93\x01\x01" + evil), ("Heartbeat", evil)):
        frame = frame_of(meta, name)
        tracemalloc.start()
        with pytest.raises(CodecError):
            decode(frame)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3 * len(frame)


@given(st.data(), st.sampled_from(sorted(SAMPLES)))
def test_changed_frames_raise_only_codec_errors(data: st.DataObject, name: str) -> None:
    frame = bytearray(b"".join(encode(SAMPLES[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(CodecError):  # attachments have checksums of their own, looked at where batches are
        decode(bytes(frame))


@given(st.data(), st.sampled_from(sorted(SAMPLES)))
def test_changed_frames_that_are_sealed_again_raise_only_codec_errors(data: st.DataObject, name: str) -> None:
    buffers = encode(SAMPLES[name])
    meta = bytearray(bytes(buffers[0])[HEADER.size :])
    for _ in range(data.draw(st.integers(1, 4))):
        meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    version = data.draw(st.integers(1, 2))
    with suppress(CodecError):
        message = decode(frame_of(bytes(meta), name, version=version, attached=b"".join(buffers[1:])))
        assert type(message).__name__ == name
        encode(message)


@given(st.binary(max_size=200), st.sampled_from(sorted(SAMPLES)))
def test_any_bytes_raise_only_codec_errors(noise: bytes, name: str) -> None:
    for frame in (noise, frame_of(noise, name)):
        with pytest.raises(CodecError):
            decode(frame)
