"""Questions of a reader about topics that exist: it seeks none.

Brokers may make a topic because somebody seeks it (`auto_create_topics`, `client.absent`). A read of one that is misspelt is to fail, and a
query whose topic was deleted is to say so: neither may make a topic of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from replog.client.client import Client
from replog.client.offsets import OffsetOp
from replog.client.operations import MetadataOp
from replog.client.view import View
from replog.errors import Code, rejection
from replog.model import Address

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["PlaceOffsetOp", "partitions_of"]


def partitions_of(client: Client, topics: Iterable[str], timeout_s: float, *, must_exist: bool) -> dict[str, list[int]]:
    """The partition numbers of each of these topics, ascending, as some broker knows them now; topics that do not exist are left out.

    `must_exist`: raise UnknownTopicOrPartition for one. Raises TimedOut while one is there and nothing of it can be seen: it is being made,
    or the controller cannot read it.
    """
    names = list(topics)
    found: dict[str, list[int]] = {}
    missing: dict[str, str] = {}

    def is_settled(view: View) -> bool:
        found.clear()
        found.update({name: view.topics[name].numbers() for name in names if name in view.topics})
        absent = [name for name in names if name not in found]
        missing.clear()
        missing.update({name: view.unknown(name, 0) for name in absent})
        return all(found.values()) and view.hidden.isdisjoint(absent)

    what = f"the question for the partitions of {', '.join(names[:20])}"
    client._do(MetadataOp(client._deadline(timeout_s), until=is_settled, what=what))
    for name, text in missing.items() if must_exist else ():
        raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=name)
    return found


class PlaceOffsetOp(OffsetOp):
    """An offset of a partition that is there, or UnknownTopicOrPartition: also while one is made that somebody else seeks."""

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The leader; nobody, once a view that was asked for since has no such partition."""
        if core.view.place(self.topic, self.partition) is not None:
            return super().target(core, now_ms)
        if self.floor < 0:
            self.floor = core.refresh(now_ms)
        elif core.answered_metadata < self.floor:
            pass
        elif self.topic in core.view.hidden:  # it is there, and the controller cannot read it now
            self.floor = -1
            core.pause(self, now_ms)
        else:
            text = core.view.unknown(self.topic, self.partition)
            self.refuse(rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=self.topic, partition=self.partition))
        return None
