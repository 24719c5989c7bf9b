"""Machines that are put back to an earlier image of themselves, with a producer inside: what it did since it does not know."""

from __future__ import annotations

from replog.client.writer import Writer
from replog.errors import ReplogError
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.workload import Workload

__all__ = ["Restored"]


class Restored(Workload):
    """Appends, is put back to an image taken on the way, and goes on with other records under sequences that it has used.

    That they are refused is right, and that they are stored after all under another epoch of the producer; that they are
    confirmed at the offsets of the records that had those sequences before is S12.
    """

    name = "restored"

    async def work(self, client: SimulatedClient) -> None:
        """One producer after another."""
        chance, marks = client.chance, client.world.marks
        while not client.world.calm:
            writer, partition = client.writer(), chance.randrange(client.world.plan.shape.partitions)
            await self._append(client, writer, partition, chance.randint(0, 3))
            image = client.image(writer)
            await self._append(client, writer, partition, chance.randint(1, 4))
            marks.hit("a producer is put back to an image of it")
            if not await self._append(client, client.restored(image), partition, chance.randint(1, 4)):
                marks.hit("a producer that was put back is refused")
            await client.think()

    async def _append(self, client: SimulatedClient, writer: Writer, partition: int, count: int) -> bool:
        """So many batches, one after the other, up to the first that fails; whether all of them were confirmed."""
        try:
            for _ in range(count):
                if client.world.calm:
                    break
                await client.append(TOPIC, partition, client.values(client.chance.choice((1, 1, 2))), writer=writer)
        except ReplogError:
            return False  # the client notes it
        return True
