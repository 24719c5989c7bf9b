"""`replog demo`: three brokers in a temporary folder, one of them killed while it leads, and nothing lost or left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from attrs import define

from replog.cli.context import Context
from replog.cli.exits import BAD, OK
from replog.client.client import Client
from replog.errors import TimedOut
from replog.runtime.child import BrokerProcess
from replog.runtime.connected import connect
from replog.status.judging import judge

__all__ = ["demo", "differences"]

_TOPIC: Final = "demo"
_BROKERS: Final = (1, 2, 3)
_PARTITIONS: Final = 3
_SESSION_MS: Final = 3_000
_CHUNK: Final = 500
_LOOK_S: Final = 0.1
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Ended(BaseException):
    """A signal has asked it to end: what it has begun is cleaned away first."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def demo(context: Context) -> int:
    """Tell the story step by step; status 1 if a record is missing. However it ends, unless by SIGKILL, its folder goes."""
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_signals())
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="replog-demo-"))
            story = _Story(context, folder)
            wrong = story.run(stack)
        for one in wrong:
            context.output.note(f"WRONG: {one}")
            if context.output.is_json:
                context.output.json({"step": "wrong", "reason": one})
        if not wrong:
            story.say("cleaned", f"the brokers are stopped, {folder} is removed", folder=folder)
        return BAD if wrong else OK
    except _Ended as ended:
        context.output.flush()
        if ended.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        return 128 + ended.number


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """The first signal ends the story; from then on no other one does anything: the process cleans up, and is at its end."""
    if threading.current_thread() is not threading.main_thread():  # signals are none of its business
        yield
        return

    def end(number: int, _frame: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # for good: the interpreter's own end puts no handler in their place
        for one in _SIGNALS:
            signal.signal(one, lambda *_: None)  # what has come by now; to ignore it would have the interpreter complain of a race
        raise _Ended(number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    ended = False
    try:
        yield
    except _Ended:
        ended = True
        raise
    finally:
        for number, handler in before.items() if not ended else ():
            signal.signal(number, handler)


@define
class _Story:
    context: Context
    folder: str

    def say(self, step: str, text: str, **facts: Any) -> None:
        output = self.context.output
        if output.is_json:
            output.json({"step": step, **facts})
        else:
            output.line(f"{step:<10}  {text}")
        output.flush()

    def run(self, stack: contextlib.ExitStack) -> list[str]:
        """All of it but the end. What is wrong with what was read back."""
        store = f"file://{quote(self.folder)}/metadata.db"
        config = {"session_ms": _SESSION_MS, "heartbeat_ms": _SESSION_MS // 4}
        brokers = {n: BrokerProcess(n, data=f"{self.folder}/broker-{n}", store=store, config=config) for n in _BROKERS}
        for broker in brokers.values():
            stack.callback(broker.kill)  # what it has written goes anyway
            broker.start()
        pids = {n: broker.pid for n, broker in brokers.items()}
        names = ", ".join(f"{n} (process {pid})" for n, pid in pids.items())
        self.say("started", f"brokers {names}", folder=self.folder, processes=list(pids.values()))
        self.say("files", f"{self.folder}: logs and metadata.db", files=sorted(os.listdir(self.folder)))
        client = stack.enter_context(connect(",".join(broker.endpoint for broker in brokers.values())))
        client.create_topic(_TOPIC, partitions=_PARTITIONS, replication_factor=len(_BROKERS), min_isr=2)
        wanted: dict[int, list[str]] = {}
        half = self.context.arguments.records
        _append(client, range(half), wanted)
        self.say("written", f"{half} records to {_PARTITIONS} partitions of 3 copies, acks=all", records=half)
        self._kill_a_leader(client, brokers, wanted)
        _append(client, range(half, 2 * half), wanted)
        self.say("written", f"{half} records more, with one broker dead", records=half)
        wrong = differences(wanted, _read(client))
        if wrong:
            return wrong
        total = sum(map(len, wanted.values()))
        self.say("read back", f"{total} records: every acknowledged one is there once, in order", records=total)
        self._restart(client, next(broker for broker in brokers.values() if not broker.is_running))
        return differences(wanted, _read(client))

    def _kill_a_leader(self, client: Client, brokers: Mapping[int, BrokerProcess], wanted: dict[int, list[str]]) -> None:
        lost = client.leader(_TOPIC, 0)
        led = [p.partition for p in client.describe(_TOPIC).partitions if p.leader == lost]
        brokers[lost].kill()
        places = ", ".join(f"{_TOPIC}-{n}" for n in led)
        self.say("killed", f"broker {lost} with SIGKILL; it led {places}", broker=lost, led=led)
        begun = time.monotonic()
        client.append(_TOPIC, 0, [text := f"the first record after broker {lost}"])
        wanted.setdefault(0, []).append(text)
        seconds = round(time.monotonic() - begun, 1)
        now = client.describe(_TOPIC).partitions[0]
        facts = {"leader": now.leader, "epoch": now.leader_epoch, "isr": list(now.isr), "seconds": seconds}
        text = f"broker {now.leader} leads {_TOPIC}-0, in epoch {now.leader_epoch}; an append waited {seconds} s for it"
        self.say("failover", text, **facts)

    def _restart(self, client: Client, broker: BrokerProcess) -> None:
        broker.start()
        rest, patience_s = threading.Event(), self.context.timeout_s or 0.0
        give_up = time.monotonic() + patience_s
        while not judge(client._view(self.context.timeout_s))["healthy"]:
            if time.monotonic() > give_up:
                raise TimedOut(f"broker {broker.broker_id} is not in sync again within {patience_s:g} s")
            rest.wait(_LOOK_S)
        self.say("restarted", f"broker {broker.broker_id}: every partition has its 3 copies in sync again", broker=broker.broker_id)


def _append(client: Client, numbers: range, wanted: dict[int, list[str]]) -> None:
    with client.producer(acks="all") as producer:
        for at in range(0, len(numbers), _CHUNK):
            for partition in range(_PARTITIONS):
                texts = [f"record {n}" for n in numbers[at : at + _CHUNK] if n % _PARTITIONS == partition]
                if texts:
                    producer.send_many(_TOPIC, texts, partition=partition).result()
                    wanted.setdefault(partition, []).extend(texts)


def _read(client: Client) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for record in client.read(_TOPIC):
        found.setdefault(record.partition, []).append(record.text())
    return found


def differences(wanted: Mapping[int, Sequence[str]], found: Mapping[int, Sequence[str]]) -> list[str]:
    """Where what was read is not what was acknowledged, in sentences."""
    return [
        f"{_TOPIC}-{n}: {len(wanted.get(n, ()))} records were acknowledged; read were {len(found.get(n, ()))}, or others"
        for n in sorted({*wanted, *found})
        if list(wanted.get(n, ())) != list(found.get(n, ()))
    ]
