"""Registration: broker epochs, take-over, refusals, outcomes nobody heard, lost sessions (P-72, P-23, KAFKA-16952)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from replog.broker.broker import Broker
from replog.broker.membership import Membership
from replog.config import BrokerConfig
from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.features import Levels
from replog.log.memory import MemoryLogDirectory
from replog.messages import Registered
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.model import PartitionId
from replog.ports import Conflict, Create, Delete, LossReport, Put, SessionChanged, StoreResult, UnknownOutcome, Versioned, WatchFired
from replog.testing.clock import SeededIds

DIRECTORY = "d" * 32
PATH = layout.broker_path(1)


class Stepper:
    """One membership over one store session, run until it has nothing to do."""

    def __init__(self, store: MemoryStore, *, broker_id: int = 1, directory_id: str = DIRECTORY, seed: int = 1, **options: Any) -> None:
        self.tree = store
        self.session = store.session()
        self.now_ms = 0
        options = {"loss": LossReport(), "incarnation": f"i{seed}", "endpoints": ("tcp://127.0.0.1:9",), "rack": "r1", **options}
        self.member = Membership(broker_id, config=BrokerConfig(), ids=SeededIds(seed), directory_id=directory_id, **options)
        self.told: list[tuple[Any, Registered]] = []
        self.events: list[Any] = []
        self.commits = 0
        self.watched: list[str] = []
        self.asked: list[Any] = []
        self.fault: Callable[[str], str | None] = lambda verb: None

    def run(self) -> Stepper:
        self.member.tick(self.now_ms, 0)
        return self.go_on()

    def go_on(self) -> Stepper:
        for _ in range(100):
            box = self.member.outbox
            self.told += box.messages
            self.events += box.events
            calls = list(box.calls)
            self.asked += calls
            for content in (box.messages, box.events, box.calls):
                content.clear()
            if not calls:
                return self
            for call in calls:
                self.member.receive(None, self._answer(call), self.now_ms)
        raise AssertionError("this never ends")

    def _answer(self, call: Any) -> StoreResult:
        fault = self.fault(call.verb)
        unknown = StoreResult(call.call, error=UnknownOutcome("connection lost"))
        if fault == "lost":
            return unknown
        self.commits += call.verb == "commit"
        try:
            if call.verb == "watch":
                self.session.watch(call.argument, self.watched.append)
                return StoreResult(call.call)
            result = StoreResult(call.call, getattr(self.session, call.verb)(call.argument))
        except ReplogError as error:
            result = StoreResult(call.call, error=error)
        return unknown if fault == "applied" else result

    def advance(self, ms: int) -> Stepper:
        self.now_ms += ms
        return self.run()

    def hear_watches(self) -> Stepper:
        fired, self.watched[:] = list(self.watched), []
        for path in fired:
            self.member.receive(None, WatchFired(path), self.now_ms)
        return self.go_on()

    @property
    def epoch(self) -> int:
        return self.member.broker_epoch


def created(store: MemoryStore, path: str = PATH) -> int:
    value = store.read(path)
    return -1 if value is None else value.created


def test_the_broker_epoch_is_the_creation_number_and_both_neighbours_hear_it():
    store = MemoryStore()
    lossy = LossReport("power", (PartitionId(b"t" * 16, 2, 1),))
    stepper = Stepper(store, loss=lossy).run()
    assert stepper.epoch == created(store) > 0
    cluster = layout.decode_cluster("", store.read(layout.CLUSTER).value)
    said = Registered(1, stepper.epoch, cluster.cluster_id)
    assert stepper.told == [(1, said), (("controller", 1), said)]
    stored = layout.decode_registration("", store.read(PATH).value)
    assert (stored.endpoints, stored.rack, stored.directory_id, stored.loss) == (("tcp://127.0.0.1:9",), "r1", DIRECTORY, lossy)
    stepper.session.close()
    assert store.read(PATH) is None


@pytest.mark.parametrize("topics", [4, 60_000], ids=["of few topics", "of many"])
def test_a_broker_registers_however_many_copies_a_power_cut_may_have_cost(topics):
    """A node of ZooKeeper, with the transaction around it, is below 1 MiB."""
    store = MemoryStore()
    lossy = tuple(PartitionId(topic.to_bytes(16), n, 0) for topic in range(topics) for n in range(60_000 // topics))
    loss = LossReport("power", lossy)
    stepper = Stepper(store, loss=loss).run()
    assert stepper.epoch == created(store) > 0
    assert len(store.read(PATH).value) < 1_000_000
    assert layout.decode_registration("", store.read(PATH).value).loss in (loss, LossReport("replaced"))


def test_the_first_broker_names_the_cluster_and_the_others_join_it():
    store = MemoryStore()
    first, second = Stepper(store).run(), Stepper(store, broker_id=2, seed=2).run()
    assert first.member.cluster_id == second.member.cluster_id != ""
    assert second.epoch > first.epoch


def test_two_first_brokers_at_once_agree():
    store = MemoryStore()
    first, second = Stepper(store), Stepper(store, broker_id=2, seed=2)
    for stepper in (first, second):
        stepper.member.tick(0, 0)  # both have asked whether there is a cluster
    first.go_on()
    identity = store.read(layout.CLUSTER)
    call = second.member.outbox.calls.pop()
    second.member.receive(None, StoreResult(call.call, None), 0)  # it had seen none
    second.go_on()
    assert store.read(layout.CLUSTER) == identity
    assert second.member.cluster_id == first.member.cluster_id
    assert second.epoch > 0


def test_a_directory_of_another_cluster_is_refused():
    store = MemoryStore()
    cluster = Stepper(store).run().member.cluster_id
    stranger = Stepper(store, broker_id=2, cluster_id="elsewhere").run()
    assert stranger.epoch == -1
    assert "elsewhere" in (stranger.member.refused or "")
    assert not stranger.member.is_occupied, "nobody has its number: there is nothing to wait for"
    assert cluster in stranger.member.refused
    assert store.read(layout.broker_path(2)) is None
    assert stranger.member.deadline_ms() is None
    assert Stepper(store, broker_id=3, cluster_id=cluster).run().epoch > 0


def test_an_unknown_format_is_refused():
    store = MemoryStore()
    store.commit([Create(layout.CLUSTER, layout.encode_cluster(layout.ClusterIdentity("c", format=2)))])
    assert "format 2" in (Stepper(store).run().member.refused or "")


def test_a_cluster_node_that_cannot_be_read_is_a_refusal_that_names_it():
    store = MemoryStore()
    store.commit([Create(layout.CLUSTER, b"no json")])
    assert layout.CLUSTER in (Stepper(store).run().member.refused or "")


# ---- P-72


def test_another_directory_with_this_id_is_refused_while_the_first_lives():
    store = MemoryStore()
    first = Stepper(store).run()
    second = Stepper(store, directory_id="e" * 32, seed=2).run()
    assert second.epoch == -1
    assert DIRECTORY in (second.member.refused or "")
    assert "broker id 1" in second.member.refused
    assert f"by a live broker with directory {DIRECTORY} at tcp://127.0.0.1:9; this one" in second.member.refused, "where to look for it"
    assert second.member.is_occupied
    assert created(store) == first.epoch
    assert second.advance(100_000).commits == 0
    assert [e.name for e in second.events] == ["membership_refused"]


def test_who_is_reached_nowhere_is_named_by_its_directory_alone():
    store = MemoryStore()
    Stepper(store, endpoints=("",)).run()
    second = Stepper(store, directory_id="e" * 32, seed=2).run()
    assert f"by a live broker with directory {DIRECTORY}; this one" in (second.member.refused or "")


def test_the_same_directory_takes_a_live_registration_over_with_a_new_epoch():
    """Its lock is held by whoever asks: the former holder is dead, though its session is not."""
    store = MemoryStore()
    first = Stepper(store).run()
    second = Stepper(store, seed=2).run()
    assert second.epoch == created(store) > first.epoch
    first.session.expire()
    assert created(store) == second.epoch


@pytest.mark.parametrize("session", ["the same session", "a new session"])
def test_who_is_taken_over_while_it_lives_has_been_copied_and_does_not_take_back(session):
    """Two processes with copies of one directory would take the registration from each other for ever."""
    store = MemoryStore()
    first = Stepper(store).run()
    if session == "a new session":
        first.session.expire()
        first.member.receive(None, SessionChanged("lost"), 10)
    copy = Stepper(store, seed=2).run()
    for _ in range(3):
        if session == "a new session":
            first.session = store.session()
            first.member.receive(None, SessionChanged("connected"), 20)
            first.go_on()
        first.hear_watches()
        copy.hear_watches()
        assert (first.epoch, copy.epoch) == (-1, created(store))
    assert f"another process, which has a copy of this data directory ({DIRECTORY} at tcp://127.0.0.1:9):" in first.member.refused
    assert first.member.is_occupied
    assert copy.member.refused is None
    copy.session.expire()
    first.member.receive(None, SessionChanged("connected"), 30)
    assert first.go_on().epoch == created(store) > copy.epoch


@pytest.mark.parametrize("heard", ["unknown", "known"])
def test_what_a_former_life_had_on_its_way_does_not_replace_a_registration_it_has_not_seen(heard):
    """Both found the node of the life before them, and theirs have the same version."""
    store = MemoryStore()
    Stepper(store).run()
    former = Stepper(store, seed=2)
    held = []
    commit = former.session.commit
    former.session.commit = lambda ops: held.append(ops) or [0] * len(ops)
    former.run()
    assert len(held) == 1
    present = Stepper(store, seed=3)
    if heard == "unknown":
        present.fault = lambda verb: "applied" if verb == "commit" else None
    present.run()
    registered = created(store)
    with pytest.raises(Conflict):
        commit(held[0])
    present.fault = lambda verb: None
    present.hear_watches()
    assert present.advance(100).epoch == created(store) == registered


@pytest.mark.parametrize("outcome", ["lost", "applied"])
@pytest.mark.parametrize("nth", [1, 2])
def test_the_same_incarnation_registers_once_whatever_it_heard(outcome, nth):
    """KAFKA-16952: the outcome of a commit was never heard; it reads first, and never registers twice."""
    store = MemoryStore()
    stepper = Stepper(store)
    seen = []

    def fault(verb):
        seen.append(verb)
        return outcome if verb == "commit" and seen.count("commit") == nth else None

    stepper.fault = fault
    stepper.run()
    assert stepper.epoch == -1
    node = created(store)
    assert (node > 0) == (outcome == "applied" and nth == 2)
    at = len(seen)
    deadline = stepper.member.deadline_ms()
    assert 0 < deadline <= 50
    stepper.advance(deadline)
    assert seen[at] == "read"
    assert stepper.epoch == created(store) > 0
    assert node in (-1, stepper.epoch)
    assert len(stepper.told) == 2


def test_a_store_that_cannot_be_reached_is_tried_again_ever_more_slowly():
    stepper = Stepper(MemoryStore())
    stepper.fault = lambda verb: "lost"
    stepper.run()
    pauses = []
    for _ in range(10):
        pause = stepper.member.deadline_ms() - stepper.now_ms
        pauses.append(pause)
        stepper.advance(pause)
    assert all(25 << n <= p <= 50 << n for n, p in enumerate(pauses[:5]))
    assert all(1_000 <= p <= 2_000 for p in pauses[6:])
    stepper.fault = lambda verb: None
    assert stepper.advance(2_000).epoch > 0


# ---- sessions


def test_a_lost_session_is_told_at_once_and_a_new_one_registers_under_a_new_epoch():
    store = MemoryStore()
    stepper = Stepper(store).run()
    first = stepper.epoch
    stepper.member.receive(None, SessionChanged("suspended"), 5)
    assert stepper.epoch == first
    stepper.session.expire()
    stepper.member.receive(None, SessionChanged("lost"), 10)
    stepper.go_on()
    assert stepper.epoch == -1
    assert [m.broker_epoch for _, m in stepper.told] == [first, first, -1, -1]
    assert stepper.member.deadline_ms() is None
    stepper.session = store.session()
    stepper.member.receive(None, SessionChanged("connected"), 20)
    stepper.go_on()
    assert stepper.epoch == created(store) > first
    assert [m.broker_epoch for _, m in stepper.told[4:]] == [stepper.epoch] * 2


def test_a_node_that_an_ended_session_of_ours_left_is_replaced():
    """The server has not yet ended the old session: its node would go with it."""
    store = MemoryStore()
    stepper = Stepper(store).run()
    first, old = stepper.epoch, stepper.session
    stepper.member.receive(None, SessionChanged("lost"), 10)
    stepper.session = store.session()
    stepper.member.receive(None, SessionChanged("connected"), 20)
    stepper.go_on()
    assert stepper.epoch > first
    old.expire()
    assert created(store) == stepper.epoch


def test_the_incarnation_of_a_process_outlives_its_sessions():
    store = MemoryStore()
    stepper = Stepper(store).run()
    before = layout.decode_registration("", store.read(PATH).value).incarnation
    stepper.session.expire()
    stepper.member.receive(None, SessionChanged("lost"), 10)
    stepper.session = store.session()
    stepper.member.receive(None, SessionChanged("connected"), 20)
    stepper.go_on()
    assert layout.decode_registration("", store.read(PATH).value).incarnation == before
    assert layout.decode_registration("", store.read(PATH).value).incarnation != ""


def test_a_node_that_disappears_is_made_again():
    store = MemoryStore()
    stepper = Stepper(store).run()
    first = stepper.epoch
    other = Stepper(store, seed=2).run()  # takes it over, then dies
    other.session.expire()
    stepper.hear_watches()
    assert stepper.epoch == created(store) > first
    assert [m.broker_epoch for _, m in stepper.told] == [first] * 2 + [-1] * 2 + [stepper.epoch] * 2


def test_a_lost_watch_is_found_by_looking_now_and_then():
    store = MemoryStore()
    stepper = Stepper(store).run()
    first = stepper.epoch
    Stepper(store, seed=2).run().session.expire()
    assert stepper.member.deadline_ms() == BrokerConfig().reconcile_ms
    stepper.advance(BrokerConfig().reconcile_ms)
    assert stepper.epoch == created(store) > first


def test_a_registered_broker_reads_and_writes_nothing_more():
    stepper = Stepper(MemoryStore()).run()
    commits = stepper.commits
    stepper.advance(1_000).advance(1_000)
    assert stepper.commits == commits
    assert len(stepper.told) == 2


def test_a_result_of_an_earlier_session_is_ignored():
    store = MemoryStore()
    stepper = Stepper(store)
    stepper.member.tick(0, 0)
    (call,) = stepper.member.outbox.calls
    stepper.member.receive(None, SessionChanged("lost"), 1)
    stepper.member.receive(None, SessionChanged("connected"), 2)
    earlier, present = stepper.member.outbox.calls
    assert earlier is call
    identity = layout.encode_cluster(layout.ClusterIdentity("of another time"))
    stepper.member.receive(None, StoreResult(call.call, Versioned(identity, 0, 1)), 3)
    stepper.member.outbox.calls[:] = [present]
    assert stepper.go_on().epoch == created(store)
    assert stepper.member.cluster_id != "of another time"


def test_a_refusal_is_final_until_the_session_changes():
    store = MemoryStore()
    first = Stepper(store).run()
    second = Stepper(store, directory_id="e" * 32, seed=2).run()
    first.session.expire()
    assert second.hear_watches().epoch == -1
    assert second.commits == 0
    second.member.receive(None, SessionChanged("connected"), 5)
    assert second.go_on().epoch == created(store) > first.epoch
    assert second.member.refused is None


def test_a_watch_that_fires_before_the_store_says_that_it_is_armed_is_heard():
    stepper = Stepper(MemoryStore())
    stepper.member.tick(0, 0)
    (call,) = stepper.member.outbox.calls
    assert call.verb == "watch"
    stepper.member.receive(None, WatchFired(call.argument), 0)
    stepper.run()
    assert stepper.epoch > 0
    armed = [asked.argument for asked in stepper.asked if asked.verb == "watch"]
    assert armed.count(call.argument) == 2, "it is armed anew"


# ---- where others are


def shared(stepper: Stepper) -> list[tuple[str, int]]:
    return [(one.fields["endpoint"], one.fields["with_broker"]) for one in stepper.events if one.name == "endpoint_shared"]


def test_who_is_reached_where_another_one_is_says_so_and_serves_all_the_same():
    store = MemoryStore()
    first = Stepper(store, endpoints=("tcp://a:1",)).run()
    second = Stepper(store, broker_id=2, seed=2, endpoints=("tcp://a:2",)).run()
    third = Stepper(store, broker_id=3, seed=3, endpoints=("tcp://b:1", "tcp://a:1", "tcp://a:2")).run()
    assert [shared(first), shared(second)] == [[], []]
    assert shared(third) == [("tcp://a:1", 1), ("tcp://a:2", 2)]
    assert third.epoch > 0


def test_who_comes_again_looks_again_and_nobody_shares_what_is_empty():
    store = MemoryStore()
    Stepper(store, endpoints=("",)).run()
    assert shared(Stepper(store, broker_id=2, seed=2, endpoints=("",)).run()) == []
    again = Stepper(store, broker_id=2, seed=3, endpoints=("tcp://a:1",)).run()
    assert shared(again) == []
    Stepper(store, broker_id=3, seed=4, endpoints=("tcp://a:1",)).run()
    after = Stepper(store, broker_id=2, seed=5, endpoints=("tcp://a:1",)).run()
    assert shared(after) == [("tcp://a:1", 3)], "its own former registration does not count"


def test_a_registration_that_cannot_be_read_is_nobody_to_share_with():
    store = MemoryStore()
    store.commit([Create(layout.broker_path(7), b"{")])
    assert shared(Stepper(store).run()) == []


@pytest.mark.parametrize("error", [StoreCorrupt(layout.broker_path(2), "its checksum"), UsageError("the access list of a node")])
def test_a_registration_that_the_store_does_not_give_out_keeps_nobody_else_out(error: ReplogError) -> None:
    store = MemoryStore()
    Stepper(store, broker_id=2, seed=2).run()
    Stepper(store, broker_id=3, seed=3).run()
    late = Stepper(store, seed=4)
    read_each = late.session.read_each

    def refused(paths: Sequence[str]) -> Any:
        if layout.broker_path(2) in paths:
            raise error
        return read_each(paths)

    late.session.read_each = refused  # type: ignore[method-assign]
    late.run()
    assert (late.member.refused, late.epoch) == (None, created(store))
    assert shared(late) == [("tcp://127.0.0.1:9", 3)]


# ---- feature levels (KIP-584)

NEXT = Levels(1, 2)


def store_at(level: int) -> MemoryStore:
    store = MemoryStore()
    store.commit([Create(layout.CLUSTER, layout.encode_cluster(layout.ClusterIdentity("c", feature_level=level)))])
    return store


def raise_to(store: MemoryStore, level: int) -> None:
    store.commit([Put(layout.CLUSTER, layout.encode_cluster(layout.ClusterIdentity("c", feature_level=level)))])


def level_of(store: MemoryStore) -> int:
    return layout.decode_cluster("", store.read(layout.CLUSTER).value).feature_level


def raised_just_before_it_commits(stepper: Stepper) -> None:
    """Let it try for a while, with the level raised to 2 between its look and its commit."""

    def before(verb: str) -> None:
        if verb == "commit" and level_of(stepper.tree) == 1:
            raise_to(stepper.tree, 2)

    stepper.fault = before
    stepper.run().advance(10_000)


def test_a_cluster_starts_at_the_newest_level_and_an_existing_one_keeps_its_own():
    store = MemoryStore()
    assert Stepper(store, supports=NEXT).run().member.feature_level == level_of(store) == 2
    store = store_at(1)
    stepper = Stepper(store, supports=NEXT).run()
    assert stepper.epoch == created(store)
    assert stepper.member.feature_level == level_of(store) == 1
    assert layout.decode_registration("", store.read(PATH).value).features == NEXT


def test_a_broker_that_does_not_support_the_level_is_refused_and_registers_nothing():
    store = store_at(2)
    stepper = Stepper(store, supports=Levels(1, 1)).run()
    assert stepper.epoch == -1
    assert store.read(PATH) is None
    why = "the cluster has feature level 2; this version of replog supports level 1: start a newer version"
    assert stepper.member.refused == why
    assert [event.fields["why"] for event in stepper.events if event.name == "membership_refused"] == [why]
    assert stepper.member.deadline_ms() is None


def test_a_level_that_is_raised_just_before_the_registration_keeps_it_out():
    store = store_at(1)
    stepper = Stepper(store, supports=Levels(1, 1))

    raised_just_before_it_commits(stepper)
    assert stepper.epoch == -1
    assert store.read(PATH) is None
    assert "feature level 2" in (stepper.member.refused or "")


def test_a_take_over_is_kept_out_as_well():
    store = store_at(1)
    former = Stepper(store).run()
    stepper = Stepper(store, seed=2, supports=Levels(1, 1))

    raised_just_before_it_commits(stepper)
    assert stepper.epoch == -1
    assert created(store) == former.epoch, "what a former life left ends with its session"


def test_a_member_whose_level_is_raised_beyond_what_it_supports_leaves_and_says_so():
    store = store_at(1)
    stepper = Stepper(store, supports=Levels(1, 1)).run().hear_watches()
    assert stepper.epoch > 0
    raise_to(store, 2)
    stepper.hear_watches()
    assert store.read(PATH) is None
    assert "feature level 2" in (stepper.member.refused or "")
    assert [message.broker_epoch for address, message in stepper.told if address == 1][-1] == -1


@pytest.mark.parametrize("fault", ["lost", "applied"])
def test_it_leaves_although_nobody_heard_whether_it_had(fault: str):
    store = store_at(1)
    stepper = Stepper(store, supports=Levels(1, 1)).run().hear_watches()
    raise_to(store, 2)
    faults = [fault]
    stepper.fault = lambda verb: faults.pop() if verb == "commit" and faults else None
    stepper.hear_watches()
    assert stepper.epoch == -1, "nobody counts on it meanwhile"
    stepper.advance(10_000)
    assert store.read(PATH) is None
    assert "feature level 2" in (stepper.member.refused or "")


def test_a_raised_level_that_is_supported_is_told_to_both_neighbours_under_the_same_epoch():
    store = store_at(1)
    stepper = Stepper(store, supports=NEXT).run().hear_watches()
    epoch, told = stepper.epoch, len(stepper.told)
    raise_to(store, 2)
    stepper.hear_watches()
    said = Registered(1, epoch, "c", 2)
    assert stepper.told[told:] == [(1, said), (("controller", 1), said)]
    assert created(store) == epoch


def test_a_raised_level_is_found_although_its_watch_was_lost():
    store = store_at(1)
    stepper = Stepper(store, supports=NEXT).run().hear_watches()
    raise_to(store, 2)
    stepper.watched.clear()
    stepper.advance(BrokerConfig().reconcile_ms)
    assert stepper.member.feature_level == 2


@pytest.mark.parametrize("how", ["damaged", "removed"])
def test_a_member_stays_one_at_the_level_that_it_knows_when_the_record_of_the_cluster_is_gone(how: str):
    store = store_at(2)
    stepper = Stepper(store, supports=Levels(1, 3)).run().hear_watches()
    epoch, record = stepper.epoch, store.read(layout.CLUSTER)
    assert record is not None
    store.commit([Put(layout.CLUSTER, b"{") if how == "damaged" else Delete(layout.CLUSTER)])
    stepper.hear_watches().advance(3 * BrokerConfig().reconcile_ms)
    assert (stepper.epoch, stepper.member.feature_level, stepper.member.refused) == (epoch, 2, None)
    assert created(store) == epoch
    assert [event.fields["path"] for event in stepper.events if event.name == "store_value_unreadable"] == [layout.CLUSTER]
    assert Stepper(store, broker_id=2, seed=2, cluster_id="c").run().epoch == -1, "nobody else comes in"
    raise_to(store, 3) if how == "damaged" else store.commit([Create(layout.CLUSTER, record.value)])
    stepper.advance(BrokerConfig().reconcile_ms)
    assert (stepper.epoch, stepper.member.feature_level) == (epoch, 3 if how == "damaged" else 2)


def test_a_new_broker_makes_no_new_cluster_where_the_record_of_one_was_removed():
    store = store_at(1)
    stepper = Stepper(store).run().hear_watches()
    store.commit([Create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1)), Delete(layout.CLUSTER)])
    late = Stepper(store, broker_id=2, seed=2).run()
    assert store.read(layout.CLUSTER) is None
    assert late.epoch == -1
    assert f"no record of its cluster at {layout.CLUSTER}" in (late.member.refused or "")
    stepper.hear_watches().advance(BrokerConfig().reconcile_ms)
    assert (stepper.epoch, stepper.member.refused) == (created(store), None)


def test_who_has_lost_its_session_comes_in_again_only_once_the_record_can_be_read():
    store = store_at(1)
    stepper = Stepper(store).run().hear_watches()
    store.commit([Put(layout.CLUSTER, b"{")])
    stepper.member.receive(None, SessionChanged("lost"), 5)
    stepper.member.receive(None, SessionChanged("connected"), 5)
    stepper.go_on()
    assert stepper.epoch == -1
    assert layout.CLUSTER in (stepper.member.refused or "")


def test_a_broker_knows_the_level_that_it_was_told_last_in_whatever_life():
    broker = Broker(1, MemoryLogDirectory(), config=BrokerConfig(), ids=SeededIds(1))
    assert broker.feature_level == 1
    for said in (Registered(1, 5, "c", 1), Registered(1, 5, "c", 2), Registered(1, -1, "c", 2)):
        broker.receive("membership", said, 0)
        assert (broker.feature_level, broker.broker_epoch) == (said.feature_level, 5)
