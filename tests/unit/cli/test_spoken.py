"""What the library says to Python programmers, told to people at a terminal."""

from __future__ import annotations

import errno

import pytest
from tests.unit.cli.conftest import Run

from replog.cli.spoken import cannot, spoken
from replog.config import BrokerConfig, TopicConfig
from replog.errors import UsageError


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("listen on [::1], or say insecure=True", "listen on [::1], or give --insecure"),
        ("give security= with tls, or say insecure=True", "give --security FILE with tls, or give --insecure"),
        ("a topic named 't' exists; exist_ok=True accepts it", "a topic named 't' exists; --exist-ok accepts it"),
        ("broker_id is 3; the folder is 4's", "--id is 3; the folder is 4's"),
        ('no place for credentials; give auth=("digest", USER, PASSWORD)', "no place for credentials; name a file of them: ?auth=FILE"),
        ("'x' is not the URL of a store: known are memory://, file://PATH", "'x' is not the URL of a store: known are file://PATH"),
        ("f cannot be opened: [Errno 13] Permission denied", "f cannot be opened: Permission denied"),
        ("unknown topic 'an int, not x'", "unknown topic 'an int, not x'"),
    ],
)
def test_in_the_words_of_the_command_line(said: str, told: str) -> None:
    assert spoken(said) == told


@pytest.mark.parametrize(
    ("config", "settings", "told"),
    [
        (BrokerConfig, {"heartbeat_ms": "x"}, "heartbeat_ms is a whole number, not 'x'"),
        (BrokerConfig, {"heartbeat_ms": True}, "heartbeat_ms is a whole number, not 'true'"),
        (BrokerConfig, {"heartbeat_ms": None}, "heartbeat_ms is a whole number, not 'none'"),
        (BrokerConfig, {"self_checks": 1}, "self_checks is true or false, not 1"),
        (BrokerConfig, {"session_ms": 86_400_001}, "session_ms is 86400001; allowed are 100 to 86400000"),
        (TopicConfig, {"unclean_leader_election": "maybe"}, "unclean_leader_election is true or false, not 'maybe'"),
    ],
)
def test_what_the_configuration_says(config: type[BrokerConfig], settings: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        config.from_mapping(settings)
    assert spoken(str(refused.value)) == told


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "logs/x"), "logs/x: Permission denied"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("no number"), "no number"),
    ],
)
def test_what_could_not_be_done_with_which_file(problem: OSError, told: str) -> None:
    assert cannot(problem) == told


def test_a_command_tells_it(run: Run) -> None:
    assert run("topic", "create", "t").status == 0
    again = run("topic", "create", "t")
    assert (again.status, again.stderr) == (3, "replog: a topic named 't' exists; --exist-ok accepts it\n")
    wrong = run("topic", "create", "u", "--config", "min_isr=none", "--config", "retention_ms=true")
    assert (wrong.status, wrong.stderr) == (2, "replog: retention_ms is a whole number, not 'true'\n")


def test_a_file_that_cannot_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> object:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("replog.cli.logs.find", refused)
    assert run("log", "verify", "somewhere") == (1, "", "replog: somewhere: Permission denied\n")
