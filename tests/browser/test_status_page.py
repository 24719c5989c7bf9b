"""The status page in a real browser: what a person sees while a broker is lost and comes back.

Run with `make test-browser`. Screenshots go to the folder that REPLOG_SCREENSHOTS names, else nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.browser.webdriver import Browser, missing

import replog
from replog.status.server import StatusServer

ROWS = "return [...document.querySelectorAll('.partition')].map(row => [row.dataset.name, row.dataset.leader, row.dataset.wrong])"
HEALTH = "return document.getElementById('health').textContent === arguments[0]"
MARK = "return window.sameDocument === true"
TAB = "\ue004"
MOVES_HIDDEN = "return document.getElementById('moves').classList.contains('hidden')"
COPIES = "[...document.querySelectorAll('.replica')].map(copy => copy.innerText.replaceAll('\\n', ' '))"
WIDTH = "return document.documentElement.scrollWidth"

Start = Callable[..., Browser]


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=4, replication_factor=3, min_isr=2)
        cluster.create_topic("payments", partitions=2, replication_factor=2, min_isr=1)
        for number in range(8):
            cluster.append("orders", number % 4, [b"x" * 100] * 30)
        yield cluster


@pytest.fixture
def page(cluster: replog.Cluster) -> Iterator[StatusServer]:
    with cluster.serve_status() as page:
        yield page


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Start]:
    if missing():
        pytest.fail(missing())
    opened: list[Browser] = []

    def start(**size: Any) -> Browser:
        opened.append(Browser(tmp_path / f"profile-{len(opened)}", **size))
        return opened[-1]

    yield start
    for one in opened:
        one.__exit__(None, None, None)


def shot(one: Browser, name: str) -> None:
    if folder := os.environ.get("REPLOG_SCREENSHOTS"):
        one.screenshot(Path(folder) / f"{name}.png")


def test_a_lost_broker_is_seen_without_a_reload(cluster: replog.Cluster, page: StatusServer, browser: Start) -> None:
    one = browser()
    one.open(page.url)
    one.run("window.sameDocument = true")
    one.until(HEALTH, "healthy")
    rows = {name: (leader, wrong) for name, leader, wrong in one.run(ROWS)}
    assert sorted(rows) == [*(f"orders-{n}" for n in range(4)), "payments-0", "payments-1"]
    assert {wrong for _, wrong in rows.values()} == {""}
    assert one.run("return document.querySelectorAll('.replica').length") == 4 * 3 + 2 * 2
    shot(one, "light")

    lost = next(b for b in cluster.brokers if b != cluster.controller_id)
    led = [name for name, (leader, _) in rows.items() if leader == str(lost)]
    assert led
    cluster.kill_broker(lost)
    cluster.append("orders", 0, [b"x"] * 40)
    one.until(HEALTH, "not healthy")
    now = {name: (leader, wrong) for name, leader, wrong in one.run(ROWS)}
    described = {f"{topic}-{p.partition}": p for topic in ("orders", "payments") for p in cluster.describe(topic).partitions}
    assert {name: leader for name, (leader, _) in now.items()} == {name: str(p.leader) for name, p in described.items()}
    under_replicated = {name for name, (_, wrong) in now.items() if "under_replicated" in wrong}
    assert under_replicated == {name for name, p in described.items() if lost in p.replicas}
    assert all(now[name][0] != str(lost) for name in led)
    assert one.text("#brokers").count("away") == 1
    assert f"Broker {lost} is not in sync" in one.text("#explained")
    assert f"left by {lost}" in one.text("#changes")
    shot(one, "light-lost")

    cluster.start_broker(lost)
    cluster.wait_until_in_sync()
    one.until(HEALTH, "healthy")
    assert {wrong for _, _, wrong in one.run(ROWS)} == {""}
    assert one.run("return document.getElementById('explained').classList.contains('hidden')")
    assert one.run(MARK)
    assert one.logs() == []  # nothing that the page's policy has refused, and no error of its script


def test_a_move_is_seen_on_its_way(browser: Start) -> None:
    """Held back by its limit, so that there is something to see: which copy gets what, how much is left, and why it is not in sync."""
    with ExitStack() as stack:
        held_back = {"reassignment_bytes_per_s": 20_000, "fetch_partition_bytes_max": 2_048}
        cluster = stack.enter_context(replog.Cluster(brokers=3, config=held_back))
        cluster.create_topic("moved", assignment={0: [1, 2]}, min_isr=1)
        for _ in range(200):
            cluster.append("moved", 0, [os.urandom(1_000)])
        page = stack.enter_context(cluster.serve_status())
        one = browser(width=390, height=844)
        one.open(page.url)
        one.until(HEALTH, "healthy")
        assert one.run(MOVES_HIDDEN)
        cluster.reassign({("moved", 0): [1, 3]})
        one.until("return (document.querySelector('#moves progress') || {value: 0}).value > 0")
        assert "moved-0" in one.text("#moves")
        assert "1, 2 \u2192 1, 3" in one.text("#moves")
        assert "records left" in one.text("#moves")
        (joins,) = one.run(f"return {COPIES}.filter(text => text.includes('joins'))")
        assert joins.startswith("broker 3")
        assert one.run("return document.querySelectorAll('.replica .because').length") == 1
        assert one.run(WIDTH) <= 390
        shot(one, "phone-move")

        cluster.reassign({("moved", 0): None})
        one.until(MOVES_HIDDEN)
        assert one.run(f"return {COPIES}.filter(text => text.includes('joins')).length") == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(cluster: replog.Cluster, page: StatusServer, browser: Start, dark: bool) -> None:
    cluster.kill_broker(3)
    one = browser(width=390, height=844, dark=dark)
    one.open(page.url)
    one.until(HEALTH, "not healthy")
    assert one.run(WIDTH) <= 390
    assert one.run("return [...document.querySelectorAll('.replica .because')].map(why => why.innerText)") != []
    back = one.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back.removeprefix("rgb(").removesuffix(")").split(","))) < 3 * 128) == dark
    shot(one, f"phone-{'dark' if dark else 'light'}")


def test_what_others_have_named_is_shown_as_text(page: StatusServer, cluster: replog.Cluster, browser: Start) -> None:
    cluster.add_broker(rack="<img src=x onerror=window.bad=1><b>bold</b>")
    one = browser(dark=True)
    one.open(page.url)
    one.until("return document.getElementById('brokers').innerText.includes('<b>bold</b>')")
    assert one.run("return document.querySelectorAll('#brokers img, #brokers td b').length") == 0
    assert one.run("return window.bad === undefined")
    shot(one, "dark")


def test_it_is_used_by_keyboard_and_read_by_screen_readers(page: StatusServer, browser: Start) -> None:
    one = browser()
    one.open(page.url)
    one.until(HEALTH, "healthy")
    reached = []
    for _ in range(6):
        one.keys(TAB)
        reached.append(one.run("return document.activeElement.id"))
    assert reached[:4] == ["pause", "brokers", "filter", "unhealthy"]
    one.run("document.getElementById('filter').focus()")
    one.keys("orders-2")
    one.until("return document.querySelectorAll('.partition').length === 1")
    assert one.run("return document.activeElement.id") == "filter"
    assert one.run("return document.getElementById('health').getAttribute('role')") == "status"
    bars = one.run("return [...document.querySelectorAll('.track')].map(bar => bar.getAttribute('aria-label'))")
    assert [label.rpartition(" ")[0] for label in bars if "in sync" in label] != []
    assert len(bars) == 3
    controls = "[...document.querySelectorAll('button, input')]"
    assert one.run(f"return {controls}.filter(one => !(one.innerText || one.ariaLabel || one.labels.length)).length") == 0


def test_an_end_of_the_broker_is_said(cluster: replog.Cluster, page: StatusServer, browser: Start) -> None:
    one = browser()
    one.open(page.url)
    one.until(HEALTH, "healthy")
    page.close()
    one.until(HEALTH, "no answer")
    assert "This broker does not answer" in one.text("#notice")
    assert one.run(ROWS) != []  # what was known stays
