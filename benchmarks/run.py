"""Runs the benchmarks and writes `benchmarks/report.md`, with plots beside it.

    python -m benchmarks.run [--all] [FILES AND OPTIONS OF PYTEST]

Without `--all`: a selection that takes about ten minutes on two quiet cores, which leaves out what is marked `long` and the peers that need
servers of their own; those are drawn into the plots as the last `make bench-peers` has left them. Each file is a run of pytest by itself
with a time limit, so that one that hangs costs its subject only. The exit status is 1 if a benchmark failed; a target that is missed is no
failure.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks import plots
from benchmarks.reporting import Missing, Subject, figures_of, missing_of, render

ROOT: Final = Path(__file__).resolve().parent.parent
REPORT: Final = ROOT / "benchmarks" / "report.md"
PLOTS: Final = ROOT / "benchmarks" / "report"
LEFT: Final = PLOTS / "peers.json"
"""What `make bench-peers` has measured last."""
PEERS: Final = ("test_etcd.py", "test_nats.py", "test_pysyncobj.py", "test_rabbitmq.py")
"""Left out of the selection: `make bench-peers` measures them."""
LIMIT_S: Final = 150.0
"""Of one file of the selection; twice what the longest takes."""
LIMIT_ALL_S: Final = 1_800.0
GRACE_S: Final = 20.0
PACKAGES: Final = ("replog", "attrs", "crc32c", "lz4", "msgpack", "kazoo", "pyspark", "pyarrow")
UNMEASURED: Final = ("-W", "ignore:Not saving anything", "-W", "ignore:Benchmark fixture was not used")
"""What pytest-benchmark warns of where all was skipped or a benchmark failed: the report says so."""
NOTHING_RUN: Final = 5
"""Exit status of pytest when nothing was selected."""


def title_of(path: Path) -> str:
    """The first line of a file of benchmarks."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem).splitlines()[0]


def files_of(named: Sequence[str], *, everything: bool) -> list[Path]:
    """The files to run, in order: those named, else all, else all but the peers."""
    if named:
        return [Path(one) for one in named]
    found = sorted((ROOT / "benchmarks").glob("test_*.py"))
    return [path for path in found if everything or path.name not in PEERS]


def cases_of(path: Path) -> list[Mapping[str, str]]:
    """(benchmark, outcome, reason) of each test in pytest's XML."""
    cases: list[Mapping[str, str]] = []
    for case in ElementTree.parse(path).iter("testcase") if path.exists() else ():
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = "skipped" if bad and bad[0].tag == "skipped" else "failed" if bad else "passed"
        cases.append({"benchmark": name, "outcome": outcome, "reason": bad[0].get("message", "") if bad else ""})
    return cases


def finished(command: Sequence[str], limit_s: float) -> int | None:
    """Run it in a group of its own; its exit status, or None if it was at its limit. Nothing of the group is left."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(limit_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as problem:
        process.send_signal(signal.SIGINT)  # it writes down what it has
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        if isinstance(problem, KeyboardInterrupt):
            raise
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(path: Path, more: Sequence[str], limit_s: float, folder: Path) -> tuple[Subject, list[Any], bool]:
    """One file: (what it brought, its part of the document of pytest-benchmark, whether nothing failed)."""
    document, xml = folder / f"{path.stem}.json", folder / f"{path.stem}.xml"
    words = ["--benchmark-enable", "--benchmark-only", "-s", "-q", "--benchmark-columns=rounds", *UNMEASURED]
    begun = time.monotonic()
    words += [f"--benchmark-json={document}", f"--junitxml={xml}", *more]
    status = finished([sys.executable, "-m", "pytest", str(path), *words], limit_s)
    seconds = time.monotonic() - begun
    measured = json.loads(document.read_text())["benchmarks"] if document.exists() and document.stat().st_size else []
    missing = missing_of(cases_of(xml))
    if status is None:
        missing.append(Missing(path.name, f"failed: not at its end after {limit_s:.0f} s"))
    place = path.relative_to(ROOT) if path.is_absolute() else path
    return Subject(str(place), title_of(path), seconds, figures_of(measured), missing), measured, status in (0, NOTHING_RUN)


def left_by_peers(path: Path) -> tuple[str, list[Any]]:
    """(when the peers were measured, what that has left): nothing where they never were, or not to the end."""
    if not path.exists() or not path.stat().st_size:
        return "", []
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["datetime"][:16].replace("T", " "), document["benchmarks"]


def facts(begun: datetime, seconds: float, load: tuple[float, float]) -> dict[str, str]:
    """Date, machine and versions."""
    models = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = []
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return {
        "date": f"{begun:%Y-%m-%d %H:%M} UTC, {seconds / 60:.0f} minutes",
        "machine": f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}, {platform.system()} {platform.release()}",
        "load before and after": f"{load[0]:.1f} and {load[1]:.1f}, of which the benchmarks are a part",
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
    }


def main(arguments: Sequence[str]) -> int:
    """Run, write the report, say where it is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Run the benchmarks and write benchmarks/report.md.")
    parser.add_argument("--all", action="store_true", help="also what takes long, and the peers")
    known, more = parser.parse_known_args(arguments)
    named = [word for word in more if word.partition("::")[0].endswith(".py")]
    options = [word for word in more if word not in named]
    if not known.all and not named and "-m" not in options:
        options += ["-m", "not long"]
    begun, started, load = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    subjects, measured, sound = [], [], True
    with tempfile.TemporaryDirectory() as folder:
        for path in files_of(named, everything=known.all):
            subject, some, passed = run(path, options, LIMIT_ALL_S if known.all or named else LIMIT_S, Path(folder))
            if subject.figures or subject.missing:
                subjects.append(subject)
            measured += some
            sound &= passed
    peers_date, left = left_by_peers(LEFT)
    left = plots.peers_of(left, measured)
    try:
        pictures = [(title, str(path.relative_to(REPORT.parent))) for title, path in plots.save(plots.lines_of([*measured, *left]), PLOTS)]
    except ImportError:
        pictures = []
        print("no plots: matplotlib is not installed (the extra `bench` has it)", file=sys.stderr)
    about = facts(begun, time.monotonic() - started, (load, os.getloadavg()[0]))
    if left and pictures:
        about["peers in the plots"] = f"those not measured in this run are of {peers_date}"
    REPORT.write_text(render(about, pictures, subjects), encoding="utf-8")
    print(f"written: {REPORT}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
