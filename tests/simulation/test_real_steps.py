"""Each step of the real code is one that the abstract model allows; one that is not is found, whether an invariant minds it or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from tests.simulation.mutants.isr import drops_pending, joins_below_the_epoch
from tests.simulation.mutants.lives import leads_again
from tests.simulation.test_exploration import forgets_broker_epochs, proposes_without_version, truncates_to_high_watermark

from replog.partition.partition import Partition
from replog.testing.exploration import __main__ as command
from replog.testing.exploration.real_budgets import Budgets
from replog.testing.exploration.real_cluster import RealCluster
from replog.testing.exploration.real_command import explore_real
from replog.testing.exploration.real_steps import StepCheck

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch

_ONE = Budgets(min_isr=1, records=1, epochs=2, crashes=1, unknown=0, shrinks=0)
_UNSURE = Budgets(min_isr=1, records=1, epochs=2, crashes=0, shrinks=0, isr=(1, 2))
_TWICE = attrs.evolve(_UNSURE, shrinks=1, copies=1)
_POWERLESS = attrs.evolve(_UNSURE, powers=1, unknown=0)
_FOUR = Budgets(replicas=4, min_isr=1, records=1, epochs=2, plan=(("kill", 1),), unknown=0, shrinks=0, isr=(1, 2, 3))

_COMMITTED = ("append 1", "fetch 2", "fetch 3", "answer 2", "answer 3", "fetch 2", "fetch 3", "answer 3")


def forgets_its_watermark(patch: Patch) -> None:
    """A follower of a new leader begins at high watermark 0 again: it loses nothing, and no rule says so."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        epoch = self.leader_epoch
        error = become(self, notice, now_ms)
        if not error and self.following is not None and self.leader_epoch > epoch:
            self.high_watermark = 0
        return error

    patch.setattr(Partition, "become", mutant)


def test_every_step_of_small_spaces_is_one_of_the_model() -> None:
    kinds: set[str] = set()
    for budgets in (_UNSURE, attrs.evolve(_ONE, plan=(("kill", 1),))):
        cluster = RealCluster(budgets)
        steps = StepCheck(cluster)
        result = explore_real(cluster, steps=steps)
        assert result.violation is None, str(result.violation)
        assert result.exhausted
        assert steps.compared.steps == result.transitions
        kinds |= steps.kinds
    assert kinds == {"append", "fetch", "acknowledge", "advance", "propose", "store", "learn", "restart", "lead", "follow"}


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param(Budgets(min_isr=1), id="everything a little"),
        pytest.param(Budgets(min_isr=1, stale_notices=True, copies=1, shrinks=2), id="late and twice"),
        pytest.param(Budgets(powers=1, copies=1, crashes=1), id="a power failure"),
        pytest.param(attrs.evolve(_FOUR, plan=(("expire", 1), ("kill", 2)), epochs=3), id="four replicas"),
        pytest.param(Budgets(min_isr=1, records=3, epochs=2, isr=(1, 2), piecemeal=True), id="batch by batch"),
    ],
)
def test_a_sample_of_large_spaces_is_of_the_model(budgets: Budgets) -> None:
    cluster = RealCluster(budgets)
    steps = StepCheck(cluster, every=5)
    result = explore_real(cluster, depth=5, states=6_000, steps=steps)
    assert result.violation is None, str(result.violation)
    assert result.transitions / 10 < steps.compared.steps + steps.compared.beyond < result.transitions / 4


@pytest.mark.parametrize(
    ("mutant", "budgets", "begin"),
    [
        (truncates_to_high_watermark, _ONE, ()),
        (forgets_its_watermark, _ONE, _COMMITTED),
        (joins_below_the_epoch, _FOUR, ("append 1", "fetch 2", "fetch 3", "answer 2", "answer 3")),
        (drops_pending, _UNSURE, ()),
        (proposes_without_version, _TWICE, ("fetch 2", "append 1", "fetch 3", "answer 3", "fetch 3", "propose 1")),
        (forgets_broker_epochs, _POWERLESS, ("append 1", "fetch 2", "answer 2", "fetch 3", "answer 3")),
        (leads_again, _ONE, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_step_that_the_model_does_not_allow_is_found(
    mutant: Callable[[Patch], None], budgets: Budgets, begin: tuple[str, ...], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    cluster = RealCluster(budgets)
    cluster.begin(*begin)
    result = explore_real(cluster, states=4_000, steps=StepCheck(cluster))
    assert result.violation is not None
    assert result.violation.why.startswith("model: no steps from")


def test_no_invariant_minds_what_only_the_model_does(monkeypatch: Patch) -> None:
    forgets_its_watermark(monkeypatch)
    cluster = RealCluster(_ONE)
    cluster.begin(*_COMMITTED)
    assert explore_real(cluster, depth=5).violation is None


def test_the_command_says_how_many_steps_were_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["real", "--min-isr", "1", "--compare", "--depth", "2"]) == 0
    assert "steps checked against the model: 149\n" in capsys.readouterr().out
    assert command.main(["real", "--compare", "2", "--depth", "3"]) == 0
    said = capsys.readouterr().out
    assert "steps checked against the model: " in said
    assert " more of which it cannot speak\n" in said
    assert command.main(["real", "--depth", "2"]) == 0
    assert "steps checked" not in capsys.readouterr().out
    assert command.main(["real", "--replicas", "5", "--compare"]) == 2


def test_the_command_fails_at_a_step_that_the_model_does_not_allow(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    truncates_to_high_watermark(monkeypatch)
    assert command.main(["real", "--min-isr", "1", "--compare", "--states", "2000"]) == 1
    assert "model: no steps from" in capsys.readouterr().out
