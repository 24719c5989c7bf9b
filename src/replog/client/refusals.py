"""What a broker's refusal of a batch means for what is to be done with it."""

from __future__ import annotations

from typing import Final

from replog.config import BrokerConfig
from replog.errors import Code, Rejected, ReplogError, rejection
from replog.security.roles import WRITE

__all__ = ["GO_BACK", "NOT_STORED", "SAME_LEADER", "batch_refused", "batch_too_large", "denied"]

_RECORDS_MAX: Final = BrokerConfig().batch_records_max

GO_BACK: Final = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.STORAGE_ERROR,
        Code.LOG_DIRECTORY_FULL,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.QUOTA_EXCEEDED,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
"""Another try can overcome these, here or at another leader."""
NOT_STORED: Final = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_ENOUGH_REPLICAS,
        Code.LOG_DIRECTORY_FULL,
        Code.QUOTA_EXCEEDED,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
"""Refusals before anything was appended. The others leave doubt: so does NotLeaderOrFollower, the answer of a leader that
steps down while an append waits."""
SAME_LEADER: Final = frozenset(
    {
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.LOG_DIRECTORY_FULL,
        Code.QUOTA_EXCEEDED,
        Code.CORRUPT_MESSAGE,
    }
)
"""Refusals that do not put the leader in doubt: no need to ask for metadata."""


def batch_too_large(length: int, records: int, limit: int, topic: str, partition: int) -> Rejected:
    """The error for a batch that its topic would refuse: it is not sent."""
    text = f"a batch of {length} bytes ({records} records) is too large; the topic allows {limit} (max_batch_bytes)"
    return rejection(Code.MESSAGE_TOO_LARGE, text, topic=topic, partition=partition)


def denied(error: ReplogError, action: str) -> ReplogError:
    """The same error; if it is that this client may not do this with this topic, one that says so: of it a broker sends the code alone."""
    if not isinstance(error, Rejected) or error.code != Code.TOPIC_AUTHORIZATION_FAILED:
        return error
    where = {"topic": error.topic, "partition": error.partition, "broker": error.broker}
    text = f"this client may not {action} topic {error.topic!r}: the brokers' authorizer does not allow that to whom it has proven to be"
    return rejection(error.code, text, **where)


def batch_refused(code: int, records: int, topic: str, partition: int) -> ReplogError:
    """The error for a batch that its leader has refused for good."""
    text = ""
    if code == Code.INVALID_RECORD:  # a broker says no more; of what its clients encode it is the number of records that it refuses
        text = f"its leader refused a batch of {records} records; a broker takes at most batch_records_max, by default {_RECORDS_MAX}"
    return denied(rejection(code, text, topic=topic, partition=partition), WRITE)
