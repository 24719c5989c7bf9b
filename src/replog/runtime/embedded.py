"""`Cluster`: everything a client can do, and the life of the brokers behind it, in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from replog.client.arguments import check_broker_id, check_timeout
from replog.client.client import Client
from replog.config import BrokerConfig, ClientConfig
from replog.errors import TimedOut, UsageError
from replog.log.files import Fs, check_path
from replog.metrics.meter import recent
from replog.metrics.snapshot import Snapshot
from replog.ports import MetadataStore
from replog.runtime.embedded_brokers import BROKERS_MAX, EmbeddedBrokers
from replog.runtime.measured import Measured
from replog.runtime.urls import is_in_memory, lasting, open_store

if TYPE_CHECKING:
    from replog.security.quotas import Quotas
    from replog.security.settings import Security

__all__ = ["Cluster"]


class Cluster(Client, Measured):
    """Brokers 1 to n in this process, and a client of them. Any thread may use it; by itself it starts none, but one for each broker with
    a disk to flush topics to, one that ends the session of a stopped broker, if the metadata store could not be written then, and one that
    brings the outcome of records while somebody has a future of them, or a callback.

    `data` is a folder, made if missing: logs and the metadata store live under it, and the next Cluster on it finds
    them. Without it everything is kept in memory, and a killed broker returns empty. Nothing is opened before the first
    use (or `start()`, or `with`); `close()` stops all brokers at once, cleanly, and may be called at any time. In a signal handler that
    came into a call of this Cluster it returns at once: a thread closes when that call has let go, and another `close()` waits for that.
    UsageError if no thread can be had.

    With `listen="tcp://127.0.0.1:0"` other processes can connect (`endpoints` says where; a port that is not 0 is the first
    broker's, the others take the next ones), and with a `store` that is not in memory the brokers find each other there: for
    either one thread is started, which serves what does not come by calls. It serves this machine only; `security` (settings,
    or a file of them) says what clients there have to prove, `quotas` (likewise) how fast they may send and fetch.

    Reopening a folder with more brokers adds the new ones; with fewer is a UsageError, because their copies would be
    left behind. `config` takes the keys of `BrokerConfig`, `client_config` those of `ClientConfig`.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        brokers: int = 3,
        listen: str | None = None,
        store: str | MetadataStore | None = None,
        config: BrokerConfig | Mapping[str, Any] | None = None,
        client_config: ClientConfig | Mapping[str, Any] | None = None,
        security: Security | str | os.PathLike[str] | None = None,
        quotas: Quotas | str | os.PathLike[str] | None = None,
        _fs_of: Callable[[int], Fs] | None = None,
    ) -> None:
        """Check the arguments; UsageError names what is wrong. Nothing is opened yet."""
        if not isinstance(brokers, int) or isinstance(brokers, bool) or not 1 <= brokers <= BROKERS_MAX:
            raise UsageError(f"brokers is {brokers!r}; a cluster has 1 to {BROKERS_MAX}")
        if data is not None:
            data = check_path(data, "data", "name a folder, or leave it out to keep everything in memory")
        if store is not None and not isinstance(store, str | MetadataStore):
            raise UsageError(f"store={store!r}: give a MetadataStore, or a URL like 'file://PATH' or 'zookeeper://HOSTS/CHROOT'")
        settings = config if isinstance(config, BrokerConfig) else BrokerConfig.from_mapping({} if config is None else config)
        self._embedded = EmbeddedBrokers(
            None if data is None else Path(data),
            brokers,
            listen=listen,
            store=open_store(store, session_ms=settings.session_ms) if is_in_memory(store) else lasting(store),
            config=settings,
            client_config=_client_config(client_config),
            fs_of=_fs_of,
            security=_checked(security, listen),
            quotas=_limits(quotas, listen),
        )
        super().__init__(self._embedded)

    def start(self) -> Self:
        """Open the folder and start every broker; returns when a controller is elected and all are registered with it."""
        self._embedded.ensure_started()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def brokers(self) -> list[int]:
        """Ids of the brokers that run, ascending."""
        self._embedded.ensure_started()
        return sorted(self._embedded.running)

    @property
    def endpoints(self) -> list[str]:
        """Where other processes connect, one "tcp://host:port" per running broker; empty without `listen`."""
        outside = self._embedded.outside
        if outside is None:
            return []
        self._embedded.ensure_started()
        return [outside.endpoints[b] for b in sorted(self._embedded.running) if b in outside.endpoints]

    @property
    def controller_id(self) -> int | None:
        """The broker whose controller is in charge; None while there is none."""
        self._embedded.ensure_started()
        found = (b for b, embedded in list(self._embedded.running.items()) if embedded.controller.is_controller)
        return next(found, None)

    def kill_broker(self, broker_id: int) -> None:
        """End a broker as SIGKILL would: nothing is flushed, its session ends at once, the controller elects new leaders.

        A flush that is under way ends first, as in a killed process: its folder is in use until then, and it is waited for 5 s.
        """
        self._embedded.end(check_broker_id(broker_id), clean=False)

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker cleanly: its logs are flushed and marked, then its session ends."""
        self._embedded.end(check_broker_id(broker_id), clean=True)

    def start_broker(self, broker_id: int, *, timeout_s: float | None = 30.0) -> None:
        """Start a stopped or killed broker; returns once the controller has unfenced it (it may still have to catch up)."""
        self._embedded.start_again(check_broker_id(broker_id), check_timeout(timeout_s))

    def add_broker(self, rack: str | None = None, *, timeout_s: float | None = 30.0) -> int:
        """Start one more broker and return its id. It holds nothing until topics are created on it.

        UsageError names a rack that cannot be written in UTF-8.
        """
        return self._embedded.add(rack, check_timeout(timeout_s))

    def remove_broker(self, broker_id: int) -> None:
        """Remove the broker with the highest id, once it holds no copies. UsageError says which that is, or what it still holds."""
        self._embedded.remove(broker_id)

    def metrics(self, *, partitions: bool = False) -> Snapshot:
        """Every metric of docs/metrics.md as plain numbers, of all brokers that ran in this Cluster: the label `broker` tells them apart.

        `partitions`: series of each partition as well. From any thread.
        """
        return self._embedded.metrics(partitions=partitions)

    def _onlooker(self) -> Client:
        return self

    def _changes(self) -> list[dict[str, Any]]:
        with self._embedded.lock:
            return recent(self._embedded.meters.values())

    def wait_until_in_sync(self, *, timeout_s: float | None = 60.0) -> None:
        """Wait until every partition has a leader and its full ISR. Raises TimedOut naming those that have not."""
        if not self._embedded.wait(lambda: not self._embedded.out_of_sync(), check_timeout(timeout_s)):
            missing = self._embedded.out_of_sync()
            raise TimedOut(f"waited {timeout_s} s for every replica to be in sync; missing {len(missing)}: {', '.join(missing[:5])}")


def _client_config(given: ClientConfig | Mapping[str, Any] | None) -> ClientConfig:
    return given if isinstance(given, ClientConfig) else ClientConfig.from_mapping({} if given is None else given)


def _checked(security: Security | str | os.PathLike[str] | None, listen: str | None) -> Security | None:
    if security is None:
        return None
    from replog.security.settings import security_of  # nothing of it for whoever uses none

    if listen is None:
        raise UsageError("security is about connections, and there are none without listen")
    found = security_of(security)
    if found is not None and found.tls is not None:
        raise UsageError("a Cluster serves this machine only, and has one certificate for none of its brokers: give secrets, and no tls")
    return found


def _limits(quotas: Quotas | str | os.PathLike[str] | None, listen: str | None) -> Quotas | None:
    if quotas is None:
        return None
    from replog.security.quotas import quotas_of  # as above

    if listen is None:
        raise UsageError("quotas are about connections, and there are none without listen")
    return quotas_of(quotas)
