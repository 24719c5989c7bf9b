"""A client that nothing fails asks for metadata now and then all the same: once per `metadata_max_age_ms`, answered or not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import CLIENT, make, metadata_asked

from replog.client.core import ClientCore
from replog.config import ClientConfig
from replog.messages import Disconnected, Metadata
from replog.testing.clock import SeededIds

AGE_MS = 10_000


def test_news_that_no_failure_would_bring_come_with_age() -> None:
    cluster, driver, client = make({"t": 1}, metadata_max_age_ms=AGE_MS)
    client.append("t", 0, ["a"])
    cluster.move("t", 0, 3)
    driver.pass_time(AGE_MS - 1)
    assert driver.core.view.place("t", 0).leader == 1
    driver.pass_time(1)
    assert driver.core.view.place("t", 0).leader == 3


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_idle_client_asks_once_per_age_whether_it_is_answered_or_not(is_answered: bool) -> None:
    cluster, driver, client = make({"t": 1}, metadata_max_age_ms=AGE_MS)
    client.append("t", 0, ["a"])
    cluster.down = set() if is_answered else {1, 2, 3}
    asked, delivered = metadata_asked(driver), driver.delivered
    driver.pass_time(10 * AGE_MS)
    assert len(asked) == 10
    assert len(set(asked)) > 1, "not always the same broker"
    assert driver.delivered - delivered == 30, "one look, the question, and what comes of it"
    cluster.down = set()
    cluster.move("t", 0, 2)
    client.append("t", 0, ["b"])


def test_a_client_that_has_asked_nobody_asks_nobody() -> None:
    _, driver, _ = make({"t": 1}, metadata_max_age_ms=AGE_MS)
    asked = metadata_asked(driver)
    driver.pass_time(10 * AGE_MS)
    assert (asked, driver.core.deadline_ms()) == ([], None)


def test_a_question_that_was_needed_puts_the_next_one_off() -> None:
    _, driver, client = make({"t": 1}, metadata_max_age_ms=AGE_MS)
    client.append("t", 0, ["a"])
    driver.pass_time(AGE_MS - 1)
    client.topics()
    asked = metadata_asked(driver)
    driver.pass_time(AGE_MS - 1)
    assert asked == []
    driver.pass_time(1)
    assert len(asked) == 1


def questions(core: ClientCore) -> list[Any]:
    """Who has been asked for metadata since the last look."""
    asked = [to for to, message in core.outbox.messages if isinstance(message, Metadata)]
    core.outbox.messages.clear()
    return asked


def test_who_has_yet_to_answer_a_question_of_age_is_not_taken_for_silent_by_the_next_that_is_needed() -> None:
    core = ClientCore(CLIENT, config=ClientConfig(metadata_max_age_ms=AGE_MS), ids=SeededIds(1), bootstrap=(1, 2, 3))
    core.refresh(0)
    (first,) = questions(core)
    core.receive(first, Disconnected(first), 0)
    core.tick(1_000, 0)
    (second,) = questions(core)
    cluster, _, _ = make({"t": 1})
    core.receive(second, cluster.view(2), 1_000)
    core.tick(1_000 + AGE_MS, 0)
    (third,) = questions(core)
    core.refresh(1_001 + AGE_MS)
    assert (questions(core), core._down) == ([], {first: 1_000}), "its answer may be on its way"
    core.receive(third, cluster.view(3), 1_002 + AGE_MS)
    assert len(questions(core)) == 1, "that was asked before it was needed"
    core.tick(core.deadline_ms(), 0)
    assert len(questions(core)) == 1, "and this one is repeated until it is answered"


def test_a_question_that_is_waited_for_longer_than_that_is_not_asked_again_for_its_age() -> None:
    config = ClientConfig(metadata_max_age_ms=AGE_MS, retry_backoff_ms_max=2 * AGE_MS)
    core = ClientCore(CLIENT, config=config, ids=SeededIds(1), bootstrap=(1, 2, 3))
    core.refresh(0)
    assert len(questions(core)) == 1
    core.tick(AGE_MS, 0)
    assert (questions(core), core.deadline_ms()) == ([], 2 * AGE_MS)


def test_a_broker_is_not_taken_for_silent_because_a_client_that_was_idle_has_not_read_its_answer() -> None:
    """Whoever calls now and then leaves with his own answer; that to the question of age stays in the socket until the next call."""
    core = ClientCore(CLIENT, config=ClientConfig(metadata_max_age_ms=AGE_MS), ids=SeededIds(1), bootstrap=(1, 2, 3))
    cluster, _, _ = make({"t": 1})
    core.refresh(0)
    (first,) = questions(core)
    core.receive(first, cluster.view(1), 0)
    for now_ms in (AGE_MS, 2 * AGE_MS):
        core.tick(now_ms, 0)
        assert (len(questions(core)), core._down) == (1, {})
    core.refresh(2 * AGE_MS + 5_000)
    (needed,) = questions(core)
    assert core._down == {}
    core.tick(core.deadline_ms(), 0)
    assert (len(questions(core)), list(core._down)) == (1, [needed]), "somebody waits for this one"
