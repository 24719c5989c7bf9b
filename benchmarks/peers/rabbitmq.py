"""RabbitMQ streams as a peer: three nodes on loopback, and a stream of three replicas that confirms by the quorum."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.servers import NODES, PATIENCE_S, Needs, Servers, free_ports

__all__ = ["NEEDS", "Stream", "rabbitmq_servers"]

NEEDS = Needs(program="rabbitmq-server", debian="rabbitmq-server", module="rstream", pypi="rstream")
FRAME_RECORDS = 1000
WINDOW = 20_000
"""Records that wait for a confirmation at a time; more do not make it faster."""
_STREAM = "s"
_GUEST = {"username": "guest", "password": "guest"}
_DEBIAN_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # what is in /usr/sbin there is a script that becomes another user first


class Stream:
    """A producer, connected to the leader of the stream. Its loop runs only while something is asked of it."""

    def __init__(self, runner: asyncio.Runner, producer: Any) -> None:
        self._runner = runner
        self._producer = producer

    def append_each(self, value: bytes, count: int) -> list[float]:
        """Send it so often, each after the last one is confirmed; returns the seconds that each took."""

        async def each() -> list[float]:
            taken = []
            for _ in range(count):
                begin = time.perf_counter()
                await self._producer.send_wait(_STREAM, value, timeout=PATIENCE_S)
                taken.append(time.perf_counter() - begin)
            return taken

        return self._runner.run(each())

    def append(self, values: Sequence[bytes], mode: str) -> None:
        """Send them, a window at a time; returns once all are confirmed. Raises RuntimeError if one was not.

        `mode` is "records", each of which the server knows, in frames of 1,000; or "sub-entries" of 1,000 records, which the server
        takes as one. The client keeps sub-entries until the next time that its timer comes round, every 0.5 s: all are under way.
        """
        self._runner.run(asyncio.wait_for(self._append(values, mode == "sub-entries"), PATIENCE_S))

    async def _append(self, values: Sequence[bytes], sub_entries: bool) -> None:
        frames = [values[at : at + FRAME_RECORDS] for at in range(0, len(values), FRAME_RECORDS)]
        places = asyncio.Semaphore(len(frames) if sub_entries else WINDOW // FRAME_RECORDS)
        waiting = len(frames) if sub_entries else len(values)
        failures: list[int] = []
        done = asyncio.Event()

        def on_confirm(status: Any) -> None:
            nonlocal waiting
            waiting -= 1
            if not status.is_confirmed:
                failures.append(status.response_code)
            if waiting % FRAME_RECORDS == 0:
                places.release()
            if waiting == 0:
                done.set()

        send = self._producer.send_sub_entry if sub_entries else self._producer.send_batch
        for frame in frames:
            await places.acquire()
            await send(_STREAM, frame, on_publish_confirm=on_confirm)
        await done.wait()
        if failures:
            raise RuntimeError(f"rabbitmq-server: {len(failures)} confirmations are failures, the first with code {failures[0]}")


@contextmanager
def rabbitmq_servers(folder: Path) -> Iterator[Stream]:
    """Three nodes and a stream with three replicas; yields a producer.

    A record is confirmed once a quorum has written it. Streams leave fsync to the operating system, always.
    """
    rstream = import_module("rstream")
    program = _DEBIAN_SERVER if Path(_DEBIAN_SERVER).exists() else NEEDS.server()
    epmd, *ports = free_ports(1 + 3 * NODES)
    amqp, streams, between = ports[:NODES], ports[NODES : 2 * NODES], ports[2 * NODES :]
    names = [f"peer{number}@localhost" for number in range(NODES)]
    with Servers(folder) as servers, asyncio.Runner() as runner:
        servers.start("epmd", ["epmd", "-address", "127.0.0.1", "-port", str(epmd)])
        servers.listening(epmd)
        for number in range(NODES):
            home = folder / f"rabbitmq-{number}"
            _configure(home, amqp[number], streams[number], names)
            environment = _environment(home, names[number], between[number], epmd)
            servers.start(home.name, [program], env=environment)
        servers.listening(*amqp, *streams)

        async def start() -> Any:
            producer = rstream.Producer("127.0.0.1", port=streams[0], **_GUEST)
            await producer.start()
            return producer

        async def ready(producer: Any) -> bool:
            """Whether the stream has all its replicas."""
            try:
                await producer.create_stream(_STREAM, arguments={"initial-cluster-size": NODES}, exists_ok=True)
            except rstream.exceptions.ServerError:
                return False
            client = await producer.default_client
            _, replicas = await client.query_leader_and_replicas(_STREAM)
            return len(replicas) == NODES - 1

        producer = runner.run(start())
        try:
            servers.eventually(lambda: runner.run(ready(producer)))
            yield Stream(runner, producer)
        finally:
            runner.run(producer.close())


def _configure(home: Path, amqp: int, stream: int, names: Sequence[str]) -> None:
    """Write the files of one node: it listens on loopback alone, and forms a cluster with the others."""
    home.mkdir()
    lines = [f"listeners.tcp.default = 127.0.0.1:{amqp}", f"stream.listeners.tcp.default = 127.0.0.1:{stream}"]
    lines += ["stream.advertised_host = 127.0.0.1", f"stream.advertised_port = {stream}"]
    lines += ["cluster_formation.peer_discovery_backend = classic_config", "disk_free_limit.absolute = 100MB"]
    lines += [f"cluster_formation.classic_config.nodes.{number} = {name}" for number, name in enumerate(names, 1)]
    (home / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
    (home / "advanced.config").write_text("[{kernel, [{inet_dist_use_interface, {127, 0, 0, 1}}]}].\n")
    (home / "plugins").write_text("[rabbitmq_stream].\n")


def _environment(home: Path, name: str, port: int, epmd: int) -> dict[str, str]:
    """Nothing of the machine's own RabbitMQ is read or written; nodes know each other by the cookie in the folder above."""
    return os.environ | {
        "HOME": str(home.parent),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_DIST_PORT": str(port),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_MNESIA_BASE": str(home),
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, so that its process is the server's
    }
