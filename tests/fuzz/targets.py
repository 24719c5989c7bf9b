"""What is fuzzed: every decoder of bytes that come from a peer, a disk or a metadata store, each with what must hold whatever they are.

Here are those of the wire and of a data directory; `stored`, `peers` and `given` have the others. A target returns if the bytes are refused
with the error that its decoder declares, or accepted and the same again when they are encoded and decoded once more. Whatever else it
raises is a finding.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgpack
from tests.fuzz.bytes_fs import BytesFs
from tests.fuzz.code import CODE
from tests.fuzz.given import GIVEN
from tests.fuzz.peers import PEERS
from tests.fuzz.sealing import batches_in, body_sealed, entry_sealed, frame_sealed, small_sealed
from tests.fuzz.stored import STORED
from tests.fuzz.structured import frame_with
from tests.fuzz.target import Target
from tests.unit.samples import messages

from replog.codec import MESSAGE_TYPES, CodecError, decode, encode
from replog.config import BrokerConfig
from replog.errors import LogCorrupt, UsageError
from replog.log import shapes
from replog.log.catalogue import Catalogue
from replog.log.checkpoint import read_plain, seal
from replog.log.directory import FileLogDirectory
from replog.log.loss import Life
from replog.log.producers import ProducerTable
from replog.log.repair import plan_of
from replog.log.repair.facts import claims_of
from replog.log.scan import headers, valid_batch_follows
from replog.log.segment import Segment
from replog.log.storage import folder_name, read_index, read_summary
from replog.log.verify import Verifier
from replog.marks import WriterMark, check_mark, framing, made_ms_of, mark_of, version_of
from replog.model import PartitionId
from replog.partition.following import parsed
from replog.payload_check import check_possible
from replog.ports import LogStart
from replog.records import BODY_HEADER, FRONT_BYTES, BadBatch, BatchReader, RecordBatch, decode_records, encode_records, encode_values
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import FIRST, SMALL, append, append_group

__all__ = ["MESSAGE_TYPES", "TARGETS"]

FRAME_BYTES_MAX: Final = 1 << 20
ITEMS_MAX: Final = 10_000
LIMITS: Final = BrokerConfig(index_interval_bytes=200)


# ------------------------------------------------------------------------------------------------------------------ frames


def frames() -> list[bytes]:
    """A valid frame of every message."""
    return [b"".join(encode(message, route)) for route, message in enumerate(messages().values())]


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
    check_possible(data, len(data) - len(RecordBatch(data).payload), len(records), is_compressed=RecordBatch(data).codec != 0)
    again = decode_records(RecordBatch(encode_records(records, now_ms=0)))
    cells = BatchReader(RecordBatch(data), payload_bytes_max=FRAME_BYTES_MAX)
    for at in {0, len(records) - 1}:
        assert (cells.value(at), cells.key(at)) == (records[at].value, records[at].key), "a cell alone is another than among all"
    kept = [(one.key, one.value, one.headers, one.timestamp_ms) for one in records]
    assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in again] == kept, "records are others when they are encoded again"


def produced(data: bytes) -> None:
    """The body of a batch, as a broker looks at what a client sends: refused, or with a mark that is the same when it is made again."""
    try:
        batch = RecordBatch(data)
        batch.check_body(length_max=FRAME_BYTES_MAX, records_max=1_000_000)
        mark = check_mark(batch)
    except BadBatch:
        return
    assert len(batch.payload) + batch.extension_bytes == len(data) - BODY_HEADER.size
    if mark is not None:
        assert (made_ms_of(batch), version_of(batch)) == (mark.made_ms, mark.version)
        again = RecordBatch(encode_values([b""], now_ms=0, **framing(mark)))
        assert (mark_of(again), again.extension) == (mark, batch.extension), "a mark is another when it is made again"


def produced_bodies() -> list[bytes]:
    """As producers send them, and writers of marked work."""
    marks = [WriterMark("job-1", 7, made_ms=1_700_000_000_000), WriterMark("ü" * 100, 2**62 - 1)]
    plain = [body for body in bodies() if not RecordBatch(body).attributes & 1 << 7]  # a bit that is the log's own
    return [*plain, *(encode_values([b"a", None], now_ms=5, **framing(mark)) for mark in marks)]


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


def followed(data: bytes) -> None:
    """Batches that a leader sends, as a follower verifies them: all of them to the last byte, or BadBatch."""
    try:
        batches = list(parsed(memoryview(data), FIRST))
    except BadBatch:
        return
    assert b"".join(batch.to_bytes() for batch in batches) == data, "other bytes would be stored than were verified"


# ------------------------------------------------------------------------------------------------------- files of a directory


def _file(suffix: str) -> list[bytes]:
    disk, _ = _log()
    return [bytes(disk.content(f"/{path}")) for path in disk.paths() if path.endswith(suffix)]


@cache
def _segment() -> tuple[bytes, int]:
    """A segment, and the offset where it ends."""
    data = segments()[0]
    return data, Verifier(BytesFs(data), FIRST, 100, lambda header: None).run(Segment("s", 0), 1, len(data), -1).offset


def index(data: bytes) -> None:
    """What is known of a segment that is complete: believed only if it leads to this very end."""
    whole, end = _segment()
    fs, known = BytesFs(whole, data), Segment("s.log", 0)
    known.size = len(whole)
    alone = read_index(fs, 1, known, end, FIRST)
    summary = read_summary(fs, 1, known, end, FIRST)
    if summary is not None:
        assert alone is not None
        assert alone.to_list() == summary.index.to_list()
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


_NAMES: Final = ("checkpoint", "clean", "life", "meta", "catalogue", "log", "index")


@cache
def _pristine() -> dict[str, bytes]:
    return {f"/{path}": content for path, content in _log()[0].snapshot().items()}


def _directory_with(data: bytes) -> MemoryFs:
    which, pristine = _NAMES[data[0] % len(_NAMES)], _pristine()
    path = next(path for path in pristine if path.endswith((f"/{which}", f".{which}")))
    disk = MemoryFs.holding({**pristine, path: data[1:]}, ["/d/quarantine"])
    if which != "clean" and len(data) % 2:  # as after a kill: then files are read
        disk.unlink("/d/clean")
    return disk


def directory(data: bytes) -> None:
    """A whole data directory, one file of which is these bytes (the first says which): it opens, or says why not. Opening is idempotent."""
    if not data:
        return
    disk = _directory_with(data)
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


def repair(data: bytes) -> None:
    """The same directory, as `replog log repair` looks at it: a plan, or why there is none. Nothing is written."""
    if not data:
        return
    disk = _directory_with(data)
    before = dict(disk.snapshot())
    try:
        plan = plan_of(disk, "/d")
    except (LogCorrupt, UsageError):
        plan = None
    assert dict(disk.snapshot()) == before, "a look has changed something"
    if plan is not None:
        assert plan_of(disk, "/d").name == plan.name


TARGETS: Final[dict[str, Target]] = {
    "frame": Target(frame, frames, CODE["frame"], frame_sealed, frame_with, million=25),
    "payload": Target(payload, bodies, CODE["payload"], million=10),
    "produced": Target(produced, produced_bodies, CODE["produced"], body_sealed),
    "segment": Target(segment, segments, CODE["segment"], batches_in),
    "followed": Target(followed, segments, CODE["followed"], batches_in),
    "index": Target(index, lambda: _file(".index"), CODE["index"]),
    "checkpoint": Target(checkpoint, checkpoints, CODE["checkpoint"], small_sealed),
    "catalogue": Target(catalogue, lambda: _file("/catalogue"), CODE["catalogue"], entry_sealed),
    "producers": Target(producer_state, producer_states, CODE["producers"], small_sealed),
    "directory": Target(directory, directories, CODE["directory"], million=0.5),
    "repair": Target(repair, directories, CODE["repair"], million=0.5),
    **STORED,
    **PEERS,
    **GIVEN,
}
"""A directory and a segment's index are not resealed: who can do that can write any offset, and be believed."""
