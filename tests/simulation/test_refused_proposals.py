"""Why the exploration's snapshots need neither the numbers of proposals nor what a controller remembers of refused ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from replog.testing.exploration.real_budgets import Budgets
from replog.testing.exploration.real_cluster import RealCluster, State
from replog.testing.exploration.real_snapshot import Frozen
from replog.testing.exploration.search import explore

pytestmark = pytest.mark.simulation


class Noting(RealCluster):
    """Counts what becomes of proposals: (whether their leader still waits for them, whether they change what is stored)."""

    def __init__(self, budgets: Budgets) -> None:
        self.seen: Counter[tuple[bool, bool]] = Counter()
        super().__init__(budgets)

    def _decided(self, what: Frozen, state: State, message: Frozen, *, unknown: bool) -> Iterator[tuple[Frozen, State]]:
        yield from super()._decided(what, state, message, unknown=unknown)
        controller, _ = self._memo[state[1], message, unknown]
        self.seen[bool(message[-1]), controller.state != self.controllers.values[state[1]].state] += 1


@pytest.mark.parametrize(
    "budgets",
    [
        Budgets(records=1, epochs=2, crashes=1, unknown=0, copies=1),
        Budgets(records=0, epochs=3, crashes=2, unknown=1, copies=1),
        Budgets(records=0, epochs=3, crashes=2, unknown=0, copies=2, shrinks=2, isr=(1, 2)),
    ],
)
def test_a_proposal_that_its_leader_has_given_up_is_never_granted(budgets: Budgets) -> None:
    """What a number is for: that a late copy of a refused proposal stays refused. Here none could be granted in any case.

    A reason to refuse that can pass (draining, no room) does not exist in this space; a session that ends, or begins, changes the
    broker epoch or the partition epoch.
    """
    cluster = Noting(budgets)
    result = explore(cluster.initial, cluster.successors, cluster.wrong, fingerprint=cluster.fingerprint, states_max=10_000)
    assert result.violation is None
    assert cluster.seen[True, True] > 20
    assert cluster.seen[False, False] > 20
    assert cluster.seen[False, True] == 0
