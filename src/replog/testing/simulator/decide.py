"""A person who does not wait for complete copies to come back, and asks for unclean elections."""

from __future__ import annotations

from contextlib import suppress

from replog.errors import Code, ReplogError
from replog.metadata import layout
from replog.metadata.wishes import encode_elect
from replog.ports import Create
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.ledger import Ledger, Violation
from replog.testing.simulator.workload import Workload

__all__ = ["Decide"]


class Decide(Workload):
    """Asks by request and in the store: for partitions that nobody leads, and for others, where it is refused; sometimes twice at once."""

    name = "decide"

    async def work(self, client: SimulatedClient) -> None:
        """One wish at a time, or two."""
        world, chance = client.world, client.chance
        while not world.calm:
            ledgers = [one for one in world.checks.expected() if one.topic == TOPIC and one.state is not None]
            waiting = [one for one in ledgers if one.state is not None and one.state.leader is None]
            if waiting and chance.random() < 0.9:
                asked = waiting[:1] if chance.random() < 0.5 else waiting
            else:
                asked = [chance.choice(ledgers)] if ledgers and chance.random() < 0.3 else []
            if asked and chance.random() < 0.2:
                self._write(client, asked[0])
            elif asked:
                if chance.random() < 0.3:
                    world.spawn(f"{self.name} {client.number}", self._ask(client, asked))
                await self._ask(client, asked)
            await client.rest(chance.choice((50, 200, 1_000)))

    async def _ask(self, client: SimulatedClient, asked: list[Ledger]) -> None:
        before = [one.state for one in asked]
        named = None if len(asked) > 1 and client.chance.random() < 0.3 else [[TOPIC, one.identity.partition] for one in asked]
        marks = client.world.marks
        try:
            result = await client.admin("elect", {"partitions": named, "unclean": True, "to": None})
        except ReplogError as error:
            marks.hit(f"an unclean election is not answered: {type(error).__name__}")
            return
        codes = {partition: code for topic, partition, code, _ in result["partitions"] if topic == TOPIC}
        for ledger, state in zip(asked, before, strict=True):
            code = codes.get(ledger.identity.partition)
            if code == Code.ELECTION_NOT_NEEDED:
                marks.hit("an unclean election is not needed")
            elif code:
                marks.hit("an unclean election is refused")
            elif code == 0:
                marks.hit("an unclean election is asked for and done")
                if state is not None and ledger.state is not None and state.leader_epoch == ledger.state.leader_epoch:
                    raise Violation("asked", f"an unclean election of {TOPIC}-{ledger.identity.partition} is granted: {state} is as it was")

    def _write(self, client: SimulatedClient, asked: Ledger) -> None:
        """A tool that only knows the store."""
        ops = [Create(layout.elect_path(TOPIC, asked.identity.partition), encode_elect(unclean=True))]
        with suppress(ReplogError):  # there is one already
            client.world.root.commit(ops)
            client.world.applied(ops)
