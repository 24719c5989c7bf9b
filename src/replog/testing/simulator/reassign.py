"""Partitions that are moved to other brokers while faults happen."""

from __future__ import annotations

from collections import Counter

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
                target = self._balanced(client, count) or target
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

    def _balanced(self, client: SimulatedClient, count: int) -> list[int] | None:
        """So many brokers, spread over the racks as this client knows them; None if it does not know so many."""
        brokers, racks = client.core.view.brokers, client.world.plan.shape.racks
        taken: Counter[str | None] = Counter()
        turns: list[tuple[int, int]] = []
        for broker in client.chance.sample(sorted(brokers), len(brokers)):
            turns.append((taken[brokers[broker].rack], broker))
            taken[brokers[broker].rack] += 1
        chosen = [broker for _, broker in sorted(turns, key=lambda turn: turn[0])[:count]]
        if len(chosen) < count:
            return None
        if not is_balanced(racks, chosen, brokers):
            known = {broker: brokers[broker].rack for broker in sorted(brokers)}
            raise Violation("racks", f"{chosen} is spread by what client {client.number} knows, {known}; racks are {'+'.join(racks)}")
        client.world.marks.hit("a balanced placement is asked for")
        return chosen
