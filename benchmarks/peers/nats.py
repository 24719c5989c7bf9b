"""NATS JetStream as a peer: three servers on loopback, and a stream of three replicas that acknowledges by the quorum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.servers import NODES, PATIENCE_S, Needs, Servers, free_ports

__all__ = ["NEEDS", "WINDOW", "JetStream", "jetstream_servers"]

NEEDS = Needs(program="nats-server", debian="nats-server", module="nats", pypi="nats-py")
WINDOW = 2000
"""Messages that wait for an acknowledgement at a time; more do not make it faster."""
_STREAM = "S"
_SUBJECT = "s"
_PENDING_BYTES = 64 << 20
_FORMING_S = 1  # a server without a leader of the cluster does not answer at all


class JetStream:
    """A connection to the server that leads the stream. Its loop runs only while something is asked of it."""

    def __init__(self, runner: asyncio.Runner, context: Any) -> None:
        self._runner = runner
        self._context = context

    def append_each(self, value: bytes, count: int) -> list[float]:
        """Publish it so often, each after the last one is acknowledged; returns the seconds that each took."""

        async def each() -> list[float]:
            taken = []
            for _ in range(count):
                begin = time.perf_counter()
                await self._context.publish(_SUBJECT, value)
                taken.append(time.perf_counter() - begin)
            return taken

        return self._runner.run(each())

    def append(self, values: Sequence[bytes]) -> None:
        """Publish them, a window at a time; returns once all are acknowledged. Raises what the server answered if one was not."""

        async def window() -> None:
            acknowledgements = [await self._context.publish_async(_SUBJECT, value) for value in values]
            await asyncio.wait_for(asyncio.gather(*acknowledgements), PATIENCE_S)

        self._runner.run(window())

    def forget(self) -> None:
        """Free what was appended."""
        self._runner.run(self._context.purge_stream(_STREAM))


@contextmanager
def jetstream_servers(folder: Path) -> Iterator[JetStream]:
    """Three servers and a stream with three replicas in files; yields a connection to the leader of the stream.

    A message is acknowledged once a quorum has written it; files are fsynced every two minutes, as is the server's default.
    """
    nats = import_module("nats")
    ports = free_ports(2 * NODES)
    clients, routes = ports[:NODES], ports[NODES:]
    urls = [f"nats://127.0.0.1:{port}" for port in clients]
    mesh = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
    with Servers(folder) as servers, asyncio.Runner() as runner:
        for number in range(NODES):
            name = f"nats-{number}"
            command = [NEEDS.server(), "--addr", "127.0.0.1", "--port", str(clients[number]), "--name", name]
            command += ["--jetstream", "--store_dir", str(folder / name)]
            command += ["--cluster_name", "peers", "--cluster", f"nats://127.0.0.1:{routes[number]}", "--routes", mesh]
            servers.start(name, command)
        servers.listening(*clients)

        async def ready() -> str | None:
            """The server that leads the stream, once all replicas of it follow."""
            connection = await nats.connect(urls[0])
            context = connection.jetstream(timeout=_FORMING_S)
            try:
                config = nats.js.api.StreamConfig(name=_STREAM, subjects=[_SUBJECT], num_replicas=NODES, storage="file")
                await context.add_stream(config)
                cluster = (await context.stream_info(_STREAM)).cluster
                following = [replica for replica in cluster.replicas or [] if replica.current]
                return urls[int(cluster.leader[-1])] if cluster.leader and len(following) == NODES - 1 else None
            except (TimeoutError, nats.errors.Error):
                return None  # the cluster has not formed yet
            finally:
                await connection.close()

        leader = servers.eventually(lambda: runner.run(ready()))
        connection = runner.run(nats.connect(leader, pending_size=_PENDING_BYTES, allow_reconnect=False))
        try:
            yield JetStream(runner, connection.jetstream(timeout=PATIENCE_S, publish_async_max_pending=WINDOW))
        finally:
            runner.run(connection.close())
