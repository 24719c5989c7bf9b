"""What clients and admins may say to a broker and hear from it, looked at before any actor sees it.

A wish that changes the cluster needs an admin. With an authorizer each topic is asked for as well: what is denied is answered here, and
the rest of the message goes on. Whatever an authorizer raises means no.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import evolve

from replog import messages as m
from replog.codec import CodecError
from replog.errors import Code
from replog.model import ACKS_NONE, Address, PartitionId
from replog.security.answers import refusals_in, without_names
from replog.security.audit import Refusals, audit
from replog.security.identity import Identity
from replog.security.particulars import particulars_of
from replog.security.roles import CREATE, DESCRIBE, READ, WRITE, Wish, meant, topics_of, wish
from replog.security.settings import Security

__all__ = ["Door"]

_log = logging.getLogger("replog")

_PENDING_MAX: Final = 10_000
_QUESTIONS_MAX: Final = 10_000
"""Wishes of one connection that change nothing and wait for their answers. A broker passes on 1,000 of a client at a time."""
_ENDS: Final = frozenset({-2, -1})
"""Of a log, in `ListOffsetsEntry.at`: the earliest and the latest offset."""
_DENIED: Final = Code.TOPIC_AUTHORIZATION_FAILED
_Asked = tuple[Identity, str, str, str, dict[str, str]]


class Door:
    """Of one process that serves. `topic_of(id)` is the name of a topic, None if it is not known here (yet)."""

    def __init__(self, security: Security, topic_of: Callable[[bytes], str | None], refusals: Refusals | None = None) -> None:
        """Raises UsageError for a file of rules that cannot be used."""
        self._topic_of = topic_of
        self.refusals = refusals or Refusals()
        """Of whom they are told in a sum, when the time for that has come."""
        self._authorizer = security.authorizer
        if isinstance(self._authorizer, str):
            from replog.security.rules import FileRules

            self._authorizer = FileRules(self._authorizer)
        self._raised: set[type[BaseException]] = set()
        self._pending: dict[tuple[Address, int], _Asked] = {}
        """Changes that were passed on: who asked from where, the verb, the topics, and what else is told of it."""
        self._questions: dict[Address, dict[tuple[Address, int], None]] = {}
        """What else was passed on, by who asked: an answer to it is not to be taken for one to a change."""
        self._entries: dict[type[Any], Callable[[Identity, Any], tuple[Any, list[Any]]]] = {
            m.Produce: self._produce,
            m.Fetch: self._fetch,
            m.ListOffsets: self._list_offsets,
            m.OffsetsForLeaderEpoch: self._epochs,
            m.Stage: self._stage,
            m.Publish: self._publish,
            m.Metadata: self._metadata,
        }

    def enter(self, who: Identity, address: str, peer: Address, message: Any) -> tuple[Any, list[Any]]:
        """What of a message goes on to the broker (None: nothing), and what is answered at once.

        Raises CodecError for a wish under a number whose answer is still to come: nobody could say afterwards which one it is about.
        """
        if type(message) is m.Admin:
            return self._admin(who, address, peer, message)
        if type(message) is m.Stage:
            message.principal = str(who)
        if self._authorizer is None or who.is_broker:
            return message, []
        looks = self._entries.get(type(message))
        return looks(who, message) if looks is not None else (None, [])

    def leave(self, who: Identity, peer: Address, message: Any) -> Any:
        """What of an answer is told."""
        if type(message) is m.AdminAnswer:
            asked = self._pending.pop((peer, message.request), None)
            if asked is not None:
                self._tell(asked, message)
            else:
                self._questions.get(peer, {}).pop((peer, message.request), None)
        if self._authorizer is None or who.is_broker:
            return message
        if type(message) is m.AdminAnswer:
            return without_names(message, lambda name: self._allows(who, DESCRIBE, name))
        if type(message) is m.Fetched:
            return self._fetched(who, message)
        if type(message) is m.ClusterView:
            return evolve(
                message,
                topics=[one for one in message.topics if self._allows(who, DESCRIBE, one.topic)],
                missing=[one for one in message.missing if self._allows(who, DESCRIBE, one[0])],
                hidden=[name for name in message.hidden if self._allows(who, DESCRIBE, name)],
            )
        return message

    def _tell(self, asked: _Asked, answer: m.AdminAnswer) -> None:
        """What became of a change, for the audit log: of several parts each may have been refused, although the request was not."""
        codes, total = refusals_in(answer)
        if answer.error or not codes:
            audit(*asked, answer.error)
        else:
            wished = total if total is not None else int(asked[4].get("count", 0))
            audit(*asked, codes[0] if len(codes) >= wished else Code.NONE, refused=len(codes))

    def _fetched(self, who: Identity, answer: m.Fetched) -> m.Fetched:
        """Records that were waited for are brought only to who may still read them."""
        for at, entry in enumerate(answer.entries):
            code = self._code(who, READ, entry.partition) if entry.slices else Code.NONE
            if code:
                for piece in entry.slices:
                    piece.release()
                answer.entries[at] = m.FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, code)
        return answer

    def ended(self, peer: Address) -> None:
        """Nobody will hear what becomes of what it has asked for."""
        self._questions.pop(peer, None)
        for key in [key for key in self._pending if key[0] == peer]:
            audit(*self._pending.pop(key), None)

    def close(self) -> None:
        """Nobody will hear of anything any more."""
        while self._pending:
            audit(*self._pending.pop(next(iter(self._pending))), None)
        self.refusals.close()

    def _allows(self, who: Identity, action: str, topic: str | None) -> bool:
        assert callable(self._authorizer)
        try:
            return self._authorizer(str(who), action, topic) is True
        except Exception as problem:
            if type(problem) not in self._raised:
                self._raised.add(type(problem))
                _log.warning("the authorizer has raised, which denies: %s", type(problem).__name__, exc_info=True)
            return False

    # ------------------------------------------------------------------------------------------------------------- wishes

    def _admin(self, who: Identity, address: str, peer: Address, asked: m.Admin) -> tuple[Any, list[Any]]:
        needs = wish(asked.verb)
        topics = list(topics_of(asked.verb, asked.arguments))
        if asked.verb == "followers":
            topics = self._followed(topics)
        refusal = self._refusal(who, asked, needs, topics)
        if refusal is not None and not (needs.changes and self.refusals.is_written(str(who), address, asked.verb)):
            return None, [refusal]
        names = ",".join("*" if one is None else one for one in topics)
        entry = who, address, asked.verb, names, particulars_of(asked.verb, asked.arguments)
        if refusal is not None:
            audit(*entry, refusal.error)
            return None, [refusal]
        here, questions = (peer, asked.request), self._questions.get(peer, {})
        if here in self._pending or here in questions:
            raise CodecError(f"a second wish under number {asked.request}, which waits for its answer")
        if needs.changes:
            self._pending[here] = entry
            while len(self._pending) > _PENDING_MAX:
                audit(*self._pending.pop(next(iter(self._pending))), None)
        elif len(questions) < _QUESTIONS_MAX:
            self._questions.setdefault(peer, questions)[here] = None
        else:
            raise CodecError(f"{len(questions)} wishes wait for their answers, and here is one more; allowed are {_QUESTIONS_MAX}")
        return asked, []

    def _refusal(self, who: Identity, asked: m.Admin, needs: Wish, topics: Iterable[str | None]) -> m.AdminAnswer | None:
        if not meant(who, needs):
            text = f"{asked.verb!r:.80} changes the cluster, which needs the role admin; you are {who}"
            return m.AdminAnswer(asked.request, Code.CLUSTER_AUTHORIZATION_FAILED, text)
        for topic in topics if self._authorizer is not None and not who.is_broker else ():
            if not self._allows(who, needs.action, topic):
                code = Code.CLUSTER_AUTHORIZATION_FAILED if topic is None else _DENIED
                what = "the cluster" if topic is None else f"topic {topic!r:.300}"
                return m.AdminAnswer(asked.request, code, f"{who} may not {needs.action} {what}")
        return None

    def _followed(self, ids: Iterable[str | None]) -> list[str | None]:
        names: dict[str | None, None] = {}
        for one in ids:
            try:
                names[self._topic_of(bytes.fromhex(one or ""))] = None
            except ValueError:
                names[None] = None
        return list(names)

    # --------------------------------------------------------------------------------------------------------- partitions

    def _code(self, who: Identity, action: str, partition: PartitionId) -> int:
        """0, or why not. A topic that is not known here yet may be by the next try."""
        name = self._topic_of(partition.topic_id)
        if name is None:
            return Code.UNKNOWN_TOPIC_ID
        return Code.NONE if self._allows(who, action, name) else _DENIED

    def _produce(self, who: Identity, asked: m.Produce) -> tuple[Any, list[Any]]:
        codes = [self._code(who, WRITE, entry.partition) for entry in asked.entries]
        if not any(codes):
            return asked, []
        denied = [m.ProducedEntry(entry.request, code) for entry, code in zip(asked.entries, codes, strict=True) if code]
        rest = [entry for entry, code in zip(asked.entries, codes, strict=True) if not code]
        return evolve(asked, entries=rest) if rest else None, [m.Produced(denied)] if asked.acks != ACKS_NONE else []

    def _fetch(self, who: Identity, asked: m.Fetch) -> tuple[Any, list[Any]]:
        """All of it, or nothing; and no session, in which it would not be said any more what is read."""
        if asked.session:
            return None, [m.Fetched(asked.request, 0, 0, Code.FETCH_SESSION_ID_NOT_FOUND, [])]
        denied = [(entry, self._code(who, READ, entry.partition)) for entry in asked.entries]
        errors = [m.FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, code) for entry, code in denied if code]
        if errors:
            return None, [m.Fetched(asked.request, 0, 0, Code.NONE, errors)]
        return evolve(asked, session_epoch=-1), []

    def _list_offsets(self, who: Identity, asked: m.ListOffsets) -> tuple[Any, list[Any]]:
        denied = [(entry, self._offset_code(who, entry)) for entry in asked.entries]
        errors = [m.ListedOffset(entry.partition, code) for entry, code in denied if code]
        return (None, [m.ListedOffsets(asked.request, errors)]) if errors else (asked, [])

    def _offset_code(self, who: Identity, entry: m.ListOffsetsEntry) -> int:
        """What is no end is a time, and the answer says when a record was made: whoever hears that reads."""
        code = self._code(who, DESCRIBE, entry.partition)
        return code if code or entry.at in _ENDS else self._code(who, READ, entry.partition)

    def _epochs(self, who: Identity, asked: m.OffsetsForLeaderEpoch) -> tuple[Any, list[Any]]:
        denied = [(entry, self._code(who, DESCRIBE, entry.partition)) for entry in asked.entries]
        errors = [m.EpochsResult(entry.partition, code) for entry, code in denied if code]
        return (None, [m.Epochs(asked.request, errors)]) if errors else (asked, [])

    def _stage(self, who: Identity, asked: m.Stage) -> tuple[Any, list[Any]]:
        code = self._code(who, WRITE, asked.entry.partition)
        return (None, [m.Published(asked.entry.request, asked.entry.partition, code)]) if code else (asked, [])

    def _publish(self, who: Identity, asked: m.Publish) -> tuple[Any, list[Any]]:
        code = self._code(who, WRITE, asked.partition)
        return (None, [m.Published(asked.request, asked.partition, code)]) if code else (asked, [])

    def _metadata(self, who: Identity, asked: m.Metadata) -> tuple[Any, list[Any]]:
        """Answered in full each time: what an earlier answer has hidden is not known. Nobody seeks what it may not make."""
        return evolve(asked, since=-1, sought=[name for name in asked.sought if self._allows(who, CREATE, name)]), []
