"""Connections that nobody has used for long: what is said next is said on one that lives, once, and nobody waits in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.transport.harness import Party, Stranger, fetched, idle, piece, question, settle

from replog import messages as m
from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpLimits
from replog.transport.tcp.asked import Asked, asked_by
from replog.transport.tcp.lanes import BULK, CONTROL, DATA
from replog.transport.tcp.losses import Losses
from replog.transport.tcp.outgoing import Outgoing

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]

IDLE_MS = TcpLimits().idle_timeout_ms


def requests(party: Party) -> list[int]:
    return [message.request for message in party.messages]


def asked(client: Party, broker: Party, number: int) -> None:
    """Let a question arrive, and its answer."""
    client.say(1, question(number))
    settle([client, broker], lambda: requests(broker)[-1:] == [number])
    sender, _ = broker.items[-1]
    broker.say(sender, m.ListedOffsets(number, []))
    settle([client, broker], lambda: requests(client)[-1:] == [number])


def one_turn(client: Party, clock: ManualClock) -> None:
    """As a client takes one: what is to be said is queued before sockets and clocks are looked at."""
    ready = client.transport.wait(0.5)
    client.transport.handle(ready, clock.now_ms())
    client.transport.flush()


@pytest.mark.parametrize("silence_ms", [IDLE_MS - 1, IDLE_MS, IDLE_MS + 1_000, 10 * IDLE_MS])
def test_the_first_message_after_a_long_silence_arrives(party: Make, clock: ManualClock, silence_ms: int) -> None:
    broker, client = party(1), party()
    asked(client, broker, 1)
    clock.advance(silence_ms)
    client.say(1, question(2))
    client.transport.handle([], clock.now_ms())
    client.transport.flush()
    settle([client, broker], lambda: requests(broker) == [1, 2])
    assert client.lost == []
    assert client.open == len(client.told("peer_connected")) == 1


def test_a_connection_that_was_spared_is_closed_when_it_falls_silent_again(party: Make, clock: ManualClock) -> None:
    broker, client = party(1), party()
    asked(client, broker, 1)
    clock.advance(IDLE_MS + 1)
    client.say(1, question(2))
    client.transport.handle([], clock.now_ms())
    settle([client, broker], lambda: requests(broker) == [1, 2])
    clock.advance(IDLE_MS + 1)
    settle([client], lambda: client.open == 0)
    assert client.lost == []


def restarted(broker: Party, party: Make, endpoints: dict[int, str]) -> Party:
    """Another process where the broker was."""
    port = broker.endpoint.rpartition(":")[2]
    broker.transport.close()
    made = party(1, serve=False)
    made.endpoint = endpoints[1] = made.transport.serve(f"tcp://127.0.0.1:{port}")
    return made


@pytest.mark.parametrize("count", [1, 50])
def test_what_is_queued_in_an_idle_connection_whose_peer_was_restarted_goes_to_the_next(
    party: Make, clock: ManualClock, endpoints: dict[int, str], count: int
) -> None:
    broker, client = party(1), party()
    asked(client, broker, 1)
    clock.advance(IDLE_MS // 2)
    again = restarted(broker, party, endpoints)
    for number in range(count):
        client.say(1, question(2 + number))
    one_turn(client, clock)
    settle([client, again], lambda: len(again.messages) == count)
    assert requests(again) == list(range(2, 2 + count))
    idle([client, again])
    assert client.lost == []
    assert len(again.messages) == count
    assert not client.transport.unsent_bytes


def test_what_is_queued_in_one_that_may_owe_an_answer_is_not_sent_again_but_told(
    party: Make, clock: ManualClock, endpoints: dict[int, str]
) -> None:
    """Whoever asked repeats it: sent by both it would arrive twice."""
    broker, client = party(1), party()
    asked(client, broker, 1)
    clock.advance(IDLE_MS // 2 - 1)
    again = restarted(broker, party, endpoints)
    client.say(1, question(2))
    one_turn(client, clock)
    settle([client, again], lambda: client.lost == [1, ("controller", 1)])
    idle([client, again])
    assert again.messages == []


def test_a_frame_that_has_begun_is_not_finished_elsewhere(
    party: Make, clock: ManualClock, endpoints: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, client = party(1), party(limits=TcpLimits(stalled_timeout_ms=10 * IDLE_MS))
    asked(client, broker, 1)
    client.say(1, question(2))
    with monkeypatch.context() as patched:

        def first_byte(outgoing: Outgoing, target: Any) -> int:
            outgoing._advance(target.send(b"\x20"))
            return 1

        patched.setattr(Outgoing, "write", first_byte)
        client.transport.flush()
    clock.advance(IDLE_MS // 2)
    again = restarted(broker, party, endpoints)
    settle([client], lambda: client.lost == [1, ("controller", 1)])
    idle([client, again])
    assert again.messages == []


def test_slices_that_move_to_another_connection_are_sent_from_there(
    party: Make, clock: ManualClock, endpoints: dict[int, str]
) -> None:
    one, two = party(2), party(1)
    one.say(1, fetched(1))
    settle([one, two], lambda: len(two.items) == 1)
    clock.advance(IDLE_MS // 2)
    again = restarted(two, party, endpoints)
    one.say(1, fetched(2, piece(b"first"), piece(b"second")))
    one_turn(one, clock)
    settle([one, again], lambda: bool(again.items))
    assert [bytes(each.view()) for each in again.messages[0].entries[0].slices] == [b"first", b"second"]


def test_of_two_connections_the_one_that_lives_takes_over(party: Make, clock: ManualClock, stranger: Bare) -> None:
    broker, other = party(1), party(2)
    broker.say(2, fetched(1))
    settle([broker, other], lambda: len(other.items) == 1)
    second = stranger(broker.endpoint)
    second.hello(cluster_id="c", role="broker", broker_id=2)
    settle([broker], lambda: broker.open == 2)
    idle([broker], 2)
    assert second.read().error == 0
    clock.advance(IDLE_MS // 2)
    second.close()  # the newest, which is what the next message takes
    broker.say(2, fetched(2))
    one_turn(broker, clock)
    settle([broker, other], lambda: requests(other) == [1, 2])
    assert broker.lost == []
    assert broker.open == 1


def test_what_too_much_waits_for_already_is_lost(
    party: Make, clock: ManualClock, endpoints: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, client = party(1), party()
    asked(client, broker, 1)
    clock.advance(IDLE_MS // 2)
    broker.transport.close()
    client.say(1, question(2))
    monkeypatch.setattr(client.transport._dialer, "hold", lambda *_: False)
    one_turn(client, clock)
    settle([client], lambda: client.lost == [1, ("controller", 1)])


# ------------------------------------------------------------------------------------------------------ queues by themselves


class Taker:
    """A socket that takes so many bytes at a time."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int) -> int:
        if not self.sizes:
            raise BlockingIOError
        return self.sizes.pop(0)


@pytest.mark.parametrize(
    ("sizes", "left"),
    [((), [b"abcd", b"efgh"]), ((1,), None), ((4,), None), ((7,), None), ((8,), []), ((3, 5), [])],
)
def test_a_queue_is_taken_whole_or_not_at_all(sizes: tuple[int, ...], left: list[bytes] | None) -> None:
    queue = Outgoing()
    queue.add([b"abcd"], 4)
    queue.add([b"efgh"], 4)
    queue.write(Taker(*sizes))  # type: ignore[arg-type]
    taken = queue.take_whole()
    assert taken == (None if left is None else (left, 4 * len(left)))
    assert queue.size == (8 - sum(sizes) if left is None else 0)
    queue.drop()
    queue.add([b"next"], 4)
    assert queue.take_whole() == ([b"next"], 4)


EVERYTHING, READS = [(7, False), (("controller", 7), False)], [(7, True), (("controller", 7), True)]


@pytest.mark.parametrize(
    ("lanes", "reached", "told"),
    [
        ([DATA], True, EVERYTHING),
        ([BULK], True, READS),
        ([CONTROL], True, [(("controller", 7), False)]),
        ([BULK], False, EVERYTHING),
        ([CONTROL], False, EVERYTHING),
        ([BULK, DATA], True, EVERYTHING),
        ([DATA, BULK], True, EVERYTHING),
        ([DATA, CONTROL], True, EVERYTHING),
        ([BULK, CONTROL], True, [(7, True), (("controller", 7), False)]),
        ([CONTROL, BULK], True, [(("controller", 7), False), (7, True)]),
    ],
)
def test_what_the_end_of_a_lane_is_told_as(lanes: list[int], reached: bool, told: list[Any]) -> None:
    losses = Losses(lambda address: reached, lambda address: ())
    for lane in lanes:
        losses.add(7, lane)
    assert losses.waiting
    heard: list[Any] = []

    def interrupted(address: Any, hint: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        losses.tell(interrupted, never)
    for _ in range(2):
        losses.tell(lambda address, hint: heard.append((address, hint.only_reads)), never)
    assert heard == told
    assert not losses.waiting


def never(item: Any) -> None:
    raise AssertionError("there is nothing to give back")


def test_what_was_not_sent_is_told_before_whom_nobody_reaches() -> None:
    first, held = (m.Admin(number, "create_topic", {}) for number in (7, 8))
    waiting = {7: [*asked_by("client", 7, held)]}
    losses = Losses(lambda address: False, lambda address: waiting.pop(address, []))
    losses.add(7, DATA, [*asked_by("client", 7, first), *asked_by("client", 7, question(1))])
    heard: list[Any] = []

    def interrupted(item: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        losses.tell(lambda address, hint: heard.append(hint), interrupted)
    for _ in range(2):
        losses.tell(lambda address, hint: heard.append(hint), heard.append)
    hints = [m.Disconnected(7), m.Disconnected(("controller", 7))]
    assert heard == [("client", None, m.Unreached(7, first)), ("client", None, m.Unreached(7, held)), *hints]


@pytest.mark.parametrize(("lane", "given_up"), [(DATA, [7, 7]), (CONTROL, [7]), (BULK, [])])
def test_whoever_is_told_to_have_lost_somebody_is_in_no_doubt_of_what_still_waits(lane: int, given_up: list[int]) -> None:
    asked: list[Any] = []

    def withdraw(address: Any) -> list[Asked]:
        asked.append(address)
        return []

    losses = Losses(lambda address: True, withdraw)
    losses.add(7, lane)
    losses.tell(lambda address, hint: None, never)
    assert asked == given_up
