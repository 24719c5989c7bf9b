"""The metadata store: its values, its paths, what is shown of it, and the file that holds it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.fuzz.code import CODE
from tests.fuzz.structured import json_behind
from tests.fuzz.target import Target

from replog.cli.stores import Shown, _value
from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.metadata import judgements, layout, wishes
from replog.metadata.file import FileStore
from replog.metadata.judgements import Admission, Candidate, LossRecord
from replog.metadata.layout import ClusterIdentity, ControllerSeat, Registration, Rejection, TopicEntry
from replog.metadata.looking import Found, Look, look_at_file
from replog.metadata.paths import ROOT, check_path
from replog.metadata.wishes import Meant
from replog.model import Assignment, PartitionId, PartitionState
from replog.ports import Create, LossReport, Versioned

__all__ = ["STORED", "VALUES", "store_value", "store_values"]

_PATH: Final = "/fuzzed"

# ------------------------------------------------------------------------------------------------------------------ values


def _state(path: str, value: bytes) -> Any:
    return layout.decode_partition_state(path, Versioned(value, 3, 1))


def _move(path: str, value: bytes) -> tuple[tuple[int, ...] | None, Meant]:
    return wishes.decode_replicas(path, value), wishes.decode_meant(path, value)


def _remove(path: str, value: bytes) -> Meant:
    meant = wishes.decode_meant(path, value)
    assert wishes.decode_partition_remove(path, value) == meant.creation
    return meant


def _elect(wish: tuple[bool, int | None]) -> bytes:
    return wishes.encode_elect(unclean=wish[0], to=wish[1])


_LOST: Final = PartitionId(bytes(range(16)), 3, 4)
_MEANT: Final = Meant.of(_LOST)
_MOVING: Final = Assignment((1, 2, 3), 4, (3,), (1,), (1, 2))
_MANY: Final = LossReport("corrupt", tuple(PartitionId(bytes(16), n, 4) for n in (*range(5_100), 7_000)), ("life",), "since")
VALUES: Final[tuple[tuple[Callable[[str, bytes], Any], Callable[[Any], bytes], tuple[Any, ...]], ...]] = (
    (layout.decode_cluster, layout.encode_cluster, (ClusterIdentity("c-1", 1, 2),)),
    (layout.decode_controller, layout.encode_controller, (ControllerSeat(3, 17),)),
    (layout.decode_controller_epoch, layout.encode_controller_epoch, (12,)),
    (
        layout.decode_registration,
        layout.encode_registration,
        (
            Registration(("tcp://10.0.0.1:9000", "tcp://[::1]:1"), "rack-ä", "ab" * 16, LossReport("corrupt", (_LOST,)), "life"),
            Registration(("tcp://10.0.0.1:9000",), None, "ab" * 16, _MANY, "life"),
        ),
    ),
    (layout.decode_draining, layout.encode_draining, (2**40,)),
    (
        layout.decode_topic,
        layout.encode_topic,
        (TopicEntry(bytes(range(16)), {"min_isr": 2, "flush": "ack"}, {0: _MOVING, 7: Assignment((2,), 5)}, 8, (9,)),),
    ),
    (_state, layout.encode_partition_state, (PartitionState(2, 9, (2, 3), (4,), (2, 3, 4), True, 5, 3),)),
    (layout.decode_delete_topic, layout.encode_delete_topic, (bytes(range(16)),)),
    (layout.decode_removed, layout.encode_removed, ((1, 2, 3),)),
    (layout.decode_rejection, layout.encode_rejection, (Rejection(b'{"version":1}\xff', 39, "no such topic ü", 1_700_000_000_000),)),
    (judgements.decode_admission, judgements.encode_admission, (Admission(2**40, "life", "ab" * 16, is_early=True),)),
    (
        judgements.decode_loss,
        judgements.encode_loss,
        (LossRecord("orders", "unclean", 2, 9, (Candidate(2, 8, 100), Candidate(3, -1, -1)), (1,)),),
    ),
    (_move, lambda said: wishes.encode_replicas(*said), (((3, 1, 2), _MEANT), ((3, 1, 2), Meant()), (None, Meant(creation=0)))),
    (_remove, wishes.encode_partition_remove, (_MEANT, Meant(creation=7), Meant())),
    (wishes.decode_elect, _elect, ((True, None), (False, None), (False, 3))),
)
"""Decoder, encoder, and values of every kind, of which no field of the first has its default."""


def store_value(data: bytes) -> None:
    """A value of the metadata store; the first byte says of which kind it is to be."""
    if not data:
        return
    decode_value, encode_value, _ = VALUES[data[0] % len(VALUES)]
    try:
        value = decode_value(_PATH, data[1:])
    except StoreCorrupt:
        return
    assert decode_value(_PATH, encode_value(value)) == value, "a value is another when it is encoded and decoded"


def store_values() -> list[bytes]:
    """Values of every kind, with the byte that says which."""
    found = [bytes((number,)) + encode(value) for number, (_, encode, values) in enumerate(VALUES) for value in values]
    return [value.replace(b"0-5099,7000", b"0-3,9") for value in found]  # as few copies as can be packed so: mutants are to be quick


# ------------------------------------------------------------------------------------------------------------------- paths

_PLACES: Final = (
    layout.CLUSTER,
    layout.TOPICS,
    layout.broker_path(2**31 - 1),
    layout.draining_path(0),
    layout.topic_path("orders"),
    layout.partition_path("orders", 3),
    layout.partition_state_path("orders", 12),
    layout.reassigned_path("orders", 3),
    layout.partition_add_path("orders", 3),
    layout.partition_remove_path("o.r-d_ers", 3),
    layout.elect_path("orders", 3),
    layout.delete_topic_path("orders"),
    layout.removed_path(bytes(range(16))),
    layout.rejected_path(layout.elect_path("orders", 3)),
    judgements.admitted_path(3),
    judgements.loss_path(bytes(range(16)), 3),
)
_SPELLED: Final[dict[str, Callable[[layout.Place], str]]] = {
    layout.BROKER_IDS: lambda place: layout.broker_path(place.broker_id or 0),
    layout.DRAINING: lambda place: layout.draining_path(place.broker_id or 0),
    layout.DELETE_TOPICS: lambda place: layout.delete_topic_path(place.topic or ""),
    layout.PARTITIONS_REASSIGNED: lambda place: layout.reassigned_path(*place.topic_partition),
    layout.PARTITIONS_ADD: lambda place: layout.partition_add_path(*place.topic_partition),
    layout.PARTITIONS_REMOVE: lambda place: layout.partition_remove_path(*place.topic_partition),
    layout.ELECT: lambda place: layout.elect_path(*place.topic_partition),
    layout.TOPICS: lambda place: layout.topic_path(place.topic or ""),
    layout.REMOVED: lambda place: layout.removed_path(place.topic_id or b""),
    "partition": lambda place: layout.partition_path(*place.topic_partition),
    "partition_state": lambda place: layout.partition_state_path(*place.topic_partition),
}


def path(data: bytes) -> None:
    """The path of a node: anybody who can write to the store makes nodes of any name."""
    text = data.decode("utf-8", "surrogateescape")
    with suppress(UsageError):
        check_path(text, root=True)
    with suppress(StoreCorrupt):
        judgements.admitted_broker(text)
    try:
        place = layout.place_of(text)
    except StoreCorrupt:
        return
    if place != (place.row, None, None, None, None, None) and place.wish is None:
        assert _SPELLED[place.row](place) == text, "two paths are of one place"


# ------------------------------------------------------------------------------------------------------------------- shown


def shown(data: bytes) -> None:
    """A node, as `replog store` shows it: never an error."""
    for found in (Found(data, 3, 17), Found(data[1:], problem="damaged")):
        _value(Shown(_PATH, found, 0).plain())


def nodes() -> list[bytes]:
    """Values as they are stored, and none."""
    return [*(value[1:] for value in store_values()), b"text \xff", b"[1e5, -0.0]"]


# ---------------------------------------------------------------------------------------------------------------- the file


class _Place:
    """One file, in memory where the system has such a folder."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._folder = TemporaryDirectory(prefix="replog-fuzz-", dir=shared if shared.is_dir() else None)
        self.path = f"{self._folder.name}/store"


@cache
def _place() -> _Place:
    return _Place()


def _all_of(look: Look) -> list[Any]:
    found, waiting = [], [ROOT]
    while waiting and len(found) < 100:
        at = waiting.pop()
        names = look.children(at)
        waiting += [f"/{name}" if at == ROOT else f"{at}/{name}" for name in names]
        (node,) = look.read([at])
        if node is not None:
            found.append(Shown(at, node, len(names)).plain())
    return found


def database(data: bytes) -> None:
    """The file of a store, as `replog store` looks at it: what it says, or why it says nothing."""
    Path(_place().path).write_bytes(data)
    try:
        look_at_file(_place().path, 0.0, _all_of)
    except ReplogError:
        return


@cache
def databases() -> tuple[bytes, ...]:
    """A store with a few nodes, in small pages."""
    with TemporaryDirectory() as folder:
        file = f"{folder}/store"
        with closing(FileStore(file)) as store:
            values = [value[1:] for value in store_values() if len(value) < 1_000]
            store.commit([Create(node, value) for node, value in zip(_PLACES[2:14], values, strict=False)])
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("UPDATE state SET store_id = 'fuzzed'")  # the same bytes each time
            for said in ("journal_mode = DELETE", "page_size = 512"):
                connection.execute(f"PRAGMA {said}")
            connection.execute("VACUUM")
        return (Path(file).read_bytes(),)


STORED: Final = {
    "store": Target(store_value, store_values, CODE["store"], structured=json_behind(1), million=10),
    "path": Target(path, lambda: [one.encode() for one in _PLACES], CODE["path"]),
    "shown": Target(shown, nodes, CODE["shown"]),
    "database": Target(database, databases, CODE["database"], million=1),
}
