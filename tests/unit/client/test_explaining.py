"""The controller's sentences and the leader's view, as one explanation."""

from __future__ import annotations

from typing import Any

import pytest

from replog.client.explaining import FollowersOp, explanation
from replog.errors import Code
from replog.messages import AdminAnswer


def said(leader: int | None = 1, **missing: str) -> dict[str, Any]:
    reasons = {broker.removeprefix("b"): why for broker, why in missing.items()}
    return {"sentences": ["It is so."], "leader": leader, "since_ms": 1_700_000_000_000, "missing": reasons}


def seen(*followers: tuple[int, bool, int | None, int | None, str], end: int = 100, high: int = 100) -> dict[str, Any]:
    names = ("broker", "in_sync", "end_offset", "lag_ms", "why")
    return {"end_offset": end, "high_watermark": high, "followers": [dict(zip(names, one, strict=True)) for one in followers]}


@pytest.mark.parametrize(("answer", "followers", "lines", "missing"), [
    (said(), seen((2, True, 100, 0, "")), ["The leader has 100 records."], {}),
    (said(), seen((2, True, 100, 0, ""), end=101), ["The leader has 101 records, of which the first 100 are known to be committed.",
     "Broker 2 is at 100, 1 record behind."], {}),
    (said(), seen(end=7, high=0), ["The leader has 7 records, of which none is known to be committed."], {}),
    (said(), seen(end=7, high=1), ["The leader has 7 records, of which the first is known to be committed."], {}),
    (said(b2="its disk has failed"), seen((2, False, 100, 0, "it is about to join")), ["The leader has 100 records.",
     "Broker 2 has all of them."], {2: "its disk has failed"}),
    (said(b2=""), seen((2, False, 40, 12_345, "it is at 40, below the high watermark 100")), ["The leader has 100 records.",
     "Broker 2 is at 40, 60 records behind, and was caught up 12.3 s ago: it is at 40, below the high watermark 100."],
     {2: "it is at 40, below the high watermark 100"}),
    (said(b2=""), seen((2, False, None, 9, "it has not fetched")), ["The leader has 100 records.",
     "Broker 2 has fetched nothing of this leader yet: it has not fetched."], {2: "it has not fetched"}),
    (said(b2="it is not registered"), seen((2, False, None, 9, "it has not fetched")), ["The leader has 100 records."],
     {2: "it is not registered"}),
    (said(b2=""), seen((2, False, 100, 0, "it is about to join")), ["The leader has 100 records.",
     "Broker 2 has all of them: it is about to join."], {2: "it is about to join"}),
    (said(b2=""), None, ["Broker 1, the leader, does not say how far its followers are."], {2: "it may miss records that were committed"}),
    (said(leader=None, b2=""), None, [], {2: "it may miss records that were committed"}),
])  # fmt: skip
def test_explanation(answer, followers, lines, missing):
    made = explanation("t", 3, answer, followers)
    assert list(made.sentences) == ["It is so.", "So it has been since 2023-11-14 22:13:20 UTC.", *lines]
    assert made.missing == missing
    assert str(made) == "\n".join(made.sentences)
    assert made.to_dict()["missing"] == {str(broker): why for broker, why in missing.items()}
    assert (made.topic, made.partition, made.leader) == ("t", 3, answer["leader"])


def test_since_when_is_not_known():
    made = explanation("t", 3, {**said(leader=None), "since_ms": None}, None)
    assert made.sentences[1] == "So it was already when the present controller took office."


@pytest.mark.parametrize(("answer", "returned", "result", "failed"), [
    (AdminAnswer(1, Code.NONE, result={"partitions": [{"end_offset": 7}]}), Code.NONE, {"end_offset": 7}, None),
    (AdminAnswer(1, Code.NONE, result={"partitions": []}), Code.NOT_LEADER_OR_FOLLOWER, None, None),
    (AdminAnswer(1, Code.NOT_CONTROLLER), Code.NOT_CONTROLLER, None, None),
    (AdminAnswer(1, Code.INVALID_REQUEST, "no"), Code.NONE, None, "no"),
    ("nonsense", Code.UNKNOWN_SERVER_ERROR, None, None),
])  # fmt: skip
def test_what_a_leader_answers(answer: Any, returned: int, result: Any, failed: str | None) -> None:
    op = FollowersOp("t", 0, 1_000)
    core: Any = None
    assert op.answered(core, answer, 0) == returned
    assert (op.result, None if op.error is None else str(op.error)) == (result, failed)


def test_what_is_not_allowed_is_named() -> None:
    refused = str(FollowersOp("t", 0, 1_000).refused(Code.TOPIC_AUTHORIZATION_FAILED))
    assert "t-0: this client may not describe topic 't'" in refused
