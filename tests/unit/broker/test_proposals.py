"""ISR proposals on their way: one per partition, batched, repeated unchanged until they are decided (KIP-497)."""

from __future__ import annotations

from tests.unit.partition.copies import IDENTITY, LIMITS, fetch, log_of, notice, partition_of

from replog.broker.proposals import Proposals
from replog.config import BrokerConfig
from replog.errors import Code
from replog.messages import AlterIsr, AlterIsrAnswer, AlterIsrEntry, AlterIsrResult
from replog.model import PartitionState
from replog.partition.partition import Partition
from replog.ports import Outbox

CONTROLLER = ("controller", 9)
TIMEOUT = LIMITS.proposal_timeout_ms


def proposals(config: BrokerConfig = LIMITS, *, controller: object = CONTROLLER) -> Proposals:
    made = Proposals(1, Outbox(), config)
    made.registered(77)
    made.controller_changed(controller, 4)  # type: ignore[arg-type]
    return made


def ready(number: int = 0) -> Partition:
    """Leads with ISR 1, 2; broker 3 has caught up."""
    partition = partition_of(log_of(("a", 1)))
    partition.identity = IDENTITY._replace(partition=number)
    partition.become(notice(1, 5, (1, 2), partition_epoch=4), 0)
    fetch(partition, 3, 1, 1)
    return partition


def sent(made: Proposals) -> list[tuple[object, AlterIsr]]:
    found = [(to, message) for to, message in made._outbox.messages if isinstance(message, AlterIsr)]
    made._outbox.messages.clear()
    return found


def answer(request: int, error: int = 0, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 5) -> AlterIsrAnswer:
    state = PartitionState(1, 5, isr, partition_epoch=partition_epoch)
    return AlterIsrAnswer(request, Code.NONE, [AlterIsrResult(IDENTITY, error, state)])


def test_it_carries_what_fences_it() -> None:
    made = proposals()
    made.consider(ready())
    made.send_due(0)
    ((to, message),) = sent(made)
    assert to == CONTROLLER
    assert (message.broker_id, message.broker_epoch, message.controller_epoch) == (1, 77, 4)
    # Broker 2 has not fetched in this epoch: its life is not known here (KIP-903 allows that for members).
    assert message.entries == [AlterIsrEntry(IDENTITY, 5, 4, [(1, 77), (2, -1), (3, 3)], proposal=1)]


def test_one_at_a_time_and_the_same_again() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    ((_, first),) = sent(made)
    made.consider(partition)
    made.send_due(TIMEOUT - 1)
    assert sent(made) == []
    assert made.due_ms == TIMEOUT
    made.send_due(TIMEOUT)
    ((_, second),) = sent(made)
    assert second.entries == first.entries
    assert second.request != first.request


def test_partitions_share_a_message_up_to_a_slice() -> None:
    made = proposals(BrokerConfig(slice_partitions_max=2))
    for number in range(3):
        made.consider(ready(number))
    made.send_due(0)
    assert [len(message.entries) for _, message in sent(made)] == [2, 1]


def test_nothing_is_asked_when_nothing_differs() -> None:
    made = proposals()
    partition = partition_of(log_of(("a", 1)))
    partition.become(notice(1, 5, (1, 2, 3)), 0)
    made.consider(partition)
    made.send_due(0)
    assert sent(made) == []
    assert made.due_ms is None


def test_without_a_controller_it_waits_and_goes_out_as_soon_as_one_is_known() -> None:
    made = proposals(controller=None)
    made.consider(ready())
    made.send_due(0)
    assert sent(made) == []
    made.controller_changed(CONTROLLER, 4)
    assert made.due_ms == 0
    made.send_due(1)
    assert len(sent(made)) == 1


def test_another_controller_is_asked_at_once() -> None:
    made = proposals()
    made.consider(ready())
    made.send_due(0)
    ((_, first),) = sent(made)
    made.controller_changed(("controller", 8), 5)
    made.send_due(1)
    ((to, message),) = sent(made)
    assert to == ("controller", 8)
    assert message.entries == first.entries


def test_another_epoch_of_the_controller_on_the_same_broker_is_asked_at_once() -> None:
    made = proposals()
    made.consider(ready())
    made.send_due(0)
    ((_, first),) = sent(made)
    made.controller_changed(CONTROLLER, 5)
    made.send_due(1)
    ((to, message),) = sent(made)
    assert (to, message.controller_epoch) == (CONTROLLER, 5)
    assert message.entries == first.entries
    made.controller_changed(CONTROLLER, 5)
    made.send_due(2)
    assert sent(made) == []


def test_a_refusal_counts_only_from_the_newest_controller_that_was_asked() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    made.controller_changed(CONTROLLER, 5)
    made.send_due(1)
    (_, first), (_, second) = sent(made)
    assert partition.leading is not None
    assert made.answered(answer(first.request, Code.INELIGIBLE_REPLICA, (1, 2), 4), 2) == []
    assert partition.leading.isr.maximal_isr == (1, 2, 3)
    assert made.answered(answer(second.request, Code.INELIGIBLE_REPLICA, (1, 2), 4), 2) == [partition]
    assert partition.leading.isr.maximal_isr == (1, 2)


def test_that_it_was_stored_counts_whoever_says_so() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    made.controller_changed(CONTROLLER, 5)
    made.send_due(1)
    (_, first), _ = sent(made)
    assert made.answered(answer(first.request), 2) == [partition]


def test_each_wish_has_a_number_of_its_own_and_keeps_it() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    made.send_due(TIMEOUT)
    (_, first), (_, again) = sent(made)
    assert first.entries[0].proposal == again.entries[0].proposal
    made.answered(answer(again.request, Code.INELIGIBLE_REPLICA, (1, 2), 4), TIMEOUT)
    made.consider(partition)
    made.send_due(TIMEOUT + LIMITS.retry_backoff_ms_max)
    ((_, second),) = sent(made)
    assert second.entries[0].proposal > first.entries[0].proposal


def test_an_answer_ends_it() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    ((_, message),) = sent(made)
    assert made.answered(answer(message.request), 1) == [partition]
    assert made.answered(answer(message.request), 1) == []  # once
    made.send_due(TIMEOUT)
    assert sent(made) == []


def test_the_answer_to_an_earlier_attempt_counts() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    made.send_due(TIMEOUT)
    (_, first), (_, second) = sent(made)
    assert made.answered(answer(first.request), TIMEOUT) == [partition]
    assert made.answered(answer(second.request, Code.INVALID_UPDATE_VERSION), TIMEOUT) == []
    assert partition.leading is not None
    assert partition.leading.isr.isr == (1, 2, 3)


def test_an_answer_to_the_whole_request_decides_nothing() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    ((_, message),) = sent(made)
    for error in (Code.NOT_CONTROLLER, Code.STALE_BROKER_EPOCH):
        assert made.answered(AlterIsrAnswer(message.request, error, []), 1) == []
    made.send_due(TIMEOUT)
    assert [m.entries for _, m in sent(made)] == [message.entries]


def test_a_new_epoch_ends_it_without_an_answer() -> None:
    made = proposals()
    partition = ready()
    made.consider(partition)
    made.send_due(0)
    ((_, message),) = sent(made)
    partition.become(notice(1, 6, (1, 2), partition_epoch=5), 1)
    made.send_due(TIMEOUT)
    assert sent(made) == []
    assert made.answered(answer(message.request), TIMEOUT) == []
