"""From a byte stream to frames: however it is cut, and whatever it is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.samples import messages
from tests.unit.transport.harness import fetched, piece

from replog import messages as m
from replog.codec import CodecError, decode, encode
from replog.transport.tcp.buffers import FRESH_BYTES, POOLED_BYTES_MAX, POOLED_MAX, SCRATCH_BYTES, Buffers
from replog.transport.tcp.incoming import TURN_BYTES, EndOfStream, Incoming

FRAME_MAX = 8 << 20
SAMPLES = [b"".join(encode(each)) for each in messages().values()]


class Feed:
    """Gives bytes in pieces of the sizes wanted, then nothing, or the end."""

    def __init__(self, data: bytes, sizes: Iterator[int] | None = None, *, ends: bool = False) -> None:
        self.data = memoryview(data)
        self.sizes = sizes
        self.ends = ends
        self.paused = False

    def recv_into(self, buffer: memoryview) -> int:
        if self.paused or (not self.data and not self.ends):
            self.paused = False
            raise BlockingIOError
        size = len(self.data)
        if self.sizes is not None:
            size = min(size, next(self.sizes))
            self.paused = True
        size = min(size, len(buffer))
        buffer[:size] = self.data[:size]
        self.data = self.data[size:]
        return size


def drain(feed: Feed, incoming: Incoming, buffers: Buffers) -> list[bytes]:
    """Everything that comes out of a feed."""
    got: list[bytes] = []
    while feed.data:
        incoming.receive(cast(Any, feed), buffers, lambda frame, _: got.append(bytes(frame)))
    return got


def test_a_frame_cut_at_every_byte() -> None:
    for frame in SAMPLES:
        for cut in range(1, len(frame)):
            incoming, buffers = Incoming(FRAME_MAX), Buffers()
            assert drain(Feed(frame[:cut]), incoming, buffers) == []
            assert incoming.is_partial
            assert buffers.held == incoming.held == cut
            assert drain(Feed(frame[cut:] + frame), incoming, buffers) == [frame, frame]
            assert not incoming.is_partial
            assert buffers.held == incoming.held == 0


@pytest.mark.parametrize(
    "cut", [1, 3, 4, 15, 16, 17, FRESH_BYTES - 1, FRESH_BYTES, FRESH_BYTES + 1, SCRATCH_BYTES - 1, SCRATCH_BYTES, 300_000]
)
def test_a_large_frame_gets_a_buffer_of_its_own_wherever_it_is_cut(cut: int) -> None:
    large = b"".join(encode(fetched(1, piece(bytes(range(256)) * 2_000))))
    small = SAMPLES[0]
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    stream = small + large + small
    got = drain(Feed(stream[:cut]), incoming, buffers) + drain(Feed(stream[cut:]), incoming, buffers)
    assert got == [small, large, small]
    assert buffers.held == 0


FRAMES = st.sampled_from([*SAMPLES, b"".join(encode(fetched(1, piece(b"x" * 70_000))))])


@given(st.lists(FRAMES, max_size=6), st.integers(1, 100_000), st.integers(1, 7))
def test_the_way_it_is_cut_does_not_matter(frames: list[bytes], size: int, modulus: int) -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    sizes = iter(lambda: 1 + (size * (1 + incoming.frames)) % (size + modulus), None)
    assert drain(Feed(b"".join(frames), sizes), incoming, buffers) == frames
    assert buffers.held == 0


@given(st.binary(max_size=300), st.integers(1, 40), st.sampled_from(SAMPLES))
def test_random_bytes_are_refused_and_nothing_else_happens(junk: bytes, size: int, frame: bytes) -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    feed = Feed(frame + junk, iter(lambda: size, None))
    got: list[Any] = []
    try:
        while feed.data:
            incoming.receive(cast(Any, feed), buffers, lambda view, _: got.append(decode(bytes(view))))
    except CodecError:
        pass
    assert len(got) >= 1
    incoming.drop(buffers)
    assert buffers.held == 0


@given(st.sampled_from(SAMPLES), st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_frame_is_refused(frame: bytes, at: int, flip: int) -> None:
    damaged = bytearray(frame)
    damaged[at % len(frame)] ^= flip
    got: list[Any] = []
    incoming = Incoming(FRAME_MAX)
    try:
        incoming.receive(cast(Any, Feed(bytes(damaged))), Buffers(), lambda view, _: got.append(decode(view)))
    except CodecError:
        return
    # Only what is attached has no checksum of its own here: batches have theirs; and a longer frame still waits for its rest.
    assert incoming.is_partial or type(got[0]) in (m.Produce, m.Fetched)


@pytest.mark.parametrize("length", [0, 11, FRAME_MAX, 2**31, 2**32 - 5])
def test_a_length_that_is_not_allowed_is_refused_by_its_first_bytes(length: int) -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    with pytest.raises(CodecError, match=str(length + 4)):
        incoming.receive(cast(Any, Feed(length.to_bytes(4, "little"))), buffers, lambda *_: None)


def test_a_frame_that_came_whole_may_be_too_long_all_the_same() -> None:
    frame = max(SAMPLES, key=len)
    incoming = Incoming(len(frame) - 1)
    with pytest.raises(CodecError, match=f"a frame of {len(frame)} bytes"):
        incoming.receive(cast(Any, Feed(frame)), Buffers(), lambda *_: None)


def test_a_claim_costs_nothing_until_bytes_come() -> None:
    buffers = Buffers()
    head = (FRAME_MAX - 4).to_bytes(4, "little") + bytes(100)
    tracemalloc.start()
    claims = [Incoming(FRAME_MAX) for _ in range(200)]
    for incoming in claims:
        incoming.receive(cast(Any, Feed(head)), buffers, lambda *_: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert buffers.held == 200 * FRESH_BYTES
    assert peak < 200 * (FRESH_BYTES + 2_000)


def test_a_buffer_is_not_larger_than_twice_what_came() -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    frame = (FRAME_MAX - 4).to_bytes(4, "little") + bytes(FRAME_MAX - 4)
    came = 0
    while came < FRAME_MAX - 50_000:
        incoming.receive(cast(Any, Feed(frame[came : came + 50_000])), buffers, lambda *_: None)
        came += 50_000
        assert incoming.held <= max(2 * came, FRESH_BYTES)
    assert incoming.held == FRAME_MAX


def test_one_connection_reads_no_more_than_its_turn() -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    feed = Feed(SAMPLES[0] * (3 * TURN_BYTES // len(SAMPLES[0])))
    assert TURN_BYTES <= incoming.receive(cast(Any, feed), buffers, lambda *_: None) < TURN_BYTES + SCRATCH_BYTES


@pytest.mark.parametrize("data", [b"", SAMPLES[0], SAMPLES[0][:-1]])
def test_the_end_comes_after_the_last_frame(data: bytes) -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    got: list[bytes] = []
    if data:
        incoming.receive(cast(Any, Feed(data)), buffers, lambda frame, _: got.append(bytes(frame)))
    with pytest.raises(EndOfStream):
        incoming.receive(cast(Any, Feed(b"", ends=True)), buffers, lambda frame, _: got.append(bytes(frame)))
    assert got == ([data] if data == SAMPLES[0] else [])
    assert incoming.is_partial is (data == SAMPLES[0][:-1])


def test_a_buffer_in_use_is_never_used_again_and_one_out_of_use_is() -> None:
    buffers = Buffers()
    kept: list[memoryview] = []
    payload = bytes(range(256)) * 1_000
    for number in range(3):
        frame = b"".join(encode(fetched(number, piece(payload[number:] + payload[:number]))))
        incoming = Incoming(FRAME_MAX)

        def take(view: memoryview, lasting: bool) -> None:
            assert lasting
            kept.append(decode(view).entries[0].slices[0].view())

        for part in (frame[:50_000], frame[50_000:]):
            incoming.receive(cast(Any, Feed(part)), buffers, take)
    assert [bytes(view) for view in kept] == [payload[number:] + payload[:number] for number in range(3)]
    assert len({id(view.obj) for view in kept}) == 3
    last = id(kept[1].obj)
    del kept[1]
    assert id(buffers.take(1_000_000, 100)) == last


@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_what_came_fills_the_buffer_that_is_used_again(more: int) -> None:
    """Frames sent one behind the other: the first part of the second one may be as large as the first one was."""
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    first, second = (b"".join(encode(fetched(1, piece(b"x" * size)))) for size in (70_000, 150_000))
    cut = len(first) + more
    got = [one for part in (first[:40_000], first[40_000:], second[:cut], second[cut:]) for one in drain(Feed(part), incoming, buffers)]
    assert got == [first, second]
    assert buffers.held == 0


def test_the_pool_stays_small() -> None:
    buffers = Buffers()
    for _ in range(3 * POOLED_MAX):
        buffers.give(bytearray(100_000))
    buffers.give(bytearray(POOLED_BYTES_MAX + 1))
    assert len(buffers._pool) == POOLED_MAX
    assert all(len(each) == 100_000 for each in buffers._pool)


@given(st.lists(FRAMES, max_size=40), st.integers(1, 1_000_000), st.integers(1, 7), st.booleans())
def test_a_turn_hands_over_so_many_frames_and_the_rest_waits(frames: list[bytes], size: int, bound: int, whole: bool) -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    incoming.bound(bound)
    feed = Feed(b"".join(frames), None if whole else iter(lambda: size, None))
    got: list[bytes] = []
    while feed.data or incoming.kept:
        before, left = len(got), len(feed.data)
        if incoming.kept:
            incoming.go_on(buffers, lambda frame, _: got.append(bytes(frame)))
            assert len(feed.data) == left
        else:
            incoming.receive(cast(Any, feed), buffers, lambda frame, _: got.append(bytes(frame)))
        assert len(got) - before <= bound
        assert len(incoming.kept) <= SCRATCH_BYTES
        assert buffers.held == incoming.held
        assert not (incoming.kept and incoming.is_partial)
    assert got == frames
    assert buffers.held == 0


def test_a_bound_that_comes_while_frames_are_handed_over_holds_for_those_behind() -> None:
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    got: list[bytes] = []

    def take(frame: memoryview, _: bool) -> None:
        got.append(bytes(frame))
        if len(got) == 1:
            incoming.bound(2)

    incoming.receive(cast(Any, Feed(SAMPLES[0] * 6)), buffers, take)
    assert len(got) == 3
    incoming.drop(buffers)
    assert (buffers.held, incoming.kept) == (0, b"")


@pytest.mark.parametrize("begins_with", [b"", b"".join(encode(fetched(1, piece(b"x" * 70_000))))], ids=["nothing", "a large frame"])
def test_nothing_more_is_read_once_something_is_kept(begins_with: bytes) -> None:
    count = 2 * TURN_BYTES // len(SAMPLES[0])
    data, first = begins_with + SAMPLES[0] * count, len(begins_with) // 2
    incoming, buffers = Incoming(FRAME_MAX), Buffers()
    incoming.bound(7)
    got: list[bytes] = []
    assert drain(Feed(data[:first]), incoming, buffers) == []
    feed = Feed(data[first:])
    while feed.data or incoming.kept:
        if incoming.kept:
            incoming.go_on(buffers, lambda frame, _: got.append(bytes(frame)))
        else:
            incoming.receive(cast(Any, feed), buffers, lambda frame, _: got.append(bytes(frame)))
    assert b"".join(got) == data
    assert len(got) == count + bool(begins_with)
