"""Repairing a directory: what is in front of the damage stays as it is, what goes was named, and a broker hears that it went."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from errno import ENOSPC
from functools import cache

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.lives import FOLDER, IDENTITY, kill, open_directory, open_log, reopened, segments

from replog.config import TopicConfig
from replog.errors import LogCorrupt, UsageError
from replog.log.checkpoint import read_plain, seal, write_plain
from replog.log.log import FileLog
from replog.log.repair import Plan, carry_out, plan_of
from replog.log.segment import segment_base
from replog.log.storage import Marker, place_marker, read_marker
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, crash_states, some
from replog.testing.disk.ledger import Stored
from replog.testing.disk.trial import content_of
from replog.testing.log_contract import append, flush
from replog.testing.log_samples import batch_of

OTHER = IDENTITY._replace(partition=1)
EVIDENCE = "/evidence"
Batches = tuple[Stored, ...]


def written(disk: MemoryFs, *, clean: bool = True, trim: int = 0, batches: int = 24) -> Batches:
    """Two logs, one of several segments and epochs, flushed up to its last but two batches. Returns what that one holds."""
    directory, log = open_log(disk)
    (other,) = directory.create([LogStart(OTHER, "other", TopicConfig())])
    append(other, ["kept", "kept"])
    for number in range(batches):
        append(log, [f"{number} {'x' * (number % 5 * 20)}", "y"][: 1 + number % 2], epoch=number // 6, producer=(7, 0, 10 * number))
        if number == batches - 3:
            flush(other)
            flush(log)
            directory.checkpoint()
        if trim and number == batches // 2:
            log.trim_to(trim)
    content = content_of(log).batches
    if clean:
        directory.registered(5)
        directory.close(clean=True)
        disk.kill()
    else:
        kill(disk, directory)
    return content


@cache
def prepared(clean: bool, trim: int) -> tuple[dict[str, bytes], Batches]:
    """The files of such a directory."""
    disk = MemoryFs()
    content = written(disk, clean=clean, trim=trim)
    return {f"/{path}": data for path, data in disk.snapshot().items()}, content


def disk_with(files: dict[str, bytes]) -> MemoryFs:
    return MemoryFs.holding(files, ["/d/quarantine", "/d/logs"])


def repaired(disk: MemoryFs) -> Plan:
    """Repair everything; the plan it was done by."""
    plan = plan_of(disk, "/d")
    if not plan.is_empty:
        carry_out(disk, plan, f"{EVIDENCE}-{plan.name}")
    return plan


def flip(disk: MemoryFs, path: str, position: int) -> None:
    disk.content(path)[position] ^= 1


# ------------------------------------------------------------------------------------------------------------ any damage


def damage(disk: MemoryFs, kind: str, chance: random.Random) -> None:
    """Break something."""
    files = segments(disk)
    file = chance.choice(files)
    data = disk.content(file)
    if kind == "flip":
        flip(disk, file, chance.randrange(len(data)))
    elif kind == "cut short":
        del data[chance.randrange(len(data)) :]
    elif kind == "middle gone":
        disk.unlink(chance.choice(files[1:-1]))
    elif kind == "garbage behind":
        data += chance.randbytes(chance.randrange(1, 200))
    elif kind == "zeros":
        at = chance.randrange(len(data))
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    elif kind == "moved":
        other = disk.content(chance.choice(files))
        data[: len(other)] = other[: len(data)]
    elif kind == "index":
        disk.unlink(chance.choice([f"/{path}" for path in disk.paths(FOLDER) if path.endswith(".index")]))
    elif kind == "checkpoint":
        flip(disk, "/d/checkpoint", chance.randrange(len(disk.content("/d/checkpoint"))))
    elif kind == "clean" and "d/clean" in disk.paths():
        flip(disk, "/d/clean", chance.randrange(len(disk.content("/d/clean"))))
    elif kind == "life":
        flip(disk, "/d/life", chance.randrange(len(disk.content("/d/life"))))
    elif kind == "marker":
        place_marker(disk, FOLDER, Marker(-1, 10**6))
        flip(disk, f"{FOLDER}/marker", 9)


KINDS = ("flip", "cut short", "middle gone", "garbage behind", "zeros", "moved", "index", "checkpoint", "clean", "life", "marker")


def untouched(before: dict[str, bytes], disk: MemoryFs, content: Batches) -> Batches:
    """The batches of a log in front of the first one whose bytes are not where they were."""
    now = {f"/{path}": data for path, data in disk.snapshot(FOLDER).items()}
    sizes, kept = dict.fromkeys(segments(disk_with(before)), 0), []
    for batch in content:
        file = max(path for path in sizes if (segment_base(path.rpartition("/")[2]) or 0) <= batch.base)
        at = before[file].index(batch.data, sizes[file])
        if now.get(file, b"")[at : at + len(batch.data)] != batch.data:
            return tuple(kept)
        kept.append(batch)
        sizes[file] = at + len(batch.data)
    return tuple(kept)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), st.booleans(), st.sampled_from([0, 9]), st.integers(0, 2**32))
def test_any_damage(kinds: list[str], clean: bool, trim: int, seed: int) -> None:
    before, content = prepared(clean, trim)
    disk, chance = disk_with(before), random.Random(seed)
    for kind in kinds:
        damage(disk, kind, chance)
    intact = untouched(before, disk, content)
    damaged = disk.snapshot()
    plan = repaired(disk)
    after = disk.snapshot()
    ours = [one for one in plan.logs if one.identity == IDENTITY]

    assert plan_of(disk, "/d").is_empty
    named = {f"d/{name}" for name in ("life", "clean", *plan.small)} | {f"d/{one.folder}/marker" for one in plan.logs}
    named |= {f"d/{name}" for one in plan.logs for name in one.indexes}
    cuts = {f"d/{cut.file}": cut for one in plan.logs for cut in one.cuts}
    for path, data in damaged.items():  # nothing is gone or other that was not named, and of what was named nothing else
        if path in cuts:
            assert after.get(path, b"") == data[: cuts[path].position]
            copy = f"{EVIDENCE}-{plan.name}/{cuts[path].file}".lstrip("/") + (f".from-{cuts[path].position}" if cuts[path].position else "")
            assert after[copy] == data[cuts[path].position :]
        elif path not in named:
            assert after[path] == data
    assert {path for path in after if path.startswith("d/")} - set(damaged) <= named

    directory, log = reopened(disk)
    kept = content_of(log).batches
    assert kept[: len(intact)] == intact[: len(kept)]
    reaches = ours[0].end if ours else log.end_offset
    assert log.end_offset == max(reaches, log.start_offset)
    assert kept == content[: len(kept)], "what is left is what was written, from the first record on"
    assert ours or len(kept) >= len(intact)
    if ours and ours[0].is_lossy:
        assert directory.loss.kind == "corrupt"
        assert IDENTITY in directory.loss.lossy
        lost = [offset for first, stop in (*ours[0].unreadable, *ours[0].readable) for offset in range(first, stop)]
        assert sorted(lost) == list(range(ours[0].end, max(lost, default=-1) + 1))
    assert set(plan.lossy) <= set(directory.loss.lossy)
    other = directory.get(OTHER)
    assert isinstance(other, FileLog)
    assert len(content_of(other).batches) == 1
    append(log, ["goes on"], epoch=9)


@settings(max_examples=60)
@given(st.sampled_from(["flip", "middle gone", "zeros", "cut short"]), st.booleans(), st.integers(0, 2**32))
def test_every_record_in_front_of_the_first_damaged_batch_stays(kind: str, clean: bool, seed: int) -> None:
    before, content = prepared(clean, 0)
    disk = disk_with(before)
    damage(disk, kind, random.Random(seed))
    intact = untouched(before, disk, content)
    repaired(disk)
    _, log = reopened(disk)
    assert content_of(log).batches == intact


# ------------------------------------------------------------------------------------------------------------- known places


def hurt(*, clean: bool = True, trim: int = 0) -> tuple[MemoryFs, Batches]:
    """A directory whose third segment has a damaged batch at its end, with other segments behind it."""
    before, content = prepared(clean, trim)
    disk = disk_with(before)
    third = segments(disk)[2]
    flip(disk, third, len(disk.content(third)) - 5)
    return disk, content


def test_what_is_said_is_what_is_lost() -> None:
    disk, content = hurt()
    (one,) = plan_of(disk, "/d").logs
    assert one.unreadable
    assert one.readable
    assert one.cuts[0].position > 0
    lost = {offset for first, stop in (*one.unreadable, *one.readable) for offset in range(first, stop)}
    assert lost == set(range(one.end, content[-1].end))
    intact = {offset for batch in content if batch.base >= one.end for offset in range(batch.base, batch.end)}
    (unreadable,) = one.unreadable
    assert {offset for first, stop in one.readable for offset in range(first, stop)} == intact - set(range(*unreadable))
    assert len(one.cuts) == len(segments(disk)) - 2


def test_a_look_changes_nothing() -> None:
    disk, _ = hurt()
    before = disk.snapshot()
    faulty = FaultyFs(disk)
    assert not plan_of(faulty, "/d").is_empty
    assert (disk.snapshot(), faulty.operations) == (before, [])


def test_an_intact_directory_needs_nothing() -> None:
    for clean in (True, False):
        disk = disk_with(prepared(clean, 0)[0])
        assert plan_of(disk, "/d").is_empty


def test_an_unfinished_write_is_left_to_the_broker() -> None:
    disk = disk_with(prepared(False, 0)[0])
    del disk.content(segments(disk)[-1])[-3:]
    assert plan_of(disk, "/d").is_empty


def test_one_log_of_several() -> None:
    disk, _ = hurt()
    flip(disk, f"/d/logs/{IDENTITY.topic_id.hex()}-1-0/00000000000000000000.log", 60)
    assert [one.identity for one in plan_of(disk, "/d", IDENTITY).logs] == [IDENTITY]
    assert [one.identity for one in plan_of(disk, "/d").logs] == [IDENTITY, OTHER]


@pytest.mark.parametrize("clean", [True, False])
def test_a_repair_costs_nothing_but_what_it_cuts(clean: bool) -> None:
    """The next life goes on from those before: else the controller would take every log for lost."""
    disk = disk_with(prepared(clean, 0)[0])
    before = open_directory(disk).loss
    disk = disk_with(prepared(clean, 0)[0])
    file = segments(disk)[1]
    disk.content(file)[40] ^= 1
    assert repaired(disk).lossy == (IDENTITY,)
    loss = open_directory(disk).loss
    assert (loss.lossy, loss.since) == ((IDENTITY,), ""), "nobody has reported it"
    assert before.lives
    assert loss.lives == before.lives


def test_losses_that_were_not_reported_yet_stay_noted() -> None:
    """A life that found a loss and was killed before it could say so."""
    disk = disk_with(prepared(False, 0)[0])
    flip(disk, segments(disk)[-1], 10)
    directory = open_directory(disk)
    assert directory.loss.lossy == (IDENTITY,)
    kill(disk, directory)
    flip(disk, f"/d/logs/{IDENTITY.topic_id.hex()}-1-0/00000000000000000000.log", 60)
    assert repaired(disk).lossy == (IDENTITY, OTHER)
    assert open_directory(disk).loss.lossy == (IDENTITY, OTHER)


@pytest.mark.parametrize("kind", ["flip", "garbage behind"])
def test_damage_behind_all_that_was_known_to_be_flushed_may_be_a_loss(kind: str) -> None:
    """The broker was killed: nothing says how many records it had appended, and acknowledged, since its last checkpoint."""
    disk = disk_with(prepared(False, 0)[0])
    last = disk.content(segments(disk)[-1])
    if kind == "flip":
        last[-3] ^= 1
    else:
        last += bytes(200)
    (one,) = plan_of(disk, "/d").logs
    assert (one.unreadable, one.readable, one.is_lossy, one.is_uncounted) == ((), (), True, True)
    unrepaired = disk_with({f"/{path}": data for path, data in disk.snapshot().items()})
    repaired(disk)
    assert open_directory(disk).loss.lossy == (IDENTITY,)
    assert open_directory(unrepaired).loss.lossy == (IDENTITY,), "a broker says the same of what it finds"


@pytest.mark.parametrize("trim", [0, 9])
def test_what_is_missing_in_front_after_a_power_cut_costs_all_as_it_does_at_a_start(trim: int) -> None:
    """A log that a broker would give up by itself is not said to stay."""
    before, content = prepared(False, trim)
    disk = disk_with(before)
    disk.boots += 1
    disk.unlink(segments(disk)[0])
    (one,) = plan_of(disk, "/d").logs
    assert (one.start, one.end, len(one.cuts)) == (trim, trim, len(segments(disk)))
    assert sum(stop - first for first, stop in (*one.unreadable, *one.readable)) == content[-1].end - trim
    repaired(disk)
    directory, log = reopened(disk)
    assert (log.start_offset, log.end_offset) == (trim, trim)
    assert IDENTITY in directory.loss.lossy


@pytest.mark.parametrize("trim", [0, 9])
def test_what_is_missing_in_front_after_a_clean_stop_was_not_trimmed(trim: int) -> None:
    """Its note says where the log began, and a broker that trusts it would look in vain for what is gone."""
    before, content = prepared(True, trim)
    disk = disk_with(before)
    disk.unlink(segments(disk)[0])
    (one,) = plan_of(disk, "/d").logs
    assert (one.start, one.end, len(one.cuts)) == (trim, trim, len(segments(disk)))
    assert sum(stop - first for first, stop in (*one.unreadable, *one.readable)) == content[-1].end - trim
    repaired(disk)
    directory, log = reopened(disk)
    assert (log.start_offset, log.end_offset) == (trim, trim)
    assert directory.loss.lossy == (IDENTITY,)


@pytest.mark.parametrize("names", [["other"], ["other", "plan.json"]])
def test_evidence_of_something_else_is_not_written_over(names: list[str]) -> None:
    disk, _ = hurt()
    disk.mkdir(EVIDENCE)
    for name in names:
        disk.close(disk.open(f"{EVIDENCE}/{name}", create=True))
    before = disk.snapshot()
    with pytest.raises(UsageError, match=f"{EVIDENCE} holds something else already"):
        carry_out(disk, plan_of(disk, "/d"), EVIDENCE)
    assert disk.snapshot() == before


def test_evidence_of_the_same_places_at_another_time_is_not_written_over() -> None:
    disk, _ = hurt()
    before = disk.snapshot()
    carry_out(disk, plan_of(disk, "/d"), EVIDENCE)
    kept = disk.snapshot(EVIDENCE)
    again = disk_with({f"/{path}": data for path, data in (before | kept).items()})
    again.content(segments(again)[2])[-6] ^= 1
    with pytest.raises(UsageError, match="holds something else"):
        carry_out(again, plan_of(again, "/d"), EVIDENCE)
    assert again.snapshot(EVIDENCE) == kept


def test_power_is_judged_as_before() -> None:
    """The note says under which boot the last life was, and repairing is no life."""
    disk, _ = hurt(clean=False)
    disk.boots += 1
    repaired(disk)
    loss = open_directory(disk).loss
    assert loss.kind == "corrupt"
    assert set(loss.lossy) == {IDENTITY, OTHER}  # neither is flushed before each acknowledgement


def test_a_damaged_segment_below_the_start_costs_nothing() -> None:
    """A power cut has brought it back, or it could not be removed."""
    before, content = prepared(True, 9)
    disk = disk_with(before)
    directory, log = reopened(disk)
    assert log.start_offset == 9
    first = min(segment_base(path.rpartition("/")[2]) or 0 for path in segments(disk))
    assert first > 0
    kill(disk, directory)
    fd = disk.open(f"{FOLDER}/{0:020d}.log", create=True)
    disk.pwritev(fd, [b"garbage"], 0)
    disk.close(fd)
    (one,) = plan_of(disk, "/d").logs
    assert (one.unreadable, one.readable, one.is_lossy, [cut.file[-24:] for cut in one.cuts]) == ((), (), False, [f"{0:020d}.log"])
    repaired(disk)
    directory, log = reopened(disk)
    assert content_of(log).batches == content
    assert directory.loss.lossy == ()


def test_damage_in_front_of_the_start_leaves_an_empty_log_that_begins_there() -> None:
    before, content = prepared(True, 9)
    disk = disk_with(before)
    flip(disk, segments(disk)[0], 10)
    (one,) = plan_of(disk, "/d").logs
    assert (one.start, one.end) == (9, 9)
    assert sum(stop - first for first, stop in (*one.unreadable, *one.readable)) == content[-1].end - 9
    repaired(disk)
    _, log = reopened(disk)
    assert (log.start_offset, log.end_offset, segments(disk)) == (9, 9, [])


def test_flushed_records_that_are_missing_are_noted() -> None:
    disk = disk_with(prepared(True, 0)[0])
    disk.unlink(segments(disk)[-1])
    (one,) = plan_of(disk, "/d").logs
    assert (one.cuts, one.readable) == ((), ())
    assert one.unreadable
    repaired(disk)
    assert plan_of(disk, "/d").is_empty
    assert open_directory(disk).loss.lossy == (IDENTITY,)


def test_a_small_file_in_the_place_of_another_goes() -> None:
    """It matches its checksum, and no broker starts with it."""
    disk = disk_with(prepared(True, 0)[0])
    disk.content("/d/clean")[:] = disk.content("/d/life")
    assert list(plan_of(disk, "/d").small) == ["clean"]
    repaired(disk)
    directory, log = reopened(disk)
    assert directory.loss.kind == "process"
    assert content_of(log).batches == prepared(True, 0)[1]


@pytest.mark.parametrize("name", ["meta", "catalogue"])
def test_nobody_can_repair_what_says_which_logs_there_are(name: str) -> None:
    disk, _ = hurt()
    flip(disk, f"/d/{name}", 20)
    before = disk.snapshot()
    with pytest.raises(LogCorrupt, match=name):
        plan_of(disk, "/d")
    assert disk.snapshot() == before


def test_a_newer_format_is_refused() -> None:
    import msgpack

    disk, _ = hurt()
    disk.content("/d/meta")[:] = seal(msgpack.packb({"kind": "replog log directory", "format": 2, "directory_id": "x"}))
    with pytest.raises(UsageError, match="has format 2; this version of the library reads up to 1"):
        plan_of(disk, "/d")


# -------------------------------------------------------------------------------------------------- changed since, full, killed


CHANGES: dict[str, Callable[[MemoryFs, Plan], object]] = {
    "longer": lambda disk, plan: disk.content(f"/d/{plan.logs[0].cuts[-1].file}").extend(b"x"),
    "other bytes": lambda disk, plan: flip(disk, f"/d/{plan.logs[0].cuts[-1].file}", 200),
    "gone": lambda disk, plan: disk.unlink(f"/d/{plan.logs[0].cuts[-1].file}"),
    "a broker ran": lambda disk, plan: kill(disk, open_directory(disk)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_cut_if_something_has_changed(change: str) -> None:
    disk, _ = hurt()
    plan = plan_of(disk, "/d")
    CHANGES[change](disk, plan)
    before = disk.snapshot("d")
    with pytest.raises(UsageError, match="has changed since it was looked at; nothing was cut"):
        carry_out(disk, plan, EVIDENCE)
    assert disk.snapshot("d") == before
    assert plan_of(disk, "/d").name != plan.name


def test_the_name_of_a_plan_is_that_of_the_files() -> None:
    assert len({plan_of(hurt()[0], "/d").name for _ in range(3)}) == 1
    disk, _ = hurt()
    name = plan_of(disk, "/d").name
    flip(disk, segments(disk)[-1], 150)
    assert plan_of(disk, "/d").name != name
    assert evolve(plan_of(disk, "/d"), path="/elsewhere").name == plan_of(disk, "/d").name


def finish(disk: MemoryFs) -> None:
    """Ask again, until there is nothing left to do."""
    repaired(disk)
    assert plan_of(disk, "/d").is_empty


def all_bytes(disk: MemoryFs) -> bytes:
    return b"|".join(disk.snapshot().values())


def stopped_at(moment: int, *, clean: bool) -> tuple[MemoryFs, bool]:
    """A disk whose repair was killed after so many operations, and whether it had finished."""
    disk, _ = hurt(clean=clean)
    try:
        carry_out(FaultyFs(disk, crash_after=moment), plan_of(disk, "/d"), EVIDENCE)
    except CrashedError:
        disk.kill()
        return disk, False
    return disk, True


def judge(disk: MemoryFs, whole: MemoryFs, content: Batches, expected: int) -> None:
    """Whatever was cut by now is in the evidence, and the next life says so; the rest is done by asking again."""
    held = all_bytes(disk)
    assert all(batch.data in held for batch in content if batch.end <= expected)
    assert all(cut in held for cut in behind(whole, expected))
    if segments(disk) != segments(whole) or any(disk.content(path) != whole.content(path) for path in segments(whole)):
        again = MemoryFs.holding({f"/{path}": data for path, data in disk.snapshot().items()}, ["/d/quarantine", "/d/logs"])
        loss = open_directory(again).loss
        assert loss.kind == "corrupt"
        assert IDENTITY in loss.lossy
    finish(disk)
    directory, log = reopened(disk)
    assert content_of(log).batches == tuple(batch for batch in content if batch.end <= expected)
    assert IDENTITY in directory.loss.lossy


STATES = 8
"""What a power cut can leave at one moment: so many of it, spread over all."""


@pytest.mark.parametrize("clean", [True, False])
def test_killed_or_without_power_at_any_moment(clean: bool) -> None:
    whole, content = hurt(clean=clean)
    expected = plan_of(whole, "/d").logs[0].end
    moment, finished = 0, False
    while not finished:
        disk, finished = stopped_at(moment, clean=clean)
        for state in crash_states(disk, limit=STATES):
            left = state.disk()
            left.boots = disk.boots  # the same boot, so that nothing but the repair makes a log lossy
            assert not finished or plan_of(left, "/d").is_empty, "what was said to be done is not on the disk"
            judge(left, whole, content, expected)
        judge(disk, whole, content, expected)
        moment += 1
    assert moment > 20


def behind(disk: MemoryFs, offset: int) -> list[bytes]:
    """What is in segments that begin behind an offset."""
    return [bytes(disk.content(path)) for path in segments(disk) if (segment_base(path.rpartition("/")[2]) or 0) > offset]


def test_a_full_disk_at_any_moment() -> None:
    whole, content = hurt()
    room = 0
    while True:
        disk, _ = hurt()
        left = [room]

        def before(operation: str, path: str, left: list[int] = left) -> int | None:
            if operation in ("write", "create", "mkdir"):
                if not left[0]:
                    raise OSError(ENOSPC, "No space left on device", path)
                left[0] -= 1
            return None

        try:
            carry_out(FaultyFs(disk, before), plan_of(disk, "/d"), EVIDENCE)
            break
        except OSError:
            disk.kill()
        assert {path: disk.content(path) for path in segments(disk)} == {path: whole.content(path) for path in segments(whole)}
        finish(disk)
        _, log = reopened(disk)
        assert content_of(log).batches == tuple(batch for batch in content if batch.end <= log.end_offset)
        room += 1
    assert room > 10


def test_the_identity_of_a_log_is_no_path() -> None:
    """Only names that the directory itself gives are ever joined to a path."""
    disk, _ = hurt()
    for one in plan_of(disk, "/d").logs:
        assert one.folder == f"logs/{PartitionId(*one.identity).topic_id.hex()}-{one.identity.partition}-{one.identity.creation}"
        assert all(cut.file.startswith(f"{one.folder}/") and ".." not in cut.file for cut in one.cuts)


def test_a_reset_that_was_interrupted_is_left_to_the_broker() -> None:
    """Every segment goes with the next start, the damaged one too."""
    disk, _ = hurt(clean=False)
    place_marker(disk, FOLDER, Marker(50, 50, True))
    assert plan_of(disk, "/d").is_empty
    _, log = reopened(disk)
    assert (log.start_offset, log.end_offset) == (50, 50)


def test_where_an_empty_log_begins_is_kept_although_nothing_else_says_it() -> None:
    disk = disk_with(prepared(True, 9)[0])
    for path in [path for path in disk.paths() if path.endswith((".start", "/checkpoint", "/clean"))]:
        disk.unlink(f"/{path}")
    first = segments(disk)[0]
    base = segment_base(first.rpartition("/")[2]) or 0
    assert base > 0
    flip(disk, first, 10)
    repaired(disk)
    _, log = reopened(disk)
    assert (log.start_offset, log.end_offset) == (base, base)


def test_what_a_marker_says_is_not_flushed_stays_so() -> None:
    """The log was truncated to there, and appended to again, since the checkpoint."""
    disk, _ = hurt(clean=False)
    place_marker(disk, FOLDER, Marker(-1, 3))
    (one,) = plan_of(disk, "/d").logs
    assert one.end > 3
    repaired(disk)
    assert read_marker(disk, FOLDER) == Marker(-1, 3)


def test_the_note_of_a_clean_stop_does_not_speak_of_files_that_went() -> None:
    """A segment that could not be removed when it was trimmed is a part of what was noted."""
    before, content = prepared(True, 9)
    disk = disk_with(before)
    fd = disk.open(f"{FOLDER}/{0:020d}.log", create=True)
    disk.pwritev(fd, [b"garbage"], 0)
    disk.close(fd)
    epoch, logs = read_plain(disk, "/d/clean")
    (noted,) = [entry[3] for entry in logs if PartitionId(*entry[:3]) == IDENTITY]
    noted[2].insert(0, [0, noted[2][0][0], 7, 1_000, 1_000])
    write_plain(disk, "/d", "clean", [epoch, logs])
    repaired(disk)
    directory, log = reopened(disk)
    assert content_of(log).batches == content
    assert [log.start_offset, len(log.saved()[2])] == [9, len(segments(disk))]
    assert (directory.loss.kind, directory.loss.lossy) == ("none", ())


def test_a_hole_that_a_power_cut_has_left_is_damage() -> None:
    """Something valid lies behind it: more than the end of the last write is gone."""
    before, content = prepared(False, 0)
    disk = disk_with(before)
    disk.boots += 1
    last = disk.content(segments(disk)[-1])
    at = last.index(content[-2].data)
    assert content[-1].data in last[at:]
    last[at : at + 40] = bytes(40)
    (one,) = plan_of(disk, "/d").logs
    assert (one.end, one.readable) == (content[-2].base, ((content[-1].base, content[-1].end),))


def left_by_a_power_cut(seed: int) -> MemoryFs:
    """The directory of a broker that was busy when the power failed."""
    chance, disk = random.Random(seed), MemoryFs()
    directory, log = open_log(disk, TopicConfig(segment_bytes=chance.choice([256, 400, 800]), flush="ack"))
    epoch = 0
    for _ in range(chance.randrange(3, 20)):
        match chance.choice(["append"] * 6 + ["flush", "flush", "checkpoint", "truncate", "trim"]):
            case "append":
                append(log, ["x" * chance.randrange(60)], epoch=epoch)
            case "flush":
                flush(log)
            case "checkpoint":
                directory.checkpoint()
            case "truncate":
                log.truncate_to(chance.randint(max(log.start_offset, log.flushed_end), log.end_offset))
                epoch += 1
            case "trim":
                log.trim_to(chance.randint(log.start_offset, log.flushed_end))
    directory.close(clean=False)
    disk.cut_power(some(seed))
    return disk


def test_after_a_power_cut_damage_is_what_a_start_calls_a_loss() -> None:
    """The names of files that were never written are left behind, and cost a copy nothing that is whole."""
    found = Counter[tuple[bool, bool]]()
    for seed in range(400):
        disk = left_by_a_power_cut(seed)
        has_empty = any(disk.size(name) == 0 for name in segments(disk)[-1:])
        plan = plan_of(disk, "/d")
        lossy = reopened(disk)[0].loss.lossy
        assert ([one.identity for one in plan.logs], plan.lossy) == ([*lossy], lossy), seed
        found[has_empty, bool(lossy)] += 1
    assert min(found[has_empty, lossy] for has_empty in (False, True) for lossy in (False, True)) >= 10, found


def test_flushed_records_that_are_missing_in_front_of_an_empty_file_are_a_loss() -> None:
    before, _ = prepared(False, 0)
    disk = disk_with(before)
    disk.boots += 1
    for name in segments(disk)[1:]:
        disk.content(name).clear()
    (one,) = plan_of(disk, "/d").logs
    assert one.is_lossy
    assert [cut.size for cut in one.cuts] == [0] * len(segments(disk)[2:]), "the first empty one begins where the log ends now"
    assert IDENTITY in reopened(disk)[0].loss.lossy


@pytest.mark.parametrize("clean", [True, False])
def test_without_the_note_of_its_life_every_log_may_have_lost_something(clean: bool) -> None:
    """It held the losses that nobody had been told of yet."""
    disk = disk_with(prepared(clean, 0)[0])
    flip(disk, "/d/life", 12)
    assert repaired(disk).lossy == (IDENTITY, OTHER)
    assert open_directory(disk).loss.lossy == (IDENTITY, OTHER)


def one_batch(base: int, epoch: int) -> bytes:
    """A segment of one intact batch of the log."""
    batch = batch_of(["stale"])
    batch.stamp(IDENTITY, base, epoch)
    return batch.to_bytes()


def test_an_older_epoch_behind_a_newer_one_is_damage() -> None:
    """A stale write: intact, and not what was there."""
    disk = disk_with(prepared(True, 0)[0])
    last = segments(disk)[-1]
    base = segment_base(last.rpartition("/")[2]) or 0
    disk.content(last)[:] = one_batch(base, 0)
    (one,) = plan_of(disk, "/d").logs
    assert one.end == base
    assert "epoch 0, after epoch" in one.reason


def test_what_came_back_below_the_start_says_nothing_of_the_rest() -> None:
    """A segment that was trimmed, of an epoch that the log has no more."""
    disk = disk_with(prepared(True, 9)[0])
    fd = disk.open(f"{FOLDER}/{0:020d}.log", create=True)
    disk.pwritev(fd, [one_batch(0, 99)], 0)
    disk.close(fd)
    assert plan_of(disk, "/d").is_empty


def test_a_folder_that_no_entry_names_means_a_damaged_catalogue() -> None:
    """It may hold what a lost entry was about."""
    disk, _ = hurt()
    disk.mkdir(f"/d/logs/{IDENTITY.topic_id.hex()}-7-0")
    with pytest.raises(LogCorrupt, match="-7-0 is in no catalogue entry"):
        plan_of(disk, "/d")
