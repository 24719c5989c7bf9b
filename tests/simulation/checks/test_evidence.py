"""What the files that are left of a log show: whether anything stood behind the place where it ends."""

from __future__ import annotations

import pytest
from tests.simulation.checks.situations import PID, frame

from replog.log.segment import segment_name
from replog.log.storage import folder_name
from replog.model import PartitionId
from replog.testing.simulator.evidence import traces

OTHER = PartitionId(b"fedcba9876543210", 0, 7)


def batch(base: int, identity: PartitionId = PID) -> bytes:
    """One record, as it is stored."""
    return bytes(frame(base, 0, identity, b"x" * 50))


def damaged(stored: bytes) -> bytes:
    """Its header is as it was, a record is not."""
    return stored[:-1] + bytes([stored[-1] ^ 1])


def left(*segments: tuple[int, bytes]) -> dict[str, bytes]:
    """The files of a directory."""
    files = {f"data/logs/{folder_name(PID)}/{segment_name(base)}": data for base, data in segments}
    return {"data/checkpoint": b"?", f"data/logs/{folder_name(OTHER)}/{segment_name(9)}": batch(9, OTHER), **files}


FIRST = batch(0)
HOLE = bytes(len(batch(1)))


@pytest.mark.parametrize(
    ("files", "killed", "power"),
    [
        (left(), False, False),
        (left((0, FIRST)), False, False),  # the next one was never written
        (left((0, FIRST), (1, b"")), False, False),  # nor was it as the first of its segment
        (left((0, FIRST + batch(1)[:70])), False, False),  # or in part
        (left((0, FIRST + batch(1)[:-5])), False, False),
        (left((0, FIRST + damaged(batch(1)))), True, False),  # no process that is killed leaves that
        (left((0, FIRST + HOLE)), True, False),
        (left((0, FIRST), (2, b"")), True, False),
        (left((0, FIRST + HOLE + batch(2, OTHER))), True, False),
        (left((0, FIRST + batch(0))), True, False),
        (left((0, FIRST + HOLE + batch(2))), True, True),  # something was written behind it
        (left((0, FIRST + damaged(batch(1)) + damaged(batch(2)))), True, True),
        (left((0, FIRST), (2, batch(2))), True, True),
        (left((0, damaged(FIRST)[:20] + batch(1))), True, True),  # what is not known to be intact is not the end
    ],
)
def test_what_shows_that_a_log_went_on(files: dict[str, bytes], killed: bool, power: bool) -> None:
    assert traces(files, PID, 1, power=False) == killed
    assert traces(files, PID, 1, power=True) == power


def test_in_front_of_the_first_record_as_well() -> None:
    assert not traces(left((0, b"")), PID, 0, power=False)
    assert traces(left((0, HOLE + batch(1))), PID, 0, power=True)
