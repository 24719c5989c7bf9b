"""Small files that are replaced as a whole: after a crash there is the old content or the new, never a mixture.

::

    ┌────────┬──────────┬─────────┐
    │ "RLcp" │ crc32c   │ payload │   the crc covers the payload
    └────────┴──────────┴─────────┘

What matters is written, synced, renamed over the old file, and the folder is synced (the rename is not durable before
that). A file that is torn, altered, missing or of another kind reads as None: every reader has a safe answer to that.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import msgpack
from crc32c import crc32c

from replog.log.files import Fs
from replog.log.shapes import Shape, anything, fits

__all__ = [
    "is_sealed_file",
    "place_small_file",
    "read_file",
    "read_plain",
    "read_small_file",
    "seal",
    "stage_small_file",
    "unpack",
    "unpack_first",
    "unseal",
    "write_all",
    "write_plain",
    "write_small_file",
]

_HEAD: Final = Struct("<4sI")
_MAGIC: Final = b"RLcp"
_BYTES_MAX: Final = 1 << 30


def seal(payload: bytes) -> bytes:
    """The payload with its checksum in front."""
    return _HEAD.pack(_MAGIC, crc32c(payload)) + payload


def unseal(data: bytes) -> bytes | None:
    """The payload of `seal`, None if it is not intact."""
    if len(data) < _HEAD.size:
        return None
    magic, crc = _HEAD.unpack_from(data)
    payload = data[_HEAD.size :]
    return payload if magic == _MAGIC and crc32c(payload) == crc else None


def is_sealed_file(data: bytes) -> bool:
    """Whether this was once written by `seal`, intact or not."""
    return data[: len(_MAGIC)] == _MAGIC[: len(data)]


def write_all(fs: Fs, fd: int, data: bytes, position: int) -> None:
    """Write all of `data` at `position`, however many calls that takes."""
    view = memoryview(data)
    while view:
        written = fs.pwritev(fd, (view,), position)
        view = view[written:]
        position += written


def write_small_file(fs: Fs, folder: str, name: str, payload: bytes) -> None:
    """Replace `folder/name` durably. After an OSError the old content may still be there, or already the new."""
    place_small_file(fs, folder, name, payload)
    fs.fsync_dir(folder)


def place_small_file(fs: Fs, folder: str, name: str, payload: bytes) -> None:
    """Replace `folder/name`; that becomes durable when the folder is synced. After an OSError the old content is still there."""
    fs.rename(stage_small_file(fs, folder, name, payload), f"{folder}/{name}")


def stage_small_file(fs: Fs, folder: str, name: str, payload: bytes) -> str:
    """Write, durably, what is to replace `folder/name`; returns the path to be renamed. From then on no space is needed."""
    temporary = f"{folder}/{name}.new"
    fd = fs.open(temporary, create=True)
    try:
        fs.ftruncate(fd, 0)  # a crash may have left a longer one
        write_all(fs, fd, seal(payload), 0)
        fs.fsync(fd)
    finally:
        fs.close(fd)
    return temporary


def read_small_file(fs: Fs, path: str) -> bytes | None:
    """The payload last written to `path`; None if the file is missing, torn or altered. An OSError while reading is raised."""
    data = read_file(fs, path)
    return None if data is None else unseal(data)


def read_file(fs: Fs, path: str) -> bytes | None:
    """Everything in a file, None if there is none."""
    try:
        fd = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        parts, position = [], 0
        while part := fs.pread(fd, 1 << 20, position):
            parts.append(part)
            position += len(part)
            if position > _BYTES_MAX:
                return None
        return b"".join(parts)
    finally:
        fs.close(fd)


def write_plain(fs: Fs, folder: str, name: str, value: Any) -> None:
    """Replace a small file by a value made of numbers, strings, bytes, lists and dicts."""
    write_small_file(fs, folder, name, msgpack.packb(value))


def read_plain(fs: Fs, path: str, shape: Shape = anything) -> Any | None:
    """The value of `write_plain`; None if it is missing, torn, altered, or has another shape (`replog.log.shapes`)."""
    payload = read_small_file(fs, path)
    return None if payload is None else unpack(payload, shape)


def unpack(payload: bytes, shape: Shape) -> Any | None:
    """A msgpack value that was verified by its checksum before; None if that fits bytes of something else, or by chance."""
    try:
        value = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, TypeError):
        return None
    return value if fits(value, shape) else None


def unpack_first(payload: bytes, shape: tuple[Shape, ...]) -> list[Any] | None:
    """As `unpack`, of a list: as many cells as the shape has. What is behind them is not looked at, however much it is."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(payload), strict_map_key=False)
    unpacker.feed(payload)
    try:
        value = [unpacker.unpack() for _ in shape] if unpacker.read_array_header() >= len(shape) else None
    except (msgpack.UnpackException, ValueError, TypeError):
        return None
    return value if fits(value, shape) else None
