"""The ledger of runs: what was run on which protocol code, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from attrs import asdict
from tests.chaos.running import Run
from tests.chaos.soaking import Soak

from replog.testing.simulator.versions import code_version

__all__ = ["LEDGER", "SOAKS", "append", "append_soak", "next_seed", "tally", "tally_soaks"]

LEDGER: Final = Path(__file__).parent / "ledger.jsonl"
SOAKS: Final = Path(__file__).parent / "soaks.jsonl"
RUNS_MIN: Final = 200
"""Of a minute each (RELIABILITY R17)."""


def append(done: Run) -> None:
    """One line more."""
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps({"code": code_version(), **asdict(done)}) + "\n")


def append_soak(done: Soak) -> None:
    """One line more in the ledger of soaks."""
    with SOAKS.open("a") as ledger:
        ledger.write(json.dumps({"code": code_version(), **asdict(done)}) + "\n")


def tally_soaks() -> str:
    """Each soak, the latest last."""
    texts, present = list[str](), code_version()
    for line in _lines(SOAKS):
        code = f"{line['code']}{' (present)' if line['code'] == present else ''}"
        gains = ", ".join(f"broker {broker} {gain:+.2f}" for broker, gain in line["slopes"].items())
        counts = f"{sum(line['faults'].values())} faults, {line['acknowledged']:,} acknowledged, {len(line['broken'])} wrong"
        texts.append(f"soak {code} over {line['store']}: {line['seconds'] / 60:.0f} minutes, {counts}; MiB an hour: {gains}")
    return "\n".join(texts) or "nothing was soaked"


def _lines(ledger: Path = LEDGER) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def next_seed() -> int:
    """One that nobody has run."""
    return max((line["seed"] for line in _lines()), default=1_000) + 1


def tally() -> str:
    """What was counted, by version of the protocol code: the present one last."""
    present, texts = code_version(), list[str]()
    by_code: dict[str, list[dict[str, Any]]] = {}
    for line in _lines():
        by_code.setdefault(line["code"], []).append(line)
    for code, lines in sorted(by_code.items(), key=lambda item: item[0] == present):
        happened: Counter[str] = sum((Counter(line["faults"]) for line in lines), Counter())
        fewest = {kind: min(line["progress"][kind] for line in lines if kind in line["progress"]) for kind in sorted(happened)}
        broken = sum(1 for line in lines if line["broken"])
        stores = ", ".join(f"{count} over {store}" for store, count in sorted(Counter(line["store"] for line in lines).items()))
        minutes = sum(line["seconds"] for line in lines) / 60
        texts += [
            f"protocol code {code}{' (present)' if code == present else ''}",
            f"  runs          {len(lines)} of {RUNS_MIN} ({stores}), {minutes:.0f} minutes, {broken} broken",
            f"  acknowledged  {sum(line['acknowledged'] for line in lines):,}",
            *(f"  {kind:12}  {happened[kind]:5} times, at least {fewest[kind]:,} acknowledgements meanwhile" for kind in fewest),
        ]
    return "\n".join(texts) or "nothing was counted"
