"""One run: brokers, clients, faults drawn from a seed, and the judgement on what the clients were told."""

from __future__ import annotations

import random
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import define, field
from tests.chaos import faults
from tests.chaos.brokers import Brokers
from tests.chaos.load import Load, in_sync
from tests.chaos.stores import STORES

from replog.testing.eventually import eventually
from replog.testing.history import check

__all__ = ["IN_SYNC_S", "PROGRESS_MIN", "Run", "run", "told"]

IN_SYNC_S: Final = 15.0
"""How long after the last fault every partition may take to have its full ISR: what the library promises."""
PROGRESS_MIN: Final = 100
"""Acknowledgements during each fault, until the next one begins: none takes so much that work could not go on (RELIABILITY R17)."""
_PARTITIONS: Final = 3


@define
class Run:
    """What came of it. `broken` is empty if nothing is wrong."""

    store: str
    seed: int
    brokers: int
    seconds: float
    faults: dict[str, int] = field(factory=dict)
    """How many of each kind."""
    progress: dict[str, int] = field(factory=dict)
    """The fewest acknowledgements during one fault of each kind, until the next began."""
    acknowledged: int = 0
    records: int = 0
    broken: list[str] = field(factory=list)


def run(store: str, seed: int, seconds: float, *, say: Callable[[str], object] = lambda line: None) -> Run:
    """Faults for so long over a store of this kind, then everything is healed, read and judged."""
    chance = random.Random(seed)
    done = Run(store, seed, chance.choice((3, 3, 4, 5)), seconds)
    with (
        tempfile.TemporaryDirectory(prefix="replog-chaos-") as name,
        STORES[store](Path(name)) as under_test,
        Brokers.running(Path(name), under_test, done.brokers, seed=seed) as brokers,
        told(done.broken, say),
    ):
        load = Load(brokers.bootstrap, _PARTITIONS)
        with told(done.broken, say):
            _befall(done, brokers, load, chance, say)
            eventually(lambda: in_sync(brokers.bootstrap, _PARTITIONS), IN_SYNC_S, every_s=0.1)
            brokers.check_alive()
        with told(done.broken, say):
            load.stop()
        _judge(done, load)
    return done


@contextmanager
def told(broken: list[str], say: Callable[[str], object]) -> Iterator[None]:
    """What is raised here is wrong too, and joins what is `broken`: a cluster that does not recover, a broker that does not start, a thread
    that hangs. The rest is judged all the same."""
    try:
        yield
    except Exception as problem:
        say(traceback.format_exc())
        broken.append(f"{type(problem).__name__}: {problem}")


def _befall(done: Run, brokers: Brokers, load: Load, chance: random.Random, say: Callable[[str], object]) -> None:
    over = threading.Event()
    counted = Counter[str]()
    for fault in faults.draw(done.seed, brokers.ids, done.seconds):
        before = load.acknowledged
        faults.happen(fault, brokers, over.wait, chance)
        over.wait(fault.pause_s)
        brokers.check_alive()  # before a fault ends one that has ended by itself, and starts it again
        gained = load.acknowledged - before
        say(f"{fault}: {gained} acknowledged")
        counted[fault.kind] += 1
        done.progress[fault.kind] = min(gained, done.progress.get(fault.kind, gained))
    done.faults = dict(sorted(counted.items()))


def _judge(done: Run, load: Load) -> None:
    done.acknowledged = load.acknowledged
    done.broken += load.troubles
    for kind, gained in done.progress.items():
        if gained < PROGRESS_MIN:
            done.broken.append(f"{gained} acknowledgements during a fault {kind!r}; {PROGRESS_MIN} are wanted")
    try:
        done.records = load.read_all()
        if done.records < done.acknowledged:
            done.broken.append(f"{done.acknowledged} records were acknowledged, and {done.records} are there")
    finally:  # of what can be read, what is wrong is told all the same
        report = check(load.history)
        if not report.ok:
            done.broken.append(str(report))
