"""The same targets under atheris, which keeps the inputs that reach new code in a corpus outside the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

__all__ = ["run"]

_LENGTH_MAX = 4_096
_SLOWEST_S = 5
_MEMORY_MIB = 1_024


def run(names: Sequence[str], minutes: float, cache: Path) -> int:
    """All targets in turn, together for so long. Prints what was done; 1 if there was a finding."""
    from tests.fuzz.targets import TARGETS

    each = max(5, int(minutes * 60 / len(names)))
    total = findings = 0
    for name in names:
        corpus, found = cache / name, cache / "findings" / name
        corpus.mkdir(parents=True, exist_ok=True)
        found.mkdir(parents=True, exist_ok=True)
        for seed in TARGETS[name].seeds():
            (corpus / sha256(seed).hexdigest()[:40]).write_bytes(seed)
        limits = [f"-max_total_time={each}", f"-timeout={_SLOWEST_S}", f"-rss_limit_mb={_MEMORY_MIB}", f"-max_len={_LENGTH_MAX}"]
        words = [sys.executable, "-m", "tests.fuzz.guided", name, *limits, "-print_final_stats=1", f"-artifact_prefix={found}/", corpus]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, errors="replace")
        units = re.search(r"stat::number_of_executed_units:\s*([0-9]+)", done.stderr)
        rate = re.search(r"stat::average_exec_per_sec:\s*([0-9]+)", done.stderr)
        executions = int(units[1]) if units else 0
        total += executions
        kept, speed = len(list(corpus.iterdir())), int(rate[1]) if rate else 0
        print(f"{name}: {executions:,} executions, {speed:,} a second, {kept:,} inputs kept", flush=True)
        if done.returncode or not units:
            findings += 1
            print(f"{name}: FOUND something (status {done.returncode}); the input is in {found}\n{done.stderr[-3_000:]}", flush=True)
    print(f"{total:,} executions, {findings} findings", flush=True)
    return 1 if findings else 0


def _inside(name: str, words: Sequence[str]) -> None:
    """One target in this process, which atheris ends."""
    import atheris

    with atheris.instrument_imports(include=["replog"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]

    def once(data: bytes) -> None:
        if target.seal is not None and data and data[-1] & 15:  # of sixteen one as it is
            sealed = bytearray(data)
            target.seal(sealed)
            data = bytes(sealed)
        target.run(data)

    atheris.Setup([f"tests.fuzz {name}", *words], once)
    atheris.Fuzz()


if __name__ == "__main__":
    _inside(sys.argv[1], sys.argv[2:])
