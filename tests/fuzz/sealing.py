"""Checksums and lengths put right in what was changed, as by somebody who means it."""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from replog.codec import HEADER
from replog.model import PartitionId
from replog.records import BODY_HEADER, FRONT, FRONT_BYTES, HEADER_BYTES, stamp

__all__ = ["batches_in", "body_sealed", "entry_sealed", "frame_sealed", "small_sealed"]

_U32: Final = Struct("<I")
_HEAD: Final = Struct("<II")
_MAGIC: Final = b"RLcp"


def frame_sealed(data: bytearray) -> None:
    """Length and checksum of a frame, as a peer would send that means it."""
    if len(data) >= HEADER.size:
        _U32.pack_into(data, 0, len(data) - 4)
        (meta,) = _U32.unpack_from(data, 8)
        if HEADER.size + meta > len(data):
            meta = len(data) - HEADER.size
            _U32.pack_into(data, 8, meta)
        _U32.pack_into(data, 12, crc32c(bytes(data[HEADER.size : HEADER.size + meta]), crc32c(bytes(data[4:12]))))


def body_sealed(data: bytearray) -> None:
    """The checksum of a batch that a producer sends."""
    if len(data) >= 4:
        _U32.pack_into(data, 0, crc32c(bytes(data[4:])))


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


def small_sealed(data: bytearray) -> None:
    """The checksum of a small file: one that fits by chance."""
    if len(data) >= 8:
        data[:4] = _MAGIC
        _U32.pack_into(data, 4, crc32c(bytes(data[8:])))


def entry_sealed(data: bytearray) -> None:
    """The length and checksum of the first entry of a catalogue, which is all there is."""
    if len(data) > _HEAD.size:
        _HEAD.pack_into(data, 0, len(data) - _HEAD.size, crc32c(bytes(data[_HEAD.size :])))
