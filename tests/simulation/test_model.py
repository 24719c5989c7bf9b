"""The abstract model: its whole space holds, rules known to be broken are found out, and the search sees what it should."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from attrs import evolve

from replog.config import BrokerConfig, TopicConfig
from replog.controller.election import choose
from replog.controller.isr_change import change_isr
from replog.log.epochs import EpochTable, truncation_point
from replog.log.memory import MemoryLog
from replog.messages import AlterIsrEntry, AlterIsrResult, FetchedEntry, FetchEntry, PartitionNotice
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition import leading as leading_module
from replog.partition.following import parsed
from replog.partition.isr import Committed, IsrChange, PendingExpand
from replog.partition.partition import Partition
from replog.partition.replica import Contact
from replog.records import Record as RealRecord
from replog.records import RecordBatch, encode_records
from replog.testing.exploration import __main__ as command
from replog.testing.exploration.logs import UNANSWERABLE, Logs, Record
from replog.testing.exploration.model import TEXTS, Model
from replog.testing.exploration.rules import BROKEN, SOUND, Bounds, Rules, RuleSet
from replog.testing.exploration.search import explore
from replog.testing.exploration.state import FOLLOWS, IDLE, LEADS, ModelState, ReplicaView, State, StoreView
from replog.testing.exploration.steps import Steps

# ------------------------------------------------------------------------------------------------------------ the search


def grid(state: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
    """Two steps from everywhere: to the right and up."""
    x, y = state
    return [(name, after) for name, after in (("right", (x + 1, y)), ("up", (x, y + 1))) if max(after) <= 3]


def never(_: object) -> str | None:
    return None


def test_the_search_visits_every_state_once() -> None:
    result = explore((0, 0), grid, never)
    assert (result.states, result.transitions, result.depth, result.exhausted) == (16, 24, 6, True)
    assert result.levels == (1, 2, 3, 4, 3, 2, 1)
    assert result.violation is None


def test_the_search_finds_a_shortest_way_to_what_is_wrong() -> None:
    result = explore((0, 0), grid, lambda state: "too far" if state[0] == 2 and state[1] == 1 else None)
    assert result.violation is not None
    assert result.violation.why == "too far"
    assert sorted(action for action, _ in result.violation.steps) == ["right", "right", "up"]
    assert result.violation.state == (2, 1)
    assert not result.exhausted
    assert str(result.violation).startswith("too far, after 3 steps\n   1  ")
    states = [(0, 0), *(state for _, state in result.violation.steps)]
    assert all((action, after) in grid(before) for before, (action, after) in zip(states, result.violation.steps, strict=False))


def test_the_first_state_may_be_what_is_wrong() -> None:
    result = explore((0, 0), grid, lambda state: "wrong from the start")
    assert result.violation is not None
    assert result.violation.steps == ()
    assert result.violation.state == (0, 0)
    assert result.states == 1


def test_the_search_ends_at_its_bounds() -> None:
    by_states = explore((0, 0), grid, never, states_max=5)
    assert (by_states.states, by_states.depth, by_states.exhausted) == (6, 2, False)
    by_depth = explore((0, 0), grid, never, depth_max=1)
    assert (by_depth.states, by_depth.depth, by_depth.exhausted) == (3, 1, False)


def test_with_a_canonical_form_the_trace_keeps_its_names() -> None:
    # Whether up or right came first makes no difference: x <= y stands for both.
    result = explore((0, 0), grid, lambda state: "corner" if state == (2, 3) else None, canonical=lambda state: (min(state), max(state)))
    assert result.violation is not None
    state = (0, 0)
    for action, after in result.violation.steps:
        assert (action, after) in grid(state)
        state = after
    assert sorted(state) == [2, 3]
    whole = explore((0, 0), grid, never, canonical=lambda state: (min(state), max(state)))
    assert whole.states == 10


def test_progress_is_told_after_each_level() -> None:
    told: list[tuple[int, int, int]] = []
    explore((0, 0), grid, never, progress=lambda *level: told.append(level))
    assert told == [(1, 3, 2), (2, 6, 3), (3, 10, 4), (4, 13, 3), (5, 15, 2), (6, 16, 1)]


# ------------------------------------------------------------------------------------------------------------- the rules

WORLDS = [
    Bounds(2, 2, 3),
    Bounds(3, 2, 2),
    Bounds(3, 1, 2, proposals=True),
    Bounds(3, 1, 2, positions=True),
    Bounds(3, 1, 2, restarts=1),
    Bounds(2, 1, 2, restarts=1, proposals=True, positions=True),
    Bounds(4, 1, 1),
]


@pytest.mark.parametrize("bounds", WORLDS, ids=str)
def test_the_rules_hold_in_the_whole_of_a_small_world(bounds: Bounds) -> None:
    result = Model(bounds).explore()
    assert result.violation is None, str(result.violation)
    assert result.exhausted


@pytest.mark.parametrize("name", sorted(set(SOUND) - {"as-implemented"}))
def test_other_rules_that_hold(name: str) -> None:
    result = Model(Bounds(3, 2, 2), SOUND[name]).explore()
    assert result.violation is None, str(result.violation)
    assert result.exhausted


def test_only_who_is_behind_is_dropped_from_the_isr() -> None:
    model = Model(Bounds(3, 1, 1))
    leader = ReplicaView(log=((0, 0),), epoch=0, role=LEADS, isr=(0, 1, 2), current=True)
    equal, behind = (ReplicaView(log=log, epoch=0, role=FOLLOWS) for log in (leader.log, ()))
    state = ModelState((leader, equal, behind), StoreView(0, 0, (0, 1, 2), written=1), ((0, ()),))
    changes = [model.tell(action) for action, _ in model.successors(model.pack(state)) if action[0] == "change"]
    assert changes == ["leader 0 makes the ISR {0,1}"]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_lose_records(name: str) -> None:
    broken = BROKEN[name]
    model = Model(broken.bounds, broken.rules)
    result = model.explore(losses_only=True)
    assert result.violation is not None
    assert result.violation.why.startswith(("leader completeness", "committed records changed"))
    # The trace is a way through the steps of these rules, from the beginning, and only its last state is wrong.
    state = model.initial
    for action, after in result.violation.steps:
        assert model.lost(state) is None
        assert (action, after) in model.successors(state)
        state = after
    assert model.lost(state) is not None
    assert model.check(state) is not None


def test_broken_rules_differ_from_the_sound_ones() -> None:
    assert all(broken.rules not in SOUND.values() for broken in BROKEN.values())
    assert {name for name in Rules.__dict__ if isinstance(getattr(Rules(), name, None), bool)} == {
        name for rules in [*SOUND.values(), *(b.rules for b in BROKEN.values())] for name in switched_off(rules)
    }


def switched_off(rules: Rules) -> list[str]:
    return [name for name in Rules.__dict__ if getattr(rules, name, None) is False]


def test_every_kind_of_step_is_taken() -> None:
    taken: set[str] = set()
    late = Bounds(2, 1, 1, restarts=1, proposals=True, positions=True, idle_steps=True)
    for bounds in (Bounds(2, 1, 2, restarts=1, proposals=True, positions=True), Bounds(3, 1, 2), late):
        model = Model(bounds)
        for state in everything(model, named=False):
            taken.update(action[0] for action, _ in model.successors(state))
    assert taken == set(TEXTS)


# ----------------------------------------------------------------------------------------------------------- the symmetry


@pytest.mark.parametrize("bounds", [Bounds(3, 1, 2), Bounds(3, 1, 1, proposals=True, positions=True), Bounds(4, 1, 1)], ids=str)
def test_names_of_replicas_do_not_matter(bounds: Bounds) -> None:
    model = Model(bounds)
    plain, canonical = set(everything(model, named=True)), set(everything(model, named=False))
    assert len(canonical) < len(plain)
    assert {model.canonical(state) for state in plain} == canonical
    for state in plain:
        forms = model.symmetry.all_forms(state)
        assert len({model.canonical(form) for form in forms}) == 1
        assert model.canonical(state) in forms
        assert len({model.check(form) is None for form in forms}) == 1


def everything(model: Model, *, named: bool) -> list[State]:
    """Every state that can be reached."""
    states: list[State] = []

    def keep(state: State) -> str | None:
        states.append(state)
        return None

    explore(model.initial, model.successors, keep, fingerprint=model.fingerprint, canonical=None if named else model.canonical)
    return states


def test_a_renamed_state_says_the_same_in_words() -> None:
    model = Model(Bounds(3, 1, 2, proposals=True, positions=True))
    states = everything(model, named=False)
    for state in states[:: len(states) // 50]:
        told = [sorted(map(described, model.view(form).replicas)) for form in model.symmetry.all_forms(state)]
        assert all(other == told[0] for other in told)


@pytest.mark.parametrize("first", [True, False], ids=["the other sorts first", "the other sorts last"])
def test_replicas_of_which_the_same_can_be_said_are_tried_in_each_order(first: bool) -> None:
    model = Model(Bounds(3, 1, 2))
    equal = ReplicaView(log=((0, 0),), epoch=1, role=FOLLOWS)
    leader = ReplicaView(epoch=0, role=LEADS, isr=(0, 1))
    commands: tuple[tuple[int | None, tuple[int, ...]], ...] = ((None if first else 0, ()), (None, ()))
    forms = model.symmetry.all_forms(model.layout.pack(ModelState((leader, equal, equal), StoreView(None, 1, (1, 2)), commands)))
    assert len(set(forms)) == 6
    assert len({model.canonical(form) for form in forms}) == 1


def described(replica: ReplicaView) -> tuple[object, ...]:
    """What a replica says without names."""
    sizes = len(replica.isr), len(replica.proposed)
    return replica.log, replica.high_watermark, replica.epoch, replica.role, sizes, sorted(replica.positions)


@pytest.mark.parametrize("name", ["no-epoch-start", "joining-not-counted", "earlier-life-joins"])
def test_symmetry_changes_no_verdict(name: str) -> None:
    broken = BROKEN[name]
    depths = [Model(broken.bounds, broken.rules).explore(symmetry=symmetry, losses_only=True).depth for symmetry in (True, False)]
    assert depths[0] == depths[1]


# ---------------------------------------------------------------------------------------------------- states as numbers


@pytest.mark.parametrize("bounds", [Bounds(3, 1, 2, proposals=True, positions=True), Bounds(2, 2, 2, restarts=1)], ids=str)
def test_a_state_is_the_same_in_words_and_in_numbers(bounds: Bounds) -> None:
    model = Model(bounds)
    states = everything(model, named=True)
    assert len({model.fingerprint(state) for state in states}) == len(states)
    for state in states[:: max(1, len(states) // 500)]:
        assert model.pack(model.view(state)) == state


@pytest.mark.parametrize("bounds", [Bounds(2, 1, 3), Bounds(2, 1, 2, restarts=1, proposals=True), Bounds(3, 1, 2)], ids=str)
def test_what_is_dropped_from_the_commands_makes_no_difference(bounds: Bounds, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(bounds)
    lean = everything(model, named=True)
    with monkeypatch.context() as patch:
        patch.setattr(Steps, "settled", lambda _, state: state)
        full = everything(Model(bounds), named=True)
    assert len(full) >= len(lean)
    assert {model.pack(model.view(state)) for state in full} == set(lean)


def test_a_step_is_allowed_and_a_leap_is_not() -> None:
    model = Model(Bounds(3, 1, 2, proposals=True, positions=True, idle_steps=True))
    start = model.view(model.initial)
    hears = evolve(start.replicas[0], epoch=0, role=LEADS, isr=(0, 1, 2), positions=(-1, -1, -1), current=True)
    leads = evolve(start, replicas=(hears, *start.replicas[1:]))
    store = StoreView(0, 0, (0, 1, 2), written=1)
    wrote = evolve(leads, replicas=(evolve(hears, log=((0, 0),)), *start.replicas[1:]), store=store)
    assert model.explain(start, start) == ()
    assert model.explain(start, leads) == (("lead", 0, 0),)
    assert model.explain(leads, wrote) == (("append", 0),)
    assert model.allows(start, wrote, steps_max=2)
    assert not model.allows(start, wrote)
    assert not model.allows(leads, start)
    early = evolve(wrote, replicas=(evolve(wrote.replicas[0], high_watermark=1), *wrote.replicas[1:]))
    assert not model.allows(wrote, early, steps_max=3)


def test_what_can_only_be_in_vain_changes_no_verdict() -> None:
    for bounds in (Bounds(3, 1, 2, proposals=True), Bounds(3, 1, 2)):
        lean, full = (Model(evolve(bounds, idle_steps=idle)).explore() for idle in (False, True))
        assert lean.violation is full.violation is None
        assert lean.states <= full.states


# ------------------------------------------------------------------------------------------------------- the invariants

SOUND_STATE = ModelState(
    replicas=(
        ReplicaView(log=((0, 0), (1, 1)), high_watermark=1, epoch=1, role=LEADS, epoch_start=1, isr=(0, 1), current=True),
        ReplicaView(log=((0, 0),), high_watermark=1, epoch=1, role=1),
        ReplicaView(),
    ),
    store=StoreView(0, 1, (0, 1), committed=((0, 0),), written=2),
    commands=((None, ()), (0, ())),
)


def replicas(**changes: ReplicaView) -> ModelState:
    """The sound state with some replicas replaced: a, b, c."""
    changed = [changes.get(name, replica) for name, replica in zip("abc", SOUND_STATE.replicas, strict=True)]
    return evolve(SOUND_STATE, replicas=tuple(changed))


LEADER, FOLLOWER, _ = SOUND_STATE.replicas
UNSOUND = {
    "leader completeness": evolve(SOUND_STATE, store=evolve(SOUND_STATE.store, isr=(0, 1, 2))),
    "committed records changed": replicas(c=ReplicaView(log=((1, 1),), high_watermark=1)),
    "log matching": replicas(c=ReplicaView(log=((0, 1), (1, 1)))),
    "one leader per epoch": replicas(b=LEADER),
    "the ISR is empty": evolve(SOUND_STATE, store=evolve(SOUND_STATE.store, leader=None, isr=())),
    "leader in ISR": evolve(SOUND_STATE, store=evolve(SOUND_STATE.store, isr=(1,))),
    "the high watermark is beyond the log end": replicas(b=evolve(FOLLOWER, high_watermark=2)),
    "epochs fall along the log": replicas(c=ReplicaView(log=((1, 0), (0, 1)))),
}


def test_each_invariant_speaks() -> None:
    model = Model(Bounds(3, 2, 2))
    assert model.check(model.layout.pack(SOUND_STATE)) is None
    for words, state in UNSOUND.items():
        found = model.check(model.layout.pack(state))
        assert found is not None, words
        assert found.startswith(words)


# --------------------------------------------------------------------------------- the model against the code it is about


def leaders(logs: Logs, epochs: int) -> Iterator[tuple[int, tuple[int, int], EpochTable]]:
    """Every log a leader may have with its (epoch, start), and the table that the real code would have."""
    for log in ordered(logs):
        records = logs.records[log]
        for epoch in range(epochs):
            mine = [offset for offset, record in enumerate(records) if record[0] == epoch]
            if records and records[-1][0] > epoch:
                continue
            start = mine[0] if mine else len(records)
            table = epoch_table(records)
            table.assign(epoch, start)
            yield log, (epoch, start), table


def ordered(logs: Logs) -> list[int]:
    return [log for log in range(logs.count) if not broken_digits(logs, log) and logs.is_ordered(log)]


def broken_digits(logs: Logs, log: int) -> bool:
    return any(not log // power % logs.base for power in logs.powers[: logs.length[log]])


def epoch_table(records: tuple[Record, ...]) -> EpochTable:
    table = EpochTable()
    for offset, (epoch, _) in enumerate(records):
        table.assign(epoch, offset)
    return table


def test_logs_part_where_the_real_code_parts_them() -> None:
    bounds = Bounds(2, 3, 4)  # with fewer epochs both sides know every epoch that is asked about
    logs = Logs(bounds, Rules())
    compared = 0
    one_writer = [log for log in ordered(logs) if [number for _, number in logs.records[log]] == list(range(logs.length[log]))]
    for leader_log, epoch_start, table in leaders(logs, bounds.epochs):
        if leader_log not in one_writer:
            continue
        for log in one_writer:
            records, leader_end = logs.records[log], logs.length[leader_log]
            if not records:
                continue
            real = table.end_offset_for(records[-1][0], leader_end)
            expected: int | None
            if real is None:
                expected = leader_end if leader_end < len(records) else UNANSWERABLE
            elif real.epoch < records[-1][0] or real.end < len(records):
                expected = truncation_point(epoch_table(records), len(records), real)[0]
            else:
                expected = None
            assert logs.parted(log, leader_log, epoch_start) == expected, (records, logs.records[leader_log], epoch_start)
            compared += 1
    assert compared > 500


# ------------------------------------------------------------------------------------- real partitions against the model


class RealWalk:
    """Real partitions on three brokers and a store, driven by chance; each step must be one that the model allows."""

    IDENTITY = PartitionId(bytes(16), 0, 0)
    MODEL = Model(Bounds(3, 3, 5, proposals=True, positions=True, idle_steps=True))

    def __init__(self, seed: int) -> None:
        self.random = Random(f"walk {seed}")
        self.now_ms = 0
        self.config = TopicConfig(min_isr=1)
        infos = {b: BrokerInfo(b, broker_epoch=b) for b in range(3)}
        limits = BrokerConfig()
        self.copies = [Partition(self.IDENTITY, "t", MemoryLog(self.IDENTITY), broker_id=b, limits=limits, brokers=infos) for b in range(3)]
        self.infos = infos
        self.state = PartitionState(leader=0, leader_epoch=0, isr=(0, 1, 2))
        self.last = {0: self.state}
        self.contacts = [Contact() for _ in range(3)]
        self.proposed: dict[int, IsrChange] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.committed: tuple[Record, ...] = ()

    def walk(self, steps: int) -> set[str]:
        """The kinds of model steps that explain what was done."""
        kinds: set[str] = set()
        before = self.view()
        for _ in range(steps):
            for done in self.random.choice([self.hear, self.append, self.fetch, self.fetch, self.propose, self.decide, self.control])():
                after = self.view()
                taken = self.MODEL.explain(before, after, steps_max=3)
                assert taken is not None, f"{done}: no steps from\n{before}\nto\n{after}"
                kinds.update(action[0] for action in taken)
                before = after
        return kinds

    def hear(self) -> Iterator[str]:
        copy, state = self.random.choice(self.copies), self.random.choice(list(self.last.values()))
        copy.become(PartitionNotice(self.IDENTITY, "t", state, Assignment((0, 1, 2)), self.config), self.now_ms)
        yield f"{copy.broker_id} heard {state}"

    def append(self) -> Iterator[str]:
        copy = self.random.choice(self.copies)
        if copy.leading is not None and len(self.numbers) < 3:
            self.numbers[copy.leader_epoch, copy.log.end_offset] = len(self.numbers)
            copy.append(RecordBatch(encode_records([RealRecord(f"{len(self.numbers)}")], now_ms=0)), 1, self.now_ms)
            yield f"{copy.broker_id} appended"

    def fetch(self) -> Iterator[str]:
        copy = self.random.choice(self.copies)
        if copy.following is None or copy.following.leader is None:
            return
        leader, log = self.copies[copy.following.leader], copy.log
        asked = FetchEntry(self.IDENTITY, copy.leader_epoch, log.end_offset, log.last_epoch, 1 << 20)
        error, parted = leader.acknowledge(copy.broker_id, copy.broker_id, asked, self.contacts[copy.broker_id], self.now_ms)
        yield f"{leader.broker_id} counted {copy.broker_id}: {error}, {parted}"
        answer = FetchedEntry(self.IDENTITY, asked.leader_epoch, asked.offset, error, leader.high_watermark, 0, leader.log.end_offset)
        if parted is not None:
            answer.diverging_epoch, answer.diverging_end = parted
        elif not error:
            answer.slices = leader.read_as_leader(asked.offset, self.random.choice([1, 1 << 20]))
        if self.random.random() < 0.8:  # else the answer is lost
            yield f"{copy.broker_id} took the answer: {copy.take(answer)}"

    def propose(self) -> Iterator[str]:
        copy = self.random.choice(self.copies)
        self.now_ms += self.random.choice([0, 0, 100_000])
        change = copy.leading.change(self.now_ms) if copy.leading is not None else None
        if change is not None and copy.leading is not None:
            copy.leading.propose(change)
            self.proposed[copy.broker_id] = change
            yield f"{copy.broker_id} proposed {change}"

    def decide(self) -> Iterator[str]:
        copy = self.random.choice(self.copies)
        change = self.proposed.get(copy.broker_id)
        if change is None or copy.leading is None or copy.leading.isr is not change:
            return
        wanted = AlterIsrEntry(self.IDENTITY, copy.leader_epoch, copy.leading.partition_epoch, [(b, b) for b in change.proposed])
        error, state = change_isr(wanted, copy.broker_id, self.state, replicas=(0, 1, 2), min_isr=1, brokers=self.infos)
        if not error:
            self.keep(state)
            yield f"the store took {state}"
        if self.random.random() < 0.6:  # else the answer is lost, and the leader tries the same again
            copy.answered(change, AlterIsrResult(self.IDENTITY, error, self.state), self.now_ms)
            yield f"{copy.broker_id} was answered {error}"

    def control(self) -> Iterator[str]:
        state, chosen = self.state, self.random.randrange(3)
        if self.random.random() < 0.5 or state.leader_epoch >= 4:
            return
        if chosen in state.isr and chosen != state.leader and self.random.random() < 0.5:
            self.keep(evolve(state, leader=chosen, leader_epoch=state.leader_epoch + 1))
            yield f"elected {chosen}"
        elif chosen in state.isr and state.isr != (chosen,):
            choice = choose(state, replicas=(0, 1, 2), min_isr=1, live=[b for b in range(3) if b != chosen])
            if choice.state is not None:
                self.keep(choice.state)
                yield f"{chosen} was taken for dead"

    def keep(self, state: PartitionState) -> None:
        self.state = evolve(state, partition_epoch=self.state.partition_epoch + 1)
        self.last[state.leader_epoch] = self.state

    def view(self) -> ModelState:
        for copy in self.copies:
            copy.check()
        views = tuple(map(self.view_of, self.copies))
        for view in views:
            if view.role == LEADS and view.high_watermark > len(self.committed):
                self.committed = view.log[: view.high_watermark]
        state = self.state
        store = StoreView(state.leader, state.leader_epoch, tuple(sorted(state.isr)), self.committed, len(self.numbers))
        commands = tuple((s.leader, () if s.leader is None else tuple(sorted(s.isr))) for s in map(self.last.get, range(5)) if s)
        return ModelState(views, store, commands)

    def view_of(self, copy: Partition) -> ReplicaView:
        records = tuple(
            (batch.leader_epoch, self.numbers[batch.leader_epoch, batch.base_offset])
            for piece in copy.log.read(0, copy.log.end_offset, 1 << 20)
            for batch in parsed(piece.view(), self.IDENTITY)
        )
        role = LEADS if copy.leading else FOLLOWS if copy.following else IDLE
        view = ReplicaView(records, copy.high_watermark, copy.leader_epoch, role, positions=(-1, -1, -1))
        leading = copy.leading
        if leading is None:
            return view
        known = leading.replicas
        return evolve(
            view,
            epoch_start=leading.epoch_start,
            isr=tuple(sorted(leading.isr.isr)),
            proposed=() if isinstance(leading.isr, Committed) else tuple(sorted(leading.isr.proposed)),
            current=copy.leader_epoch == self.state.leader_epoch and leading.partition_epoch == self.state.partition_epoch,
            positions=tuple(known[b].position if b in known else -1 for b in range(3)),
        )


def test_each_step_of_real_partitions_is_one_that_the_model_allows() -> None:
    kinds: set[str] = set()
    for seed in range(40):
        kinds |= RealWalk(seed).walk(60)
    assert kinds >= {"lead", "follow", "append", "acknowledge", "fetch", "advance", "propose", "store", "learn", "elect", "fail", "fence"}


@pytest.mark.parametrize("mutant", ["truncates to its high watermark", "keeps no expansion in mind", "counts whoever asks"])
def test_steps_that_the_rules_forbid_are_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "truncates to its high watermark":
        become = Partition.become

        def cutting(self: Partition, notice: PartitionNotice, now_ms: int) -> int:
            epoch, error = self.leader_epoch, become(self, notice, now_ms)
            if self.following is not None and self.leader_epoch > epoch:
                self.log.truncate_to(self.high_watermark)
            return error

        monkeypatch.setattr(Partition, "become", cutting)
    elif mutant == "keeps no expansion in mind":
        monkeypatch.setattr(PendingExpand, "maximal_isr", property(lambda self: self.isr))
    else:
        monkeypatch.setattr(leading_module, "refusal_to_join", lambda *_, **__: None)
    walks = (RealWalk(seed).walk(60) for seed in range(200))
    with pytest.raises(AssertionError, match="no steps from"):
        list(walks)


# ------------------------------------------------------------------------------------------------------------ the command


def test_the_command_searches_a_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["model", "--replicas", "2", "--records", "1", "--epochs", "2", "-v"]) == 0
    told = capsys.readouterr().out
    states = Model(Bounds(2, 1, 2)).explore().states
    assert f"{states} canonical states (all of them)" in told
    assert "0 violations" in told


def test_the_command_shows_what_is_wrong_with_broken_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["model", "--broken", "leaving-not-counted"]) == 0
    told = capsys.readouterr().out
    assert "records lost at depth 5" in told
    assert "leader 0 proposes the ISR {0" in told


def test_the_command_fails_when_broken_rules_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(BROKEN, "leaving-not-counted", RuleSet(Rules(), Bounds(2, 1, 1), "nobody"))
    assert command.main(["model", "--broken", "leaving-not-counted"]) == 1
    assert "NOTHING FOUND" in capsys.readouterr().out


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"]) == 0
    assert command.main(["elsewhere"]) == 2
    assert capsys.readouterr().out.count("exploration model") == 2
