"""What is fuzzed: every decoder of bytes that come from a peer, a disk or a metadata store, each with what must hold whatever they are.

A target returns if the bytes are refused with the error that its decoder declares, or accepted and the same again when they are
encoded and decoded once more. Whatever else it raises is a finding.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgpack
from crc32c import crc32c
from tests.unit.samples import messages

from replog.codec import HEADER, MESSAGE_TYPES, CodecError, decode, encode
from replog.config import BrokerConfig
from replog.errors import LogCorrupt, StoreCorrupt, UsageError
from replog.log import shapes
from replog.log.catalogue import Catalogue
from replog.log.checkpoint import read_plain, seal
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.loss import Life
from replog.log.producers import ProducerTable
from replog.log.repair.facts import claims_of
from replog.log.scan import headers, valid_batch_follows
from replog.log.segment import Segment
from replog.log.storage import folder_name, read_summary
from replog.log.verify import Verifier
from replog.metadata import judgements, layout
from replog.model import PartitionId
from replog.ports import LogStart, Versioned
from replog.records import BODY_HEADER, FRONT, FRONT_BYTES, HEADER_BYTES, BadBatch, RecordBatch, decode_records, encode_records, stamp
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import FIRST, SMALL, append, append_group

__all__ = ["MESSAGE_TYPES", "TARGETS", "Target", "frame_sealed"]

_U32: Final = Struct("<I")
_HEAD: Final = Struct("<II")
_MAGIC: Final = b"RLcp"
FRAME_BYTES_MAX: Final = 1 << 20
ITEMS_MAX: Final = 10_000
LIMITS: Final = BrokerConfig(index_interval_bytes=200)


class Target(NamedTuple):
    """One decoder."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    """Valid bytes."""
    seal: Callable[[bytearray], None] | None = None
    """Makes checksums and lengths right."""


class BytesFs(Fs):
    """One file, which is `data`, whatever it is called."""

    def __init__(self, data: bytes, other: bytes = b"") -> None:
        self.files = {1: data, 2: other}

    def open(self, path: str, *, create: bool = False) -> int:
        return 2

    def close(self, fd: int) -> None:
        pass

    def pread(self, fd: int, count: int, position: int) -> bytes:
        if not 0 <= position < 2**63 or count < 0:
            raise OSError(errno.EINVAL, "invalid argument")
        return self.files[fd][position : position + count]

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0, /) -> int:
        got = 0
        for buffer in buffers:
            part = self.files[fd][position + got : position + got + len(buffer)]
            buffer[: len(part)] = part
            got += len(part)
        return got


# ------------------------------------------------------------------------------------------------------------------ frames


def frames() -> list[bytes]:
    """A valid frame of every message."""
    return [b"".join(encode(message, route)) for route, message in enumerate(messages().values())]


def frame_sealed(data: bytearray) -> None:
    """Length and checksum of a frame, as a peer would send that means it."""
    if len(data) >= HEADER.size:
        _U32.pack_into(data, 0, len(data) - 4)
        (meta,) = _U32.unpack_from(data, 8)
        if HEADER.size + meta > len(data):
            meta = len(data) - HEADER.size
            _U32.pack_into(data, 8, meta)
        _U32.pack_into(data, 12, crc32c(bytes(data[HEADER.size : HEADER.size + meta]), crc32c(bytes(data[4:12]))))


def frame(data: bytes) -> None:
    """A frame of the wire."""
    try:
        message = decode(data, frame_bytes_max=FRAME_BYTES_MAX, items_max=ITEMS_MAX)
    except CodecError:
        return
    once = b"".join(encode(message))
    assert b"".join(encode(decode(once))) == once, "what was decoded is another message when it is encoded and decoded"


# ----------------------------------------------------------------------------------------------------------------- batches


def bodies() -> list[bytes]:
    """Batch bodies of each shape."""
    from tests.unit.samples import batches

    return [stored[FRONT_BYTES:] for stored in batches().values()]


def payload(data: bytes) -> None:
    """The body of a batch: its columns, compressed or not."""
    if len(data) < BODY_HEADER.size:
        return  # `RecordBatch.parse` and the broker refuse it before anybody makes a batch of it
    try:
        records = decode_records(RecordBatch(data), payload_bytes_max=FRAME_BYTES_MAX)
    except BadBatch:
        return
    again = decode_records(RecordBatch(encode_records(records, now_ms=0)))
    kept = [(one.key, one.value, one.headers, one.timestamp_ms) for one in records]
    assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in again] == kept, "records are others when they are encoded again"


def batches_in(data: bytearray) -> None:
    """Checksums of the batches of a segment, each where the one before ends; lengths as they are."""
    at, offset = 0, 0
    while at + HEADER_BYTES <= len(data):
        _, _, _, length, topic_id, partition, creation, _, epoch = FRONT.unpack_from(data, at)
        if not HEADER_BYTES <= length <= len(data) - at:
            return
        crc = crc32c(bytes(data[at + FRONT_BYTES + 4 : at + length]))
        _U32.pack_into(data, at + FRONT_BYTES, crc)
        data[at : at + FRONT_BYTES] = stamp(PartitionId(topic_id, partition, creation), offset, epoch, length, crc)
        offset = min(offset + int(BODY_HEADER.unpack_from(data, at + FRONT_BYTES)[3]), 2**62)
        at += length


def segments() -> list[bytes]:
    """Segments of a log: plain batches, those of producers, marked work, several epochs."""
    disk, _ = _log()
    return [bytes(disk.content(f"/{path}")) for path in disk.paths() if path.endswith(".log")]


def _log() -> tuple[MemoryFs, Any]:
    disk = MemoryFs()
    directory = FileLogDirectory("/d", fs=disk, limits=LIMITS)
    (log,) = directory.create([LogStart(FIRST, "t", SMALL)])
    for n in range(3):
        append(log, [f"{n}", "b"], epoch=n, producer=(7, 0, 2 * n))
        append_group(log, 1, 2, version=n + 1, epoch=n)
    directory.close(clean=True)
    return disk, log


def segment(data: bytes) -> None:
    """A segment, as recovery reads it."""
    fs, told = BytesFs(data), []
    verifier = Verifier(fs, FIRST, 100, told.append)
    stop = verifier.run(Segment("s", 0), 1, len(data), -1)
    assert 0 <= stop.position <= len(data)
    assert bool(stop.reason) == (stop.position < len(data))
    at = offset = 0
    while at < stop.position:  # what was believed is what a reader accepts, batch by batch
        batch = RecordBatch.parse(data, at, identity=FIRST)
        assert batch.base_offset == offset
        offset, at = batch.end_offset, at + batch.length
    assert (at, offset) == (stop.position, stop.offset)
    again = verifier.run(Segment("s", 0), 1, stop.position, -1)
    assert (again.position, again.offset, again.reason) == (stop.position, stop.offset, ""), "what was kept is cut again"
    valid_batch_follows(fs, 1, stop.position, stop.offset, FIRST)
    try:
        for _ in headers(fs, 1, 0, len(data), 0, FIRST):
            pass
    except BadBatch:
        pass


# ------------------------------------------------------------------------------------------------------- files of a directory


def _file(suffix: str) -> list[bytes]:
    disk, _ = _log()
    return [bytes(disk.content(f"/{path}")) for path in disk.paths() if path.endswith(suffix)]


_SEGMENT: list[bytes] = []


def index(data: bytes) -> None:
    """What is known of a segment that is complete: believed only if it leads to this very end."""
    if not _SEGMENT:
        _SEGMENT.append(segments()[0])
    fs, known = BytesFs(_SEGMENT[0], data), Segment("s.log", 0)
    known.size = len(_SEGMENT[0])
    end = Verifier(fs, FIRST, 100, lambda header: None).run(Segment("s", 0), 1, known.size, -1).offset
    summary = read_summary(fs, 1, known, end, FIRST)
    if summary is not None:
        table = ProducerTable(100)
        table.load(summary.producers)
        assert known.end_offset == end


_SHAPES: Final = (shapes.CHECKPOINT, shapes.CLEAN, shapes.LIFE, shapes.MARKER, shapes.OWNER, shapes.PRODUCERS, shapes.SUMMARY)


def checkpoint(data: bytes) -> None:
    """A small file that is replaced as a whole, in the place of each: its value, or None."""
    for shape in _SHAPES:
        value = read_plain(BytesFs(b"", data), "checkpoint", shape)
        assert value is None or msgpack.unpackb(msgpack.packb(value), strict_map_key=False) == value
        if value is not None and shape is shapes.LIFE:
            assert Life.from_plain(Life.from_plain(value).to_plain()) == Life.from_plain(value)
        claims_of(value if shape is shapes.CHECKPOINT else None, value if shape is shapes.CLEAN else None, Life(), "")


def checkpoints() -> list[bytes]:
    """The small files of a directory that are replaced as a whole."""
    return _file("/checkpoint") + _file("/life") + _file("/clean")


def catalogue(data: bytes) -> None:
    """Which logs a directory has."""
    try:
        found = Catalogue.load(BytesFs(b"", data), "d")
    except LogCorrupt:
        return
    assert all(isinstance(identity, PartitionId) for identity in found.live)


def producer_state(data: bytes) -> None:
    """What producers and writers did last: as a value, the same again when it is loaded."""
    value = read_plain(BytesFs(b"", data), "producers", shapes.PRODUCERS)
    if value is not None:
        table, again = ProducerTable(1_000), ProducerTable(1_000)
        table.load(value)
        again.load(msgpack.unpackb(msgpack.packb(table.snapshot())))
        assert again.snapshot() == table.snapshot()


def producer_states() -> list[bytes]:
    """Of a log with a producer and a writer of marked work."""
    _, log = _log()
    return [seal(msgpack.packb(log.saved()[4]))]


_PRISTINE: dict[str, bytes] = {}
_NAMES: Final = ("checkpoint", "clean", "life", "meta", "catalogue", "log", "index")


def directory(data: bytes) -> None:
    """A whole data directory, one file of which is these bytes (the first says which): it opens, or says why not. Opening is idempotent."""
    if not data:
        return
    if not _PRISTINE:
        _PRISTINE.update({f"/{path}": content for path, content in _log()[0].snapshot().items()})
    which = _NAMES[data[0] % len(_NAMES)]
    path = next(path for path in _PRISTINE if path.endswith(f"/{which}") or path.endswith(f".{which}"))
    disk = MemoryFs.holding({**_PRISTINE, path: data[1:]}, ["/d/quarantine"])
    if which != "clean" and len(data) % 2:  # as after a kill: then files are read
        disk.unlink("/d/clean")
    try:
        FileLogDirectory("/d", fs=disk, limits=LIMITS).close(clean=False)
    except (LogCorrupt, UsageError):
        return
    assert _next_life(disk) == _next_life(disk), "a start finds what the one before it has left"


def _next_life(disk: MemoryFs) -> bytes:
    """All batches that a start after a kill leaves: one after a clean stop reads nothing."""
    disk.kill()
    FileLogDirectory("/d", fs=disk, limits=LIMITS).close(clean=False)
    return b"".join(bytes(disk.content(f"/{path}")) for path in disk.paths(f"/d/logs/{folder_name(FIRST)}") if path.endswith(".log"))


def directories() -> list[bytes]:
    """Each file of a directory, with the byte that says which."""
    disk, _ = _log()
    return [
        bytes((number,)) + bytes(disk.content(f"/{path}"))
        for number, name in enumerate(_NAMES)
        for path in disk.paths()
        if path.endswith((f"/{name}", f".{name}"))
    ]


# ------------------------------------------------------------------------------------------------------------ store values

_PATH: Final = "/fuzzed"


def _state(value: bytes) -> Any:
    return layout.decode_partition_state(_PATH, Versioned(value, 3, 1))


_VALUES: Final[tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...]] = (
    (lambda value: layout.decode_cluster(_PATH, value), layout.encode_cluster),
    (lambda value: layout.decode_controller(_PATH, value), layout.encode_controller),
    (lambda value: layout.decode_controller_epoch(_PATH, value), layout.encode_controller_epoch),
    (lambda value: layout.decode_registration(_PATH, value), layout.encode_registration),
    (lambda value: layout.decode_draining(_PATH, value), layout.encode_draining),
    (lambda value: layout.decode_topic(_PATH, value), layout.encode_topic),
    (_state, layout.encode_partition_state),
    (lambda value: layout.decode_delete_topic(_PATH, value), layout.encode_delete_topic),
    (lambda value: layout.decode_removed(_PATH, value), layout.encode_removed),
    (lambda value: layout.decode_rejection(_PATH, value), layout.encode_rejection),
    (lambda value: judgements.decode_admission(_PATH, value), judgements.encode_admission),
    (lambda value: judgements.decode_loss(_PATH, value), judgements.encode_loss),
)


def store_value(data: bytes) -> None:
    """A value of the metadata store; the first byte says of which kind it is to be."""
    if not data:
        return
    decode_value, encode_value = _VALUES[data[0] % len(_VALUES)]
    try:
        value = decode_value(data[1:])
    except StoreCorrupt:
        return
    assert decode_value(encode_value(value)) == value, "a value is another when it is encoded and decoded"


def store_values() -> list[bytes]:
    """A value of every kind."""
    from tests.fuzz.stored import samples

    encoders = [encode_value for _, encode_value in _VALUES]
    return [bytes((number,)) + encoders[number](value) for number, value in enumerate(samples())]


def small_sealed(data: bytearray) -> None:
    """The checksum of a small file: one that fits by chance."""
    if len(data) >= 8:
        data[:4] = _MAGIC
        _U32.pack_into(data, 4, crc32c(bytes(data[8:])))


def entry_sealed(data: bytearray) -> None:
    """The length and checksum of the first entry of a catalogue, which is all there is."""
    if len(data) > _HEAD.size:
        _HEAD.pack_into(data, 0, len(data) - _HEAD.size, crc32c(bytes(data[_HEAD.size :])))


TARGETS: Final[dict[str, Target]] = {
    "frame": Target(frame, frames, frame_sealed),
    "payload": Target(payload, bodies),
    "segment": Target(segment, segments, batches_in),
    "index": Target(index, lambda: _file(".index")),
    "checkpoint": Target(checkpoint, checkpoints, small_sealed),
    "catalogue": Target(catalogue, lambda: _file("/catalogue"), entry_sealed),
    "producers": Target(producer_state, producer_states, small_sealed),
    "directory": Target(directory, directories),
    "store": Target(store_value, store_values),
}
"""A directory and a segment's index are not resealed: who can do that can write any offset, and be believed."""
