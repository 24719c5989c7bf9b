"""Membership: registers one broker with the metadata store, and says under which epoch.

The registration ends with the store session; its creation number is the broker epoch (KIP-380). The incarnation in
its value tells our own node, after an outcome nobody heard, from one that somebody else left (P-72, KAFKA-16952).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

from replog.config import BrokerConfig
from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.features import FEATURE_LEVEL_MIN, SUPPORTED, Levels, unfit
from replog.messages import Registered
from replog.metadata import layout
from replog.model import Address
from replog.ports import (
    Check,
    Conflict,
    Create,
    Delete,
    Event,
    Ids,
    LossReport,
    Outbox,
    SessionChanged,
    SessionLost,
    StoreCall,
    StoreResult,
    Versioned,
    WatchFired,
)

__all__ = ["Membership"]

_FORMAT = 1
_Script = Generator[tuple[Any, Any], Any, None]


class _Refused(Exception):
    """This broker may not register: waiting does not help, a person has to decide."""


class _Occupied(_Refused):
    """Another one has its number, unless that one's session is over by now."""


class _Unknown(_Refused):
    """The store does not say which cluster it belongs to, or no more."""


def _at(there: layout.Registration) -> str:
    """Where whoever is registered is reached, as far as it has said so: a process to look for."""
    endpoints = ", ".join(filter(None, there.endpoints))
    return f" at {endpoints}" if endpoints else ""


class Membership:
    """Registers `broker_id`, keeps it registered, and tells the broker and the controller of its process (`Registered`).

    It follows the cluster's feature level, too: a broker is a member only while that is among those that it supports.

    `directory_id`, `incarnation` and `loss` come from the opened data directory: whoever holds its lock may take over a registration that a
    former holder left (design, section 6, "A starting broker"). One that is taken over while it lives has been copied, with its
    directory: it is refused. `cluster_id` is the cluster the directory belongs to, None
    for a new one. After a refusal `refused` says why, and nothing is tried any more until the session changes.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        config: BrokerConfig,
        ids: Ids,
        directory_id: str,
        loss: LossReport,
        incarnation: str,
        endpoints: Sequence[str] = (),
        rack: str | None = None,
        cluster_id: str | None = None,
        supports: Levels = SUPPORTED,
    ) -> None:
        self.outbox = Outbox()
        self.broker_epoch = -1
        self.cluster_id = cluster_id or ""
        self.feature_level = FEATURE_LEVEL_MIN
        """Of the cluster, as read last."""
        self.refused: str | None = None
        self.is_occupied = False
        """Whether that is because another one has this number."""
        self._broker_id = broker_id
        self._config = config
        self._ids = ids
        self._path = layout.broker_path(broker_id)
        self._incarnation = incarnation
        self._registration = layout.Registration(tuple(endpoints), rack, directory_id, loss, self._incarnation, supports)
        self._told_level = FEATURE_LEVEL_MIN
        """As told last, with the broker epoch."""
        self._armed: set[str] = set()
        self._unreadable = ""
        """What is wrong with the record of the cluster, as told."""
        self._connected = True
        self._check = True
        """Whether to look at the store as soon as nothing else is under way."""
        self._script: _Script | None = None
        self._waiting: int | None = None
        self._calls = 0
        self._failures = 0
        self._now_ms = 0
        self._retry_ms: int | None = None
        self._look_ms: int | None = None
        """When to look whether the registration is still there, in case a watch was lost."""
        self._last_epoch = -1
        """Broker epoch of the last registration of this life, in whatever session."""
        self._ended_epoch = -1
        """Broker epoch of the last session that was lost: a node up to it goes with that session."""

    # ---- the actor

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """Take a result of the store, a watch, or a change of the session."""
        self._now_ms = now_ms
        match message:
            case StoreResult():
                if message.call == self._waiting:
                    self._waiting = None
                    self._advance(message.value, message.error)
            case WatchFired():
                if message.path in self._armed:
                    self._armed.discard(message.path)
                    self._check = True
            case SessionChanged():
                self._on_session_changed(message)
            case _:
                pass
        self._run()

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Register, or try again after a pause."""
        self._now_ms = now_ms
        if self._retry_ms is not None and self._retry_ms <= now_ms:
            self._retry_ms = None
            self._check = True
        if self._look_ms is not None and self._look_ms <= now_ms:
            self._look_ms = now_ms + self._config.reconcile_ms
            self._check = True
        self._run()

    def deadline_ms(self) -> int | None:
        """When to try again; at once if nothing was tried yet."""
        if self._check and self._script is None and self._connected and self.refused is None and self._retry_ms is None:
            return self._now_ms
        return min((at for at in (self._retry_ms, self._look_ms) if at is not None), default=None)

    def _on_session_changed(self, message: SessionChanged) -> None:
        if message.state == "suspended":
            return  # it may come back; whoever writes meanwhile finds out
        self._connected = message.state == "connected"
        self.refused = None
        if self._connected:
            self._check = True
        else:
            self._abandon()
            self._armed.clear()
            self._retry_ms = self._look_ms = None
            self._ended_epoch = max(self._ended_epoch, self.broker_epoch)
            self._tell(-1)

    def _abandon(self) -> None:
        self._script = None
        self._waiting = None

    def _run(self) -> None:
        if self._script is None and self._check and self._connected and self._retry_ms is None and self.refused is None:
            self._check = False
            self._script = self._register()
            self._advance(None, None)

    def _advance(self, value: Any, error: ReplogError | None) -> None:
        """Run the script up to its next store operation."""
        script = self._script
        assert script is not None
        try:
            verb, argument = script.send(value) if error is None else script.throw(error)
        except StopIteration:
            self._script = None
            self._failures = 0
        except (_Refused, StoreCorrupt) as refusal:
            self._script = None
            self.refused, self.is_occupied = str(refusal), isinstance(refusal, _Occupied)
            self._event("membership_refused", why=self.refused)
            self._tell(-1)
        except SessionLost:
            self._on_session_changed(SessionChanged("lost"))
        except ReplogError as failure:
            # Somebody else was faster, or nobody heard the outcome: read again, after a pause, before anything is written.
            self._script = None
            self._pause(failure)
        else:
            self._calls += 1
            self._waiting = self._calls
            self.outbox.calls.append(StoreCall(self._calls, verb, argument))

    def _pause(self, failure: ReplogError) -> None:
        pause = min(self._config.retry_backoff_ms << min(self._failures, 16), self._config.retry_backoff_ms_max)
        self._failures += 1
        self._retry_ms = self._now_ms + max(1, round(pause * (0.5 + self._ids.jitter() / 2)))
        self._event("membership_retries", error=str(failure), retry_ms=self._retry_ms)

    # ---- registering

    def _register(self) -> _Script:
        for path in (layout.CLUSTER, self._path):
            if path not in self._armed:
                self._armed.add(path)  # at once: it may fire before the store has said that it is armed
                try:
                    yield "watch", path
                except BaseException:
                    self._armed.discard(path)
                    raise
        found: Versioned | None = yield "read", self._path
        there = None if found is None else layout.decode_registration(self._path, found.value)
        epoch = found.created if found is not None and there is not None and there.incarnation == self._incarnation else -1
        try:
            version = yield from self._join_cluster()
        except (StoreCorrupt, _Unknown) as problem:
            if epoch <= self._ended_epoch:
                raise
            self._say_unreadable(str(problem))
            self._registered(epoch)  # a member stays one, at the level that it knows
            return
        self._unreadable = ""
        yield from self._check_level(found if epoch >= 0 else None)
        if epoch > self._ended_epoch:
            self._registered(epoch)
            return
        # With the registration: nobody raises the level between the look at it and that.
        is_fit = Check(layout.CLUSTER, version)
        value = layout.encode_registration(self._registration)
        if found is None:
            self._tell(-1)  # until the store has us, nobody may count on us
            _, created = yield "commit", [is_fit, Create(self._path, value, ephemeral=True)]
            self._registered(created)
            yield from self._look_around()
            return
        assert there is not None
        if there.directory_id != self._registration.directory_id:
            raise _Occupied(
                f"broker id {self._broker_id} is registered by a live broker with directory {there.directory_id or '?'}{_at(there)}; "
                f"this one has directory {self._registration.directory_id}"
            )
        if 0 <= self._last_epoch < found.created:  # whoever came before us is dead, but this one came after us
            raise _Occupied(
                f"broker id {self._broker_id} has been registered by another process, which has a copy of this data directory "
                f"({there.directory_id}{_at(there)}): only one of them may run"
            )
        self._event("registration_taken_over", broker_epoch=found.created)
        # `created`: what a former life still had on its way replaces the same node, and not ours.
        ops = [is_fit, Delete(self._path, found.version, found.created), Create(self._path, value, ephemeral=True)]
        *_, created = yield "commit", ops
        self._registered(created)
        yield from self._look_around()

    def _look_around(self) -> _Script:
        """Say so if others are to be reached where this one is: they would never be let in, or this one would not, and nobody told."""
        mine = set(self._registration.endpoints) - {""}
        if not mine:
            return
        ids: list[str] = yield "list", layout.BROKER_IDS
        paths = [path for path in (f"{layout.BROKER_IDS}/{name}" for name in ids) if path != self._path]
        values: list[Versioned | None] = yield from self._readable(paths)
        for path, value in zip(paths, values, strict=True):
            if value is None:
                continue
            with suppress(StoreCorrupt):  # told by the controller
                for endpoint in sorted(mine.intersection(layout.decode_registration(path, value.value).endpoints)):
                    self._event("endpoint_shared", endpoint=endpoint, with_broker=layout.place_of(path).broker_id)

    @staticmethod
    def _readable(paths: list[str]) -> Generator[tuple[Any, Any], Any, list[Versioned | None]]:
        """Values at these paths, None also for those that the store refuses to give out: the controller tells of them."""
        values: list[Versioned | None]
        try:
            values = yield "read_each", paths
        except (StoreCorrupt, UsageError):
            values = [None] * len(paths)
            for number, path in enumerate(paths):
                with suppress(StoreCorrupt, UsageError):
                    values[number] = yield "read", path
        return values

    def _join_cluster(self) -> Generator[tuple[Any, Any], Any, int]:
        """Read which cluster this is, at which version of its record; the first broker of all says so."""
        stored: Versioned | None = yield "read", layout.CLUSTER
        if stored is None:
            if self.cluster_id:
                raise _Unknown(f"the data directory belongs to cluster {self.cluster_id}; the metadata store is new, and knows no cluster")
            identity = layout.ClusterIdentity(self._ids.token().hex(), _FORMAT, self._registration.features.high)
            # Where a controller has been there is a cluster: under another id none of its members could stay one.
            is_new = Check(layout.CONTROLLER_EPOCH, -1)
            with suppress(Conflict):
                yield "commit", [is_new, Create(layout.CLUSTER, layout.encode_cluster(identity))]
            stored, epoch = yield "read_each", [layout.CLUSTER, layout.CONTROLLER_EPOCH]
            if stored is None and epoch is not None:
                raise _Unknown(f"the metadata store has no record of its cluster at {layout.CLUSTER}, and has had controllers: restore it")
            if stored is None:
                raise Conflict(layout.CLUSTER, "it was removed at once")
        identity = layout.decode_cluster(layout.CLUSTER, stored.value)
        if identity.format != _FORMAT:
            raise _Refused(f"the cluster has format {identity.format}; this version of replog writes {_FORMAT}")
        if self.cluster_id not in ("", identity.cluster_id):
            raise _Refused(f"the data directory belongs to cluster {self.cluster_id}; this is cluster {identity.cluster_id}")
        self.cluster_id, self.feature_level = identity.cluster_id, identity.feature_level
        return stored.version

    def _check_level(self, found: Versioned | None) -> _Script:
        """Refuse a level that is not supported. A member (`found`: its registration) that finds it raised gives that back first."""
        why = unfit(self.feature_level, self._registration.features)
        if why is None:
            return
        self._tell(-1)
        if found is not None:
            yield "commit", [Delete(self._path, found.version)]
        raise _Refused(why)

    def _registered(self, broker_epoch: int) -> None:
        if broker_epoch != self.broker_epoch:
            self._event("broker_registers", broker_epoch=broker_epoch)
        self._last_epoch = max(self._last_epoch, broker_epoch)
        self._tell(broker_epoch)
        self._look_ms = self._now_ms + self._config.reconcile_ms

    def _tell(self, broker_epoch: int) -> None:
        """Tell the broker and the controller of this process, once."""
        if (broker_epoch, self.feature_level) == (self.broker_epoch, self._told_level):
            return
        self.broker_epoch, self._told_level = broker_epoch, self.feature_level
        for address in (self._broker_id, ("controller", self._broker_id)):
            self.outbox.messages.append((address, Registered(self._broker_id, broker_epoch, self.cluster_id, self.feature_level)))

    def _say_unreadable(self, problem: str) -> None:
        """Once, not with each look."""
        if problem != self._unreadable:
            self._unreadable = problem
            self._event("store_value_unreadable", path=layout.CLUSTER, error=problem)

    def _event(self, name: str, **fields: object) -> None:
        self.outbox.events.append(Event(name, {"broker": self._broker_id, **fields}))
