"""Cells laid end to end are the batch that `encode_values` makes of the same records, byte by byte."""

from __future__ import annotations

from itertools import pairwise

import pytest

from replog.payload import _pack_headers
from replog.records import RecordBatch, decode_records, encode_values
from replog.spark.cells import Cells, array_header, body_of, packed

NOW = 1_700_000_000_000


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_the_header_of_an_array_has_the_length_that_is_cut_off(count: int) -> None:
    cells = packed([b"x"] * count)
    assert bytes(cells) == b"\xc4\x01x" * count
    assert array_header(count)[0] in (0x90 | count if count < 16 else 0xDC, 0xDC, 0xDD)


@pytest.mark.parametrize("cuts", [[0, 6], [0, 1, 6], [0, 2, 3, 6]])
def test_pieces_make_the_same_batch_as_the_whole(cuts: list[int]) -> None:
    values = [b"a", None, b"", b"c" * 300, b"d", b"e"]
    keys = [b"k", b"k", None, None, b"k" * 70_000, b""]
    pieces = []
    for first, stop in pairwise(cuts):
        pieces.append(Cells(stop - first, 0, packed(values[first:stop]), packed(keys[first:stop])))
    assert body_of(pieces, now_ms=NOW) == encode_values(values, keys=keys, now_ms=NOW)
    assert body_of(pieces, now_ms=NOW, compression="lz4", producer_id=7, producer_epoch=1, base_sequence=5) == encode_values(
        values, keys=keys, now_ms=NOW, compression="lz4", producer_id=7, producer_epoch=1, base_sequence=5
    )


def test_a_piece_without_a_column_counts_as_nulls_where_another_has_it() -> None:
    headers = [(("h", b"1"),), ()]
    pieces = [
        Cells(1, 0, packed([b"a"])),
        Cells(2, 0, packed([b"b", b"c"]), packed([None, b"k"]), packed(list(map(_pack_headers, headers)))),
    ]
    batch = RecordBatch(body_of(pieces, now_ms=NOW))
    found = [(record.value, record.key, record.headers) for record in decode_records(batch)]
    assert found == [(b"a", None, []), (b"b", None, [("h", b"1")]), (b"c", b"k", [])]


def test_an_extension_is_kept() -> None:
    batch = RecordBatch(body_of([Cells(1, 0, packed([b"a"]))], now_ms=NOW, extension=b"key"))
    assert (batch.extension, [record.value for record in decode_records(batch)]) == (b"key", [b"a"])
