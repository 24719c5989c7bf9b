"""The command line: what it says, and how it ends."""

from __future__ import annotations

import pytest

from replog.testing.disk import __main__ as command
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
