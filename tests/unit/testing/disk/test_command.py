"""The command line: what it says, and how it ends."""

from __future__ import annotations

import logging

import pytest

from replog.testing.disk import __main__ as command
from replog.testing.disk import cluster_sweep
from replog.testing.disk.trial import Broken


def test_it_tells_what_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["crashes", "--limit", "20", "--workload", "the first batch"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["the first batch, flush=os", "the first batch, flush=ack", "1 workloads"]
    assert said[-1].endswith("0 violations")


def test_it_fails_when_something_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise Broken("a hole")

    monkeypatch.setattr(command, "_bytes", broken)
    assert command.main(["bytes", "--bits", "2"]) == 1
    assert capsys.readouterr().out == "found: a hole\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("crashes --workload typo", "no workload has 'typo' in its name; there are: the first batch; append after append; "),
        ("crashes --limit 0", "--limit: invalid positive value: '0'"),
        ("crashes --second 0", "--second: invalid positive value: '0'"),
        ("cluster --every 0", "--every: invalid positive value: '0'"),
        ("cluster --every -1", "--every: invalid positive value: '-1'"),
        ("cluster --offset -1", "--offset: invalid natural value: '-1'"),
        ("bytes --bits 9", "--bits: invalid choice: 9"),
    ],
)
def test_what_would_try_nothing_is_refused(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words.split())
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert complaint in said.err
    assert said.out == ""


def test_a_share_without_any_injury_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cluster_sweep, "injuries", lambda _: [])
    with pytest.raises(SystemExit) as ended:
        command.main(["cluster", "--every", "900", "--offset", "800"])
    assert ended.value.code == 2
    assert not logging.root.manager.disable, "whoever called it hears no warning any more"
    said = capsys.readouterr()
    assert "one in 900, from number 800 on: there are not so many injuries" in said.err
    assert said.out == ""
