"""`replog log verify` and `dump`: what they see, what they name, and that they change nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Ran, log_folder, run_with, stopped_broker

import replog
from replog.cli.copies import FS, Copy, examine, find
from replog.config import TopicConfig
from replog.log import segmented
from replog.log.directory import FileLogDirectory
from replog.log.files import OS
from replog.log.segment import segment_name
from replog.log.storage import Marker, place_marker
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.log_contract import append


def look(*words: object) -> Ran:
    return run_with(None, "log", *map(str, words))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that was stopped: two logs, one of them with several segments."""
    return stopped_broker(tmp_path / "data", "empty")


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Everything in every file, and when it was last written."""
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(folder.rglob("*")) if file.is_file()}


def test_intact(data: Path) -> None:
    before = contents(data)
    ran = look("verify", data)
    assert (ran.status, ran.lines[-1]) == (0, "3 logs, all intact")
    rows = {line.split()[1]: line.split()[2:] for line in ran.lines[1:4]}
    assert rows["orders-0"][1:3] == ["0", "20"]
    assert int(rows["orders-0"][0]) > 2
    assert rows["empty-0"] == ["0", "0", "0", "0", "intact"]
    assert contents(data) == before


@pytest.mark.parametrize("verb", ["verify", "dump"])
def test_a_topic_that_is_not_there_is_refused(data: Path, verb: str) -> None:
    """A typing error is no proof that anything is intact."""
    ran = look(verb, data, "--topic", "oders")
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr == f"replog: no log of topic 'oders' in {data}; there are empty, orders, other; did you mean 'orders'?\n"


def test_json(data: Path) -> None:
    plain = look("verify", data, "--format", "json", "--topic", "orders").json
    assert (plain["intact"], plain["damages"], len(plain["logs"])) == (True, [], 1)
    log = plain["logs"][0]
    assert (log["topic"], log["partition"], log["start_offset"], log["end_offset"], log["intact"]) == ("orders", 0, 0, 20, True)
    assert log["bytes"] == sum(file.stat().st_size for file in log_folder(data).glob("*.log"))


def test_a_cluster_and_one_log_are_found_as_well(data: Path, tmp_path: Path) -> None:
    assert look("verify", data.parent).lines[-1] == "3 logs, all intact"
    alone = look("verify", log_folder(data), "--format", "json").json
    assert [(log["topic"], log["end_offset"]) for log in alone["logs"]] == [("orders", 20)]
    for name in ("copied", log_folder(data).name):
        copy = shutil.copytree(log_folder(data), tmp_path / name)
        alone = look("verify", copy, "--format", "json").json
        assert [(log["topic"], log["end_offset"], log["intact"]) for log in alone["logs"]] == [(None, 20, True)]


def test_a_log_on_its_own(tmp_path: Path) -> None:
    with replog.Log.open(tmp_path / "journal") as log:
        log.append_records(["first", "second"])
    assert look("verify", tmp_path / "journal").lines[-1] == "1 logs, all intact"


def test_while_a_broker_has_it_open(tmp_path: Path) -> None:
    with replog.Cluster(tmp_path / "data", brokers=3) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["x"])
        assert look("verify", tmp_path / "data").lines[-1] == "3 logs, all intact"
        cluster.append("t", 0, ["y"])
        assert look("dump", tmp_path / "data" / "broker-1", "--records", "--format", "json").json_lines[-1]["value"] == "y"
        cluster.kill_broker(1)
        assert look("verify", tmp_path / "data").lines[-1] == "3 logs, all intact"
        cluster.start_broker(1)
        assert len(list(cluster.read("t"))) == 2


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def segments(data: Path) -> list[Path]:
    return sorted(log_folder(data).glob("*.log"))


@pytest.mark.parametrize(
    ("harm", "where", "why"),
    [
        (lambda s: flip(s[1], 120), lambda s: (s[1], 0), "does not match its payload checksum"),
        (lambda s: flip(s[1], s[1].stat().st_size - 1), lambda s: (s[1], None), "payload checksum"),
        (lambda s: flip(s[-1], 3), lambda s: (s[-1], 0), "no batch with a valid header"),
        (lambda s: os.truncate(s[0], s[0].stat().st_size - 5), lambda s: (s[0], None), "bytes of a batch of"),
        (lambda s: s[1].unlink(), lambda s: (s[2], 0), "it begins at offset"),
        (lambda s: s[-1].unlink(), lambda s: (s[-2], s[-2].stat().st_size), "were flushed, and are missing"),
        (lambda s: os.truncate(s[-1], 5), lambda s: (s[-1], 0), "5 bytes of a batch header"),
        (lambda s: shutil.copyfile(s[0], s[1]), lambda s: (s[1], 0), "offset 0 of log"),
    ],
)
def test_damage_is_named(
    data: Path, harm: Callable[[list[Path]], object], where: Callable[[list[Path]], tuple[Path, int]], why: str
) -> None:
    files = segments(data)
    harm(files)
    file, position = where(files)
    ran = look("verify", data, "--format", "json")
    assert ran.status == 1
    assert not ran.json["intact"]
    first = ran.json["damages"][0]
    assert first["file"] == str(file)
    assert why in first["reason"]
    assert position is None or first["position"] == position
    assert [log["intact"] for log in ran.json["logs"] if log["topic"] == "other"] == [True]

    text = look("verify", data)
    assert text.status == 1
    assert f"DAMAGED: {file} at position {first['position']}: {first['reason']}" in text.lines
    assert text.lines[-1].startswith("3 logs, damaged places: ")

    dumped = look("dump", data, "--format", "json")
    assert dumped.status == 1
    assert first in [line["damage"] for line in dumped.json_lines if "damage" in line]
    offsets = [line["base_offset"] for line in dumped.json_lines if line.get("log") == "orders-0"]
    assert offsets == sorted(set(offsets)), "what is intact is shown, once"


@pytest.mark.parametrize(
    ("name", "why"),
    [("meta", "checksum"), ("checkpoint", "checksum"), ("clean", "checksum"), ("life", "checksum")],
)
def test_damage_of_a_directory_is_named(data: Path, name: str, why: str) -> None:
    flip(data / name, (data / name).stat().st_size - 1)
    ran = look("verify", data, "--format", "json")
    assert ran.status == 1
    assert [(d["file"], d["position"]) for d in ran.json["damages"]] == [(str(data / name), 0)]
    assert why in ran.json["damages"][0]["reason"]


def test_a_damaged_catalogue(data: Path) -> None:
    flip(data / "catalogue", 12)
    ran = look("verify", data, "--format", "json")
    assert ran.status == 1
    assert [(d["file"], d["position"]) for d in ran.json["damages"]] == [(str(data / "catalogue"), 0)]


def test_a_log_that_nobody_knows(data: Path) -> None:
    stray = data / "logs" / f"{'ab' * 16}-0-0"
    stray.mkdir()
    ran = look("verify", data, "--format", "json")
    assert [(d["file"], ran.status) for d in ran.json["damages"]] == [(str(stray), 1)]


def killed(tmp_path: Path) -> Path:
    """The directory of a broker that was not stopped: a copy made while it ran."""
    with replog.Cluster(tmp_path / "data", brokers=1) as cluster:
        cluster.create_topic("t")
        for n in range(5):
            cluster.append("t", 0, [f"{n}"])
        return shutil.copytree(tmp_path / "data" / "broker-1", tmp_path / "killed")


def test_an_unfinished_write_is_no_damage(tmp_path: Path) -> None:
    directory = killed(tmp_path)
    (file,) = segments(directory)
    os.truncate(file, file.stat().st_size - 3)
    ran = look("verify", directory)
    assert (ran.status, ran.lines[-1]) == (0, "1 logs, all intact")
    assert any(line.startswith("unfinished write") and str(file) in line for line in ran.lines)
    assert look("verify", directory, "--format", "json").json["logs"][0]["end_offset"] == 4
    assert "unfinished write" in look("dump", directory).stdout


def test_a_first_segment_that_a_power_cut_took_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = stopped_broker(tmp_path / "data")
    (data / "clean").unlink()
    sorted(log_folder(data).glob("*.log"))[0].unlink()
    assert run_with(None, "log", "verify", str(data)).status == 0, "killed under this boot: it was trimmed"
    monkeypatch.setattr(type(FS), "boot_id", lambda self: "another")
    ran = run_with(None, "log", "verify", str(data))
    assert (ran.status, "the log begins at offset 0, and no segment in front of this one is there" in ran.stdout) == (1, True)
    (data / "checkpoint").unlink()
    assert run_with(None, "log", "verify", str(data)).status == 0, "nothing says where the log began"


@pytest.mark.parametrize(("same_boot", "status"), [(True, 1), (False, 0)])
@pytest.mark.parametrize("empty", [[7], [7, 9], [5, 9]])
def test_names_of_files_that_were_never_written_are_no_damage_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: list[int], same_boot: bool, status: int
) -> None:
    directory = killed(tmp_path)
    (file,) = segments(directory)
    for base in empty:
        (file.parent / segment_name(base)).touch()
    if not same_boot:
        monkeypatch.setattr(type(FS), "boot_id", lambda self: "another")
    ran = look("verify", directory, "--format", "json")
    assert (ran.status, look("repair", directory).status) == (status, status)
    if not same_boot:
        assert ran.json["logs"][0]["end_offset"] == 5
        os.truncate(file, 0)
        assert look("verify", directory, "--format", "json").json["logs"][0]["end_offset"] == 0
        file.unlink()
        assert look("verify", directory, "--format", "json").json["logs"][0]["end_offset"] == 0
        assert look("repair", directory).status == 0
        (directory / "checkpoint").unlink()
        assert look("verify", directory, "--format", "json").json["logs"][0]["start_offset"] == empty[0], "nothing else says it"


@pytest.mark.parametrize("zeros", [False, True])
def test_what_a_power_cut_has_torn_below_the_start_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zeros: bool) -> None:
    """All has expired, and the last segment, which nobody had flushed, is not removed yet."""
    monkeypatch.setattr(segmented, "_REMOVALS_MAX", 1)
    directory = FileLogDirectory(tmp_path / "data")
    config = TopicConfig(segment_bytes=1_500, retention_ms=1_000, flush="os")
    (log,) = directory.create([LogStart(PartitionId(bytes(16), 0, 0), "t", config)])
    for number in range(12):
        append(log, ["x" * 300], at_ms=number)
    assert log.retain(1_000_000, 12) == 12
    assert log.is_trimming
    directory.checkpoint()
    directory.close(clean=False)
    last = segments(tmp_path / "data")[-1]
    torn = last.read_bytes()
    last.write_bytes(torn[:500] + bytes(100) + torn[600:] if zeros else torn[:600])
    for path in segments(tmp_path / "data")[:-1]:
        path.unlink()
    for fs in (FS, OS):
        monkeypatch.setattr(type(fs), "boot_id", lambda self: "another")
    assert run_with(None, "log", "verify", str(tmp_path / "data")).status == 0
    assert run_with(None, "log", "repair", str(tmp_path / "data")).status == 0
    directory = FileLogDirectory(tmp_path / "data")
    assert [one.corrupt for one in directory.recovered.values()] == [""]
    directory.close(clean=True)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_first_segment_that_is_missing_after_a_clean_stop_is_missed(data: Path, checkpoint: bool) -> None:
    """What a broker leaves when it is stopped says where each log begins, and nothing is trimmed afterwards."""
    first = segments(data)[0]
    first.unlink()
    if not checkpoint:
        (data / "checkpoint").unlink()
    for folder in (data, first.parent):
        ran = look("verify", folder)
        assert (ran.status, "the log begins at offset 0, and no segment in front of this one is there" in ran.stdout) == (1, True)
    shown = look("repair", data)
    assert (shown.status, "no segment begins at offset 0, and" in shown.stdout) == (1, True)


@pytest.mark.parametrize(("same_boot", "status"), [(True, 1), (False, 0)])
def test_garbage_at_the_end_is_damage_unless_the_machine_has_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_boot: bool, status: int
) -> None:
    directory = killed(tmp_path)
    (file,) = segments(directory)
    with file.open("ab") as end:
        end.write(bytes(200))
    if not same_boot:
        monkeypatch.setattr(type(FS), "boot_id", lambda self: "another")
    assert look("verify", directory).status == status


def test_damage_with_something_behind_it_is_damage_after_a_restart_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = killed(tmp_path)
    monkeypatch.setattr(type(FS), "boot_id", lambda self: "another")
    (file,) = segments(directory)
    flip(file, 100)
    assert look("verify", directory).status == 1


def test_dump_shows_batches_and_records(data: Path) -> None:
    ran = look("dump", data, "--topic", "orders", "--records")
    assert ran.status == 0
    assert ran.lines[0].startswith("orders-0: offsets 0 to 20, ")
    assert ran.lines[1].split()[:3] == ["position", "offsets", "epoch"]
    assert ran.lines[2] == f"{'0' * 20}:"
    assert ran.lines[3].split()[:3] == ["0", "0-1", "0"]
    assert ran.lines[5].endswith("'k'  'two 0'")
    files = [line for line in ran.lines if line.endswith(":")]
    assert files == sorted(f"{file.name.removesuffix('.log')}:" for file in log_folder(data).glob("*.log"))
    assert len(ran.lines) == 2 + len(files) + 10 + 20


def test_bytes_that_are_no_text_are_not_shown_as_one(tmp_path: Path) -> None:
    """The base64 of one record is the text of another."""
    with replog.Cluster(tmp_path / "data", brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, [b"\xff\xfe\x1b[31m", "//4bWzMxbQ==", replog.Record("v", key=b"\xff"), replog.Record(None, key="k")])
    directory = tmp_path / "data" / "broker-1"
    (file,) = log_folder(directory).glob("*.log")
    for place in (directory, file):
        ran = look("dump", place, "--records")
        cells = [line.split("  ")[-2:] for line in ran.lines if line.startswith("    ")]
        assert cells == [["None", "base64 '//4bWzMxbQ=='"], ["None", "'//4bWzMxbQ=='"], ["base64 '/w=='", "'v'"], ["'k'", "None"]]


def test_dump_fits_on_a_line_of_100_columns(tmp_path: Path) -> None:
    """A producer's id has 63 bits, of which the end is shown."""
    with replog.Cluster(tmp_path / "data", brokers=1) as cluster, cluster.producer() as producer:
        cluster.create_topic("orders")
        for _ in range(3):
            for _ in range(1_000):
                producer.send("orders", "x" * 200, partition=0)
            producer.flush()
    folder = tmp_path / "data" / "broker-1"
    (batch, *_) = look("dump", folder, "--format", "json").json_lines
    assert batch["producer_id"] > 10**9
    head, _, *lines = look("dump", folder).lines[1:]
    cells = lines[0].split()
    assert cells[0] == "0"
    assert cells[1] == f"0-{batch['last_offset']}"
    assert cells[5] == f"..{str(batch['producer_id'])[-5:]}/{batch['producer_epoch']}"
    assert cells[6:] == [str(batch["base_sequence"]), batch["codec"], str(batch["bytes"])]
    assert len(lines) >= 3
    assert max(map(len, (head, *lines))) <= 100


def test_dump_as_json(data: Path) -> None:
    lines = look("dump", data, "--topic", "orders", "--format", "json").json_lines
    assert [(line["base_offset"], line["last_offset"], line["records"]) for line in lines] == [(n, n + 1, 2) for n in range(0, 20, 2)]
    for line in lines:
        assert Path(line["file"]).stat().st_size >= line["position"] + line["bytes"]
    records = [line for line in look("dump", data, "--topic", "orders", "--records", "--format", "json").json_lines if "value" in line]
    assert [record["offset"] for record in records] == list(range(20))
    assert {record["topic"] for record in records} == {"orders"}


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("x")])
def test_what_is_no_log_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "x")
    ran = look("verify", tmp_path / "x")
    assert (ran.status, ran.stdout) == (2, "")
    assert str(tmp_path / "x") in ran.stderr


def test_the_door_for_reading_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    fd = FS.open(str(file))
    for change in (
        lambda: FS.pwritev(fd, (b"y",), 0),
        lambda: FS.ftruncate(fd, 0),
        lambda: FS.unlink(str(file)),
        lambda: FS.rename(str(file), "y"),
        lambda: FS.open(str(tmp_path / "new"), create=True),
        lambda: FS.lock(fd),
        lambda: OS.pwritev(fd, (b"y",), 0),  # the descriptor itself cannot
    ):
        with pytest.raises(OSError):  # noqa: PT011  # EROFS, or EBADF
            change()
    OS.close(fd)
    assert file.read_bytes() == b"x"
    assert os.listdir(tmp_path) == ["file"]


def test_what_seems_damaged_is_read_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker cuts and rewrites the end of a log while somebody looks: the next reading finds it in order."""
    (place,) = find(str(data))
    copy = next(copy for copy in place.copies if copy.topic == "orders")
    last = segments(data)[-1]
    whole = last.read_bytes()
    readings: list[int] = []

    def listed(self: object, path: str) -> list[str]:
        readings.append(1)
        last.write_bytes(b"\0" * 200 if len(readings) == 1 else whole)
        return sorted(os.listdir(path))

    monkeypatch.setattr(type(FS), "listdir", listed)
    report = examine(copy)
    assert (report.damages, report.end_offset, len(readings)) == ([], 20, 2)


def test_a_segment_that_goes_while_we_look(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = find(str(data))
    copy = next(copy for copy in place.copies if copy.topic == "orders")
    first = segments(data)[0]
    monkeypatch.setattr(type(FS), "listdir", lambda self, path: sorted({*os.listdir(path), first.name}))
    first.unlink()
    report = examine(copy)
    assert [damage.reason for damage in report.damages] == ["its files keep disappearing while they are read"]


def test_a_log_without_a_record_has_no_folder(tmp_path: Path) -> None:
    report = examine(Copy(str(tmp_path / "nothing"), PartitionId(b"x" * 16, 0, 0)))
    assert (report.damages, report.end_offset) == ([], 0)


@pytest.mark.parametrize(("marker", "status"), [(None, 1), (Marker(-1, 0), 0), (Marker(-1, 20), 1)])
def test_what_was_truncated_is_not_missing(data: Path, marker: Marker | None, status: int) -> None:
    """A truncation that the checkpoint does not know of yet has left a marker."""
    segments(data)[-1].unlink()
    if marker is not None:
        place_marker(OS, str(log_folder(data)), marker)
    assert look("verify", data).status == status


def test_what_a_reset_is_about_to_remove_does_not_count(data: Path) -> None:
    flip(segments(data)[0], 100)
    place_marker(OS, str(log_folder(data)), Marker(50, 0, resetting=True))
    report = examine(next(copy for copy in find(str(data))[0].copies if copy.topic == "orders"))
    assert (report.damages, report.start_offset, report.end_offset) == ([], 50, 50)


def test_a_damaged_marker(data: Path) -> None:
    (log_folder(data) / "marker").write_bytes(b"RLcpnonsense")
    ran = look("verify", data, "--format", "json")
    assert (ran.status, ran.json["damages"][0]["file"]) == (1, str(log_folder(data) / "marker"))


@pytest.mark.parametrize("name", ["checkpoint", "clean", "life"])
def test_a_small_file_in_the_place_of_another_is_damage(data: Path, name: str) -> None:
    """It matches its checksum."""
    shutil.copy(data / "meta", data / name)
    ran = look("verify", data)
    assert ran.status == 1
    size = (data / "meta").stat().st_size
    assert f"DAMAGED: {data / name} at position 0: its {size} bytes do not match their checksum, or belong elsewhere" in ran.lines
