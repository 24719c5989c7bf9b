"""The bytes of every message and of some batches, kept in golden.txt: what was written once must stay readable.

A difference is a change of format. REPLOG_REWRITE=1 accepts it: read the difference first, and raise the version it belongs to.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.samples import P0, batches, messages

from replog.codec import MESSAGE_TYPES, decode, encode
from replog.records import RecordBatch, decode_records

GOLDEN = Path(__file__).with_name("golden.txt")
HEAD = "# name and bytes (hex) of each sample in samples.py; format: a line may be added, never changed\n"
WIDTH = 64


def current() -> dict[str, bytes]:
    found = {f"message {MESSAGE_NUMBERS[name]:>2} {name}": b"".join(encode(message)) for name, message in messages().items()}
    return found | {f"batch {name}": data for name, data in batches().items()}


MESSAGE_NUMBERS = {kind.__name__: number for number, kind in MESSAGE_TYPES.items()}


def golden() -> dict[str, bytes]:
    entries: dict[str, str] = {}
    name = ""
    for line in GOLDEN.read_text().splitlines():
        if line.startswith(" "):
            entries[name] += line.strip()
        elif line and not line.startswith("#"):
            name = line
            entries[name] = ""
    return {name: bytes.fromhex(digits) for name, digits in entries.items()}


def rewrite(entries: dict[str, bytes]) -> None:
    lines = [HEAD]
    for name, data in entries.items():
        digits = data.hex()
        lines += [name + "\n", *(f"    {digits[at : at + WIDTH]}\n" for at in range(0, len(digits), WIDTH))]
    GOLDEN.write_text("".join(lines))


if os.environ.get("REPLOG_REWRITE") == "1":
    rewrite(current())


def test_each_sample_has_its_golden_entry_and_no_other_is_left() -> None:
    assert list(golden()) == list(current())
    assert {name.split()[-1] for name in golden() if name.startswith("message")} == {kind.__name__ for kind in MESSAGE_TYPES.values()}


@pytest.mark.parametrize("name", current())
def test_the_bytes_have_not_changed(name: str) -> None:
    assert current()[name].hex() == golden()[name].hex()


@pytest.mark.parametrize("name", [name for name in current() if name.startswith("message")])
def test_golden_messages_can_be_read(name: str) -> None:
    assert b"".join(encode(decode(golden()[name]))) == golden()[name]


def test_golden_batches_can_be_read() -> None:
    def read(name: str) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int | None]]:
        batch = RecordBatch.parse(golden()[f"batch {name}"], identity=P0)
        return [(each.value, each.key, each.headers, each.timestamp_ms) for each in decode_records(batch)]

    assert read("plain") == [(value, None, [], 1_700_000_000_000) for value in (b"one", b"zwei", None)]
    assert read("keyed") == [(b"a", b"k", [], 5), (b"b", None, [], 5)]
    assert read("full") == [(b"v", b"k", [("h", b"1"), ("h", b"2")], 10), (None, None, [], 20), (b"x", None, [], 15)]
    assert read("lz4") == [(b"abcd" * 100, None, [], 0)] * 3
