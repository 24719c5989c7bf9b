"""Long counts: mutants by the million, and runs guided by coverage, with their sums in a ledger.

A line is of the code that its target executes, and no other: what has changed elsewhere leaves it as good as it was. Lines of other code
stay, and are told apart: so are those of before, which name a version of all protocol code at once.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Final

from attrs import asdict, define, frozen
from tests.fuzz import memory
from tests.fuzz.mutating import Mutator
from tests.fuzz.target import Target, version
from tests.fuzz.targets import TARGETS

__all__ = [
    "GUIDED", "HANG_S", "LEDGER", "MEMORY_BYTES_MAX", "MUTANTS", "Count", "Finding", "Sums", "append", "corpus_of", "count", "look_again",
    "next_seed", "rates", "tally",
]  # fmt: skip

LEDGER: Final = Path(__file__).parent / "ledger.jsonl"
MEMORY_BYTES_MAX: Final = 64 << 20
"""Above what the process had before the first mutant (RELIABILITY R20)."""
HANG_S: Final = 0.1
"""No mutant may take longer, of processor time."""
MUTANTS: Final = "mutants"
GUIDED: Final = "guided"
"""Engines."""


class Finding(AssertionError):
    """What a target must not do, and the bytes that make it."""


@frozen
class Count:
    """So many executions of one target, none of which found anything."""

    code: str
    """The version of the code that was fuzzed."""
    target: str
    seed: int
    executions: int
    cpu_ms: int
    memory_bytes: int
    """By how much the process has grown; of a guided run, whose engine grows as well, how large it became."""
    corpus: str
    """Which valid bytes the mutants were made of."""
    engine: str = MUTANTS
    wall_ms: int = 0
    """How long a guided run has taken."""

    @property
    def per_second(self) -> float:
        """Executions per second of processor time."""
        return self.executions * 1_000 / max(self.cpu_ms, 1)


def count(name: str, executions: int, *, seed: int) -> Count:
    """Run so many mutants of a target. Raises Finding."""
    target = TARGETS[name]
    seeds = target.seeds()
    mutator = Mutator(seeds, seed, target.seal, target.structured)
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
            look_again(name, data)
    spent, grown = time.process_time() - begun, memory.peak_bytes() - before
    if grown > MEMORY_BYTES_MAX:
        raise Finding(f"{name}: the process has grown by {grown} bytes; at most {MEMORY_BYTES_MAX}")
    return Count(version(target.code), name, seed, executions, int(spent * 1_000), grown, corpus_of(target))


def corpus_of(target: Target) -> str:
    """A name of its valid bytes."""
    return hashlib.sha256(b"".join(target.seeds())).hexdigest()[:12]


def look_again(name: str, data: bytes) -> None:
    """It was slow: because of these bytes, or because the machine had other work? Raises Finding."""
    started = time.process_time()
    TARGETS[name].run(data)
    if (spent := time.process_time() - started) > HANG_S:
        raise Finding(f"{name}: {spent * 1_000:.0f} ms of processor time for {data.hex()}")


def append(one: Count, ledger: Path = LEDGER) -> None:
    """Put a count into the ledger."""
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(one), separators=(",", ":")) + "\n")


@define
class Sums:
    """Of one target."""

    executions: int = 0
    """Mutants of the code as it is."""
    cpu_ms: int = 0
    """What they have taken."""
    guided: int = 0
    """Executions of the code as it is that were guided by coverage."""
    guided_ms: int = 0
    """The processor time that those had: beside other work an hour of the clock may be a few minutes of it."""
    of_other_code: int = 0
    """Executions of both kinds, of code that is there no more."""
    guided_ms_of_other_code: int = 0

    @property
    def total(self) -> int:
        """All executions that were ever counted."""
        return self.executions + self.guided + self.of_other_code


def _counts(ledger: Path) -> list[Count]:
    """Its lines, the oldest first."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ()
    return [Count(**json.loads(line)) for line in lines]


def tally(ledger: Path = LEDGER) -> dict[str, Sums]:
    """Target -> what the ledger holds of it; all targets that there are, and those that there were."""
    sums = {name: Sums() for name in TARGETS}
    for one in _counts(ledger):
        found = sums.setdefault(one.target, Sums())
        if one.target not in TARGETS or one.code != version(TARGETS[one.target].code):
            found.of_other_code += one.executions
            found.guided_ms_of_other_code += one.cpu_ms if one.engine == GUIDED else 0
        elif one.engine == GUIDED:
            found.guided += one.executions
            found.guided_ms += one.cpu_ms
        else:
            found.executions += one.executions
            found.cpu_ms += one.cpu_ms
    return sums


def rates(ledger: Path = LEDGER) -> dict[str, float]:
    """Target -> mutants a second of processor time, by its last line; the line may be of other code."""
    return {one.target: one.per_second for one in _counts(ledger) if one.engine == MUTANTS}


def next_seed(ledger: Path = LEDGER) -> int:
    """One that no line of the ledger has."""
    return 1 + max((one.seed for one in _counts(ledger)), default=0)
