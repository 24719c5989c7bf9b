"""What each wish needs: a role, and an action that an authorizer is asked about. A wish that is not in the table needs an admin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from replog.messages import BROKER
from replog.security.identity import ADMIN, Identity

__all__ = ["ACTIONS", "ALTER", "CREATE", "DELETE", "DESCRIBE", "READ", "WISHES", "WRITE", "Wish", "meant", "topics_of", "wish"]

READ: Final = "read"
WRITE: Final = "write"
DESCRIBE: Final = "describe"
CREATE: Final = "create"
DELETE: Final = "delete"
ALTER: Final = "alter"
ACTIONS: Final = (READ, WRITE, DESCRIBE, CREATE, DELETE, ALTER)
"""What an authorizer is asked about."""


NAME: Final = "name"
PARTITIONS: Final = "partitions"
NOTHING: Final = ""


class Wish(NamedTuple):
    """What the verb of an `Admin` needs."""

    action: str
    changes: bool
    """Whether it changes the cluster: then it needs an admin, and is written down."""
    about: str | None = NAME
    """The argument that says which topics it is about, and no other: whatever else is sent is not looked at. None: the cluster.
    NOTHING: what everybody is told with every view of the cluster."""


WISHES: Final[dict[str, Wish]] = {
    "create_topic": Wish(CREATE, True),
    "create_missing_topic": Wish(CREATE, True),
    "delete_topic": Wish(DELETE, True),
    "add_partitions": Wish(ALTER, True),
    "remove_partitions": Wish(ALTER, True),
    "alter_topic": Wish(ALTER, True),
    "elect": Wish(ALTER, True, PARTITIONS),
    "reassign": Wish(ALTER, True, PARTITIONS),
    "drain": Wish(ALTER, True, None),
    "explain": Wish(DESCRIBE, False),
    "find_topic": Wish(DESCRIBE, False),
    "find_view": Wish(DESCRIBE, False, NOTHING),
    "followers": Wish(DESCRIBE, False, PARTITIONS),
    "list_reassignments": Wish(DESCRIBE, False, None),
    "describe_features": Wish(DESCRIBE, False, None),
    "raise_feature_level": Wish(ALTER, True, None),
}
"""Every verb that a client can send."""
_UNKNOWN: Final = Wish(ALTER, True, None)


def wish(verb: str) -> Wish:
    """What a verb needs."""
    return WISHES.get(verb, _UNKNOWN)


def meant(who: Identity, asked: Wish) -> bool:
    """Whether somebody with this role may wish for it at all."""
    return not asked.changes or who.role in (ADMIN, BROKER)


def topics_of(verb: str, arguments: dict[str, Any]) -> Iterable[str | None]:
    """The topics that a wish names, each once; None among them: it is about the cluster, or says something that could not be understood.

    `partitions` of `followers` has ids in place of names.
    """
    about = wish(verb).about
    if about == NOTHING:
        return ()
    if about == NAME:
        name = arguments.get(NAME)
        return (name if isinstance(name, str) else None,)
    places = arguments.get(PARTITIONS) if about == PARTITIONS else None
    if not isinstance(places, list | tuple) or not places:
        return (None,)
    names = [one[0] if isinstance(one, list | tuple) and one and isinstance(one[0], str) else None for one in places]
    return dict.fromkeys(names)
