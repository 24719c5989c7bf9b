"""The same targets under atheris, which keeps the inputs that reach new code in a corpus outside the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tests.fuzz import counting
from tests.fuzz.target import version

__all__ = ["executed", "read_stats", "run"]

_LENGTH_MAX: Final = 4_096
_SLOWEST_S: Final = 60
"""By the clock, for what never ends: what takes long is found by its processor time (`session`), also where others take the processor."""
_MEMORY_MIB: Final = 1_024
_ROOT: Final = Path(__file__).parents[2]


def run(names: Sequence[str], minutes: float, cache: Path, *, jobs: int = 1, ledger: Path = counting.LEDGER) -> int:
    """All targets, so many at once, for so long in all; each gets a line in the ledger. Prints what was done; 1 if there was a finding."""
    each_s = max(5, int(minutes * 60 * jobs / len(names)))
    first = counting.next_seed(ledger)
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(_one, name, seed, each_s, cache) for seed, name in enumerate(names, first)]
        counts = []
        for name, running in zip(names, runs, strict=True):
            one, said = running.result()
            print(f"{name}: {said}", flush=True)
            counts.append(one)
            if one is not None:
                counting.append(one, ledger)
    findings = counts.count(None)
    print(f"{sum(one.executions for one in counts if one is not None):,} executions, {findings} findings", flush=True)
    return 1 if findings else 0


def _one(name: str, seed: int, seconds: int, cache: Path) -> tuple[counting.Count | None, str]:
    """One target for so long, in a process of its own: what is counted (None: it has found something), and what is told of it."""
    corpus, found = cache / name, cache / "findings" / name
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    target = counting.TARGETS[name]
    for valid in target.seeds():
        (corpus / sha256(valid).hexdigest()[:40]).write_bytes(valid)
    slow = [f"-timeout={_SLOWEST_S}", f"-report_slow_units={_SLOWEST_S}"]
    limits = [f"-max_total_time={seconds}", *slow, f"-rss_limit_mb={_MEMORY_MIB}", f"-max_len={_length_max(target)}"]
    options = [*limits, f"-seed={seed}", "-print_final_stats=1", f"-artifact_prefix={found}/"]
    words = [sys.executable, "-m", "tests.fuzz.session", name, *options]
    begun = time.monotonic()
    status, said, cpu_ms = executed([*words, str(corpus)])
    wall_ms = int((time.monotonic() - begun) * 1_000)
    stats = read_stats(said)
    if status or "executions" not in stats:
        return None, f"FOUND something (status {status}); the input is in {found}\n{said[-3_000:]}"
    wall_ms, cpu_ms = min(wall_ms, seconds * 1_000), cpu_ms - stats.get("begun_cpu_ms", 0)  # what it took to begin is none of it
    kept = len(list(corpus.iterdir()))
    told = f"{stats['executions']:,} executions in {cpu_ms / 60_000:.1f} minutes of processor time, {kept:,} inputs kept"
    size, valid = stats.get("peak_mib", 0) << 20, counting.corpus_of(target)
    return counting.Count(version(target.code), name, seed, stats["executions"], cpu_ms, size, valid, counting.GUIDED, wall_ms), told


def executed(words: Sequence[str]) -> tuple[int, str, int]:
    """Run a process to its end: its status, what it has told on stderr, and the processor time (ms) that it had."""
    with subprocess.Popen(words, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, int((used.ru_utime + used.ru_stime) * 1_000)


def _length_max(target: Any) -> int:
    """So that no valid bytes are cut."""
    return max(_LENGTH_MAX, *map(len, target.seeds()))


def read_stats(said: str) -> dict[str, int]:
    """What the engine says in the end, as far as it says it, and what the session has said before it."""
    patterns = {
        "executions": r"stat::number_of_executed_units:\s*([0-9]+)",
        "peak_mib": r"stat::peak_rss_mb:\s*([0-9]+)",
        "begun_cpu_ms": r"stat::begun_cpu_ms:\s*([0-9]+)",
    }
    return {name: int(found[-1]) for name, pattern in patterns.items() if (found := re.findall(pattern, said))}
