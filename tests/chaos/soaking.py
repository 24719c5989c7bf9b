"""A soak: one cluster for a long time under load and a fault now and then, and what its brokers keep of that in memory and descriptors.

Brokers 1 and 2 live all the time: whatever ends a process befalls broker 3 alone, so that their curves mean something.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import Final

from attrs import define, evolve, field, frozen
from tests.chaos import faults
from tests.chaos.brokers import Brokers
from tests.chaos.load import Load, in_sync
from tests.chaos.running import IN_SYNC_S, PROGRESS_MIN, told
from tests.chaos.stores import STORES

from replog.testing.eventually import eventually
from replog.testing.history import check

__all__ = ["SLOPE_MAX", "Sample", "Soak", "judge", "slope", "soak"]

SLOPE_MAX: Final = 1.0
"""MiB of memory that a broker may gain in an hour once it is warm (RELIABILITY R27)."""
SPREAD_MAX: Final = 8
"""By so much may its descriptors, and its threads, be more at the end than when it was warm: connections come and go."""
WARM: Final = 1 / 3
"""The first part of the time, of which nothing is judged."""
EVERY_S: Final = 60.0
"""From one fault to the next."""
_LONG_LIVED: Final = (1, 2)
_MORTAL: Final = 3
_DEADLY: Final = ("kill", "stop")
_LOOKS: Final = 200
"""At each broker, over the whole time."""


@frozen
class Sample:
    """What one process had at one moment."""

    at_s: float
    rss: int
    """Bytes."""
    descriptors: int
    threads: int


@define
class Soak:
    """What came of it. `broken` is empty if nothing is wrong."""

    store: str
    seed: int
    seconds: float
    faults: dict[str, int] = field(factory=dict)
    acknowledged: int = 0
    records: int = 0
    slopes: dict[str, float] = field(factory=dict)
    """MiB an hour, by broker."""
    descriptors: dict[str, list[int]] = field(factory=dict)
    """Median when it was warm, and at the end."""
    threads: dict[str, list[int]] = field(factory=dict)
    broken: list[str] = field(factory=list)


def soak(store: str, seed: int, seconds: float, *, every_s: float = EVERY_S, say: Callable[[str], object] = lambda line: None) -> Soak:
    """So long over a store of this kind, then everything is read and judged."""
    done, chance = Soak(store, seed, seconds), random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="replog-soak-") as name,
        STORES[store](Path(name)) as under_test,
        Brokers.running(Path(name), under_test, 3, seed=seed) as brokers,
        told(done.broken, say),
    ):
        load = Load(brokers.bootstrap, 3)
        samples: dict[int, list[Sample]] = {broker: [] for broker in _LONG_LIVED}
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(brokers, samples, over, seconds / _LOOKS), daemon=True)
        with told(done.broken, say):
            watch.start()
            _befall(done, brokers, load, chance, every_s, say)
        over.set()
        watch.join(60)
        with told(done.broken, say):
            eventually(lambda: in_sync(brokers.bootstrap, 3), IN_SYNC_S, every_s=0.1)
            brokers.check_alive()
        with told(done.broken, say):
            load.stop()
        _judge(done, load, samples)
    return done


def _befall(done: Soak, brokers: Brokers, load: Load, chance: random.Random, every_s: float, say: Callable[[str], object]) -> None:
    began = time.monotonic()
    pause = threading.Event()
    plan = iter(faults.draw(done.seed, brokers.ids, max(done.seconds, 60) * faults.SECONDS[1]))
    for turn in range(1, int(done.seconds // every_s) + 1):
        pause.wait(max(began + turn * every_s - every_s / 2 - time.monotonic(), 0))
        drawn = next(plan)
        fault = evolve(drawn, broker=_MORTAL, other=_LONG_LIVED[0]) if drawn.kind in _DEADLY else drawn
        before = load.acknowledged
        faults.happen(fault, brokers, pause.wait, chance)
        pause.wait(fault.pause_s)
        brokers.check_alive()
        done.faults[fault.kind] = done.faults.get(fault.kind, 0) + 1
        gained = load.acknowledged - before
        say(f"{time.monotonic() - began:6.0f} s: {fault}: {gained} acknowledged")
        if gained < PROGRESS_MIN:
            done.broken.append(f"{gained} acknowledgements during {fault}; {PROGRESS_MIN} are wanted")
    pause.wait(max(began + done.seconds - time.monotonic(), 0))


def _watch(brokers: Brokers, samples: dict[int, list[Sample]], over: threading.Event, every_s: float) -> None:
    began = time.monotonic()
    while not over.wait(every_s):
        for broker, found in samples.items():
            found.append(look(brokers.processes[broker].pid, time.monotonic() - began))


def look(pid: int, at_s: float) -> Sample:
    """At a process, as the system tells of it."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Sample(at_s, int(status["VmRSS"].split()[0]) * 1_024, descriptors, int(status["Threads"]))


def _judge(done: Soak, load: Load, samples: dict[int, list[Sample]]) -> None:
    done.acknowledged = load.acknowledged
    done.broken += load.troubles
    for broker, found in samples.items():
        judge(done, str(broker), found)
    with told(done.broken, lambda line: None):
        done.records = load.read_all()
        if done.records < done.acknowledged:
            done.broken.append(f"{done.acknowledged} records were acknowledged, and {done.records} are there")
    report = check(load.history)
    if not report.ok:
        done.broken.append(str(report))


def slope(samples: Sequence[Sample]) -> float:
    """How many MiB of memory are gained in an hour, by the line that fits best."""
    return linear_regression([one.at_s for one in samples], [one.rss for one in samples]).slope * 3_600 / (1 << 20)


def judge(done: Soak, broker: str, samples: Sequence[Sample]) -> None:
    """What one broker has kept, from when it was warm."""
    warm = samples[int(len(samples) * WARM) :]
    if len(warm) < 10:
        done.broken.append(f"broker {broker} was looked at {len(warm)} times when it was warm")
        return
    done.slopes[broker] = round(slope(warm), 3)
    fifth = max(len(warm) // 5, 1)
    for what, found in (("descriptors", done.descriptors), ("threads", done.threads)):
        first, last = (int(median(getattr(one, what) for one in part)) for part in (warm[:fifth], warm[-fifth:]))
        found[broker] = [first, last]
        if last - first > SPREAD_MAX:
            done.broken.append(f"broker {broker} has {last} {what}, and had {first} when it was warm")
    if done.seconds >= 3_600 and done.slopes[broker] > SLOPE_MAX:
        done.broken.append(f"broker {broker} gains {done.slopes[broker]} MiB an hour; {SLOPE_MAX} are allowed")
