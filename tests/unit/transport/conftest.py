"""What the tests of the transport share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.transport.harness import Party, Stranger

from replog.testing.clock import ManualClock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an authority."""
    return tmp_path_factory.mktemp("authority")


@pytest.fixture
def clock() -> ManualClock:
    """The time of every party."""
    return ManualClock(now_ms=1_000_000)


@pytest.fixture
def endpoints() -> dict[int, str]:
    """Where brokers are reached."""
    return {}


@pytest.fixture
def party(clock: ManualClock, endpoints: dict[int, str]) -> Iterator[Callable[..., Party]]:
    """Make parties, which are closed in the end."""
    made: list[Party] = []

    def make(broker_id: int = -1, **arguments: Any) -> Party:
        made.append(Party(broker_id, clock=clock, endpoints=endpoints, **arguments))
        return made[-1]

    yield make
    for each in made:
        each.transport.close()


@pytest.fixture
def stranger() -> Iterator[Callable[[str], Stranger]]:
    """Make bare sockets, which are closed in the end."""
    made: list[Stranger] = []

    def make(endpoint: str) -> Stranger:
        made.append(Stranger(endpoint))
        return made[-1]

    yield make
    for each in made:
        each.close()
