"""What a repair has cut off, shown and checked: for a partition with one copy it is the last place of its records."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Ran, log_folder, run_with, stopped_broker

from replog.cli.segments import dump_file
from replog.errors import UsageError
from replog.model import PartitionId
from replog.records import RecordBatch, encode_records


def look(*words: object) -> Ran:
    return run_with(None, "log", *map(str, words))


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


def repaired(data: Path, *words: object) -> Path:
    """The folder of the evidence."""
    plan = look("repair", data, "--format", "json").json["plan"]
    return Path(look("repair", data, "--yes", plan, "--format", "json", *words).json["evidence"])


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """Of a log of ten batches with two records each, two of them in a file: the second one of the third file was damaged."""
    data = stopped_broker(tmp_path / "data")
    flip(sorted(log_folder(data).glob("*.log"))[2], 200)
    return repaired(data)


def log_of(evidence: Path) -> Path:
    (log,) = (evidence / "logs").iterdir()
    return log


def named(evidence: Path) -> list[str]:
    return sorted(str(file) for file in log_of(evidence).iterdir() if ".log" in file.name)


def offsets(ran: Ran) -> list[int]:
    return [line["offset"] for line in ran.json_lines if "offset" in line]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_dump_shows_every_file_in_the_order_of_its_offsets(evidence: Path) -> None:
    before, files = contents(evidence), named(evidence)
    assert [os.path.basename(file)[18:] for file in files] == ["08.log.from-134", "12.log", "16.log"]
    for place in (evidence, log_of(evidence)):
        ran = look("dump", place, "--records")
        assert (ran.status, ran.stderr) == (1, "")
        heads = [line for line in ran.lines if line.startswith("orders-0: ")]
        assert [head.rpartition(", ")[2] for head in heads] == files
        assert [line for line in ran.lines if line.startswith("DAMAGED: ")] == [
            f"DAMAGED: {files[0]} at position 0: the valid part ends here, before offset 10: the batch does not match its payload checksum"
        ]
        shown = [line.split()[0] for line in ran.lines if line.startswith("    ")]
        assert shown == [str(n) for n in range(12, 20)]
        plain = look("dump", place, "--records", "--format", "json")
        assert (plain.status, offsets(plain)) == (1, list(range(12, 20)))
        assert [line["segment"]["file"] for line in plain.json_lines if "segment" in line] == files
        assert {line["topic"] for line in plain.json_lines if "offset" in line} == {"orders"}
        assert {line["log"] for line in plain.json_lines if "position" in line} == {"orders-0"}
    assert contents(evidence) == before


def test_verify_says_what_is_there(evidence: Path) -> None:
    files = named(evidence)
    for place in (evidence, log_of(evidence)):
        ran = look("verify", place)
        assert ran.status == 1
        assert [line.split() for line in ran.lines[1:4]] == [
            ["orders-0", "00000000000000000008.log.from-134", str(os.path.getsize(files[0])), "0", "0", "-"],
            ["orders-0", "00000000000000000012.log", str(os.path.getsize(files[1])), "2", "4", "12-15"],
            ["orders-0", "00000000000000000016.log", str(os.path.getsize(files[2])), "2", "4", "16-19"],
        ]
        assert ran.lines[4:] == [
            f"DAMAGED: {files[0]} at position 0: no intact batch in {os.path.getsize(files[0])} bytes",
            "evidence of a repair: 3 files, 8 intact records, damaged places: 1",
        ]
        plain = look("verify", place, "--format", "json")
        assert (plain.status, plain.json["intact"], plain.json["logs"], plain.json["unreadable"]) == (1, False, [], [])
        assert [(one["log"], one["file"], one["intact_records"], one["intact_offsets"]) for one in plain.json["evidence"]] == [
            ("orders-0", files[0], 0, []),
            ("orders-0", files[1], 4, [[12, 16]]),
            ("orders-0", files[2], 4, [[16, 20]]),
        ]
        assert [(one["file"], one["position"]) for one in plain.json["damages"]] == [(files[0], 0)]


def test_a_large_file_is_told_in_kib(evidence: Path) -> None:
    file = Path(named(evidence)[1])
    file.write_bytes(file.read_bytes() + b"?" * (3_072 - file.stat().st_size))
    rows = [look("verify", evidence, *more).lines[2].split()[2:4] for more in ((), ("--raw",))]
    assert rows == [["3", "KiB"], ["3072", "2"]]


def test_what_lies_between_intact_batches_is_a_place_of_its_own(evidence: Path) -> None:
    files = named(evidence)
    whole = Path(files[1])
    begun = whole.read_bytes()
    whole.write_bytes(begun + b"?" * 9 + begun)  # as if batches were written twice
    plain = look("verify", evidence, "--format", "json").json
    assert [(one["file"], one["position"], one["reason"][-8:]) for one in plain["damages"]][1:] == [(files[1], len(begun), " 9 bytes")]
    assert plain["evidence"][1]["intact_offsets"] == [[12, 16], [12, 16]]


def test_bytes_that_are_missing_in_a_batch_hide_none_behind_it(evidence: Path) -> None:
    whole = Path(named(evidence)[1])
    begun = whole.read_bytes()
    whole.write_bytes(begun[:70] + begun[72:])
    assert offsets(look("dump", evidence, "--records", "--format", "json")) == [14, 15, 16, 17, 18, 19]


def batch_of(identity: PartitionId, offset: int, value: bytes) -> bytes:
    batch = RecordBatch(encode_records([value], now_ms=1))
    batch.stamp(identity, offset, 0)
    return batch.to_bytes()


def test_a_batch_within_a_record_is_none_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / f"{'ab' * 16}-0-0"
    log.mkdir(parents=True)
    inner, outer = PartitionId(b"i" * 16, 0, 0), PartitionId(b"o" * 16, 0, 0)
    value = batch_of(inner, 7, b"x")
    damaged, intact = bytearray(batch_of(outer, 0, b"?" + value)), batch_of(outer, 1, b"y")
    del damaged[damaged.index(b"?" + value)]
    (log / f"{0:020d}.log.from-0").write_bytes(damaged + intact)
    assert look("verify", tmp_path, "--format", "json").json["evidence"][0]["intact_offsets"] == [[1, 2]]
    dumped = look("dump", tmp_path, "--format", "json").json_lines
    assert [(line["base_offset"], line["crc_ok"]) for line in dumped if "crc_ok" in line] == [(0, False), (1, True)]


def test_pieces_of_one_file_stand_by_their_places(evidence: Path) -> None:
    whole = named(evidence)[1]
    half = Path(whole).read_bytes()
    middle = look("dump", whole, "--format", "json").json_lines[1]["position"]
    Path(whole).unlink()
    Path(f"{whole}.from-1000").write_bytes(half[middle:])
    Path(f"{whole}.from-866").write_bytes(half[:middle])
    assert offsets(look("dump", evidence, "--records", "--format", "json")) == list(range(12, 20))


def test_a_folder_that_the_disk_does_not_give_hides_no_other(evidence: Path) -> None:
    loop = evidence / "logs" / "loop"
    loop.symlink_to("loop")
    for verb in ("dump", "verify"):
        ran = look(verb, evidence)
        assert (ran.status, ran.stderr) == (1, "")
        assert any(line.startswith(f"UNREADABLE: {loop}: ") for line in ran.lines)
    assert len(look("verify", evidence, "--format", "json").json["evidence"]) == 3


def test_a_log_that_was_cut_whole(tmp_path: Path) -> None:
    """No name tells it from the folder of a log then: the plan beside it does."""
    data = stopped_broker(tmp_path / "data")
    flip(sorted(log_folder(data).glob("*.log"))[0], 30)
    evidence = repaired(data)
    for place in (evidence, log_of(evidence)):
        assert offsets(look("dump", place, "--records", "--format", "json")) == list(range(2, 20))
        assert look("verify", place).lines[-1] == "evidence of a repair: 5 files, 18 intact records, damaged places: 1"


def test_a_folder_of_evidence_that_was_copied_elsewhere(evidence: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_of(evidence), tmp_path / "copy")
    assert offsets(look("dump", copy, "--records", "--format", "json")) == list(range(12, 20))
    assert look("verify", copy).status == 1


def test_topics_are_chosen(evidence: Path) -> None:
    assert len(offsets(look("dump", evidence, "--topic", "orders", "--records", "--format", "json"))) == 8
    for verb in ("dump", "verify"):
        ran = look(verb, evidence, "--topic", "oders")
        assert (ran.status, ran.stdout) == (2, "")
        assert ran.stderr == f"replog: no log of topic 'oders' in {evidence}; there are orders; did you mean 'orders'?\n"


def test_what_cannot_be_shown_hides_no_other(evidence: Path) -> None:
    files = named(evidence)
    Path(files[0]).write_bytes(b"x" * 300)
    os.truncate(files[1], 0)
    os.unlink(files[2])
    os.symlink(files[1], files[2])
    first = log_of(evidence) / f"{0:020d}.log.from-7"
    first.touch()
    for verb in ("dump", "verify"):
        ran = look(verb, evidence)
        assert (ran.status, ran.stderr) == (1, "")
        told = [line for line in ran.lines if line.startswith(("DAMAGED: ", "UNREADABLE: "))]
        empty, damaged, link = told
        assert empty == f"DAMAGED: {first} at position 0: it is empty: a repair was interrupted while it copied"
        assert damaged.startswith(f"DAMAGED: {files[0]} at position 0: ")
        assert link.startswith(f"UNREADABLE: {files[2]}: ")
    dumped = look("dump", evidence, "--format", "json")
    assert [next(iter(line)) for line in dumped.json_lines] == ["damage", "damage", "segment", "unreadable"]


def test_a_repair_of_small_files_alone_has_kept_no_records(tmp_path: Path) -> None:
    data = stopped_broker(tmp_path / "data")
    flip(data / "checkpoint", 10)
    evidence = repaired(data)
    for verb in ("dump", "verify"):
        ran = look(verb, evidence)
        assert (ran.status, ran.lines) == (0, [f"evidence of a repair: 0 files, 0 intact records; {evidence}/plan.json says what was cut"])


@pytest.mark.parametrize(
    "plan",
    [
        None,
        b"",
        b"[]",
        b"\xff",
        b'{"plan": 1, "directory": 2, "logs": 3}',
        b'{"plan": 1, "directory": 2, "logs": [3, {}, {"folder": 1, "log": "a-0"}, {"folder": "a", "log": 2}]}',
    ],
)
def test_a_plan_that_says_nothing(evidence: Path, plan: bytes | None) -> None:
    """Its logs are known by their files."""
    (evidence / "plan.json").unlink()
    if plan is not None:
        (evidence / "plan.json").write_bytes(plan)
    ran = look("dump", log_of(evidence), "--records", "--format", "json")
    assert offsets(ran) == list(range(12, 20))
    assert {line["topic"] for line in ran.json_lines if "offset" in line} == {""}
    assert offsets(look("dump", evidence, "--records", "--format", "json")) == list(range(12, 20))


def test_a_folder_with_a_plan_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "logs" / "x").mkdir(parents=True)
    for plan in ({}, {"name": "x"}):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        for verb in ("dump", "verify"):
            ran = look(verb, tmp_path)
            assert (ran.status, ran.stdout) == (2, "")
            assert "is neither a broker's data directory nor the folder of a log" in ran.stderr


def test_a_broker_stays_a_broker(evidence: Path, tmp_path: Path) -> None:
    """Whatever somebody puts into its directory."""
    data = tmp_path / "data" / "broker-1"
    shutil.copy(evidence / "plan.json", data)
    shutil.copy(named(evidence)[0], log_folder(data))
    for place in (data, log_folder(data)):
        ran = look("verify", place, "--topic", "orders")
        assert (ran.status, ran.lines[-1]) == (0, "1 logs, all intact")
        assert offsets(look("dump", place, "--topic", "orders", "--records", "--format", "json")) == list(range(10))


def test_a_batch_of_another_log_does_not_get_the_name_of_this_one(evidence: Path, tmp_path: Path) -> None:
    (other,) = (log for log in (tmp_path / "data" / "broker-1" / "logs").iterdir() if log.name != log_of(evidence).name)
    whole = Path(named(evidence)[1])
    whole.write_bytes(whole.read_bytes() + (other / f"{0:020d}.log").read_bytes())
    lines = look("dump", evidence, "--records", "--format", "json").json_lines
    assert [line["log"] for line in lines if "crc_ok" in line and line["base_offset"] == 0] == [f"{other.name.partition('-')[0]}-0"]
    assert {line["topic"]: line["offset"] for line in lines if "offset" in line} == {"orders": 19, "": 0}


def test_a_batch_of_a_newer_version_hides_no_other(evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = named(evidence)[1:]

    def newer(context: object, path: str, topic: str) -> int:
        if path == others[0]:
            raise UsageError(f"{path} has a batch of format 2")
        return dump_file(context, path, topic)  # type: ignore[arg-type]

    monkeypatch.setattr("replog.cli.evidence.dump_file", newer)
    ran = look("dump", evidence)
    assert ran.status == 1
    assert f"UNREADABLE: {others[0]}: has a batch of format 2" in ran.lines
    assert sum(line.startswith("orders-0: ") for line in ran.lines) == 2
