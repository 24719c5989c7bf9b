"""What clients have asked the controller for, compared with what the store then has: topics as they were wished, no others, and for as
long as nobody wished them away.

A wish reaches a controller in copies: its client repeats it, the network may repeat it again. Each copy is good until that
controller has answered it, or can change the store no more because its session has ended. What comes into the store, or goes,
needs a copy that is still good: what became of the others is known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve

from replog.broker.missing import CREATE_MISSING
from replog.config import BrokerConfig, TopicConfig, default_min_isr
from replog.errors import Code, ReplogError
from replog.messages import Admin, AdminAnswer
from replog.metadata import layout
from replog.metadata.wishes import decode_elect
from replog.model import Address, PartitionId
from replog.ports import Create, Delete, Put
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.moves import Moves
from replog.testing.simulator.racks import Placements
from replog.testing.simulator.reshapes import Reshapes

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["Wishes"]

_NAME: Final = "asked"
"""Of the violations."""


@define
class _Topic:
    """A topic that the store has, or had."""

    name: str
    entry: layout.TopicEntry
    made: layout.TopicEntry
    """As it was created."""
    gone: bool = False


class Wishes:
    """The wishes of all clients, and every topic that there ever was, by its id."""

    def __init__(self, placements: Placements | None = None, config: BrokerConfig | None = None) -> None:
        self._asked: dict[tuple[Address, int], Admin] = {}
        """(client, number of its request) -> the wish."""
        self._gone_before: dict[tuple[Address, int], int] = {}
        """Wish for a deletion -> how many topics of that name were gone when it was made."""
        self._in_hand: dict[Address, Admin] = {}
        """Broker -> the wish of a client that it has heard last, and may pass on once."""
        self._open: dict[tuple[Address, Address, int, str], list[tuple[int, Admin]]] = {}
        """(controller, who passed it on, number of the request, what it is known by there) -> each copy that it has not answered, and
        in which of its sessions it was heard."""
        self._going: dict[str, bytes] = {}
        """Name -> the id of the topic whose deletion is stored as a wish."""
        self.topics: dict[bytes, _Topic] = {}
        self._written: set[tuple[str, int]] = set()
        """(topic, partition) of the wishes for unclean elections that stand in the store."""
        self._fulfilled: set[tuple[str, int]] = set()
        """Those that the last transaction has taken away."""
        self._reshapes = Reshapes(self._under_way)
        self._placements = placements or Placements.none()
        self._config = config or BrokerConfig()
        self.sought: set[str] = set()
        """Topics that clients have sought."""
        self.topics_most = 0
        """So many topics there ever were at a time."""
        self._moves = Moves(lambda verb: [copy for copies in self._open.values() for _, copy in copies if copy.verb == verb])

    # ------------------------------------------------------------------------------------------------------- what is said

    def sent(self, sender: Address, to: Address, message: Admin | AdminAnswer) -> None:
        """A wish or an answer leaves a client, a broker or a controller. Raises Violation if nobody has asked for that."""
        if isinstance(message, AdminAnswer):
            self._answered(sender, to, message)
        elif _is_client(sender):
            self._asked[sender, message.request] = message
            self._reshapes.asked((sender, message.request), _name(message))
            if message.verb == "delete_topic":
                self._gone_before.setdefault((sender, message.request), self._gone(_name(message)))
        elif message.verb == CREATE_MISSING:
            if not self._config.auto_create_topics or _name(message) not in self.sought:
                why = f"sought are {sorted(self.sought)}, auto_create_topics is {self._config.auto_create_topics}"
                raise Violation(_NAME, f"broker {sender} has the controller make topic {_name(message)!r}; {why}")
        else:
            heard = self._in_hand.pop(sender, None)
            if heard is None or (heard.request, heard.verb, heard.arguments) != (message.request, message.verb, message.arguments):
                raise Violation(_NAME, f"broker {sender} passes on {message}, it was asked for {heard}")

    def heard(self, address: Address, sender: Address, message: Admin, session: int) -> None:
        """A broker is about to handle a wish of a client; or a controller in office one that was passed on, in a session with the store."""
        if _is_client(sender):
            self._in_hand[address] = message
        else:
            key = (address, sender, message.request, str(message.origin))
            self._open.setdefault(key, []).append((session, message))
            self._placements.heard(key, address)

    def ended(self, session: int) -> None:
        """A session with the store has ended: whoever had it changes nothing any more that was asked of it there."""
        for key, copies in list(self._open.items()):
            copies[:] = [copy for copy in copies if copy[0] != session]
            if not copies:
                del self._open[key]

    def _answered(self, sender: Address, to: Address, answer: AdminAnswer) -> None:
        if not _is_client(to):
            copies = self._open.get((sender, to, answer.request, str(answer.origin)))
            # Who is deposed may still have something under way to the store.
            if copies and answer.error not in (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT):
                copies.pop()
        elif not answer.error:
            wish = self._asked.get((to, answer.request))
            if wish is None:
                raise Violation(_NAME, f"{to} is told that request {answer.request} is granted, and never made it")
            self._granted(to, wish, answer)

    def _granted(self, client: Address, wish: Admin, answer: AdminAnswer) -> None:
        name = _name(wish)
        if wish.verb == "create_topic":
            topic = self.topics.get(bytes.fromhex(answer.result["topic_id"]))
            if topic is None or topic.name != name:
                raise Violation(_NAME, f"the creation of {name!r} is granted as {answer.result}: the store never had such a topic")
            found = _difference(topic.made, wish.arguments)
            if found:
                raise Violation(_NAME, f"the creation of {name!r} is granted, but {found}")
        elif wish.verb == "delete_topic" and self._gone(name) <= self._gone_before[client, wish.request]:
            raise Violation(_NAME, f"the deletion of {name!r} is granted, and the topic is in the store")
        found = self._reshapes.granted((client, wish.request), wish)
        if found:
            raise Violation(_NAME, found)

    def _gone(self, name: str) -> int:
        return sum(topic.gone for topic in self.topics.values() if topic.name == name)

    def _under_way(self, verb: str, name: str) -> list[Admin]:
        """Copies of wishes for this that may still be fulfilled."""
        copies = [copy for copies in self._open.values() for _, copy in copies]
        return [copy for copy in copies if copy.verb == verb and _name(copy) == name]

    def asks_uncleanly(self, topic: str, partition: int) -> bool:
        """Whether somebody has asked for an unclean election of this partition, and may get it now."""
        if (topic, partition) in self._written | self._fulfilled:
            return True
        asked = (copy.arguments for copies in self._open.values() for _, copy in copies if copy.verb == "elect")
        return any(one.get("unclean") and (one.get("partitions") is None or [topic, partition] in one["partitions"]) for one in asked)

    def is_gone(self, identity: PartitionId) -> bool:
        """Whether somebody has wished this partition away, alone or with its topic, and the store has done it."""
        topic = self.topics.get(identity.topic_id)
        if topic is None or topic.gone:
            return topic is not None
        found = topic.entry.partitions.get(identity.partition)
        return found is None or found.creation != identity.creation

    # ----------------------------------------------------------------------------------------------------- what is stored

    def applied(self, ops: list[Any], brokers: int) -> None:
        """The store has committed a transaction, in a cluster of so many brokers."""
        self._fulfilled = set()
        self._reshapes.begin()
        for op in ops:
            if op.path.startswith(layout.ELECT + "/"):
                self._election_changed(op)
            if op.path.startswith(layout.TOPICS + "/") and op.path.count("/") == layout.TOPICS.count("/") + 1:
                self._topic_changed(op, brokers)
            elif op.path.startswith(layout.DELETE_TOPICS + "/"):
                self._deletion_changed(op)
            elif op.path.startswith((layout.PARTITIONS_REASSIGNED + "/", layout.PARTITIONS_REMOVE + "/")):
                moves = op.path.startswith(layout.PARTITIONS_REASSIGNED + "/")
                found = self._moves.applied(op) if moves else self._reshapes.wish_changed(op)
                if found:
                    raise Violation(_NAME, found)

    def _election_changed(self, op: Any) -> None:
        where = layout.place_of(op.path).topic_partition
        if isinstance(op, Create):
            with suppress(ReplogError):
                if decode_elect(op.path, op.value)[0]:
                    self._written.add(where)
        elif isinstance(op, Delete) and where in self._written:
            self._written.discard(where)
            self._fulfilled.add(where)

    def _deletion_changed(self, op: Any) -> None:
        name = op.path.rsplit("/", 1)[1]
        if isinstance(op, Create):
            if not self._under_way("delete_topic", name):
                raise Violation(_NAME, f"a wish to delete {name!r} is stored, and nobody has made it that has not been answered")
            self._going[name] = layout.decode_delete_topic(op.path, op.value)
        elif isinstance(op, Delete):
            self._going.pop(name, None)

    def _topic_changed(self, op: Any, brokers: int) -> None:
        name = op.path.rsplit("/", 1)[1]
        if isinstance(op, Create):
            self._created(name, layout.decode_topic(op.path, op.value), brokers)
        elif isinstance(op, Put):
            self._same(name, layout.decode_topic(op.path, op.value))
        elif isinstance(op, Delete):
            going = self._going.get(name)
            for topic_id, topic in self.topics.items():
                if topic.name == name and not topic.gone:
                    if topic_id != going:
                        stored = "none" if going is None else going.hex()
                        raise Violation(_NAME, f"topic {name!r} of id {topic_id.hex()} is deleted, what is to be deleted is {stored}")
                    topic.gone = True

    def _created(self, name: str, entry: layout.TopicEntry, brokers: int) -> None:
        asked = [wish.arguments for wish in self._under_way("create_topic", name)]
        many = sum(not topic.gone for topic in self.topics.values())
        if self._under_way(CREATE_MISSING, name):
            if not asked and many >= self._config.auto_create_topics_max:
                raise Violation(_NAME, f"topic {name!r} is made because it is sought, and there are {many} topics")
            asked.append(_as_made(self._config))
        self.topics_most = max(self.topics_most, many + 1)
        if not asked:
            raise Violation(_NAME, f"topic {name!r} is created, and nobody has asked for it that has not been answered")
        if entry.topic_id in self.topics:
            raise Violation(_NAME, f"topic {name!r} has the id of {self.topics[entry.topic_id].name!r}: {entry.topic_id.hex()}")
        differences = [_difference(entry, arguments) for arguments in asked]
        if all(differences):
            raise Violation(_NAME, f"topic {name!r} is created, but {differences[0]}")
        strange = sorted({b for one in entry.partitions.values() for b in one.replicas if not 1 <= b <= brokers})
        if strange:
            raise Violation(_NAME, f"topic {name!r} is given to brokers {strange}, of {brokers}")
        self._check_racks(name, ("create_topic", CREATE_MISSING), entry, entry.partitions)
        self.topics[entry.topic_id] = _Topic(name, entry, entry)
        self._reshapes.stored(name, entry)

    def _same(self, name: str, entry: layout.TopicEntry) -> None:
        """A topic is changed in what somebody has asked for, and in nothing else."""
        topic = self.topics.get(entry.topic_id)
        if topic is None or topic.gone:
            raise Violation(_NAME, f"topic {name!r} is changed from {None if topic is None else topic.entry} to {entry}")
        before = topic.entry
        moved = self._moves.judged(name, before.partitions, entry.partitions)
        if moved:
            raise Violation(_NAME, moved)
        reshaped = self._reshapes.judged(name, before, entry)
        if reshaped:
            raise Violation(_NAME, reshaped)
        self._check_racks(name, ("add_partitions",), entry, entry.partitions.keys() - before.partitions)
        topic.entry = entry
        self._reshapes.stored(name, entry)

    def _check_racks(self, name: str, verbs: Container[str], entry: layout.TopicEntry, added: Iterable[int]) -> None:
        """New partitions are spread as they should be, unless somebody has said where they go."""
        wishes = {key: [copy for _, copy in copies if copy.verb in verbs and _name(copy) == name] for key, copies in self._open.items()}
        if not any(copy.arguments.get("assignment") for copies in wishes.values() for copy in copies):
            placed = [entry.partitions[number].replicas for number in sorted(added)]
            found = self._placements.judged(placed, [key for key, copies in wishes.items() if copies])
            if found:
                raise Violation("racks", f"topic {name!r} has new partitions with {found}")

    # ------------------------------------------------------------------------------------------------------------ the end

    def are_kept(self, world: World) -> bool:
        """Whether store and brokers have what was wished now."""
        return next(self._problems(world), None) is None

    def check(self, world: World) -> None:
        """Everything is healed and idle: store and brokers have what was wished. Raises Violation."""
        for problem in self._problems(world):
            raise Violation(_NAME, problem)

    def _problems(self, world: World) -> Iterator[str]:
        wanted = {topic.name: topic.entry for topic in self.topics.values() if not topic.gone}
        stored = world.root.list(layout.TOPICS)
        if stored != sorted(wanted):
            yield f"the store has topics {stored}, {sorted(wanted)} were created and not deleted"
        for name, entry in wanted.items():
            path = layout.topic_path(name)
            found = world.root.read(path)
            kept = None if found is None else layout.decode_topic(path, found.value)
            if kept != entry:
                yield f"topic {name!r} was stored as {entry}, and is {kept}"
            partitions = world.root.list(path)
            if partitions != sorted(map(str, entry.partitions)):
                yield f"topic {name!r} has partitions {sorted(entry.partitions)}; the store has states of {partitions}"
            yield from _held(world, name, entry)


def _held(world: World, name: str, entry: layout.TopicEntry) -> Iterator[str]:
    """What brokers have of a topic that is not as it is stored."""
    config = TopicConfig.from_mapping(entry.config)
    for broker_id, node in world.nodes.items():
        for identity, partition in () if node.broker is None else node.broker.partitions.items():
            if identity.topic_id == entry.topic_id and (partition.topic, partition.config) != (name, config):
                yield f"broker {broker_id} has {partition!r} with {partition.config}, stored is {config}"
        here = {one for one in node.directory.identities() if one.topic_id == entry.topic_id}
        assigned = {n for n, one in entry.partitions.items() if broker_id in one.replicas}
        if {one.partition for one in here} != assigned or any(one.creation != entry.partitions[one.partition].creation for one in here):
            yield f"broker {broker_id} has logs {sorted(here)} of topic {name!r}, assigned are partitions {sorted(assigned)}"


def _difference(entry: layout.TopicEntry, arguments: Mapping[str, Any]) -> str:
    """What a stored topic has other than it was wished; empty: nothing."""
    partitions = {number: tuple(one.replicas) for number, one in sorted(entry.partitions.items())}
    given = arguments.get("assignment")
    if given is not None:
        wanted = {int(number): tuple(replicas) for number, replicas in given.items()}
        if partitions != wanted:
            return f"its replicas are {partitions}, wished were {wanted}"
    elif list(partitions) != list(range(arguments.get("partitions", 1))):
        return f"its partitions are {list(partitions)}, wished were {arguments.get('partitions', 1)}"
    factors = {len(replicas) for replicas in partitions.values()}
    factor = arguments.get("replication_factor") or max(factors)
    if factors != {factor}:
        return f"its replicas are {partitions}, wished were {factor} for each partition"
    if any(one.adding or one.removing for one in entry.partitions.values()):
        return f"replicas are on the move: {dict(entry.partitions)}"
    config = TopicConfig.from_mapping(arguments.get("config") or {})
    if config.min_isr is None:
        config = evolve(config, min_isr=default_min_isr(factor))
    try:
        stored = TopicConfig.from_mapping(entry.config)
    except ReplogError as problem:
        return f"its configuration is {dict(entry.config)}: {problem}"
    return "" if stored == config else f"its configuration is {stored}, wished was {config}"


def _as_made(config: BrokerConfig) -> dict[str, Any]:
    """What a topic is that brokers make because it is sought."""
    chosen = {"min_isr": config.auto_create_min_isr} if config.auto_create_min_isr else {}
    factor = config.auto_create_replication_factor or None
    return {"partitions": config.auto_create_partitions, "replication_factor": factor, "config": chosen}


def _name(wish: Admin) -> str:
    return str(wish.arguments.get("name"))


def _is_client(address: Address) -> bool:
    return isinstance(address, tuple) and address[0] == "client"
