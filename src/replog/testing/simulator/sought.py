"""Topics that nobody creates: clients write to them and read from them, and the brokers make them, or do not (`auto_create_topics`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replog.client.operations import AT_LATEST
from replog.client.writer import Writer
from replog.errors import InvalidReplicationFactor, PolicyViolation, ReplogError, UnknownTopicOrPartition
from replog.testing.simulator.clients import SimulatedClient
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.workload import Workload

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["Seek"]

_PREFIX: Final = "sought-"
_EVERY_MS: Final = 12_000
"""So often there is another name."""
_REFUSALS: Final = (UnknownTopicOrPartition, PolicyViolation, InvalidReplicationFactor)


class Seek(Workload):
    """W10: seeks topics that nobody creates, all clients the same ones. Each is made once, and keeps what was appended to it; where the
    brokers make none, or there are too many topics, it is refused as documented."""

    name = "seek"

    def __init__(self) -> None:
        self._kept: dict[str, set[bytes]] = {}
        """Name -> the ids of topics of that name to which something was appended."""

    async def work(self, client: SimulatedClient) -> None:
        """One operation at a time, mostly on the newest name."""
        world, chance = client.world, client.chance
        writer = client.writer()
        while not world.calm:
            newest = world.now_ms // _EVERY_MS
            name = f"{_PREFIX}{newest if chance.random() < 0.7 else chance.randint(0, newest)}"
            try:
                await self._use(client, name, writer)
            except ReplogError as error:
                self._refused(world, name, error)
            else:
                world.marks.hit("a topic that was sought is used")
                if not world.config.auto_create_topics:
                    raise Violation("sought", f"topic {name!r} is used; nobody creates it, and brokers make none")
            await client.rest(chance.choice((1, 300, 1_000, 3_000)))

    async def _use(self, client: SimulatedClient, name: str, writer: Writer) -> None:
        what = client.chance.random()
        if what < 0.6:
            await client.append(name, client.chance.randrange(2), client.values(client.chance.choice((1, 3))), writer=writer)
            self._kept.setdefault(name, set()).add(client.acknowledged[-1].identity.topic_id)
        elif what < 0.8:
            await client.fetch(name, 0, 0)
        else:
            await client.offset(name, 0, AT_LATEST)

    def _refused(self, world: World, name: str, error: ReplogError) -> None:
        world.marks.hit(f"a topic that was sought is not used: {type(error).__name__}")
        if not isinstance(error, _REFUSALS):
            return
        if not world.config.auto_create_topics:
            world.marks.hit("a topic that was sought is not made")
            right: bool = isinstance(error, UnknownTopicOrPartition)
        elif isinstance(error, PolicyViolation):
            world.marks.hit("a topic that was sought is one too many")
            right = world.wishes.topics_most >= world.config.auto_create_topics_max
        else:
            right = isinstance(error, InvalidReplicationFactor)
        if not right:
            most = f"there were {world.wishes.topics_most} topics at most"
            limit = f"auto_create_topics is {world.config.auto_create_topics}, the limit {world.config.auto_create_topics_max}"
            raise Violation("sought", f"topic {name!r} is refused with {error!r}; {most}; {limit}")

    def check(self, world: World) -> None:
        """There was one topic of each name at most, it is still there, and it is the one to which everything was appended."""
        for topic_id, topic in world.wishes.topics.items():
            kept = self._kept.get(topic.name, {topic_id})
            if topic.name.startswith(_PREFIX) and (topic.gone or kept != {topic_id}):
                ids = sorted(one.hex() for one in kept)
                raise Violation("sought", f"topic {topic.name!r} is {topic_id.hex()}, gone {topic.gone}; records were kept in {ids}")
        there = [topic.name for topic in world.wishes.topics.values()]
        for name in self._kept:
            if there.count(name) != 1:
                raise Violation("sought", f"topic {name!r} was made {there.count(name)} times")
