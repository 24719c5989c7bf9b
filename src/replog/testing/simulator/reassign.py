"""Partitions that are moved to other brokers while faults happen."""

from __future__ import annotations

from replog.client.balancing import balanced
from replog.errors import ReplogError
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.racks import is_balanced
from replog.testing.simulator.workload import Workload

__all__ = ["Reassign"]


class Reassign(Workload):
    """W7: moves partitions of the run's own topic, changes its mind, and sometimes goes back."""

    name = "reassign"

    async def work(self, client: SimulatedClient) -> None:
        """One wish at a time, before or after the last has come true."""
        world, chance = client.world, client.chance
        shape = world.plan.shape
        while not world.calm:
            partition = chance.randrange(shape.partitions)
            count = min(shape.brokers, shape.replicas + (chance.random() < 0.2))
            target = None if chance.random() < 0.2 else chance.sample(range(1, shape.brokers + 1), count)
            if shape.racks and target is not None and chance.random() < 0.5:
                target = self._balanced(client, partition) or target
            verb, arguments = "reassign", {"partitions": [[TOPIC, partition, target]]}
            if chance.random() < 0.1:
                verb, arguments = "list_reassignments", {}
            try:
                result = await client.admin(verb, arguments)
                errors = [code for *_, code, _ in result.get("errors", ())]
                what = "cancelled" if target is None else "asked for"
                world.marks.hit("a reassignment is refused" if errors else f"a reassignment is {what} while faults happen")
            except ReplogError as error:
                world.marks.hit(f"a reassignment is not answered: {type(error).__name__}")
            await client.rest(chance.choice((20, 1_000, 5_000, 12_000)))


    def _balanced(self, client: SimulatedClient, partition: int) -> list[int] | None:
        """Where a balanced placement over the brokers that the client knows would put it, as `replog reassign generate` does."""
        view, racks = client.core.view, client.world.plan.shape.racks
        known = view.topics.get(TOPIC)
        places = {} if known is None else {(TOPIC, number): place.replicas for number, place in known.partitions.items()}
        if (TOPIC, partition) not in places or any(len(replicas) > len(view.brokers) for replicas in places.values()):
            return None
        for (_, number), replicas in (found := balanced(places, {b: info.rack for b, info in view.brokers.items()})).items():
            if not is_balanced(racks, replicas, view.brokers):
                where = f"on brokers {sorted(view.brokers)} in racks {'+'.join(racks)}"
                raise Violation("racks", f"a balanced placement of partition {number} is {list(replicas)} {where}")
        client.world.marks.hit("a balanced placement is asked for")
        return list(found[TOPIC, partition])
