"""Names that would be paths, from a client that checks nothing: not one becomes a topic, or a file (RELIABILITY R21)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.mutating import Mutator
from tests.integration.processes.cli import broker_processes
from tests.integration.processes.strangers import Stranger

import replog
from replog import messages as m
from replog.config import check_topic_name
from replog.errors import Code, UsageError

pytestmark = pytest.mark.processes

COUNT = 10_000
AT_ONCE = 50
PATHS = ["", ".", "..", "../x", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "c:", "%2e%2e/"]
NAMES = [*PATHS, "x\0y", "~", "ä", "\u202etxt", "a b", "x" * 250]


def bad_names() -> list[str]:
    """So many that no topic may have, each of them once."""
    mutator = Mutator([name.encode() for name in (*NAMES[1:], "orders/..", "logs/../../x", "..%2f..%2f")], 7)
    found = dict.fromkeys(NAMES)
    while len(found) < COUNT:
        name = mutator.next().decode("utf-8", "replace")
        try:
            check_topic_name(name)
        except UsageError:
            found[name] = None
    return list(found)


def files(folder: Path) -> set[str]:
    """Everything below a folder, but what a broker writes and takes away again."""
    passing = (".new", "-wal", "-shm", "/clean")
    return {str(path) for path in folder.rglob("*") if not str(path).endswith(passing)}


def test_ten_thousand_bad_names_leave_nothing(tmp_path: Path) -> None:
    names = bad_names()
    data = tmp_path / "deep" / "data"
    data.mkdir(parents=True)
    with broker_processes(data, 1) as (broker,), replog.connect(broker.endpoint) as client:
        client.create_topic("orders")
        client.append("orders", 0, ["x"])
        before = files(tmp_path)
        for name in NAMES:
            with pytest.raises(UsageError):
                client.create_topic(name)
        refused = 0
        with Stranger(broker.endpoint).hello() as one:
            for first in range(0, COUNT, AT_ONCE):
                for number, name in enumerate(names[first : first + AT_ONCE]):
                    arguments = {"name": name, "partitions": 1, "replication_factor": 1, "config": {}, "assignment": None}
                    one.send(m.Admin(number, "create_topic", arguments))
                for _ in names[first : first + AT_ONCE]:
                    answer = one.read_until(lambda message: type(message) is m.AdminAnswer)
                    refused += answer.error in (Code.INVALID_TOPIC, Code.INVALID_REQUEST)
        assert refused == COUNT
        assert client.topics() == ["orders"]
        client.append("orders", 0, ["y"])
        assert files(tmp_path) - before == set()
