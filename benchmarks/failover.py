"""What `test_failover.py` measures with: three brokers that note what happens to them, and the bare limit at the same ZooKeeper."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient

import replog
from replog.metadata import layout
from replog.testing.eventually import eventually

__all__ = ["DEAD", "SESSION_MS", "Bare", "Failover", "Trio", "assignments"]

SESSION_MS = 15_000
"""Longer than it need be: where others use the processors as well, silence would be taken for death."""
DEAD = 3
TOPIC_PARTITIONS = 1_000
MULTI = 1_000
"""Nodes in each multi of the bare limit."""
WAIT_S = 120.0


def assignments(partitions: int, leader: int = DEAD) -> dict[str, dict[int, list[int]]]:
    """Topic -> partition -> replicas, so many partitions in all; the leader is the same everywhere, and who follows it alternates."""
    one, other = (b for b in (1, 2, 3) if b != leader)
    starts = range(0, partitions, TOPIC_PARTITIONS)
    return {
        f"topic-{number:03}": {
            p: [leader, one, other] if p % 2 else [leader, other, one] for p in range(min(TOPIC_PARTITIONS, partitions - start))
        }
        for number, start in enumerate(starts)
    }


class NotedBroker:
    """One broker process; see `failover_broker.py`."""

    def __init__(self, broker_id: int, store: str, data: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("failover_broker.py")), str(broker_id), store, str(data), str(SESSION_MS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        word, self.endpoint = self._line().split()
        assert word == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return line

    def say(self, word: str) -> None:
        """No answer is expected."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def ask(self, word: str) -> Any:
        """The answer."""
        self.say(word)
        return json.loads(self._line())

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Trio:
    """Three brokers at ZooKeeper with so many partitions. Broker 3 leads all of them; `controller` comes first and has the seat."""

    def __init__(self, zookeeper: str, folder: Path, partitions: int, controller: int) -> None:
        self.partitions = partitions
        self._store = f"zookeeper://{zookeeper}"
        self._folder = folder
        self.brokers: dict[int, NotedBroker] = {}
        self._left = ExitStack()
        try:
            self._begin(controller)
        except BaseException:
            self.close()
            raise

    def _begin(self, controller: int) -> None:
        for broker_id in (controller, *({1, 2, 3} - {controller})):
            self.start(broker_id)
        self.client = self._left.enter_context(replog.connect([self.brokers[b].endpoint for b in (1, 2, 3)]))
        topics = assignments(self.partitions)
        for topic, assignment in topics.items():
            self.client.create_topic(topic, assignment=assignment, min_isr=2, timeout_s=WAIT_S)
        self.topics = list(topics)
        self.places = [(topic, partition) for topic, assignment in topics.items() for partition in assignment]
        self.append_to_all()

    def start(self, broker_id: int) -> None:
        """A broker, once it is let in."""
        self.brokers[broker_id] = NotedBroker(broker_id, self._store, self._folder / f"b{broker_id}")

    def append_to_all(self) -> float:
        """Append a record to every partition, acks=all; when the last was committed."""
        with self.client.producer(compression=None) as producer:
            sent = [producer.send(topic, b"x" * 100, partition=partition) for topic, partition in self.places]
            producer.flush()
            for delivery in sent:
                delivery.result(timeout_s=WAIT_S)
        return time.monotonic()

    def states(self) -> dict[int, Any]:
        """What the survivors have seen."""
        return {b: self.brokers[b].ask("state") for b in sorted(self.brokers)}

    def fail_over(self) -> Failover:
        """Kill the leader of everything, and wait until everything is led and both others have said so."""
        dead = self.brokers.pop(DEAD)
        for broker in self.brokers.values():
            broker.say("forget")
        self.states()
        killed_s = time.monotonic()
        dead.kill()
        gone_s = time.monotonic()

        def over() -> dict[int, Any]:
            seen = self.states()
            stored = [one for one in seen.values() if one["controller"] and one["puts"] >= self.partitions]
            return seen if any(not one["due"] and not one["unacknowledged"] for one in stored) else {}

        return Failover(self, killed_s, gone_s, eventually(over, WAIT_S, every_s=0.05))

    def close(self) -> None:
        """Kill everything."""
        self._left.close()
        for broker in self.brokers.values():
            broker.kill()
        self.brokers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Failover:
    """What happened when: seconds after the watch fired, but for the first two stages."""

    def __init__(self, trio: Trio, killed_s: float, gone_s: float, seen: dict[int, Any]) -> None:
        self._trio, self._seen = trio, seen
        (self.controller,) = [one for one in seen.values() if one["controller"]]
        self._watch_s = watch_s = self.controller["watch_s"]
        answered_s = max(self.controller["answered_s"].values())
        self.total_s = max(self.controller["committed_s"], answered_s) - watch_s
        self.from_kill_s = watch_s + self.total_s - killed_s
        self.loaded_s = max(0.0, self.controller["loaded_s"] - watch_s)
        self.committed_s = 0.0
        self.stages = {
            "1 the broker ends": gone_s - killed_s,
            "2 ... until its session ends, a watch fires": watch_s - gone_s,
            **({"  a new controller has read everything": self.loaded_s} if self.loaded_s else {}),
            "3 every new state is stored": self.controller["committed_s"] - watch_s,
            "4 every broker was told, and has answered": answered_s - watch_s,
        }

    def cpu_s(self) -> dict[str, float]:
        """Processor time from the kill until everybody had answered, some seconds of waiting for the watch included."""
        return {"controller" if one["controller"] else "other": one["cpu_s"] for one in self._seen.values()}

    def append(self) -> None:
        """Append to each partition; followers have connected by then, which nobody waits for otherwise."""
        self.committed_s = self._trio.append_to_all() - self._watch_s
        seen = self._trio.states().values()
        truncated = sum(one["truncations"] for one in seen)
        self.stages["5 every follower has asked its new leader"] = max(one["fetch_s"] for one in seen) - self._watch_s
        self.stages[f"6 ... and agrees with it ({truncated} truncations)"] = max(one["agreed_s"] for one in seen) - self._watch_s
        self.stages["  a record committed in every partition"] = self.committed_s


class Bare:
    """The same nodes without replog: same lengths of paths and values, and as many in a multi."""

    def __init__(self, zookeeper: str, trio: Trio, chroot: str, bare_chroot: str) -> None:
        assert len(chroot) == len(bare_chroot)
        self.client = KazooClient(zookeeper, timeout=20.0)
        self.client.start(timeout=20)
        self._real = [f"{chroot}{layout.partition_state_path(*place)}" for place in trio.places]
        self._paths = [f"{bare_chroot}{layout.partition_state_path(*place)}" for place in trio.places]
        self._epoch = f"{bare_chroot}{layout.CONTROLLER_EPOCH}"
        self.client.create(self._epoch, b"1", makepath=True)
        self._values = [value for value, _ in self.read()]
        for topic in trio.topics:
            self.client.create(f"{bare_chroot}{layout.topic_path(topic)}", makepath=True)
        made = [self.client.create_async(path.rsplit("/", 1)[0]) for path in self._paths]
        made += [self.client.create_async(path, b"") for path in self._paths]
        for one in made:
            one.get(timeout=WAIT_S)
        self._version = 0

    def read(self) -> list[Any]:
        """Every state, all reads on their way at once."""
        return [one.get(timeout=WAIT_S) for one in [self.client.get_async(path) for path in self._real]]

    def read_s(self) -> float:
        """How long that takes."""
        began_s = time.monotonic()
        self.read()
        return time.monotonic() - began_s

    def multis_s(self) -> tuple[float, float]:
        """How long it takes to change them all, each under its version, every multi on its way before the first answer; and how
        much processor time of this process."""
        began_s, cpu_s = time.monotonic(), time.process_time()
        sent = []
        for at in range(0, len(self._paths), MULTI):
            multi = self.client.transaction()
            multi.check(self._epoch, 0)
            for path, value in zip(self._paths[at : at + MULTI], self._values[at : at + MULTI], strict=True):
                multi.set_data(path, value, self._version)
            sent.append(multi.commit_async())
        for one in sent:
            assert not any(isinstance(answer, Exception) for answer in one.get(timeout=WAIT_S))
        self._version += 1
        return time.monotonic() - began_s, time.process_time() - cpu_s

    def one_by_one_s(self) -> float:
        """How long it takes to change them all by a call for each, under its version, the next once the last is answered."""
        began_s = time.monotonic()
        for path, value in zip(self._paths, self._values, strict=True):
            self.client.set(path, value, self._version)
        self._version += 1
        return time.monotonic() - began_s

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()
