"""Sixty-four appends of one record under way at once, in the ways in which programs have them.

`one producer`: 64 sends, one after the other. At most five batches of a partition are under way for a producer, so what is sent while
five are shares the next one. `producers`: one send of each of 64 producers, so 64 batches are under way. `threads`: 64 threads that append
through one client; each append is a batch, and five are under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Barrier
from time import perf_counter
from typing import Final

import replog

__all__ = ["UNDER_WAY", "WAYS", "Round", "rate_of", "waits_of"]

UNDER_WAY: Final = 64
Round = list[tuple[float, float]]
"""When each append began, and when it was acknowledged."""


def waits_of(spans: Round) -> list[float]:
    """Seconds that each append took."""
    return [end - begin for begin, end in spans]


def rate_of(spans: Round) -> float:
    """Appends per second, from the begin of the first to the end of the last."""
    return len(spans) / (max(end for _, end in spans) - min(begin for begin, _ in spans))


def _sent_by(producers: list[replog.Producer], topic: str, body: bytes) -> Round:
    """One send of each, and all of their outcomes."""
    spans: Round = []
    for producer in producers:
        begin = perf_counter()
        delivery = producer.send(topic, body, partition=0)
        delivery.add_done_callback(lambda _, begin=begin: spans.append((begin, perf_counter())))  # type: ignore[misc]
    for producer in dict.fromkeys(producers):
        producer.flush()
    assert len(spans) == len(producers)
    return spans


@contextmanager
def _one_producer(client: replog.Client, topic: str, body: bytes) -> Iterator[Callable[[], Round]]:
    with client.producer(compression=None) as producer:
        yield lambda: _sent_by([producer] * UNDER_WAY, topic, body)


@contextmanager
def _producers(client: replog.Client, topic: str, body: bytes) -> Iterator[Callable[[], Round]]:
    with ExitStack() as stack:
        producers = [stack.enter_context(client.producer(compression=None)) for _ in range(UNDER_WAY)]
        yield lambda: _sent_by(producers, topic, body)


@contextmanager
def _threads(client: replog.Client, topic: str, body: bytes) -> Iterator[Callable[[], Round]]:
    all_there = Barrier(UNDER_WAY)

    def append(_: int) -> tuple[float, float]:
        all_there.wait()
        begin = perf_counter()
        client.append(topic, 0, [body])
        return begin, perf_counter()

    with ThreadPoolExecutor(UNDER_WAY) as threads:
        yield lambda: list(threads.map(append, range(UNDER_WAY)))


WAYS: Final[dict[str, Callable[[replog.Client, str, bytes], AbstractContextManager[Callable[[], Round]]]]] = {
    "one producer": _one_producer,
    "producers": _producers,
    "threads": _threads,
}
