"""A controller that cannot read all topics says so in its complete notice: what that does not name goes on as it was."""

from __future__ import annotations

import pytest
from tests.unit.broker.test_flush_failures import A, B, Desk

from replog.messages import LeaderAndIsr, LeaderAndIsrAnswer


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_leader_goes_on_although_a_partial_notice_does_not_name_its_copy(is_partial: bool) -> None:
    desk = Desk()
    said = desk.tell(LeaderAndIsr(1, 2, 1, 0, True, 1_000, [desk.notice(B)], is_partial, as_of=0))
    (answer,) = [one for one in said if isinstance(one, LeaderAndIsrAnswer)]
    assert answer.strays == [A], "reported all the same"
    assert (A in desk.broker.partitions) == is_partial
    if is_partial:
        assert desk.broker.partitions[A].leading is not None
        desk.tell(LeaderAndIsr(1, 2, 1, 1, False, 1_000, [desk.notice(A)], as_of=1))
        assert desk.broker.partitions[A].leading is not None, "in the same epoch, of its own life"
