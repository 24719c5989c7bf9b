"""A broker in a process of its own that notes when the steps of a failover happen to it; started by `failover.py`.

`python failover_broker.py ID STORE DATA SESSION_MS` says "ready ENDPOINT" once it is let in, and answers "state" with a line that says
what it has seen since the last "forget". It ends with its stdin. Times are those of CLOCK_MONOTONIC, which the processes of a
machine share.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

import replog
from replog.messages import Fetch, Fetched, LeaderAndIsr, LeaderAndIsrAnswer
from replog.metadata import layout
from replog.model import PartitionId
from replog.ports import StoreResult, WatchFired


class Notes:
    """What happened, and when."""

    def __init__(self) -> None:
        self.watch_s = 0.0
        """A watch said that a broker, or the controller, is gone."""
        self.cpu_s = time.process_time()
        """Processor time of this process so far, all of its threads."""
        self.loaded_s = 0.0
        """A new controller has read everything."""
        self.committed_s = 0.0
        self.transactions = 0
        self.puts = 0
        self.told_s = 0.0
        self.notices: dict[int, list[int]] = {}
        """Broker -> the numbers of partitions in the requests it was sent."""
        self.answered_s: dict[int, float] = {}
        self.applied_s = 0.0
        """It had done what a request asked of it."""
        self.fetch_s = 0.0
        """A follower's first fetch of a partition that is led from here came in."""
        self.agreed_s = 0.0
        """... and its log was found to agree."""
        self.truncations = 0
        self.unasked: dict[PartitionId, int] = {}
        """Partition that is led from here -> its leader epoch, until its follower has asked for it in that epoch."""
        self.commit_calls: dict[int, tuple[int, int]] = {}

    def told(self) -> dict[str, Any]:
        """All of it, with the processor time since it began."""
        told = {name: value for name, value in vars(self).items() if name not in ("commit_calls", "unasked")}
        return told | {"cpu_s": time.process_time() - self.cpu_s, "unasked": len(self.unasked)}


class Noting:
    """Looks over the shoulders of the actors of one life of a broker."""

    def __init__(self, life: Any) -> None:
        self.notes = Notes()
        self.controller = life.controller
        self.broker = life.broker
        self.broker_id = life.broker_id
        self._hears = {"controller": life.controller.receive, "broker": life.broker.receive}
        self._tick = life.controller.tick
        life.controller.receive = self.controller_receives
        life.controller.tick = self.controller_ticks
        life.broker.receive = self.broker_receives
        life._seat.watch._receive = self.broker_receives  # to whom the pump hands some of the messages instead

    def controller_receives(self, sender: Any, message: Any, now_ms: int) -> None:
        """As the controller does."""
        notes, at_s = self.notes, time.monotonic()
        if isinstance(message, WatchFired) and message.path in (layout.BROKER_IDS, layout.CONTROLLER) and not notes.watch_s:
            notes.watch_s = at_s
        self._hears["controller"](sender, message, now_ms)
        if isinstance(message, StoreResult) and message.call in notes.commit_calls:
            transactions, puts = notes.commit_calls.pop(message.call)
            notes.transactions += transactions
            notes.puts += puts
            notes.committed_s = at_s
        elif isinstance(message, LeaderAndIsrAnswer):
            notes.answered_s[message.broker_id] = at_s
        self._said()

    def controller_ticks(self, now_ms: int, wall_ms: int) -> None:
        """As the controller does."""
        self._tick(now_ms, wall_ms)
        self._said()

    def _said(self) -> None:
        notes, outbox = self.notes, self.controller.outbox
        for call in outbox.calls:
            if call.verb == "commit_each":
                notes.commit_calls[call.call] = len(call.argument), sum(len(ops) - 1 for ops in call.argument)
        for to, message in outbox.messages:
            if isinstance(message, LeaderAndIsr):
                notes.notices.setdefault(to, []).append(len(message.entries))
                notes.told_s = time.monotonic()
        for event in outbox.events:
            if event.name == "controller_loaded":
                notes.loaded_s = time.monotonic()

    def broker_receives(self, sender: Any, message: Any, now_ms: int) -> None:
        """As the broker does."""
        notes, at_s = self.notes, time.monotonic()
        self._hears["broker"](sender, message, now_ms)
        if isinstance(message, LeaderAndIsr):
            notes.applied_s = time.monotonic()
            led = (entry for entry in message.entries if entry.state.leader == self.broker_id)
            notes.unasked |= {entry.partition: entry.state.leader_epoch for entry in led}
        elif isinstance(message, Fetch) and message.replica >= 0 and notes.unasked:
            asked = [e.partition for e in message.entries if notes.unasked.get(e.partition, e.leader_epoch + 1) <= e.leader_epoch]
            for partition in asked:
                del notes.unasked[partition]
            if asked:
                notes.fetch_s, notes.agreed_s = at_s, time.monotonic()
            for _, answer in self.broker.outbox.messages:
                if isinstance(answer, Fetched):
                    notes.truncations += sum(entry.diverging_epoch >= 0 for entry in answer.entries)

    def state(self) -> dict[str, Any]:
        """What has happened, and what has yet to happen as far as the controller knows."""
        term = self.controller._term
        due = -1 if term is None or not term.loaded else len(term.cluster.due)
        return {**self.notes.told(), "controller": term is not None, "due": due, "unacknowledged": len(self.controller.unacknowledged)}


def serve(broker_id: int, store: str, data: str, session_ms: int) -> None:
    """Until stdin is closed."""
    questions: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            questions.put(line.strip())
        questions.put("end")

    threading.Thread(target=listen, daemon=True).start()
    config = {"session_ms": session_ms, "leader_imbalance_check_ms": 0, "replica_lag_ms_max": 600_000}
    broker = replog.Broker(broker_id, listen="tcp://127.0.0.1:0", data=data, store=store, config=config).open()
    noting = Noting(broker._life)
    while not broker.is_ready:
        broker.poll(0.01)
    print(f"ready {broker.endpoint}", flush=True)
    question = ""
    while question != "end":
        broker.poll(0.02)
        try:
            question = questions.get_nowait()
        except Empty:
            continue
        if question == "state":
            print(json.dumps(noting.state()), flush=True)
        elif question == "forget":
            noting.notes = Notes()
    broker.stop(controlled=False)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
