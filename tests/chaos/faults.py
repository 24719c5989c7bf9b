"""What can befall brokers, the network between them and their store: one fault at a time, drawn from a seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from attrs import frozen
from tests.chaos.brokers import Brokers
from tests.chaos.links import CLIENT

from replog.testing.eventually import eventually

__all__ = ["KINDS", "Fault", "draw", "happen"]

Wait = Callable[[float], object]
Pair = tuple[int, int]

SECONDS: Final = (1.5, 3.5)
"""How long a fault lasts."""
PAUSES: Final = (0.3, 1.5)
"""How long nothing happens after it: a fault begins at least every five seconds."""


@frozen
class Fault:
    """One line of a plan."""

    kind: str
    broker: int
    other: int
    """The other end of a link, where there is one; `CLIENT`: of all clients."""
    seconds: float
    pause_s: float

    def __str__(self) -> str:
        where = {"store": "", "cut one": f" {self.broker} to {self.other}"}.get(self.kind, f" {self.broker}")
        return f"{self.kind}{where} for {self.seconds:.1f} s"


def draw(seed: int, brokers: list[int], seconds: float) -> list[Fault]:
    """Faults that take so long together."""
    chance, plan, left_s = random.Random(seed), list[Fault](), seconds
    while left_s > 0:
        broker = chance.choice(brokers)
        other = chance.choice([CLIENT, *(one for one in brokers if one != broker)])
        plan.append(Fault(chance.choice(list(KINDS)), broker, other, chance.uniform(*SECONDS), chance.uniform(*PAUSES)))
        left_s -= plan[-1].seconds + plan[-1].pause_s
    return plan


def happen(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    """Let it be so for its time, and make it good."""
    KINDS[fault.kind](fault, brokers, wait, chance)


def _kill(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    brokers.processes[fault.broker].kill()
    wait(fault.seconds)
    brokers.start(fault.broker)


def _stop(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    brokers.processes[fault.broker].stop()
    wait(fault.seconds)
    brokers.start(fault.broker)


def _pause(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    """It stands still, but not in the middle of a write at the store: that is another fault."""
    process = brokers.processes[fault.broker]

    def is_outside_a_write() -> bool:
        process.pause()
        if brokers.store.is_written():
            process.resume()
            return False
        return True

    eventually(is_outside_a_write)
    wait(fault.seconds)
    process.resume()


def _cut(pairs: Callable[[Fault, list[int]], list[Pair]]) -> Callable[[Fault, Brokers, Wait, random.Random], None]:
    def cut(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
        _changed(pairs(fault, [CLIENT, *brokers.ids]), brokers, wait, fault, cut=True)

    return cut


def _one(fault: Fault, ends: list[int]) -> list[Pair]:
    return [(fault.broker, fault.other)]


def _from(fault: Fault, ends: list[int]) -> list[Pair]:
    return [(fault.broker, end) for end in ends if end != fault.broker]


def _to(fault: Fault, ends: list[int]) -> list[Pair]:
    return [(end, fault.broker) for end in ends if end != fault.broker]


def _both(fault: Fault, ends: list[int]) -> list[Pair]:
    return _from(fault, ends) + _to(fault, ends)


def _delay(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    _changed(_both(fault, [CLIENT, *brokers.ids]), brokers, wait, fault, delay_s=chance.uniform(0.02, 0.3))


def _slow(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    _changed(_both(fault, [CLIENT, *brokers.ids]), brokers, wait, fault, bytes_per_s=chance.uniform(5_000, 100_000))


def _repeat(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    _changed(_both(fault, [CLIENT, *brokers.ids]), brokers, wait, fault, repeats=0.2)


def _changed(pairs: list[Pair], brokers: Brokers, wait: Wait, fault: Fault, **change: object) -> None:
    brokers.links.change(pairs, **change)
    wait(fault.seconds)
    brokers.links.mend()


def _reset(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    times = chance.randint(1, 5)
    for _ in range(times):
        brokers.links.reset(fault.broker)
        wait(fault.seconds / times)


def _store(fault: Fault, brokers: Brokers, wait: Wait, chance: random.Random) -> None:
    brokers.store.fail(fault.seconds, wait, chance)


KINDS: Final[dict[str, Callable[[Fault, Brokers, Wait, random.Random], None]]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "cut one": _cut(_one),
    "cut from": _cut(_from),
    "cut to": _cut(_to),
    "isolate": _cut(_both),
    "delay": _delay,
    "slow": _slow,
    "repeat": _repeat,
    "reset": _reset,
    "store": _store,
}
"""Kind -> how it happens. A cut holds what one end (all ends) would have got from a broker, or a broker from all, or both."""
