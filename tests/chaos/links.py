"""What lies between brokers and clients: a network of proxies, one before each broker, that cuts, slows, delays, repeats and resets.

Whoever connects says who it is in its first frame; so a link has two ends and two directions, and what befalls one direction does not
befall the other. A direction that is cut holds what it is given, as TCP does while its packets are lost; it arrives when it is mended.
Everything goes on by whole frames. It runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Self

from attrs import define, field

from replog.codec import decode, frame_length

__all__ = ["CLIENT", "Link", "Links"]

CLIENT: Final = 0
"""The end of a link that is no broker: brokers here have numbers from 1."""
_HEAD_BYTES: Final = 4
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset."""


@define
class Link:
    """One direction between two ends: what becomes of its frames."""

    cut: bool = False
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    """How much goes through; 0: as much as there is."""
    repeats: float = 0.0
    """The chance that a frame is delivered twice."""


@define(eq=False)
class _Connection:
    source: int
    target: int
    ends: list[asyncio.StreamWriter] = field(factory=list)

    def reset(self) -> None:
        """End both ends as a machine does that knows nothing of them."""
        for end in self.ends:
            with suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()


class Links:
    """Proxies for brokers at `targets`: broker -> the port where it listens. `addresses` says where their proxies are."""

    def __init__(self, targets: dict[int, int], *, seed: int = 0) -> None:
        self.addresses: dict[int, str] = {}
        self.connections: list[_Connection] = []
        """Those that are open now, for the thread of the proxies."""
        self.repeated = 0
        """Frames that were delivered twice."""
        self.targets = targets
        self._chance = random.Random(seed)
        self._servers: list[asyncio.Server] = []
        self._links: dict[tuple[int, int], Link] = {}
        self._mended = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for broker in self.targets:
            self.addresses[broker] = self._call(self._serve(broker))
        return self

    def __exit__(self, *problem: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    # ---------------------------------------------------------------------------------------------------------- faults

    def change(self, pairs: list[tuple[int, int]], **changes: Any) -> None:
        """Have these directions (from, to) do something else: fields of `Link`."""

        async def change() -> None:
            for pair in pairs:
                link = self._link(*pair)
                for name, value in changes.items():
                    setattr(link, name, value)
            self._mended.set()
            self._mended.clear()

        self._call(change())

    def mend(self) -> None:
        """All directions are as at first."""
        self.change(list(self._links), cut=False, delay_s=0.0, bytes_per_s=0.0, repeats=0.0)

    def reset(self, broker: int) -> int:
        """End every connection of a broker, in the middle of whatever is under way; returns how many."""

        async def reset() -> int:
            hit = [one for one in self.connections if broker in (one.source, one.target)]
            for one in hit:
                one.reset()
            return len(hit)

        return int(self._call(reset()))

    # ---------------------------------------------------------------------------------------------------------- running

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _link(self, source: int, target: int) -> Link:
        return self._links.setdefault((source, target), Link())

    async def _serve(self, broker: int) -> str:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, EOFError):
                await self._carry(broker, reader, writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        return f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _carry(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first frame to its end."""
        connection = _Connection(CLIENT, broker, [writer])
        self.connections.append(connection)
        try:
            first = await _frame(reader)
            connection.source = max(decode(first).broker_id, CLIENT)
            there, back = self._link(connection.source, broker), self._link(broker, connection.source)
            await self._pass(there)
            answers, onward = await asyncio.open_connection("127.0.0.1", self.targets[broker])
            connection.ends.append(onward)
            onward.write(first)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, onward, there))
                both.create_task(self._forward(answers, writer, back))
        except* (OSError, EOFError):
            pass
        finally:
            self.connections.remove(connection)
            for end in connection.ends:
                end.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
        """Frame by frame, until one end ends: that ends the other."""
        while True:
            frame = await _frame(reader)
            late_s = link.delay_s * self._chance.uniform(0.5, 1.0)
            if link.bytes_per_s:
                late_s += len(frame) / link.bytes_per_s
            await self._hold(late_s)
            await self._pass(link)
            writer.write(frame)
            if link.repeats and self._chance.random() < link.repeats:
                self.repeated += 1
                writer.write(frame)
            await writer.drain()

    async def _hold(self, seconds: float) -> None:
        if seconds:
            over = asyncio.Event()
            self._loop.call_later(seconds, over.set)
            await over.wait()

    async def _pass(self, link: Link) -> None:
        while link.cut:
            await self._mended.wait()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for one in list(self.connections):
            one.reset()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_HEAD_BYTES)
    return head + await reader.readexactly(frame_length(head) - _HEAD_BYTES)
