"""What travels can be unpacked anywhere: where replog is missing, the unpacking says so."""

from __future__ import annotations

import subprocess
import sys

from pyspark import cloudpickle

from replog.spark import PartitionWriter

WITHOUT = 'import sys; sys.modules["replog"] = None; from pyspark import cloudpickle; cloudpickle.loads(sys.stdin.buffer.read())'


def test_a_process_without_replog_says_so_in_one_sentence() -> None:
    writer = PartitionWriter("t", bootstrap="127.0.0.1:9", key=lambda row: row, guarantee="at-least-once")
    ran = subprocess.run([sys.executable, "-c", WITHOUT], input=cloudpickle.dumps(writer), capture_output=True, check=False)
    told = ran.stderr.decode().strip().splitlines()
    assert told[-1].startswith("ImportError: Spark's Python workers cannot import what they need (No module named 'replog")
    assert "During handling" not in ran.stderr.decode()
