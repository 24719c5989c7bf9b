"""The error tree and its numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler

import pytest

from replog import errors
from replog.errors import CODES, Code, NotLeaderOrFollower, Rejected, ReplogError, TimedOut, Unavailable, UsageError, error_name, rejection
from replog.metadata.place import StoreGone
from replog.model import TopicPartition
from replog.spark.losses import DataLost

# Numbers are format: a line here may be added, never changed. (code, name, retriable)
TABLE = """
-1 UnknownServerError no
1 OffsetOutOfRange no
2 CorruptMessage yes
3 UnknownTopicOrPartition yes
5 LeaderNotAvailable yes
6 NotLeaderOrFollower yes
7 RequestTimedOut yes
9 ReplicaNotAvailable yes
10 MessageTooLarge no
11 StaleControllerEpoch no
17 InvalidTopic no
19 NotEnoughReplicas yes
20 NotEnoughReplicasAfterAppend yes
21 InvalidRequiredAcks no
29 TopicAuthorizationFailed no
31 ClusterAuthorizationFailed no
32 InvalidTimestamp no
36 TopicAlreadyExists no
37 InvalidPartitions no
38 InvalidReplicationFactor no
39 InvalidReplicaAssignment no
40 InvalidConfig no
41 NotController yes
42 InvalidRequest no
44 PolicyViolation no
45 OutOfOrderSequence no
47 InvalidProducerEpoch no
55 OperationNotAttempted yes
56 StorageError yes
60 ReassignmentInProgress no
70 FetchSessionIdNotFound yes
71 InvalidFetchSessionEpoch yes
74 FencedLeaderEpoch yes
75 UnknownLeaderEpoch yes
77 StaleBrokerEpoch no
78 OffsetNotAvailable yes
80 PreferredLeaderNotAvailable yes
83 EligibleLeadersNotAvailable yes
84 ElectionNotNeeded no
85 NoReassignmentInProgress no
87 InvalidRecord no
89 QuotaExceeded yes
95 InvalidUpdateVersion yes
96 FeatureUpdateFailed no
100 UnknownTopicId yes
101 DuplicateBrokerRegistration no
102 BrokerIdNotRegistered yes
103 InconsistentTopicId yes
104 InconsistentClusterId no
107 IneligibleReplica yes
108 NewLeaderElected yes
1001 LogDirectoryFull yes
1002 UnknownStage no
"""


def test_codes_and_names_never_change() -> None:
    expected = [tuple(line.split()) for line in TABLE.strip().splitlines()]
    found = [(str(code), kind.__name__, "yes" if kind.retriable else "no") for code, kind in sorted(CODES.items())]
    assert found == expected


def test_code_names_every_number_of_the_table() -> None:
    named = {name: value for name, value in vars(Code).items() if name.isupper()}
    assert named.pop("NONE") == errors.NONE == 0
    assert {name.replace("_", "").lower(): value for name, value in named.items()} == {
        kind.__name__.lower(): code for code, kind in CODES.items()
    }


def test_each_refusal_is_public_with_its_code_and_meaning() -> None:
    for code, kind in CODES.items():
        assert getattr(errors, kind.__name__) is kind
        assert kind.__name__ in errors.__all__
        assert kind.code == code
        assert str(kind()) == kind.__doc__


def test_three_branches() -> None:
    assert issubclass(NotLeaderOrFollower, Rejected)
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(TimedOut, Unavailable)
    branches = (UsageError, Rejected, Unavailable)
    assert all(issubclass(branch, ReplogError) for branch in branches)
    assert not any(issubclass(a, b) for a in branches for b in branches if a is not b)


def test_a_rejection_names_its_place() -> None:
    error = rejection(6, topic="orders", partition=3, broker=1, epoch=9)
    assert type(error) is NotLeaderOrFollower
    assert (error.topic, error.partition, error.broker, error.epoch) == ("orders", 3, 1, 9)
    assert str(error) == "orders-3: The broker does not lead this partition (or holds no copy of it)."
    assert str(rejection(6, "orders-3 moved", topic="orders", partition=3)) == "orders-3 moved"


def test_an_unknown_code_keeps_its_number() -> None:
    error = rejection(12345)
    assert type(error).code == -1
    assert "12345" in str(error)
    assert (error_name(0), error_name(6), error_name(12345)) == ("None", "NotLeaderOrFollower", "code 12345")


def test_a_refinement_keeps_the_code_and_a_second_leaf_may_not_take_it() -> None:
    class Moved(NotLeaderOrFollower):
        """A refinement."""

    assert Moved.code == 6
    assert CODES[6] is NotLeaderOrFollower
    with pytest.raises(AssertionError, match="share code 6"):
        type("Other", (Rejected,), {}, code=6)


OF_MORE: list[ReplogError] = [
    errors.LogTruncated("orders", 1, 5, 3),
    errors.InvariantViolated("I-3", "orders-1", "the end is before the begin"),
    errors.StoreCorrupt("/brokers", "no JSON"),
    errors.UndecodableBatch("orders", 1, 5, 7, "no columns"),
    rejection(6, topic="orders", partition=3, broker=1, epoch=9),
    StoreGone("cluster.db"),
    DataLost("orders-1: gone", TopicPartition("orders", 1), 3, 5),
]
"""Errors that are made of more than a sentence."""


def branch(kind: type[ReplogError]) -> Iterator[type[ReplogError]]:
    yield kind
    for leaf in kind.__subclasses__():
        yield from branch(leaf)


def specimen(kind: type[ReplogError]) -> ReplogError:
    """Whatever it is made of."""
    error = kind.__new__(kind)
    error.args = ("why",)
    vars(error).update(topic="orders", partition=3)
    return error


def test_every_error_can_go_to_another_process_and_be_copied() -> None:
    """A process pool that gets a result which it cannot read ends, with everything that it has under way."""
    kinds = [kind for kind in branch(ReplogError) if kind.__module__.startswith("replog.")]
    assert {*CODES.values(), *map(type, OF_MORE)} < {*kinds}
    for error in [*OF_MORE, *map(specimen, kinds)]:
        error.add_note("twice")
        for other in [copy.copy(error), ForkingPickler.loads(ForkingPickler.dumps(error))]:
            assert (type(other), str(other), other.args, vars(other)) == (type(error), str(error), error.args, vars(error))
