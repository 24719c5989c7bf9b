"""The real code in every order of events, in a tiny cluster: nothing is wrong with it, and with each guard taken away something is.

Numbers M.. are those of the catalogue of seeded bugs. The bugs that take long are looked for from where a few steps lead:
from there on nothing is left out.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from tests.simulation.mutants.commands import applies_stale_notices
from tests.simulation.mutants.controllers import elects_uncleanly
from tests.simulation.mutants.followers import fences_no_fetch
from tests.simulation.mutants.isr import assumes_its_shrink, drops_pending, forgets_its_expansion, joins_below_the_epoch
from tests.simulation.mutants.lives import believes_lossy, leads_again

from replog.controller import controller as controller_module
from replog.errors import UsageError
from replog.partition.following import Following
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.testing.exploration import real_broker
from replog.testing.exploration.real_budgets import Budgets
from replog.testing.exploration.real_check import judge_broker, judge_state
from replog.testing.exploration.real_cluster import RealCluster
from replog.testing.exploration.real_command import explore_real, main
from replog.testing.exploration.real_snapshot import LIMITS, NOW_MS, Frozen, Setting, thaw, view_of
from replog.testing.exploration.real_text import text
from replog.testing.exploration.search import explore

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch

# ------------------------------------------------------------------------------------------------------------ seeded bugs
# Those that need another form here than in the simulator; the others are the catalogue's own.


def truncates_to_high_watermark(patch: Patch) -> None:
    """M01: a follower drops what lies above its high watermark at each change of leader (KIP-101)."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        epoch = self.leader_epoch
        error = become(self, notice, now_ms)
        if not error and self.following is not None and self.leader_epoch > epoch:
            self.log.truncate_to(self.high_watermark)
        return error

    patch.setattr(Partition, "become", mutant)


def proposes_without_version(patch: Patch) -> None:
    """M07: the controller does not compare the version that a proposal is made on."""
    change_isr = controller_module.change_isr

    def mutant(entry: Any, sender: int, state: Any, **given: Any) -> Any:
        return change_isr(attrs.evolve(entry, partition_epoch=state.partition_epoch), sender, state, **given)

    patch.setattr(controller_module, "change_isr", mutant)


def keeps_positions(patch: Patch) -> None:
    """M08: what followers acknowledged in an earlier leadership of the same process still counts.

    It is remembered where a snapshot sees it, in what the broker may hang on a partition.
    """
    acknowledge, lead = Partition.acknowledge, Partition._lead

    def noting(self: Partition, *given: Any) -> Any:
        found = acknowledge(self, *given)
        if self.leading is not None:
            self.waiting = tuple((r.broker_id, r.position) for r in self.leading.replicas.values())
        return found

    def mutant(self: Partition, state: Any, notice: Any, now_ms: int) -> None:
        lead(self, state, notice, now_ms)
        assert self.leading is not None
        for broker_id, position in self.waiting or ():
            self.leading.replicas[broker_id].position = min(position, self.log.end_offset)
        self._advance(now_ms)

    patch.setattr(Partition, "acknowledge", noting)
    patch.setattr(Partition, "_lead", mutant)


def forgets_broker_epochs(patch: Patch) -> None:
    """M15: a broker that lost its records joins by what its earlier life had fetched (KIP-903)."""
    change_isr = controller_module.change_isr

    def mutant(entry: Any, *args: Any, **given: Any) -> Any:
        members = [(b, given["brokers"][b].broker_epoch if b in given["brokers"] else epoch) for b, epoch in entry.isr]
        return change_isr(attrs.evolve(entry, isr=members), *args, **given)

    patch.setattr(controller_module, "change_isr", mutant)


def believes_every_watermark(patch: Patch) -> None:
    """M16: a follower takes the leader's high watermark although it has not got so far."""
    take = Following.take

    def mutant(self: Following, entry: Any, high_watermark: int) -> Any:
        outcome, watermark = take(self, entry, high_watermark)
        return outcome, max(watermark, entry.high_watermark) if outcome.name in ("APPENDED", "KEPT_UP") else watermark

    patch.setattr(Following, "take", mutant)


def moves_back(patch: Patch) -> None:
    """M17: the high watermark follows the slowest member of the ISR, also backwards."""

    def mutant(self: Leading, now_ms: int) -> bool:
        target = max(0, self.policy.high_watermark(self.log.end_offset, self.counted))
        moved = target != self.high_watermark
        self.high_watermark = target
        return moved

    patch.setattr(Leading, "advance", mutant)


def ignores_min_isr(patch: Patch) -> None:
    """M18: records commit with fewer replicas than min_isr (KIP-966)."""
    update = Leading.update

    def mutant(self: Leading, *args: Any) -> None:
        update(self, *args)
        self.effective_min_isr = 0

    patch.setattr(Leading, "update", mutant)


_ONE = Budgets(records=1, epochs=2, crashes=1, unknown=0, shrinks=0)
_TWO_KILLED = Budgets(records=1, epochs=3, plan=(("kill", 1), ("kill", 2)), unknown=0, shrinks=0, isr=(1, 2))
_TWICE_LEADER = Budgets(records=2, epochs=3, plan=(("expire", 1), ("kill", 2)), unknown=0, shrinks=0)
_FOUR = Budgets(replicas=4, records=1, epochs=2, crashes=1, plan=(("kill", 1),), unknown=0, shrinks=0, isr=(1, 2, 3))
_UNSURE = Budgets(records=1, epochs=2, crashes=0, shrinks=0, isr=(1, 2))

_POWERLESS = Budgets(records=1, crashes=1, plan=(("kill", 2),), powers=1, unknown=0, shrinks=0, isr=(1, 2))

Case = tuple[Callable[[Patch], None], Budgets, tuple[str, ...], tuple[str, ...]]

CASES: tuple[Case, ...] = (
    (truncates_to_high_watermark, _ONE, (), ("S3",)),
    (assumes_its_shrink, attrs.evolve(_ONE, shrinks=1), (), ("S3", "S4")),
    (forgets_its_expansion, attrs.evolve(_UNSURE, shrinks=1), (), ("S3", "S4")),  # unanswered for longer than the lag time
    (fences_no_fetch, _TWO_KILLED, ("append 1", "fetch 3", "answer 3", "kill 1"), ("S3",)),
    (applies_stale_notices, attrs.evolve(_ONE, stale_notices=True), (), ("S6",)),
    (
        keeps_positions,
        _TWICE_LEADER,
        ("append 1", "fetch 3", "answer 3", "fetch 3", "expire 1", "told 2", "append 2", "register 1"),
        ("S3",),
    ),
    (joins_below_the_epoch, _FOUR, ("append 1", "fetch 2", "fetch 3", "answer 2", "answer 3"), ("S3",)),
    (elects_uncleanly, _TWO_KILLED, (), ("S3",)),
    (leads_again, _ONE, (), ("S5",)),
    (
        forgets_broker_epochs,
        attrs.evolve(_UNSURE, powers=1, unknown=0),
        ("append 1", "fetch 2", "answer 2", "fetch 3", "answer 3"),
        ("S3",),
    ),
    (
        believes_every_watermark,
        attrs.evolve(_UNSURE, records=2, unknown=0, piecemeal=True),
        ("append 1", "append 1", "fetch 2"),
        ("S7",),
    ),
    (moves_back, attrs.evolve(_ONE, shrinks=1), (), ("S4",)),
    (ignores_min_isr, attrs.evolve(_ONE, shrinks=1), (), ("S4",)),
    (
        proposes_without_version,
        attrs.evolve(_UNSURE, shrinks=1, copies=1),
        ("fetch 2", "append 1", "fetch 3", "answer 3", "fetch 3", "propose 1"),
        ("S4",),
    ),
    (drops_pending, _UNSURE, (), ("S4",)),
    (believes_lossy, _POWERLESS, ("append 1",), ("S3", "S2")),
)


@pytest.mark.parametrize(("mutant", "budgets", "begin", "invariants"), CASES, ids=[case[0].__name__ for case in CASES])
def test_bug_is_found(
    mutant: Callable[[Patch], None], budgets: Budgets, begin: tuple[str, ...], invariants: tuple[str, ...], monkeypatch: Patch
) -> None:
    sound = RealCluster(budgets)
    sound.begin(*begin)
    mutant(monkeypatch)
    cluster = RealCluster(budgets)
    cluster.begin(*begin)
    result = explore_real(cluster, states=60_000)
    assert result.violation is not None, f"{mutant.__name__} is not seen in {result.states} states, to depth {result.depth}"
    assert result.violation.why.partition(":")[0] in invariants, str(result.violation)
    monkeypatch.undo()
    assert explore_real(sound, depth=min(result.depth, 7)).violation is None


# ------------------------------------------------------------------------------------------------------------ sound spaces


@pytest.mark.parametrize(
    ("budgets", "states", "depth"),
    [
        pytest.param(_UNSURE, 400, 12, id="an unknown outcome"),
        pytest.param(attrs.evolve(_ONE, plan=(("kill", 1),)), 3_000, 14, id="the leader is killed"),
        pytest.param(attrs.evolve(_ONE, plan=(("kill", 1),), stale_notices=True), 3_000, 14, id="old notices come late"),
        pytest.param(attrs.evolve(_ONE, plan=(("expire", 1),)), 3_000, 14, id="the leader's session ends"),
        pytest.param(attrs.evolve(_ONE, plan=(("restart", 1),)), 3_000, 14, id="the leader is back at once"),
    ],
)
def test_whole_space_is_sound(budgets: Budgets, states: int, depth: int) -> None:
    result = explore_real(RealCluster(budgets))
    assert result.violation is None, str(result.violation)
    assert result.exhausted
    assert result.states > states
    assert result.depth >= depth


def test_large_space_is_sound_as_far_as_it_is_seen() -> None:
    result = explore_real(RealCluster(Budgets(copies=1)), depth=4)
    assert result.violation is None, str(result.violation)
    assert result.states > 2_000


def possible(cluster: RealCluster) -> list[str]:
    return [text(what) for what, _ in cluster.successors(cluster.initial)]


def test_leaders_hear_every_state_and_followers_every_epoch() -> None:
    cluster = RealCluster(Budgets())
    cluster.begin("kill 3")
    assert [name for name in possible(cluster) if name.startswith("told 1")] == ["told 1 version 1: leader 1, epoch 0, ISR {1, 2}"]
    assert not [name for name in possible(cluster) if name.startswith("told 2")]
    cluster.begin("kill 1")
    told = [name for name in possible(cluster) if name.startswith("told 2")]
    assert told == ["told 2 version 2: leader 2, epoch 1, ISR {2}"]


def test_plan_says_what_crashes() -> None:
    cluster = RealCluster(Budgets(plan=(("expire", 2), ("kill", 3))))
    crashes = ("kill", "restart", "expire", "power")
    assert [name for name in possible(cluster) if name.startswith(crashes)] == ["expire 2"]
    cluster.begin("expire 2")
    assert [name for name in possible(cluster) if name.startswith(crashes)] == ["kill 3"]
    cluster.begin("kill 3")
    assert not [name for name in possible(cluster) if name.startswith(crashes)]


def test_epochs_end() -> None:
    cluster = RealCluster(Budgets(epochs=1))
    assert "kill 2" in possible(cluster)
    assert "kill 1" not in possible(cluster)


# ---------------------------------------------------------------------------------------------- snapshots and fingerprints

_FORGOTTEN = ("generation", "shortest", "_tail", "_segments", "_producers", "sessions", "retry_at_ms", "parked", "told", "_left_end")
"""What a snapshot leaves out on purpose: see `real_snapshot`."""


def described(thing: Any, now_ms: int) -> Any:
    """Everything that is reached from a partition, as plain values; times as the snapshot sees them."""
    if isinstance(thing, int | str | bytes | None):
        return thing
    if isinstance(thing, tuple | list):
        return [described(one, now_ms) for one in thing]
    if isinstance(thing, dict):
        return [(key, described(value, now_ms)) for key, value in thing.items()]
    if callable(thing):
        return thing.__name__
    names = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())} | set(getattr(thing, "__dict__", ()))
    found = {}
    for name in sorted(names - set(_FORGOTTEN) - {"__weakref__"}):
        value = getattr(thing, name)
        if name in ("caught_up_ms", "told_ms", "last_fetch_ms"):
            value = value < now_ms - LIMITS.replica_lag_ms_max
        found[name] = described(value, now_ms)
    return type(thing).__name__, found


def test_snapshot_keeps_everything(monkeypatch: Patch) -> None:
    setting = Setting(3, 2)
    seen: set[Frozen] = set()
    freeze = real_broker.freeze

    def checked(partition: Partition, now_ms: int = NOW_MS) -> Frozen:
        frozen = freeze(partition, now_ms)
        known = partition.brokers
        views = tuple((known[b].broker_epoch, int(known[b].fenced)) if b in known else () for b in (1, 2, 3))
        again = thaw(frozen, partition.broker_id, view_of(views), setting)
        if partition.leader_epoch >= 0:  # before that it does not know who else has a copy
            assert described(partition, now_ms) == described(again, NOW_MS)
        seen.add(frozen)
        return frozen

    monkeypatch.setattr(real_broker, "freeze", checked)
    result = explore_real(RealCluster(Budgets()), depth=5)
    assert result.violation is None
    assert len(seen) > 500
    assert {bool(one[6]) for one in seen} == {True, False}


class Forgetful(dict[Any, Any]):
    """Remembers nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def test_steps_may_be_remembered() -> None:
    """The real code run anew for every step comes to the same states as the memory of its steps."""
    budgets = attrs.evolve(_ONE, unknown=1, shrinks=1)
    remembering, forgetful = RealCluster(budgets), RealCluster(budgets)
    forgetful._memo = Forgetful()
    first, second = explore_real(remembering, depth=5), explore_real(forgetful, depth=5)
    assert (first.states, first.transitions, first.levels) == (second.states, second.transitions, second.levels)
    assert forgetful.steps_run > 3 * remembering.steps_run


def test_fingerprints_are_exact() -> None:
    """Within one process the numbers of the snapshots tell states apart; the fingerprints tell apart as many."""
    cluster = RealCluster(Budgets())
    exact: Any = lambda state: state  # noqa: E731
    by_state = explore(cluster.initial, cluster.successors, cluster.wrong, fingerprint=exact, depth_max=5)
    assert by_state.states == explore_real(RealCluster(Budgets()), depth=5).states > 5_000


_PRINT = """
from replog.testing.exploration.real_check import judge_broker, judge_state
from replog.testing.exploration.real_cluster import RealCluster
from replog.testing.exploration.real_budgets import Budgets
cluster = RealCluster(Budgets())
states = [cluster.initial]
for _ in range(4):
    states = [after for state in states for _, after in cluster.successors(state)]
print(len(states), sum(map(cluster.fingerprint, states)))
"""


def test_fingerprints_are_the_same_everywhere() -> None:
    paths = ":".join(sys.path)
    environments = [{"PYTHONHASHSEED": seed, "PYTHONPATH": paths} for seed in ("1", "2")]
    command = [sys.executable, "-c", _PRINT]
    one, other = [subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout for env in environments]
    assert one == other
    assert int(one.split()[0]) > 1_000


# ------------------------------------------------------------------------------------------------------------ command line


def test_command_says_what_it_has_seen() -> None:
    said: list[str] = []
    assert main(["--records", "1", "--crashes", "0", "--shrinks", "0", "--isr", "1,2", "-v"], said.append) == 0
    assert "states (all of them)" in "\n".join(said)
    assert "0 violations" in said[-2]


def test_command_shows_the_way_to_a_violation(monkeypatch: Patch) -> None:
    leads_again(monkeypatch)
    said: list[str] = []
    assert main(["--records", "1", "--plan", "restart:1"], said.append) == 1
    assert "S5: epoch 0 is led by" in said[-1]
    assert "restart 1" in said[-1]
    assert "broker 1: leader in epoch 0" in said[-1]


def test_begin_refuses_what_cannot_happen() -> None:
    with pytest.raises(UsageError, match="possible are"):
        RealCluster(Budgets()).begin("append 2")


# --------------------------------------------------------------------------------------------------------- what is checked

A, B = (0, 0), (1, 1)
"""(leader epoch, record)."""


def follower(*entries: Frozen, epoch: int = 0, watermark: int = 0, version: int = 0) -> real_broker.BrokerState:
    """A broker that follows broker 1."""
    copy = (1, epoch, version, 1, watermark, (1, epoch, 1), (), (entries, (), -1, 0), ())
    return real_broker.BrokerState(1, 0, 0, 1, 0, (), copy, ())


def leader(*entries: Frozen, epoch: int = 0, watermark: int = 0, isr: tuple[int, ...] = (1, 2), life: int = 0) -> real_broker.BrokerState:
    """A broker that leads."""
    leading = (epoch, 0, 0, watermark, 0, 2, (0, isr), ())
    copy = (1, epoch, 0, 1, watermark, (), leading, (entries, (), -1, 0), ())
    return real_broker.BrokerState(1, life, 0, 1, 0, (), copy, ())


_STORED = (1, 0, (1, 2), (), (), 0, 0)
_LED = ((0, 1, 0),)


@pytest.mark.parametrize(
    ("rule", "brokers", "before", "stored", "ledger"),
    [
        ("", (leader(A, watermark=1), follower(A)), leader(A), _STORED, ()),
        ("S1", (leader(B, watermark=1), follower(B)), leader(B), (0, 1, (), (), (), 0, 1), (A,)),
        ("S1", (leader(A, watermark=2), follower(A)), leader(A), (0, 1, (), (), (), 0, 1), (A, B)),
        ("S2", (leader(), follower()), follower(), (1, 0, (), (), (), 0, 1), (A,)),
        ("S3", (leader(A, watermark=1), follower()), leader(A), _STORED, ()),
        ("S3", (leader(A), follower()), leader(A), (0, 1, (), (2,), (), 0, 1), (A,)),
        ("S4", (leader(A, watermark=1, isr=(1,)), follower(A)), leader(A, isr=(1,)), _STORED, ()),
        ("S4", (leader(A, watermark=1), follower(A), follower(A)), leader(A), (1, 0, (1, 2, 3), (), (), 0, 1), ()),
        ("S5", (leader(life=1), follower()), follower(), _STORED, ()),
        ("S9", (follower(B, watermark=1), follower(A)), follower(), (0, 1, (), (), (), 0, 1), (A,)),
        ("S9", (follower(A, watermark=1), follower(A)), follower(), _STORED, ()),
        ("S9", (follower(A, B), follower(B, B)), follower(A), _STORED, ()),
    ],
)
def test_rule_speaks(rule: str, brokers: tuple[Any, ...], before: Any, stored: Frozen, ledger: Frozen) -> None:
    assert judge_broker(brokers, 1, before, stored, 2, ledger, _LED)[2].partition(":")[0] == rule


@pytest.mark.parametrize(
    ("rule", "after"),
    [
        ("", (2, 1, (2,), (1,), (1, 2), 0, 1)),
        ("", (3, 1, (3,), (), (), 1, 1)),
        ("version", (1, 0, (1,), (), (), 0, 0)),
        ("ISR", (2, 1, (1,), (), (), 0, 1)),
        ("ISR", (1, 0, (1, 2), (2,), (), 0, 1)),
        ("then", (2, 0, (2,), (), (), 0, 1)),
        ("neither", (3, 1, (3,), (), (), 0, 1)),
    ],
)
def test_stored_states_follow_from_each_other(rule: str, after: Frozen) -> None:
    why = judge_state(_STORED, after)
    assert bool(why) == bool(rule)
    assert {"version": "partition epoch 0"}.get(rule, rule) in why


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("", leader(A), leader(A, watermark=1)),
        ("S6", follower(epoch=1), follower(epoch=0)),
        ("S6", follower(version=1), follower(version=0)),
        ("S8", leader(A, watermark=1), leader(A)),
    ],
)
def test_nothing_goes_back(rule: str, before: Any, after: Any) -> None:
    assert real_broker.went_back(1, before.copy, after.copy).partition(":")[0] == rule
