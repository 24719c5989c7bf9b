"""docs/format.md says the numbers that the code has."""

from __future__ import annotations

import re

from tests.pages import ROOT

from replog.codec import HEADER, MESSAGE_TYPES, PROTOCOL_VERSION
from replog.records import BODY_HEADER, FRONT_BYTES, HEADER_BYTES, MAGIC, VERSION

PAGE = (ROOT / "docs/format.md").read_text(encoding="utf-8")


def table(heading: str) -> list[tuple[int, int]]:
    """(position, bytes) of the rows of the first table below a heading that have both."""
    part = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [(int(at), int(size)) for at, size in re.findall(r"^\| (\d+) \| (\d+) \|", part, re.MULTILINE)]


def test_every_message_is_listed_under_its_number() -> None:
    rows = re.findall(r"^\| \d+ \| [A-Z].*$", PAGE, re.MULTILINE)
    listed = {int(number): name for row in rows for number, name in re.findall(r"(\d+) \| ([A-Z]\w+)", row)}
    assert listed == {number: kind.__name__ for number, kind in MESSAGE_TYPES.items()}


def test_a_batch_and_a_frame_are_laid_out_without_gaps_and_end_where_the_code_says() -> None:
    for heading, end in (("A batch", HEADER_BYTES), ("A frame", HEADER.size)):
        rows = table(heading)
        assert [at for at, _ in rows] == [sum(size for _, size in rows[:index]) for index in range(len(rows))]
        assert sum(size for _, size in rows) == end
    assert (48, 4) in table("A batch")
    assert (FRONT_BYTES, BODY_HEADER.size) == (48, 44)


def test_versions_and_magic_are_those_of_the_code() -> None:
    assert f"{MAGIC:#06x}".upper().replace("X", "x") in PAGE
    assert re.search(rf"\| format version \| {VERSION} \|", PAGE)
    assert re.search(rf"\| protocol version \| {PROTOCOL_VERSION} \|", PAGE)
