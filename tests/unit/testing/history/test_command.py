"""The command of the history checker: what it says of errors, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replog.testing.history import History
from replog.testing.history.__main__ import main
from replog.testing.history.samples import good_history


def written(path: Path, process: str = "w", *, clock: bool = True, value: str = "a") -> str:
    """A file with one send."""
    history = History(clock=(lambda: 1.5) if clock else None)
    history.invoke_send(process, "k", [value]).ok(0)
    history.to_jsonl(path)
    return str(path)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line with which a command refuses."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.rstrip("\n")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, none = (str(tmp_path / name) for name in ("good", "bad", "none"))
    good_history(1).to_jsonl(good)
    history = good_history(2)
    history.invoke_poll("r", "t@1/0", 1_000).ok([(1_000, "nobody's")])
    history.to_jsonl(bad)
    Path(none).write_text("{}\n")
    assert main([good]) == 0
    assert "no errors" in capsys.readouterr().out
    assert main([bad]) == 1
    assert "phantom-read: 1" in capsys.readouterr().out
    assert main([bad, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"]["phantom-read"] == 1
    assert refusal(capsys, none) == f"{none}: line 1: 'type' is missing"
    assert main(["--good", "3"]) == 0
    assert "3 good histories" in capsys.readouterr().out
    assert main(["--measure", "50"]) == 0
    assert "100 operations: no errors" in capsys.readouterr().out


def test_several_files_are_judged_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([written(tmp_path / "one", "v"), written(tmp_path / "other", "w", value="b")]) == 1
    assert "inconsistent-offsets: 1" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path / "good")
    absent = str(tmp_path / "absent")
    assert refusal(capsys, absent) == f"{absent}: No such file or directory"
    assert refusal(capsys, good, absent) == f"{absent}: No such file or directory"
    assert refusal(capsys, str(tmp_path)) == f"{tmp_path}: Is a directory"


def test_what_is_no_history_is_named_by_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = written(tmp_path / "good"), tmp_path / "bad"
    for line, complaint in (
        (b"\xff\xfe", "no JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"[" * 100_000, "lists or objects within each other, too deep to be read"),
        (b'{"time": NaN, "type": "ok"}', "time is nan, no finite number"),
        (b'{"time": Infinity, "type": "ok"}', "time is inf, no finite number"),
        (b'{"time": true, "type": "ok"}', "time is True, no finite number"),
    ):
        bad.write_bytes(b'{"type": "settings"}\n' + line + b"\n")
        assert refusal(capsys, str(bad)) == f"{bad}: line 2: {complaint}"
        assert refusal(capsys, good, str(bad)) == f"{bad}: line 2: {complaint}"


def test_a_value_that_is_sent_twice_is_told_with_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = written(tmp_path / "one", "v"), written(tmp_path / "other", "w")
    assert refusal(capsys, one, other).startswith(f"{one}, {other}: 'a' is sent to k twice")


def test_files_that_cannot_be_judged_as_one_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = written(tmp_path / "one"), written(tmp_path / "other")
    assert refusal(capsys, one, other) == f"{one} and {other} both hold calls of process 'w', which belongs to one history"
    timeless = written(tmp_path / "timeless", "v", clock=False)
    assert refusal(capsys, one, timeless).startswith(f"{timeless} was recorded without a clock")
    assert main([timeless]) == 0


@pytest.mark.parametrize("text", ["", "\n \n", '{"type": "settings"}\n'])
def test_a_file_without_operations_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, empty = written(tmp_path / "good"), tmp_path / "empty"
    empty.write_text(text)
    for files in ([str(empty)], [good, str(empty)]):
        assert refusal(capsys, *files) == f"{empty}: it holds no operations, so there is nothing to judge"


def test_marks_alone_are_nothing_to_judge_but_belong_to_what_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, trimmed = written(tmp_path / "good"), str(tmp_path / "trimmed")
    history = History(clock=lambda: 1.5)
    history.trim("k", 0)
    history.to_jsonl(trimmed)
    assert main([good, trimmed]) == 0
    capsys.readouterr()
    assert refusal(capsys, trimmed) == f"{trimmed}: no operations, so there is nothing to judge"


@pytest.mark.parametrize("words", [["--good", "-3"], ["--good", "0"], ["--good", "many"], ["--measure", "0"], ["--measure", "-1"], []])
def test_numbers_that_mean_nothing_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert (f"invalid positive value: '{words[1]}'" if words else "which history?") in capsys.readouterr().err
