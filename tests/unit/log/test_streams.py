"""A program that was started without stdin, stdout or stderr: what it prints does not end up in a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import replog

_PROGRAM = """
import os, sys
for stream in map(int, sys.argv[2]):
    os.close(stream)
import replog
log = replog.Log.open(sys.argv[1])
for value in ("a", "b"):
    log.append_records([value])
    for stream in map(int, sys.argv[2]):
        try:
            os.write(stream, b"a message of somebody, written to a stream")
        except OSError:
            pass
open_ = [path for path in (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")) if os.path.islink(path)]
files = [int(path.rpartition("/")[2]) for path in open_ if os.readlink(path).endswith(".log")]
assert files and min(files) > 2 and not any(map(os.get_inheritable, files)), files
log.close()
"""


@pytest.mark.parametrize("closed", ["0", "12", "012"])
def test_what_a_program_prints_stays_out_of_its_log(tmp_path: Path, closed: str) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path / "log"), closed], timeout=60, check=False)
    assert done.returncode == 0
    with replog.Log.open(tmp_path / "log") as log:
        assert [record.text() for record in log.records()] == ["a", "b"]
