"""What is queued is sent, whole and in order, whatever the socket takes at a time; regions of files straight from the file."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.transport.harness import P0

from replog.codec import encode_parts
from replog.messages import Fetched, FetchedEntry
from replog.transport.tcp.outgoing import (
    BUFFERS_MAX,
    JOINED_BYTES,
    SENDFILE_BYTES_MIN,
    TURN_BYTES,
    Outgoing,
    StaleSlice,
    Unsettled,
    guard_unsettled,
)

BIG = SENDFILE_BYTES_MIN


Pair = tuple[socket.socket, socket.socket]


class Region:
    """A slice of a file."""

    def __init__(self, fd: int, position: int, length: int) -> None:
        self.fd, self.position, self.length = fd, position, length
        self.stale = False
        self.released = 0
        self.viewed = 0

    def fileno(self) -> int:
        return -1 if self.released else self.fd

    def view(self) -> memoryview:
        self.viewed += 1
        return memoryview(os.pread(self.fd, self.length, self.position))

    def release(self) -> None:
        self.released += 1


class Sink:
    """Takes so many bytes a call, and blocks when told to."""

    def __init__(self, take: int) -> None:
        self.take = take
        self.got = b""
        self.calls: list[tuple[int, int]] = []

    def sendmsg(self, buffers: list[Any], _: Any, flags: int) -> int:
        self.calls.append((len(buffers), flags))
        data = b"".join(buffers)[: self.take]
        self.got += data
        return len(data)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    data = os.urandom(1 << 20)
    (tmp_path / "f").write_bytes(data)
    fd = os.open(tmp_path / "f", os.O_RDWR)
    yield fd, data
    os.close(fd)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
    there.settimeout(5)
    yield here, there
    here.close()
    there.close()


def carry(outgoing: Outgoing, pair: Pair) -> bytes:
    """Write and read in turns until all has come."""
    got = b""
    while outgoing.size:
        taken = outgoing.write(pair[0])
        got += pair[1].recv(taken, socket.MSG_WAITALL) if taken else b""
    return got


@given(st.lists(st.binary(max_size=40), max_size=200), st.integers(1, 300))
def test_short_writes_lose_nothing(parts: list[bytes], take: int) -> None:
    outgoing, sink = Outgoing(), Sink(take)
    outgoing.add(parts, sum(map(len, parts)))
    while outgoing.size:
        outgoing.write(cast(Any, sink))
        assert outgoing.held == sum(map(len, outgoing._parts))
    assert outgoing.held == 0
    assert sink.got == b"".join(parts)
    assert all(count <= BUFFERS_MAX for count, _ in sink.calls)


def test_what_lies_in_a_file_takes_no_memory(file: tuple[int, bytes], pair: Pair) -> None:
    regions = [Region(file[0], 100, 500_000), Region(file[0], 7, 100), Region(file[0], 5, 0)]
    outgoing = Outgoing()
    outgoing.add([b"head", *regions, b"tail", memoryview(b"view")], 500_112)  # type: ignore[list-item]
    assert (outgoing.held, outgoing.size) == (12, 500_112)
    while outgoing.size > 100:
        pair[1].recv(outgoing.write(pair[0]), socket.MSG_WAITALL)
        assert outgoing.held == (12 if outgoing.size == 500_112 else 8 if outgoing.size else 0)
    carry(outgoing, pair)
    assert outgoing.held == 0
    outgoing.add([b"head", Region(file[0], 0, BIG)], 4 + BIG)  # type: ignore[list-item]
    assert outgoing.take_whole() is not None
    assert outgoing.held == 0
    outgoing.add([b"head"], 4)
    outgoing.drop()
    assert outgoing.held == 0


def test_many_small_frames_go_in_one_call() -> None:
    outgoing, sink = Outgoing(), Sink(1 << 20)
    for _ in range(BUFFERS_MAX):
        outgoing.add([b"frame"], 5)
    assert outgoing.write(cast(Any, sink)) == 5 * BUFFERS_MAX
    assert sink.calls == [(BUFFERS_MAX, 0)]


def test_files_and_buffers_keep_their_order_and_slices_are_released(file: tuple[int, bytes], pair: Pair) -> None:
    fd, data = file
    regions = [Region(fd, 100, 500_000), Region(fd, 7, 100), Region(fd, 0, BIG), Region(fd, 5, 0)]
    parts: list[Any] = [b"head", regions[0], regions[1], b"between", memoryview(b"view"), regions[2], regions[3], b"tail"]
    expected = b"head" + data[100:500_100] + data[7:107] + b"between" + b"view" + data[:BIG] + b"tail"
    outgoing = Outgoing()
    outgoing.add(parts, len(expected))
    assert carry(outgoing, pair) == expected
    assert [region.released for region in regions] == [1, 1, 1, 1]
    assert [region.viewed > 0 for region in regions] == [False, True, False, False]  # the small one goes along with its neighbours


def test_a_full_socket_ends_the_turn_without_loss(file: tuple[int, bytes], pair: Pair) -> None:
    outgoing = Outgoing()
    region = Region(file[0], 0, 1 << 20)
    outgoing.add([b"h", region], (1 << 20) + 1)
    taken = outgoing.write(pair[0])
    assert 0 < taken < 1 << 20
    assert outgoing.size == (1 << 20) + 1 - taken
    assert not region.released
    assert outgoing.write(pair[0]) == 0


def test_one_connection_writes_no_more_than_its_turn() -> None:
    outgoing, sink = Outgoing(), Sink(1 << 20)
    outgoing.add([bytes(1 << 20)] * 10, 10 << 20)
    assert outgoing.write(cast(Any, sink)) == TURN_BYTES


@pytest.mark.parametrize("length", [BIG, BIG - 1])
def test_a_slice_that_was_truncated_sends_nothing_more(file: tuple[int, bytes], pair: Pair, length: int) -> None:
    outgoing = Outgoing()
    region = Region(file[0], 0, length)
    region.stale = True
    outgoing.add([b"head", region], 4 + length)
    with pytest.raises(StaleSlice):
        outgoing.write(pair[0])
    outgoing.drop()
    assert region.released == 1
    assert outgoing.size == 0


def test_a_slice_that_was_released_by_others_sends_nothing(file: tuple[int, bytes], pair: Pair) -> None:
    outgoing = Outgoing()
    region = Region(file[0], 0, BIG)
    region.release()
    outgoing.add([region], BIG)
    with pytest.raises(StaleSlice):
        outgoing.write(pair[0])


def test_a_file_that_ends_before_the_slice_does(file: tuple[int, bytes], pair: Pair) -> None:
    outgoing = Outgoing()
    outgoing.add([Region(file[0], (1 << 20) - 10, BIG)], BIG)
    with pytest.raises(StaleSlice):
        outgoing.write(pair[0])
    assert pair[1].recv(100) == file[1][-10:]


@pytest.mark.parametrize(("high_watermark", "copied"), [(10, []), (9, [2]), (4, [1, 2]), (-1, [1, 2])])
def test_what_may_yet_be_truncated_is_copied_and_not_lent(
    file: tuple[int, bytes], pair: Pair, monkeypatch: pytest.MonkeyPatch, high_watermark: int, copied: list[int]
) -> None:
    regions = [Region(file[0], number * 100, BIG) for number in (0, 1)]
    for region, end in zip(regions, (5, 10), strict=True):
        region.base_offset, region.end_offset = end - 5, end  # type: ignore[attr-defined]
    message = Fetched(1, 0, 0, 0, [FetchedEntry(P0, 0, 0, high_watermark=high_watermark, slices=regions)])
    parts = encode_parts(message)
    guard_unsettled(message, parts)
    assert [at for at, part in enumerate(parts) if type(part) is Unsettled] == copied
    lent: list[int] = []
    real = os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda out, fd, position, count: lent.append(position // 100) or real(out, fd, position, count))
    outgoing = Outgoing()
    outgoing.add(parts[1:], 2 * BIG)
    assert carry(outgoing, pair) == file[1][:BIG] + file[1][100 : 100 + BIG]
    assert bool(lent) is (len(copied) < 2)
    assert [region.released for region in regions] == [1, 1]


def test_what_is_dropped_is_released(file: tuple[int, bytes]) -> None:
    regions = [Region(file[0], 0, BIG), Region(file[0], 0, 5)]
    outgoing = Outgoing()
    outgoing.add(cast(Any, [b"a", *regions]), BIG + 6)
    outgoing.drop()
    assert [region.released for region in regions] == [1, 1]




def test_what_goes_elsewhere_or_nowhere_keeps_no_file_open_here(file: tuple[int, bytes]) -> None:
    outgoing = Outgoing()
    outgoing.add([b"head", Region(file[0], 0, 10), Unsettled(Region(file[0], 10, 10))], 24)
    assert outgoing.files == 2
    whole = outgoing.take_whole()
    assert whole is not None
    assert outgoing.files == 0
    outgoing.add(*whole)
    assert outgoing.files == 2
    outgoing.drop()
    assert outgoing.files == 0


class Kept:
    """A slice in memory."""

    def __init__(self, data: bytes, *, stale: bool = False, length: int | None = None) -> None:
        self.data = data
        self.stale = stale
        self.length = len(data) if length is None else length
        self.released = 0

    def view(self) -> memoryview:
        return memoryview(self.data)

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize(
    ("rest", "pieces"),
    [
        ([], 1),
        ([b"x" * 100], 1),
        ([bytearray(b"x" * 100)], 1),
        ([memoryview(b"x" * 100)], 1),
        ([Kept(b"x" * 100)], 1),
        ([Kept(b"")], 1),
        ([Kept(b"x" * JOINED_BYTES)], 2),
        ([Kept(b"x"), Kept(b"y")], 3),
    ],
)
def test_a_small_frame_with_one_batch_is_one_piece(rest: list[Any], pieces: int) -> None:
    outgoing, sink, parts = Outgoing(), Sink(1 << 20), [b"head", *rest]
    data = b"".join(part.data if isinstance(part, Kept) else part for part in parts)
    outgoing.add(parts, len(data))
    assert (outgoing.size, outgoing.held) == (len(data), len(data) if pieces == 1 else len(b"head"))
    outgoing.write(cast(Any, sink))
    assert (sink.got, sink.calls) == (data, [(pieces, 0)])
    assert (outgoing.size, outgoing.held) == (0, 0)
    assert [part.released for part in parts if isinstance(part, Kept)] == [1] * sum(isinstance(part, Kept) for part in parts)


@pytest.mark.parametrize("part", [Kept(b"", stale=True, length=5), Kept(b"four", length=5), Kept(b"stale", stale=True)])
def test_what_is_not_what_it_was_promised_to_be_is_not_sent_in_one_piece_either(part: Kept) -> None:
    outgoing, sink = Outgoing(), Sink(1 << 20)
    outgoing.add([b"head", cast(Any, part)], 4 + part.length)
    with pytest.raises(StaleSlice):
        outgoing.write(cast(Any, sink))
    assert sink.got == b""
    outgoing.drop()
    assert part.released == 1


def test_of_a_file_nothing_is_read_before_it_is_sent(file: tuple[int, bytes]) -> None:
    fd, data = file
    outgoing, sink, region = Outgoing(), Sink(1 << 20), Region(fd, 10, 100)
    outgoing.add([b"head", cast(Any, region)], 104)
    assert (region.viewed, outgoing.held) == (0, 4)
    outgoing.write(cast(Any, sink))
    assert (sink.got, region.released) == (b"head" + data[10:110], 1)
