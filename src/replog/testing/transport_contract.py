"""What every transport must do, as tests: subclass, make two ends that can reach each other, and run them.

A transport may drop, delay, repeat and reorder; the suite runs it where it does none of that, and asks only what holds
always: who receives, what, and what never raises.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from replog.config import BrokerConfig
from replog.errors import UsageError
from replog.messages import ControlledShutdown, ControlledShutdownAnswer, Fetched, FetchedEntry
from replog.model import Address, PartitionId
from replog.ports import Transport
from replog.slices import MemorySlice
from replog.testing.message_samples import Who, contents, message_samples

__all__ = ["TransportContract"]

LARGE_BYTES = BrokerConfig().fetch_bytes_max
"""As much as brokers put into one answer as shipped, and a batch of a producer may have: many carriers stop at 1 or 4 MiB."""
MANY = 5_000
STAY_S = 0.005
"""How long a receiver stays where it is, to see whether another thread comes."""
HELD_S = 0.25
"""How long a receiver holds one message while others are under way, if their transport has threads: it may wait for that receiver."""
_inside = threading.local()


class Inbox:
    """What one address received, and which calls of it are forbidden: `faults`."""

    def __init__(self, heard: Callable[[Address, Any], None] | None = None, *, stays: bool = False) -> None:
        self.items: list[tuple[Address, Any]] = []
        self.faults: list[str] = []
        self._heard = heard
        self._stays = stays
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._another_came = threading.Event()

    def __call__(self, sender: Address, message: Any) -> None:
        if getattr(_inside, "send", False):
            self.faults.append("receive was called inside send")
        if not self._lock.acquire(blocking=False):
            again = self._thread == threading.get_ident()
            self.faults.append("receive was called inside receive" if again else "receive was called from two threads at once")
            self._another_came.set()
            return
        try:
            self._thread = threading.get_ident()
            self.items.append((sender, message))
            if self._stays:
                self._another_came.wait(STAY_S)
            if self._heard is not None:
                self._heard(sender, message)
        finally:
            self._lock.release()

    @property
    def messages(self) -> list[Any]:
        """Without their senders."""
        return [message for _sender, message in self.items]


class Held:
    """An inbox that, where a thread delivers, is still at one of the first messages when `let_go` is called: the others are under way."""

    def __init__(self) -> None:
        self._released = threading.Event()
        self._came = 0
        self.inbox = Inbox(lambda *_: self._stay())

    def _stay(self) -> None:
        self._released.wait(HELD_S)

    def let_go(self) -> None:
        """Nothing more may come now."""
        self._came = len(self.inbox.items)
        self._released.set()

    def came_late(self) -> list[Any]:
        """What came after that, but for the one message that a thread may have been about to hand over."""
        return self.inbox.messages[self._came + 1 :]


class TransportContract:
    """The contract of `Transport`. `here` and `there` may be one object. Override `pump` if delivery takes anything but time.

    Addresses are plain, as actors use them: integers for brokers, and tuples.
    """

    A, B = 1, 2
    C: Address = ("client", "x")
    """Another address that listens here. A transport that carries only what actors call themselves sets it to one of theirs."""
    CLIENT: Address = ("client", "x")
    """The address of a client, where `client` says."""
    patience_s = 30.0
    """After how long the suite takes a `send` for blocked."""

    @pytest.fixture
    def ends(self) -> tuple[Transport, Transport]:
        """(here, there): address A will listen here and B there, and each end knows how to reach the other's address."""
        raise NotImplementedError

    def client(self, ends: tuple[Transport, Transport]) -> Transport:
        """Where a client listens: here, unless clients have a transport of their own, which reaches B. `pump` carries for it too."""
        return ends[0]

    def pump(self, ends: tuple[Transport, Transport], done: Callable[[], bool]) -> None:
        """Carry messages until `done`; return as well when nothing is under way."""
        raise NotImplementedError

    @pytest.fixture
    def inboxes(self, ends: tuple[Transport, Transport]) -> tuple[Inbox, Inbox]:
        """What A and B receive."""
        a, b = Inbox(), Inbox()
        ends[0].listen(self.A, a)
        ends[1].listen(self.B, b)
        return a, b

    def test_a_message_arrives_with_its_sender(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, self.B, _message(7))
        self.pump(ends, lambda: bool(inboxes[1].items))
        assert inboxes[1].items == [(self.A, _message(7))]
        assert inboxes[0].items == []

    def test_the_sender_can_be_answered(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, self.B, _message(1))
        self.pump(ends, lambda: bool(inboxes[1].items))
        sender, _ = inboxes[1].items[0]
        ends[1].send(self.B, sender, _message(2))
        self.pump(ends, lambda: bool(inboxes[0].items))
        assert inboxes[0].items == [(self.B, _message(2))]

    def test_a_healthy_transport_carries_everything(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        for number in range(500):
            ends[0].send(self.A, self.B, _message(number))
        self.pump(ends, lambda: len(inboxes[1].items) == 500)
        assert sorted(message.request for message in inboxes[1].messages) == list(range(500))

    def test_two_do_not_listen_at_one_address(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        with pytest.raises(UsageError, match=str(self.A)):
            ends[0].listen(self.A, Inbox())

    def test_sending_to_nobody_is_no_error(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, 99, _message(1))
        ends[0].send(self.A, ("controller", 99), _message(1))
        ends[0].send(self.A, self.B, _message(2))
        self.pump(ends, lambda: bool(inboxes[1].items))
        assert inboxes[1].messages == [_message(2)]

    def test_nothing_arrives_after_unlisten(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, self.B, _message(1))
        ends[1].unlisten(self.B)
        ends[1].unlisten(self.B)
        ends[0].send(self.A, self.B, _message(2))
        self.pump(ends, lambda: False)
        assert inboxes[1].items == []

    def test_an_address_can_be_used_again(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[1].unlisten(self.B)
        later = Inbox()
        ends[1].listen(self.B, later)
        ends[0].send(self.A, self.B, _message(3))
        self.pump(ends, lambda: bool(later.items))
        assert later.messages == [_message(3)]
        assert inboxes[1].items == []

    def test_what_was_under_way_does_not_come_to_a_later_listener(self, ends: tuple[Transport, Transport]) -> None:
        """It was sent at the end that it is for: of what is still on its way from another process, this one need not know."""
        earlier, later = Held(), Inbox()
        ends[1].listen(self.B, earlier.inbox)
        for number in range(20):
            ends[1].send(self.B, self.B, _message(number))
        ends[1].unlisten(self.B)
        ends[1].listen(self.B, later)
        earlier.let_go()
        self.pump(ends, lambda: bool(later.items))
        assert later.items == []
        assert earlier.came_late() == []
        ends[1].send(self.B, self.B, _message(20))
        self.pump(ends, lambda: bool(later.items))
        assert later.items == [(self.B, _message(20))]

    def test_an_address_may_be_a_tuple(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        """It stays what it is, also as the sender: who a message is from decides whether it counts."""
        third = Inbox()
        ends[0].listen(self.C, third)
        answer, question = ControlledShutdownAnswer(self.B, 3, 1, 0), ControlledShutdown(self.B, 3)
        ends[0].send(self.C, self.B, answer)
        self.pump(ends, lambda: bool(inboxes[1].items))
        assert inboxes[1].items == [(self.C, answer)]
        ends[1].send(self.B, self.C, question)
        self.pump(ends, lambda: bool(third.items))
        assert third.items == [(self.B, question)]
        ends[0].send(self.A, self.B, _message(3))
        self.pump(ends, lambda: len(inboxes[1].items) == 2)
        assert inboxes[1].items[1] == (self.A, _message(3))
        assert inboxes[0].items == []

    def test_every_kind_of_message_arrives_whole(self, ends: tuple[Transport, Transport]) -> None:
        """None is lost, and nothing of one: all that actors say to each other, with several of whatever there may be several of."""
        here: dict[Who, tuple[Transport, Address]] = {
            "broker": (ends[0], self.A),
            "controller": (ends[0], ("controller", self.A)),
            "client": (self.client(ends), self.CLIENT),
        }
        there: dict[Who, Address] = {"broker": self.B, "controller": ("controller", self.B), "client": None}
        inboxes: dict[Who, Inbox] = {who: Inbox() for who in here}
        here["client"][0].listen(self.CLIENT, inboxes["client"])
        for who in ("broker", "controller"):
            here[who][0].listen(here[who][1], Inbox())
            ends[1].listen(there[who], inboxes[who])
        for sample, (_, _, same) in zip(message_samples(), message_samples(), strict=True):
            end, sender = (ends[1], self.B) if sample.to == "client" else here[sample.sender]
            inbox = inboxes[sample.to]
            before = len(inbox.items)
            end.send(sender, there[sample.to], sample.message)
            self.pump(ends, lambda inbox=inbox, before=before: len(inbox.items) > before)  # type: ignore[misc]
            came = inbox.items[before:]
            assert [contents(message) for _, message in came] == [contents(same)], type(same).__name__
            if sample.sender == "client":
                there["client"] = came[0][0]  # as a broker there calls it
            else:
                assert came[0][0] == sender

    def test_a_large_message_arrives_whole(self, ends: tuple[Transport, Transport]) -> None:
        data = bytes(range(256)) * (LARGE_BYTES // 256)
        came: list[bytes] = []
        inbox = Inbox(lambda _, message: came.extend(bytes(part.view()) for part in message.entries[0].slices))
        ends[0].listen(self.A, Inbox())
        ends[1].listen(self.B, inbox)
        entry = FetchedEntry(PartitionId(bytes(16), 0, 0), leader_epoch=1, offset=0, slices=[MemorySlice(0, 1, data)])
        ends[0].send(self.A, self.B, Fetched(request=1, session=0, session_epoch=0, error=0, entries=[entry]))
        self.pump(ends, lambda: bool(came))
        assert came == [data]

    def test_answers_are_sent_from_within_receive(self, ends: tuple[Transport, Transport]) -> None:
        """The answer of the other end is the next call, and not a part of this one."""

        def ask(sender: Address, message: Any) -> None:
            if message.request < 40:
                _send(ends[0], self.A, sender, _message(message.request + 1))

        asks = Inbox(ask)
        answers = Inbox(lambda sender, message: _send(ends[1], self.B, sender, _message(message.request + 1)))
        ends[0].listen(self.A, asks)
        ends[1].listen(self.B, answers)
        _send(ends[0], self.A, self.B, _message(1))
        self.pump(ends, lambda: len(asks.items) == 20)
        assert asks.faults + answers.faults == []
        assert [message.request for message in answers.messages] == list(range(1, 40, 2))
        assert [message.request for message in asks.messages] == list(range(2, 41, 2))

    def test_receive_is_not_called_inside_send(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        """Also where nothing else waits, so that it could be handed over at once."""
        for number in range(20):
            _send(ends[0], self.A, self.B, _message(number))
            self.pump(ends, lambda number=number: len(inboxes[1].items) == number + 1)  # type: ignore[misc]
        assert inboxes[1].faults == []
        assert [message.request for message in inboxes[1].messages] == list(range(20))

    def test_receive_is_called_by_one_thread_at_a_time(self, ends: tuple[Transport, Transport]) -> None:
        inbox = Inbox(stays=True)
        ends[0].listen(self.A, Inbox())
        ends[1].listen(self.B, inbox)
        for number in range(20):
            ends[0].send(self.A, self.B, _message(number))
        self.pump(ends, lambda: len(inbox.items) == 20)
        assert inbox.faults == []
        assert sorted(message.request for message in inbox.messages) == list(range(20))

    def test_several_senders_are_received_one_at_a_time(self, ends: tuple[Transport, Transport]) -> None:
        """What several say to one actor comes to it one after the other, also where each of them has a queue of its own."""
        inbox = Inbox(stays=True)
        ends[0].listen(self.A, Inbox())
        ends[0].listen(self.C, Inbox())
        ends[1].listen(self.B, inbox)
        said: list[tuple[Address, Any]] = []
        for number in range(20):
            said += [(self.A, _message(number)), (self.C, ControlledShutdownAnswer(self.B, number, 1, 0)), (self.B, _message(number))]
        for sender, message in said:
            ends[sender == self.B].send(sender, self.B, message)
        self.pump(ends, lambda: len(inbox.items) == len(said))
        assert inbox.faults == []
        assert [one for one in said if inbox.items.count(one) != 1] == []
        assert len(inbox.items) == len(said)

    def test_send_takes_whatever_waits_already(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        """Nobody takes anything meanwhile. What is too much may be dropped; what comes later gets through."""
        with _within(self.patience_s, "send"):
            for number in range(MANY):
                _send(ends[0], self.A, self.B, _message(number))
        self.pump(ends, lambda: len(inboxes[1].items) == MANY)
        came = [message.request for message in inboxes[1].messages]
        assert sorted(set(came)) == sorted(came)
        assert set(came) <= set(range(MANY))
        ends[0].send(self.A, self.B, _message(MANY))
        self.pump(ends, lambda: len(inboxes[1].items) > len(came))
        assert inboxes[1].messages[-1] == _message(MANY)
        assert inboxes[0].items == []
        assert inboxes[1].faults == []

    def test_a_closed_transport_drops(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        for end in ends:
            end.close()
            end.close()
        ends[0].send(self.A, self.B, _message(1))
        self.pump(ends, lambda: False)
        assert inboxes[1].items == []
        with pytest.raises(UsageError):
            ends[0].listen(9, Inbox())

    def test_what_was_under_way_is_dropped_by_close(self, ends: tuple[Transport, Transport]) -> None:
        held = Held()
        ends[0].listen(self.A, Inbox())
        ends[1].listen(self.B, held.inbox)
        for number in range(20):
            ends[0].send(self.A, self.B, _message(number))
            ends[1].send(self.B, self.B, _message(number))
        for end in ends:
            end.close()
        held.let_go()
        self.pump(ends, lambda: bool(held.came_late()))
        assert held.came_late() == []


def _message(number: int) -> Fetched:
    """What any broker may say to any other."""
    return Fetched(request=number, session=0, session_epoch=0, error=0, entries=[])


def _send(end: Transport, sender: Address, to: Address, message: Any) -> None:
    """A send that receivers know of which it calls."""
    outer, _inside.send = getattr(_inside, "send", False), True
    try:
        end.send(sender, to, message)
    finally:
        _inside.send = outer


@contextmanager
def _within(seconds: float, what: str) -> Iterator[None]:
    """Fail instead of waiting for ever. Only in the main thread, where tests run."""

    def blocked(_signal: int, _frame: object) -> None:
        raise AssertionError(f"{what} has blocked: it is not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, blocked)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
