"""Why a partition is as it is: what the controller says, and what its leader knows of the followers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from replog.client.operations import PartitionOp
from replog.errors import Code, rejection
from replog.messages import Admin, AdminAnswer

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["Explanation", "FollowersOp", "explanation"]


@frozen
class Explanation:
    """Why a partition is as it is. `str()` gives sentences, one a line; `to_dict()` plain values."""

    topic: str
    partition: int
    sentences: tuple[str, ...]
    leader: int | None
    missing: dict[int, str]
    """Replica that is not in sync -> why."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**attrs.asdict(self), "sentences": list(self.sentences), "missing": {str(b): why for b, why in self.missing.items()}}

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class FollowersOp(PartitionOp):
    """Ask a leader how far its followers are. Result: what it says of this partition, a dictionary."""

    def __init__(self, topic: str, partition: int, deadline_ms: int) -> None:
        super().__init__("how far its followers are", topic, partition, deadline_ms)

    def message(self, core: ClientCore) -> Admin:
        """One partition."""
        assert self.place is not None
        identity = self.place.identity
        names = [[identity.topic_id.hex(), identity.partition, identity.creation]]
        return Admin(self.request, "followers", {"partitions": names})

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """What the leader knows; another one is asked if it does not lead any more. What is not allowed, the broker says itself."""
        if not isinstance(answer, AdminAnswer):
            return Code.UNKNOWN_SERVER_ERROR
        if answer.error in (Code.INVALID_REQUEST, Code.TOPIC_AUTHORIZATION_FAILED):
            self.fail(rejection(answer.error, answer.message))
        elif answer.error != Code.NONE:
            return answer.error
        elif not answer.result["partitions"]:
            return Code.NOT_LEADER_OR_FOLLOWER
        else:
            self.finish(answer.result["partitions"][0])
        return Code.NONE


def explanation(topic: str, partition: int, said: dict[str, Any], followers: dict[str, Any] | None) -> Explanation:
    """Both answers as one; `followers` is None if no leader has answered."""
    first, *others = said["sentences"]
    sentences, missing = [first, _since(said["since_ms"]), *others], {int(broker): why for broker, why in said["missing"].items()}
    if followers is not None:
        end, high = followers["end_offset"], followers["high_watermark"]
        first = f"the first {f'{high} are' if high > 1 else 'is'}" if high else "none is"
        held = "" if high == end else f", of which {first} known to be committed"
        sentences.append(f"The leader has {_records(end)}{held}.")
        for one in followers["followers"]:
            lags = one["end_offset"] != end if one["in_sync"] else one["end_offset"] is not None or not missing.get(one["broker"])
            if lags:
                sentences.append(_follower(one, end, why="" if missing.get(one["broker"]) else one["why"]))
            if missing.get(one["broker"]) == "":
                missing[one["broker"]] = one["why"]
    elif said["leader"] is not None:
        sentences.append(f"Broker {said['leader']}, the leader, does not say how far its followers are.")
    known = {broker: why or "it may miss records that were committed" for broker, why in missing.items()}
    return Explanation(topic, partition, tuple(sentences), said["leader"], known)


def _since(wall_ms: int | None) -> str:
    """Since when it has been led as it is."""
    if wall_ms is None:
        return "So it was already when the present controller took office."
    return f"So it has been since {datetime.fromtimestamp(wall_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC."


def _follower(one: dict[str, Any], end: int, *, why: str) -> str:
    """How far one follower is, and what keeps it from joining: "" if the controller has said it."""
    at, lag = one["end_offset"], one["lag_ms"]
    if at is None:
        where = "has fetched nothing of this leader yet"
    elif at == end:
        where = "has all of them"
    else:
        where = f"is at {at}, {_records(end - at)} behind"
    since = f", and was caught up {lag / 1_000:.1f} s ago" if lag and at is not None else ""
    return f"Broker {one['broker']} {where}{since}{f': {why}' if why else ''}."


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"
