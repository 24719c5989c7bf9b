"""Long counts: mutants by the million, with their sums in a ledger."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any, Final

from attrs import asdict, frozen
from tests.fuzz import memory
from tests.fuzz.mutating import Mutator
from tests.fuzz.targets import TARGETS

from replog.testing.simulator.versions import code_version

__all__ = ["HANG_S", "LEDGER", "MEMORY_BYTES_MAX", "Count", "Finding", "append", "count", "tally"]

LEDGER: Final = Path(__file__).parent / "ledger.jsonl"
MEMORY_BYTES_MAX: Final = 64 << 20
"""Above what the process had before the first mutant (RELIABILITY R20)."""
HANG_S: Final = 0.1
"""No mutant may take longer, of processor time."""


class Finding(AssertionError):
    """What a target must not do, and the bytes that make it."""


@frozen
class Count:
    """So many mutants of one target, none of which found anything."""

    code: str
    """The version of the protocol code that was fuzzed."""
    target: str
    seed: int
    executions: int
    cpu_ms: int
    memory_bytes: int
    """By how much the process has grown."""
    corpus: str
    """Which valid bytes the mutants were made of."""

    @property
    def per_second(self) -> float:
        """Executions per second of processor time."""
        return self.executions * 1_000 / max(self.cpu_ms, 1)


def count(name: str, executions: int, *, seed: int) -> Count:
    """Run so many mutants of a target. Raises Finding."""
    target = TARGETS[name]
    seeds = target.seeds()
    mutator = Mutator(seeds, seed, target.seal)
    for one in seeds:
        target.run(one)
    run, following, clock = target.run, mutator.next, time.perf_counter
    memory.forget_peak()
    before, begun = memory.peak_bytes(), time.process_time()
    for _ in range(executions):
        data = following()
        started = clock()
        try:
            run(data)
        except Exception as problem:
            raise Finding(f"{name}: {type(problem).__name__}: {problem}; of {data.hex()}") from problem
        if clock() - started > HANG_S:
            _look_again(name, data)
    spent, grown = time.process_time() - begun, memory.peak_bytes() - before
    if grown > MEMORY_BYTES_MAX:
        raise Finding(f"{name}: the process has grown by {grown} bytes; at most {MEMORY_BYTES_MAX}")
    corpus = hashlib.sha256(b"".join(seeds)).hexdigest()[:12]
    return Count(code_version(), name, seed, executions, int(spent * 1_000), grown, corpus)


def _look_again(name: str, data: bytes) -> None:
    """It was slow: because of these bytes, or because the machine had other work?"""
    started = time.process_time()
    TARGETS[name].run(data)
    if (spent := time.process_time() - started) > HANG_S:
        raise Finding(f"{name}: {spent * 1_000:.0f} ms of processor time for {data.hex()}")


def append(one: Count, ledger: Path = LEDGER) -> None:
    """Put a count into the ledger."""
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(one), separators=(",", ":")) + "\n")


def tally(ledger: Path = LEDGER, *, code: str | None = None) -> dict[str, dict[str, Any]]:
    """Target -> executions and processor time, of one version of the code (None: the present one)."""
    code = code or code_version()
    sums: dict[str, dict[str, Any]] = {}
    for line in ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ():
        one = Count(**json.loads(line))
        if one.code == code:
            found = sums.setdefault(one.target, {"executions": 0, "cpu_ms": 0})
            found["executions"] += one.executions
            found["cpu_ms"] += one.cpu_ms
    return sums


def next_seed(ledger: Path = LEDGER) -> int:
    """One that no line of the ledger has."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return 1 + max((json.loads(line)["seed"] for line in lines), default=0)
