"""Small inputs that claim to be large are refused with a typed error, and cost little: each in a process of its own (RELIABILITY R21)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.bombs import BOMBS, body

from replog.config import FRAME_BYTES_MAX

ROOT = Path(__file__).parents[2]
ERRORS = {
    "lz4": "BadBatch",
    "headers": "BadBatch",
    "msgpack": "CodecError",
    "frame": "CodecError",
    "store": "StoreCorrupt",
    "segment": "ValueError",
}

OWN = 1 << 20
"""What a process may need besides."""
HELD = {"headers": 3}
"""How often a decoder holds what it was given: cells that are what they claim are decompressed, taken by the unpacker, and copied."""

pytestmark = pytest.mark.processes


def set_off(name: str, data: bytes) -> tuple[str, int]:
    """What a decoder says of these bytes, and by how much its process has grown."""
    words = [sys.executable, "-m", "tests.fuzz.bombs", name]
    done = subprocess.run(words, input=data, capture_output=True, cwd=ROOT, check=True, timeout=120)
    error, grown = done.stdout.split()
    return error.decode(), int(grown)


@pytest.mark.parametrize("name", BOMBS)
def test_it_is_refused_and_costs_little(name: str) -> None:
    error, grown = set_off(name, BOMBS[name][0]())
    kind = name.partition(":")[0]
    assert error == ERRORS[kind]
    assert grown <= HELD.get(kind, 2) * FRAME_BYTES_MAX + OWN


def test_growth_is_seen() -> None:
    """What is allowed and large: it takes what it weighs."""
    error, grown = set_off("lz4: as much as is allowed, at ratio 255", body(FRAME_BYTES_MAX, b"\0"))
    assert (error, grown > FRAME_BYTES_MAX // 2) == ("BadBatch", True)
