"""Coroutines on virtual time: one step at a time, in a fixed order, and errors go where they belong."""

from __future__ import annotations

from collections import deque

from replog.testing.simulator.tasks import Signal, Task


class Steps:
    """Runs tasks as a world does."""

    def __init__(self) -> None:
        self.ready: deque[Task] = deque()
        self.told: list[str] = []

    def task(self, coroutine: object) -> Task:
        made = Task("x", coroutine, self.ready.append)  # type: ignore[arg-type]
        self.ready.append(made)
        return made

    def run(self) -> None:
        while self.ready:
            self.ready.popleft().run()


def test_a_task_waits_for_what_it_awaits_and_gets_its_result() -> None:
    steps, signal = Steps(), Signal()

    async def work() -> None:
        steps.told.append("begins")
        steps.told.append(str(await signal))

    task = steps.task(work())
    steps.run()
    assert (steps.told, task.done) == (["begins"], False)
    signal.set(7)
    assert steps.told == ["begins"], "nothing runs inside of the one who sets a signal"
    steps.run()
    assert (steps.told, task.done, task.error) == (["begins", "7"], True, None)


def test_what_has_happened_before_is_not_waited_for() -> None:
    steps, signal = Steps(), Signal()
    signal.set("early")
    signal.set("late")

    async def work() -> None:
        steps.told.append(await signal)

    assert steps.task(work())
    steps.run()
    assert steps.told == ["early"]


def test_a_failure_is_raised_in_the_task_and_kept_if_nobody_catches_it() -> None:
    steps, caught, lost = Steps(), Signal(), Signal()

    async def work() -> None:
        try:
            await caught
        except ValueError:
            steps.told.append("caught")
        await lost

    task = steps.task(work())
    steps.run()
    caught.fail(ValueError("a"))
    steps.run()
    assert (steps.told, task.done) == (["caught"], False)
    lost.fail(KeyError("b"))
    steps.run()
    assert task.done
    assert isinstance(task.error, KeyError)


def test_tasks_run_in_the_order_in_which_they_became_ready() -> None:
    steps = Steps()
    signals = [Signal() for _ in range(3)]

    async def work(n: int) -> None:
        await signals[n]
        steps.told.append(str(n))

    for n in range(3):
        steps.task(work(n))
    steps.run()
    for n in (2, 0, 1):
        signals[n].set()
    steps.run()
    assert steps.told == ["2", "0", "1"]


def test_a_task_that_is_given_up_on_runs_its_endings() -> None:
    steps, signal = Steps(), Signal()

    async def work() -> None:
        try:
            await signal
        finally:
            steps.told.append("ends")

    task = steps.task(work())
    steps.run()
    task.close()
    assert steps.told == ["ends"]


def test_one_signal_is_for_one_task() -> None:
    steps, signal = Steps(), Signal()

    async def work() -> None:
        await signal

    first, second = steps.task(work()), steps.task(work())
    steps.run()
    assert (first.done, second.done) == (False, True)
    assert "one task waits" in str(second.error)
    first.close()


def test_an_ending_that_awaits_is_ended_too() -> None:
    steps, signal = Steps(), Signal()

    async def work() -> None:
        try:
            await signal
        finally:
            try:
                await Signal()
            finally:
                steps.told.append("ends")
                raise ValueError("late")

    task = steps.task(work())
    steps.run()
    task.close()
    assert steps.told == ["ends"]
