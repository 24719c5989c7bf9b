"""The parts of a flush with a beginning and an end: calls that are stepped, and what an fsync covers."""

from __future__ import annotations

import os
import random
import signal
import threading
import weakref

import pytest
from tests.interrupts import at_every_line, interrupted_at

from replog.config import BrokerConfig, TopicConfig
from replog.log.files import Fs
from replog.model import PartitionId
from replog.ports import FlushToken, LogStart
from replog.testing.disk import MemoryFs
from replog.testing.eventually import eventually
from replog.testing.log_contract import append
from replog.testing.simulator.stepping import Stepped, pause
from replog.testing.simulator.storage import FileStorage, MemoryStorage, Storage

PID = PartitionId(bytes(16), 0, 0)


def test_a_call_goes_on_from_pause_to_pause() -> None:
    said: list[str] = []

    def call() -> None:
        for word in ("one", "two"):
            said.append(word)
            pause()
        said.append(threading.current_thread().name)

    stepped = Stepped(call)
    pause()  # outside of a stepped call this is nothing
    assert said == []
    assert [stepped.step(), *said] == [False, "one"]
    assert [stepped.step(), *said] == [False, "one", "two"]
    assert [stepped.step(), *said] == [True, "one", "two", "stepped"]
    stepped.abandon()


def test_a_call_that_is_abandoned_ends_where_it_is() -> None:
    said: list[str] = []

    def call() -> None:
        try:
            pause()
            said.append("more")
        finally:
            pause()
            said.append("still more")

    stepped = Stepped(call, "to be abandoned")
    assert not stepped.step()
    assert "to be abandoned" in names()
    stepped.abandon()
    stepped.abandon()
    Stepped(call).abandon()  # it had not begun
    assert (said, stepped.ended) == ([], True)
    assert "to be abandoned" not in names()


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_calls_one_after_the_other_share_a_thread_and_those_at_once_do_not() -> None:
    class Call:
        def __call__(self) -> None:
            on.append(threading.current_thread())
            pause()
            if len(on) == 2:
                raise ValueError("the second")

    on: list[threading.Thread] = []
    first = Call()
    kept = weakref.ref(first)
    stepped = Stepped(first)
    del first
    while not stepped.step():
        pass
    del stepped
    assert kept() is None  # a run is not kept by the thread that ran a part of it
    second = Stepped(Call())
    second.step()
    with pytest.raises(ValueError, match="the second"):
        second.step()
    together = [Stepped(Call()) for _ in range(3)]
    for one in together:
        one.step()
    for one in together:
        assert one.step()
    assert on[0] is on[1]
    assert len(set(on)) == 3
    assert set(on[2:]) > {on[0]}


class Broken(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("goes_on", ["ends", "raises", "pauses", "has paused", "has ended"])
def test_a_step_that_a_signal_breaks_off_leaves_nothing_to_others(goes_on: str) -> None:
    main, said, broken = threading.get_ident(), [], []

    def break_off(number: int, frame: object) -> None:
        if not broken:
            broken.append(number)
            raise Broken

    def breaks_off() -> bool:
        signal.pthread_kill(main, signal.SIGUSR1)  # may come before it waits: then it is heard of only after that
        return bool(broken)

    def call() -> None:
        eventually(breaks_off)
        if not goes_on.startswith("has"):
            eventually(lambda: stepped._abandoned)  # whoever gave it up waits for it now
        said.append("in between")
        if goes_on == "raises":
            raise ValueError
        if goes_on.endswith(("pauses", "paused")):
            pause()
            said.append("not to be said")

    before = signal.signal(signal.SIGUSR1, break_off)
    try:
        stepped = Stepped(call, "broken off")
        with pytest.raises(Broken):
            stepped.step()
        if goes_on.startswith("has"):
            eventually(lambda: said)
        stepped.abandon()
        stepped.abandon()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said == ["in between"]
    assert "broken off" not in names()
    others = [Stepped(lambda: pause() and None) for _ in range(3)]
    assert [one.step() for one in others] == [False] * 3
    assert [one.step() for one in others] == [True] * 3
    with pytest.raises(AssertionError):
        others[0].step()


@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_that_is_interrupted_at_any_line(steps: int) -> None:
    """Whoever steps, and whoever gives up: what is left can be given up again, and others go on."""

    def once(line: int) -> bool:
        stepped = Stepped(pause, "interrupted")

        def steps_and_gives_up() -> None:
            try:
                for _ in range(steps):
                    stepped.step()
            finally:
                stepped.abandon()

        interrupted = interrupted_at(line, lambda frame: frame.f_code.co_filename.endswith("/stepping.py"), steps_and_gives_up)
        stepped.abandon()
        for _ in range(2):
            other = Stepped(pause)
            assert [other.step(), other.step()] == [False, True]
        return interrupted

    assert at_every_line(once) > 20


def test_a_forked_child_has_threads_of_its_own() -> None:
    assert Stepped(list).step()
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends a child that waits for a thread which it does not have
        os._exit(7 if Stepped(list).step() else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_call_that_raises() -> None:
    def call() -> None:
        pause()
        raise OSError("broken")

    stepped = Stepped(call)
    assert not stepped.step()
    with pytest.raises(OSError, match="broken"):
        stepped.step()


class Busy(MemoryFs):
    """Something is written, and a file is made, while an fsync is under way."""

    during = ""
    on: Fs

    def take_time(self) -> None:
        during, self.during = self.during, ""
        if during:
            fd = self.open(during, create=True)
            self.pwritev(fd, [b"late"], self.size(during) or 0)
            self.close(fd)


def test_an_fsync_covers_what_was_written_before_it_began() -> None:
    disk = Busy()
    fd = disk.open("/a", create=True)
    disk.fsync_dir("/")
    disk.pwritev(fd, [b"early "], 0)
    disk.during = "/a"
    disk.fsync(fd)
    disk.during = "/b"
    disk.fsync_dir("/")
    assert disk.snapshot() == {"a": b"early late", "b": b"late"}
    disk.cut_power()
    assert disk.snapshot() == {"a": b"early "}
    disk.fsync_dir("/")
    assert disk.snapshot() == {"a": b"early "}


@pytest.mark.parametrize("kind", [MemoryStorage, FileStorage])
@pytest.mark.parametrize(("how", "left"), [("power", 2), ("kill", 5)])
def test_a_power_cut_leaves_what_the_fsync_has_covered(kind: type[Storage], how: str, left: int) -> None:
    """Whatever the log says: here it takes all that it has for flushed."""
    storage = kind(BrokerConfig(), random.Random(3))
    (log,) = storage.directory.create([LogStart(PID, "t", TopicConfig(flush="ack"))])
    append(log, 2)
    token = log.flush()
    assert isinstance(token, FlushToken)
    storage.attend(token)
    stepped = Stepped(token.run)
    assert not stepped.step()
    append(log, 3)
    while not stepped.step():
        pass
    token.end = 5
    log.flushed(token)
    assert log.flushed_end == 5
    if isinstance(storage, FileStorage):
        storage._disk.chance = random.Random(0)
        storage._disk.cut_power(lambda: False) if how == "power" else None
    storage.end(how)
    found = storage.directory.get(PID)
    assert found is not None
    assert found.end_offset == left


def test_a_flush_of_a_log_that_was_cut_meanwhile_covers_nothing_new() -> None:
    storage = MemoryStorage(BrokerConfig(), random.Random(3))
    (log,) = storage.directory.create([LogStart(PID, "t", TopicConfig(flush="ack"))])
    append(log, 3)
    token = log.flush()
    assert token is not None
    storage.attend(token)
    stepped = Stepped(token.run)
    stepped.step()
    log.truncate_to(1)
    append(log, 2)
    assert stepped.step()
    log.flushed_end = 3
    storage.end("power")
    found = storage.directory.get(PID)
    assert found is not None
    assert found.end_offset == 0
