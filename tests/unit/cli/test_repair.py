"""`replog log repair`: it says what it would do, does just that, and refuses what it must not touch."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Ran, log_folder, run_with, stopped_broker

import replog
from replog.cli import main, progress
from replog.cli import repair as repair_module
from replog.errors import UsageError
from replog.log.directory import FileLogDirectory


def repair(*words: object) -> Ran:
    return run_with(None, "log", "repair", *map(str, words))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that was stopped, with one byte damaged in the middle of one of its two logs."""
    data = stopped_broker(tmp_path / "data")
    flip(middle_of(data), 200)
    return data


def middle_of(data: Path) -> Path:
    """A segment with others in front of it and behind."""
    return sorted(log_folder(data).glob("*.log"))[2]


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Everything in every file, when it was last written, and its mode; not the metadata store of the whole cluster."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode) for file in files}


def plan_in(ran: Ran) -> str:
    return ran.stdout.split()[-1]


def test_a_look_says_everything_and_changes_nothing(data: Path) -> None:
    before = contents(data.parent)
    ran = repair(data)
    assert (ran.status, ran.stderr) == (1, "")
    file = middle_of(data)
    size = file.stat().st_size
    later = sorted(file.parent.glob("*.log"))[3:]
    plan = plan_in(ran)
    text = ran.stdout.replace(f"{file.parent}/", "")
    names = [one.name for one in later]
    assert text.splitlines() == [
        f"orders-0: {file.name} at position 134, before offset 10: the batch does not match its payload checksum",
        "  stays  offsets 0 to 9 (10 records)",
        f"  goes   {file.name}, bytes 134 to {size} ({size - 134} bytes)",
        *(f"  goes   {name}, bytes 0 to {one.stat().st_size} ({one.stat().st_size} bytes)" for name, one in zip(names, later, strict=True)),
        *(f"  goes   {name[:-4]}.index, which is made anew when it is needed" for name in [file.name, *names]),
        "  lost   offsets 10 to 11 (2 records): damaged or missing",
        "  lost   offsets 12 to 19 (8 records): intact, and behind the damage",
        "1 other logs stay as they are",
        "at its next start the broker reports a loss of: orders-0",
        f"what goes is copied to {data}.repair-{plan}",
        "usually better: wipe the folder, and let the broker copy everything from the others (docs/operations.md)",
        f"nothing was changed; to do just this: replog log repair {data} --yes {plan}",
    ]
    assert contents(data.parent) == before


def test_verify_dump_and_repair_name_the_same_offset(data: Path) -> None:
    """The first one that is lost: what stays ends in front of it."""
    file = middle_of(data)
    says = "before offset 10: the batch does not match its payload checksum"
    for ran in (run_with(None, "log", "verify", str(data)), run_with(None, "log", "dump", str(file)), repair(data)):
        told = [line for line in ran.lines if "at position 134" in line or (file.name in line and line.startswith("orders-0: "))]
        assert told, ran.stdout
        assert all("position 134" in line and line.endswith(says) for line in told), told


def test_what_was_shown_is_done(data: Path) -> None:
    shown = repair(data, "--format", "json").json
    modes = {path: mode for path, (_, _, mode) in contents(data).items()}
    ran = repair(data, "--yes", shown["plan"], "--format", "json")
    assert (ran.status, ran.stderr) == (0, "")
    assert ran.json == {**shown, "done": True}
    assert run_with(None, "log", "verify", str(data)).status == 0
    assert repair(data).lines == [f"{data}: nothing to repair"]
    assert {path: mode for path, (_, _, mode) in contents(data).items()}.items() <= modes.items() | {
        (str(middle_of(data).parent / "marker"), 0o100600)
    }
    evidence = Path(shown["evidence"])
    assert evidence == data.parent / f"broker-1.repair-{shown['plan']}"
    assert (evidence.stat().st_mode & 0o777, json.loads((evidence / "plan.json").read_text())["logs"]) == (0o700, shown["logs"])
    with replog.Cluster(data.parent, brokers=1) as cluster:
        assert [record.text() for record in cluster.read("other")] == ["x"]


@pytest.mark.parametrize("plan", ["0123456789ab", "x"])
def test_another_plan_than_the_one_that_holds_is_refused(data: Path, plan: str) -> None:
    before = contents(data.parent)
    ran = repair(data, "--yes", plan)
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr.endswith(f" by now, not {plan}: the files have changed since. Nothing was done; look again\n")
    assert contents(data.parent) == before


def test_a_plan_from_before_the_broker_ran_again_is_refused(data: Path) -> None:
    plan = plan_in(repair(data))
    FileLogDirectory(data).close(clean=True)
    before = contents(data.parent)
    assert repair(data, "--yes", plan).status == 2
    assert contents(data.parent) == before


def test_one_log_by_its_folder(data: Path) -> None:
    other = next(log for log in (data / "logs").iterdir() if log != middle_of(data).parent)
    flip(other / f"{0:020d}.log", 80)
    assert [log["log"] for log in repair(middle_of(data).parent, "--format", "json").json["logs"]] == ["orders-0"]
    assert [log["log"] for log in repair(data, "--format", "json").json["logs"]] != ["orders-0"]


def test_evidence_goes_where_it_is_told(data: Path, tmp_path: Path) -> None:
    plan = plan_in(repair(data))
    assert repair(data, "--yes", plan, "--evidence", tmp_path / "kept").status == 0
    assert (tmp_path / "kept" / "plan.json").exists()


def refused(says: str, *words: object, folder: Path) -> None:
    before = contents(folder)
    ran = repair(*words)
    assert (ran.status, ran.stdout) == (2, "")
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert contents(folder) == before


def test_evidence_inside_is_refused(data: Path) -> None:
    refused("is inside", data, "--evidence", data / "evidence", folder=data)
    (data.parent / "link").symlink_to(data / "quarantine")
    refused("is inside", data, "--evidence", data.parent / "link" / "evidence", folder=data)


def test_evidence_is_not_put_over_the_copy_of_another_broker(data: Path, tmp_path: Path) -> None:
    """Its logs and files have the same names."""
    another = shutil.copytree(data, tmp_path / "another")
    flip(sorted(log_folder(data).glob("*.log"))[0], 40)
    before = contents(tmp_path)
    ran = repair(data, "--yes", plan_in(repair(data)), "--evidence", another)
    assert (ran.status, "holds something else already" in ran.stderr, contents(tmp_path) == before) == (2, True, True)


def test_records_of_which_nothing_tells_how_many_they_are(tmp_path: Path) -> None:
    """The last batch of a broker that was killed."""
    data = stopped_broker(tmp_path / "data")
    (data / "clean").unlink()
    (data / "checkpoint").unlink()
    file = sorted(log_folder(data).glob("*.log"))[-1]
    flip(file, file.stat().st_size - 3)
    text = repair(data).stdout
    assert "  lost   records from offset 18 on, if there were any: nothing tells how many\n" in text
    assert "at its next start the broker reports a loss of: orders-0\n" in text


@pytest.fixture
def running(data: Path) -> Iterator[FileLogDirectory]:
    """A broker's directory, open."""
    directory = FileLogDirectory(data)
    yield directory
    directory.close(clean=False)


def test_a_running_broker_is_refused_through_links_too(data: Path, tmp_path: Path, running: FileLogDirectory) -> None:
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "log").symlink_to(middle_of(data).parent)
    for path in (data, tmp_path / "link", tmp_path / "log", middle_of(data).parent, f"{data}/", f"{data}/logs/.."):
        refused("is in use: stop its broker first", path, folder=data)
        refused("is in use: stop its broker first", path, "--yes", "0123456789ab", folder=data)


def test_a_directory_that_never_had_a_lock(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "lock").unlink()
    before = contents(data.parent)
    plan = plan_in(repair(data))
    assert contents(data.parent) == before
    assert not (data / "lock").exists(), "a look makes no file"
    begun: list[str] = []

    def start_a_broker(*_: object) -> None:
        with pytest.raises(UsageError, match="is in use"):
            FileLogDirectory(data)
        begun.append("refused")

    whole = repair_module.carry_out
    monkeypatch.setattr(repair_module, "carry_out", lambda *arguments: (start_a_broker(), whole(*arguments)))
    assert repair(data, "--yes", plan).status == 0
    assert begun == ["refused"]
    assert ((data / "lock").read_bytes(), (data / "lock").stat().st_mode & 0o777) == (b"", 0o600)
    FileLogDirectory(data).close(clean=True)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_running_broker_whose_lock_was_removed_is_refused(data: Path, running: FileLogDirectory, is_made_anew: bool) -> None:
    (data / "lock").unlink()
    if is_made_anew:
        (data / "lock").touch()
    for words in ((data,), (data, "--yes", "0123456789ab")):
        refused(f"{data} is in use by process {os.getpid()}, although its lock file was removed", *words, folder=data)


def test_a_copy_of_a_running_broker_is_refused(data: Path, tmp_path: Path, running: FileLogDirectory) -> None:
    copy = shutil.copytree(data, tmp_path / "copy")
    refused(f"{copy} is a copy of {data}, which process {os.getpid()} has open", copy, folder=copy)


def test_a_copy_of_a_stopped_broker_is_repaired_and_told_from_a_clean_stop(data: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(data, tmp_path / "copy")
    assert "do not serve from such a copy" not in repair(copy).stdout
    (copy / "clean").unlink()
    why = "the broker was killed, or was stopped with a copy that had failed, or this is a copy that was taken while it ran"
    assert why in repair(copy).stdout


@pytest.mark.parametrize("place", ["logs", "lock", "log", "segment", "life"])
def test_symbolic_links_inside_are_refused(data: Path, tmp_path: Path, place: str) -> None:
    log = middle_of(data).parent
    inside = {"logs": data / "logs", "lock": data / "lock", "log": log, "segment": middle_of(data), "life": data / "life"}[place]
    inside.rename(tmp_path / "elsewhere")
    inside.symlink_to(tmp_path / "elsewhere")
    refused(f"{inside} is a symbolic link", data, folder=tmp_path)


def test_what_is_no_file_is_refused(data: Path) -> None:
    os.mkfifo(middle_of(data).parent / f"{10**6:020d}.log")
    refused("is no regular file", data, folder=data)


def test_a_file_with_another_name_is_refused(data: Path, tmp_path: Path) -> None:
    """As a backup by hard links has it: its bytes would go as well."""
    os.link(middle_of(data), tmp_path / "backup")
    refused("has 2 names (hard links)", data, folder=data)


def test_somebody_elses_files_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.stat(data).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    refused(f"{data} belongs to user {owner}, and this is user {owner + 1}", data, folder=data)


def test_several_brokers_and_a_log_without_one_are_refused(data: Path, tmp_path: Path) -> None:
    refused("holds the folders of brokers", data.parent, folder=data)
    log = shutil.copytree(middle_of(data).parent, tmp_path / middle_of(data).parent.name)
    refused("outside of a data directory", log, folder=log)
    refused("there is no such folder", tmp_path / "nothing", folder=tmp_path)


def test_a_plan_for_what_is_intact_is_refused(data: Path) -> None:
    repair(data, "--yes", plan_in(repair(data)))
    refused("there is nothing to repair", data, "--yes", "0123456789ab", folder=data)


def test_a_damaged_catalogue_is_status_1(data: Path) -> None:
    flip(data / "catalogue", 20)
    before = contents(data)
    ran = repair(data)
    assert (ran.status, ran.stdout) == (1, "")
    assert "catalogue" in ran.stderr
    assert contents(data) == before


def test_what_stops_in_the_middle_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    plan, nowhere = plan_in(repair(data)), tmp_path / "no" / "such" / "folder"
    before = contents(data)
    ran = repair(data, "--yes", plan, "--evidence", nowhere)
    assert (ran.status, ran.stdout) == (1, "")
    assert f"the repair did not end; what went by now is in {nowhere}. Look again: replog log repair {data}\n" in ran.stderr
    assert contents(data) == before


class Terminal(io.StringIO):
    """As stderr of a person."""

    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SILENT_S", 0)
    monkeypatch.setattr(progress, "_EVERY_S", 0)
    plan = plan_in(repair(data))
    for words in ((), ("--yes", plan)):
        stderr = Terminal()
        main(["log", "repair", str(data), *words], stdin=io.BytesIO(), stdout=io.BytesIO(), stderr=stderr)
        assert re.search(r" %  [0-9.]+ of [0-9.]+ (KiB|bytes)", stderr.getvalue())
        assert stderr.getvalue().rstrip(" ").endswith("\r")


def test_a_dry_run_changes_nothing_although_the_plan_is_named(data: Path) -> None:
    before = contents(data.parent)
    plan = plan_in(repair(data))
    ran = repair(data, "--yes", plan, "--dry-run")
    assert (ran.status, plan_in(ran)) == (1, plan)
    assert contents(data.parent) == before
