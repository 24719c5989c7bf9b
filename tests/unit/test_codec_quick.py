"""The quick way of the data path makes of every frame what the step-by-step way makes of it, or leaves it alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import attrs
import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.samples import P0, messages

from replog import messages as m
from replog.codec import HEADER, MESSAGE_TYPES, CodecError, decode, encode, quick, stepwise
from replog.codec.encoding import _pack
from replog.errors import Code
from replog.slices import MemorySlice

SAMPLES = {name: message for name, message in messages().items() if type(message) in quick.WRITERS}
NUMBERS = {kind.__name__: number for number, kind in MESSAGE_TYPES.items()}
NAMES = sorted(SAMPLES)
NUMBERS_OF_ALL_SIZES = [0, 1, -1, -2, -3, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, -(2**63)]
EDGES = [*NUMBERS_OF_ALL_SIZES, True, None, 1.0, b"t" * 16, "t" * 16, b"t" * 15, b"", "", [], [0], [[]]]
JUNK = st.one_of(
    st.sampled_from(EDGES), st.integers(-5, 40), st.binary(max_size=17), st.text(max_size=4), st.lists(st.integers(0, 20), max_size=12)
)


def frame_of(name: str, meta: bytes, attached: bytes) -> bytes:
    """A correctly sealed frame around any bytes."""
    fields = (12 + len(meta) + len(attached), 1, 0, NUMBERS[name], len(meta))
    return HEADER.pack(*fields, crc32c(meta, crc32c(HEADER.pack(*fields, 0)[4:12]))) + meta + attached


def shown(message: Any) -> Any:
    """A message with all types to be compared: True is not 1, and a view is what it shows."""
    if isinstance(message, MemorySlice):
        return message.base_offset, message.end_offset, bytes(message.view())
    if attrs.has(type(message)):
        return type(message), [shown(getattr(message, each.name)) for each in attrs.fields(type(message))]
    if isinstance(message, list | tuple):
        return type(message), [shown(each) for each in message]
    return type(message), message


def both(name: str, meta: bytes, attached: bytes) -> tuple[Any, Any]:
    """What the quick way and the other make of a frame; None: nothing."""
    frame = frame_of(name, meta, attached)
    number = NUMBERS[name]
    quickly = quick.read(number, meta, frame)
    assert shown(quick.read(number, memoryview(meta), memoryview(frame))) == shown(quickly)
    try:
        slowly = stepwise.read(MESSAGE_TYPES[number], memoryview(frame), HEADER.size + len(meta), version=1)
    except CodecError:
        slowly = None
    return quickly, slowly


def parts_of(name: str) -> tuple[Any, bytes]:
    """The fields of a sample as msgpack gives them, and its batches."""
    buffers = encode(SAMPLES[name])
    return msgpack.unpackb(bytes(buffers[0])[HEADER.size :]), b"".join(buffers[1:])


def places(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where each value inside nested lists is."""
    inner = [place for at, each in enumerate(value) for place in places(each, (*path, at))] if isinstance(value, list) else []
    return [*inner, path] if path else inner


def put(value: list[Any], path: tuple[int, ...], new: Any) -> None:
    """Replace what is there."""
    for at in path[:-1]:
        value = value[at]
    value[path[-1]] = new


def test_the_data_path_is_quick() -> None:
    assert NAMES == ["Fetch", "Fetched", "Produce", "Produced"]
    assert {MESSAGE_TYPES[number] for number in quick.READERS} == set(quick.WRITERS)


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_make_the_same(name: str) -> None:
    message = SAMPLES[name]
    parts: list[Any] = []
    assert (msgpack.packb(quick.WRITERS[type(message)](message, parts)), parts) == _pack(message)
    quickly, slowly = both(name, *_joined(message))
    assert quickly is not None
    assert shown(quickly) == shown(slowly) == shown(decode(b"".join(encode(message))))


def _joined(message: Any) -> tuple[bytes, bytes]:
    buffers = encode(message)
    return bytes(buffers[0])[HEADER.size :], b"".join(buffers[1:])


@pytest.mark.parametrize("name", NAMES)
def test_every_edge_in_every_place(name: str) -> None:
    """Wherever a bound is checked, both ways check the same one."""
    fields, attached = parts_of(name)
    accepted = 0
    for path in places(fields):
        for edge in EDGES:
            changed = msgpack.unpackb(msgpack.packb(fields))
            put(changed, path, edge)
            for batches in dict.fromkeys([attached, b""]):
                quickly, slowly = both(name, msgpack.packb(changed), batches)
                assert (quickly is None) is (slowly is None), (path, edge)
                assert shown(quickly) == shown(slowly), (path, edge)
                accepted += quickly is not None
    assert accepted > 20


@given(st.data(), st.sampled_from(NAMES))
def test_whatever_is_accepted_quickly_is_accepted_step_by_step(data: st.DataObject, name: str) -> None:
    fields, attached = parts_of(name)
    for path in data.draw(st.lists(st.sampled_from(places(fields)), max_size=3)):
        try:
            put(fields, path, data.draw(JUNK))
        except (TypeError, IndexError):  # that place is gone
            continue
    meta = bytearray(msgpack.packb(fields))
    if data.draw(st.booleans()):
        meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    quickly, slowly = both(name, bytes(meta) + data.draw(st.sampled_from([b"", b"\0"])), attached + data.draw(st.sampled_from([b"", b"x"])))
    if quickly is not None:
        assert shown(quickly) == shown(slowly)


@given(st.binary(max_size=200), st.sampled_from(NAMES))
def test_any_bytes(meta: bytes, name: str) -> None:
    quickly, slowly = both(name, meta, b"")
    assert quickly is None or shown(quickly) == shown(slowly)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1), (4, 0), (5, -1), (-1, 5), (4, 1), (True, 3)])
def test_batches_share_what_follows_and_nobody_goes_back(sizes: tuple[int, int]) -> None:
    partition, attached = [b"t" * 16, 0, 0], b"abcd"
    produce = [1, 1, [[1, partition, size] for size in sizes]]
    fetched = [1, 0, 0, 0, [[partition, 0, 0, 0, 0, 0, 0, -1, -1, [[0, 1, size] for size in sizes], -1]], False]
    for name, fields in (("Produce", produce), ("Fetched", fetched)):
        quickly, slowly = both(name, msgpack.packb(fields), attached)
        assert shown(quickly) == shown(slowly)
        assert (quickly is not None) is (min(sizes) >= 0 and sizes[0] + sizes[1] == 4 and sizes[0] is not True)


def test_what_is_too_large_for_it_is_read_all_the_same() -> None:
    for count in (quick.ITEMS_MAX, quick.ITEMS_MAX + 1, 3_000):
        message = m.Produced([m.ProducedEntry(number) for number in range(count)])
        meta, attached = _joined(message)
        assert (both("Produced", meta, attached)[0] is None) is (count > quick.ITEMS_MAX)
        assert decode(b"".join(encode(message))) == message


def test_claims_allocate_little() -> None:
    """Arrays inside each other, each claiming as many items as are believed: a message is small, so its reading has to be."""
    item = b"\xdc" + quick.ITEMS_MAX.to_bytes(2, "big")
    for meta in (item * (quick.META_BYTES_MAX // 3), b"\x96\x01\x01\x01\x01" + item * 5_000, (item + b"\x90" * 10) * 1_000):
        frame = frame_of("Fetched", meta, b"")
        assert len(meta) <= quick.META_BYTES_MAX
        tracemalloc.start()
        with pytest.raises(CodecError):
            decode(frame)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 << 20


def test_names_of_errors_travel_as_numbers() -> None:
    message = m.Produced([m.ProducedEntry(1, Code.NOT_LEADER_OR_FOLLOWER)])
    (entry,) = decode(b"".join(encode(message))).entries
    assert type(entry.error) is int
    assert entry.error == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (m.Produced([m.ProducedEntry(2**64)]), "value of type int"),
        (m.Produced([m.ProducedEntry(object())]), "value of type object"),  # type: ignore[arg-type]
        (m.Produced(None), None),  # type: ignore[arg-type]
        (m.Fetch(1, 1, 1, 1, 1, 1, 1, 1, [m.FetchEntry({1}, 1, 1, 1, 1)]), "value of type set"),  # type: ignore[arg-type]
        (m.Produce(1, 1, [m.ProduceEntry(1, P0, None)]), "cannot be encoded"),  # type: ignore[arg-type]
        (m.Fetched(1, 0, 0, object(), []), "value of type object"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_written_is_said_as_everywhere(message: Any, complaint: str | None) -> None:
    if complaint is None:
        with pytest.raises(CodecError):
            decode(b"".join(encode(message)))
    else:
        with pytest.raises(CodecError, match=complaint):
            encode(message)
