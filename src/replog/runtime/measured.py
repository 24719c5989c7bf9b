"""What a broker process and an embedded cluster have in common for those who watch them: metrics and the status page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.metrics.snapshot import Snapshot

if TYPE_CHECKING:
    from replog.client.client import Client
    from replog.status.server import StatusServer

__all__ = ["Measured"]


class Measured:
    """The part of `Broker` and `Cluster` that answers how they are."""

    def metrics(self, *, partitions: bool = False) -> Snapshot:
        """Every metric of docs/metrics.md as plain numbers. `partitions`: series of each partition as well. From any thread."""
        raise NotImplementedError

    def _onlooker(self) -> Client:
        """A client for the status page."""
        raise NotImplementedError

    def _changes(self) -> list[dict[str, object]]:
        """The last elections, changes of ISRs and events, the newest first."""
        raise NotImplementedError

    def serve_status(self, port: int = 0, *, host: str = "127.0.0.1", insecure: bool = False) -> StatusServer:
        """Serve the status page, `/health`, `/metrics` and `/status.json` over HTTP until `close`; `url` says where.

        Port 0 takes a free one. Whoever can reach it reads everything that it shows and changes nothing; beyond loopback it listens only
        with `insecure=True`. Raises UsageError for that, and when the system refuses the address.
        """
        from replog.status.server import StatusServer  # no HTTP for whoever needs none

        return StatusServer(
            self.metrics, self._onlooker, self._changes, host=host, port=port, insecure=insecure, owner=self
        )
