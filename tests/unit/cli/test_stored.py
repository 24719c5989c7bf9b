"""What `replog produce` says of its records when it fails: stored, not stored, or not known."""

from __future__ import annotations

import io
import json
import os
import re
import select
import threading
from collections import deque
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace

import pytest
from tests.threads import in_thread
from tests.unit.cli.conftest import Ran, run_with

import replog
from replog import errors
from replog.cli import main
from replog.cli.records import chunks_of_lines
from replog.cli.stored import Stored
from replog.client.batches import Batch
from replog.client.delivery import Deliveries
from replog.config import ClientConfig
from replog.testing.eventually import eventually

SENT_MS = 5


def batch(error: BaseException | None = None, *, done: bool = True, sent: bool = True, uncertain: bool = False) -> Batch:
    """One of two records, and what became of it."""
    made = Batch(None, 0, 0, 0, 0)
    made.error, made.done, made.uncertain = error, done, uncertain
    made.sent_ms = SENT_MS if sent else -1
    return made


def counted(*batches: Batch) -> tuple[int, int]:
    """Stored, and unknown, of two records of each batch."""
    stored = Stored()
    stored.under_way.append(Deliveries(None, [(one, 0, 2) for one in batches], None))
    stored.count(acknowledged=True)
    return stored.records, stored.unknown


@pytest.mark.parametrize(
    "one",
    [
        batch(errors.MessageTooLarge(), sent=False),
        batch(errors.MessageTooLarge()),
        batch(errors.NotEnoughReplicas()),
        batch(errors.LogDirectoryFull()),
        batch(errors.TopicAuthorizationFailed()),
        batch(errors.InvalidRecord()),
        batch(errors.UnknownTopicOrPartition()),
        batch(errors.TimedOut("waited; it was never sent"), sent=False),
    ],
)
def test_what_is_certainly_not_stored(one: Batch) -> None:
    assert counted(one) == (0, 0)


@pytest.mark.parametrize(
    "one",
    [
        batch(done=False),
        batch(done=False, sent=False),
        batch(errors.TimedOut("waited; whether it was stored is unknown")),
        batch(errors.Unavailable("a repetition was refused")),
        batch(errors.NotEnoughReplicasAfterAppend()),
        batch(errors.RequestTimedOut()),
        batch(errors.StorageError()),
        batch(errors.NotLeaderOrFollower()),
        batch(errors.UnknownServerError()),
        batch(errors.UnknownTopicId("the topic was deleted while the append was under way")),
        batch(errors.NotEnoughReplicas(), uncertain=True),
        batch(errors.TimedOut("waited"), sent=False, uncertain=True),
    ],
)
def test_what_is_not_known(one: Batch) -> None:
    assert counted(one) == (0, 2)


def test_each_record_has_an_outcome_of_its_own() -> None:
    assert counted(batch(), batch(errors.NotEnoughReplicas()), batch(done=False), batch(uncertain=True)) == (4, 2)


def test_without_acknowledgements_nothing_is_known_to_be_stored() -> None:
    stored = Stored()
    stored.records = 5
    stored.under_way.append(Deliveries(None, [(one, 0, 2) for one in (batch(), batch(errors.NotEnoughReplicas()))], None))
    stored.count(acknowledged=False)
    assert (stored.records, stored.unknown) == (0, 7)


class Stream(io.BytesIO):
    """Lines that come one by one; then an error."""

    def __init__(self, *lines: bytes, then: BaseException) -> None:
        super().__init__()
        self._lines, self._then = deque(lines), then

    def read1(self, size: int | None = -1, /) -> bytes:
        if self._lines:
            return self._lines.popleft()
        raise self._then


@pytest.mark.parametrize("problem", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_an_error_of_stdin_takes_back_nothing(problem: BaseException) -> None:
    out, err = io.BytesIO(), io.StringIO()
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        words = ["produce", "t", "--format", "json"]
        status = main(words, client=cluster, stdin=Stream(b"a\nb\n", b"c\n", then=problem), stdout=out, stderr=err)
        assert [r.text() for r in cluster.read("t")] == ["a", "b", "c"]
    is_interrupt = isinstance(problem, KeyboardInterrupt)
    assert status == (130 if is_interrupt else 1)
    found = re.match(r"replog: ([0-9]) records are stored(?:; of ([0-9]) others it is not known)?\n", err.getvalue())
    assert found is not None
    assert int(found[1]) + int(found[2] or 0) == 3
    if not is_interrupt:
        told = json.loads(out.getvalue())
        assert (told["records"], told["unknown"], told["status"]) == (3, 0, 1)


def test_a_stdin_that_does_not_wait_is_waited_for() -> None:
    near, far = os.pipe()
    os.set_blocking(near, False)
    os.write(far, b"a\nb")

    def more() -> None:
        eventually(lambda: not select.select([near], [], [], 0)[0])  # that was read
        os.write(far, b"c\nd\n")
        os.close(far)

    writing = threading.Thread(target=more)
    with open(near, "rb") as stream:
        writing.start()
        lines = [line for _, some in chunks_of_lines(stream, 100, 100) for line in some]
    writing.join()
    assert lines == [b"a", b"bc", b"d"]


def test_what_has_failed_ends_it_while_the_next_line_is_waited_for() -> None:
    """Whoever writes on would lose it all. Of a pipe that stays open nothing else can wake it."""
    near, far = os.pipe()
    out, err = io.BytesIO(), io.StringIO()
    with replog.Cluster(brokers=1, client_config=ClientConfig(delivery_timeout_ms=500)) as cluster, open(near, "rb") as stdin:
        cluster.create_topic("t")
        words = ["produce", "t", "--format", "json"]
        producing, status = in_thread(lambda: main(words, client=cluster, stdin=stdin, stdout=out, stderr=err))
        with open(far, "wb", buffering=0) as writer:
            writer.write(b"first\n")
            eventually(lambda: [r.text() for r in cluster.read("t")] == ["first"])
            cluster.kill_broker(1)
            writer.write(b"second\nthird\nno end")
            producing.join(30)
            ended = list(status)
        assert ended == [4]
    plain = json.loads(out.getvalue())
    assert (plain["error"], plain["records"]) == ("TimedOut", 1)


class Outcomes:
    """A producer whose batches have an outcome each, or none yet."""

    def _await_all(self, batches: list[Batch], timeout_s: float | None) -> None:
        assert all(one.done for one in batches), "it has waited for an outcome"

    def _reported(self, one: Batch) -> None:
        """To whom does not matter."""


def test_what_has_an_outcome_is_seen_behind_what_has_none() -> None:
    stored, late = Stored(), batch(done=False)
    for one in (late, batch(), batch(errors.NotEnoughReplicas())):
        one.queue = SimpleNamespace(topic="t", partition=0)
        stored.under_way.append(Deliveries(Outcomes(), [(one, 0, 2)], None))
    with pytest.raises(errors.NotEnoughReplicas):
        stored.settle(8, None)
    assert (stored.records, len(stored.under_way)) == (2, 2)
    stored.count(acknowledged=True)
    assert (stored.records, stored.unknown) == (2, 2)


def told(ran: Ran) -> tuple[int, str, int, int]:
    """Status, error, and how many are stored and unknown."""
    return ran.status, ran.json["error"], ran.json["records"], ran.json["unknown"]


def test_a_batch_that_is_too_large_is_not_stored() -> None:
    """Nor need be what comes after it."""
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t", max_batch_bytes=2_000)
        line = Random(7).randbytes(3_112).replace(b"\n", b"")  # not to be compressed below the limit
        ran = run_with(cluster, "produce", "t", "--batch", "1", "--format", "json", stdin=b"a\nb\n" + line + b"\nc\n")
        there = [r.text() for r in cluster.read("t")]
        assert told(ran) == (3, "MessageTooLarge", len(there), 0)
        assert there in (["a", "b"], ["a", "b", "c"])
        assert f"replog: {len(there)} records are stored\n" in ran.stderr


def test_what_was_refused_for_want_of_replicas_is_not_stored() -> None:
    with replog.Cluster(brokers=2, client_config=ClientConfig(delivery_timeout_ms=1_500)) as cluster:
        cluster.create_topic("t", replication_factor=2, min_isr=2)
        cluster.kill_broker(2)
        eventually(lambda: cluster.describe("t").partitions[0].isr == (1,) and cluster.describe("t").partitions[0].leader == 1)
        ran = run_with(cluster, "produce", "t", "--format", "json", stdin=b"a\n" * 10)
        assert told(ran) == (3, "NotEnoughReplicas", 0, 0)


@pytest.fixture
def leaderless() -> Iterator[replog.Cluster]:
    """A cluster whose topic "t" nobody leads."""
    config = ClientConfig(delivery_timeout_ms=1_500, max_block_ms=500, buffer_bytes=1_024, batch_bytes=512)
    with replog.Cluster(brokers=2, client_config=config) as cluster:
        cluster.create_topic("t", assignment={0: [2]})
        cluster.kill_broker(2)
        eventually(lambda: cluster.describe("t").partitions[0].leader is None)
        yield cluster


def test_what_was_never_sent_is_not_stored(leaderless: replog.Cluster) -> None:
    ran = run_with(leaderless, "produce", "t", "--format", "json", stdin=b"a\n" * 10)
    assert told(ran) == (4, "TimedOut", 0, 0)
    assert "it was never sent" in ran.stderr
    assert "not known" not in ran.stderr


def test_what_was_taken_when_there_was_no_room_is_not_known(leaderless: replog.Cluster) -> None:
    ran = run_with(leaderless, "produce", "t", "--format", "json", stdin=b"a\n" * 100)
    status, error, records, unknown = told(ran)
    assert (status, error, records) == (4, "Unavailable", 0)
    assert f"{unknown} of 100 records were taken" in ran.stderr
    assert f"of {unknown} others it is not known" in ran.stderr
