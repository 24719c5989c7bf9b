"""Tables and help fit on a line of 80 columns, with names of an ordinary length."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.unit.cli.conftest import Run, run_with

import replog
from replog.cli.grammar import make_parser
from replog.cli.overview import COLUMNS, verbs_of
from replog.metadata.file import FileStore
from replog.ports import Create
from replog.testing.eventually import eventually


def widest(text: str) -> tuple[int, str]:
    """The longest line."""
    return max((len(line), line) for line in text.splitlines())


def commands() -> Iterator[list[str]]:
    for name, parser in verbs_of(make_parser()).items():
        yield [name]
        yield from ([name, verb] for verb in verbs_of(parser))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_with(None, *words, "--help").status == 0
    assert widest(capsys.readouterr().out)[0] <= COLUMNS


def test_tables(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("payments", partitions=12, min_isr=2)
    cluster.append("payments", 0, ["x" * 100] * 1_000)
    cluster.create_topic("customers", assignment={0: [1, 2]}, min_isr=1)
    cluster.append("customers", 0, ["x" * 100] * 1_000)
    cluster.stop_broker(3)
    plan = {"partitions": [{"topic": "customers", "partition": 0, "replicas": [2, 3]}]}
    assert run("reassign", "execute", "-", stdin=json.dumps(plan).encode()).status == 0
    eventually(lambda: "moving" in run("reassign", "status").stdout)
    for words in ("reassign status", "topic list", "topic describe", "health --brokers 3", "controller", "top --once --interval 0.1"):
        shown = run(*words.split()).stdout
        table = [line for line in shown.splitlines() if "  " in line]  # sentences go on as long as they are
        assert table or words == "controller"
        assert widest("\n".join(table) or "-")[0] <= COLUMNS, words


def test_the_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("store") / "metadata.db"
    with FileStore(str(path), session_ms=60_000) as store:
        store.commit([Create("/brokers/topics/payments/0/leaderAndISR", json.dumps({"version": 1, "isr": list(range(60))}).encode())])
    shown = run_with(None, "store", "list", "-r", "--store", f"file://{path}").stdout
    assert widest(shown)[0] <= COLUMNS
    assert '{"version":1,' in shown
    assert "..." in shown
