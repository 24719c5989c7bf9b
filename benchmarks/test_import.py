"""What importing costs: `import replog`, and the whole of it, against its four dependencies alone.

Each round is three fresh interpreters; the figure of a round is the time that the import statement took in there, so that
starting Python does not count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.measuring import report
from benchmarks.targets import at_most

ROUNDS = 7
DEPENDENCIES = "import attrs, crc32c, lz4.block, msgpack"
LAZY = "import replog"
WHOLE = "import replog; replog.Cluster"


def seconds(code: str) -> float:
    """How long `code` takes in a fresh interpreter."""
    script = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_import(benchmark: Any, capsys: Any) -> None:
    rounds: list[tuple[float, float, float]] = []

    def one_round() -> None:
        rounds.append((seconds(DEPENDENCIES), seconds(LAZY), seconds(WHOLE)))

    one_round()  # writes the byte code
    rounds.clear()
    benchmark.pedantic(one_round, rounds=ROUNDS)
    dependencies, lazy, whole = (statistics.median(column) for column in zip(*rounds, strict=True))
    figures = {"import_replog_ratio": lazy / dependencies, "cluster_ratio": whole / dependencies, "dependencies_ms": dependencies * 1e3}
    report(benchmark, capsys, "import replog / import of its dependencies", figures, at_most("import_replog_ratio", 1.3))
