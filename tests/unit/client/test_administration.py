"""What is asked of the controller: what a request says so that asking again is harmless, and what an answer means then."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, make

from replog.errors import Code, ElectionNotNeeded, InvalidPartitions
from replog.messages import Admin, AdminAnswer

LOST = AdminAnswer(0, Code.REQUEST_TIMED_OUT, "the controller has resigned, and this may have been done")


def answers(cluster: FakeCluster, *given: AdminAnswer) -> list[Admin]:
    """What requests are answered, in order; the requests."""
    asked: list[Admin] = []
    left = list(given)

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin):
            return None
        asked.append(message)
        said = left.pop(0)
        return [AdminAnswer(message.request, said.error, said.message, said.result)]

    cluster.override = answer
    return asked


@pytest.mark.parametrize("repeated", [False, True])
def test_an_election_whose_answer_was_lost_counts_as_done_when_it_is_not_needed_any_more(repeated: bool) -> None:
    cluster, _, client = make()
    client.topics()
    said = [["t", 0, Code.ELECTION_NOT_NEEDED, "broker 1 leads"], ["t", 1, Code.PREFERRED_LEADER_NOT_AVAILABLE, "not in sync"]]
    asked = answers(cluster, *[LOST] * repeated, AdminAnswer(0, 0, result={"partitions": said}))
    found = client.elect_leaders([("t", 0), ("t", 1)])
    assert len(asked) == 1 + repeated
    assert type(found["t", 0]) is (type(None) if repeated else ElectionNotNeeded)
    assert getattr(found["t", 1], "code", None) == Code.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_request_for_more_partitions_says_how_many_there_were_also_when_it_is_repeated() -> None:
    cluster, _, client = make()
    client.create_topic("orders", partitions=2)

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin):
            return None
        asked.append(dict(message.arguments))
        cluster.delete("orders")
        cluster.create("orders", 4 + len(asked))  # somebody else has asked for more, too
        return [AdminAnswer(message.request, LOST.error)] if len(asked) == 1 else [AdminAnswer(message.request, 0)]

    asked: list[dict[str, Any]] = []
    cluster.override = answer
    client.add_partitions("orders", 4)
    assert [(one["total"], one["count"]) for one in asked] == [(4, 2), (4, 2)]
    answers(cluster, AdminAnswer(0, Code.INVALID_PARTITIONS, "total is 1"))
    with pytest.raises(InvalidPartitions):
        client.add_partitions("orders", 1)
