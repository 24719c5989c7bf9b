"""`examples/spark_pipeline.py` tells its story, and notices when a topic does not hold what it should."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import replog

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "spark_pipeline.py"
HEADER = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,"
HEADER += "air_time,distance,hour,minute,time_hour"
FLIGHTS = 4_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Flights that look like the real ones; some never left, and have no delay."""
    lines = [HEADER]
    for n in range(FLIGHTS):
        delay = "NA" if n % 37 == 0 else str(n % 90 - 20)
        carrier, hour = ("UA", "B6", "EV", "DL", "AA")[n * n % 5], 5 + n % 18
        lines.append(f"2013,1,1,517,515,{delay},830,819,11,{carrier},{n},N{n % 400},EWR,IAH,227,1400,{hour},15,2013-01-01 05:00:00")
    path = tmp_path / "flights.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(script: Path, source: Path, data: Path) -> tuple[int, list[str], str]:
    command = [sys.executable, "-W", "error", str(script), "--source", str(source), "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    return done.returncode, [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")], done.stderr


@pytest.mark.first
@pytest.mark.usefixtures("spark_environment")
def test_it_runs_as_printed(source: Path, tmp_path: Path) -> None:
    status, told, err = run(EXAMPLE, source, tmp_path / "data")
    assert status == 0, err
    assert [line.split()[0] for line in told] == [
        *("started", "written", "killed", "killed", "failed", "aggregated", "checked", "checked"),
    ]
    assert told[-2].endswith("flights: each of 4,000 is there exactly once")
    assert "delays: 54 totals, as in plain Python" in told[-1]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return importlib.import_module("spark_pipeline")


LINE = "2013,1,1,517,515,7,830,819,11,UA,1,N1,EWR,IAH,227,1400,5,15,2013-01-01 05:00:00"
TOTAL = '{"flights": 2, "minutes": 7}'
WRONG: list[tuple[list[str], list[str], str]] = [
    ([], [TOTAL], "flights: 1 are missing, 0 are there too often"),
    ([LINE, LINE], [TOTAL], "flights: 0 are missing, 1 are there too often"),
    ([LINE], [TOTAL, TOTAL], "delays: a total of UA 5 is there twice"),
    ([LINE], [], "delays: the totals differ"),
    ([LINE], [TOTAL], "delays: the totals differ"),
]


@pytest.mark.parametrize(("flights", "totals", "says"), WRONG)
def test_it_notices(example: ModuleType, cluster: replog.Cluster, flights: list[str], totals: list[str], says: str) -> None:
    for topic in ("flights", "delays"):
        cluster.create_topic(topic)
    for topic, records in (("flights", flights), ("delays", totals)):
        if records:
            cluster.append(topic, 0, [replog.Record(record, key="UA 5") for record in records])
    with pytest.raises(example.Wrong, match=says):
        example.check(cluster, [LINE])
