"""What tests do to a session: end it from outside, see that everything due was delivered, and cut its connection."""

from __future__ import annotations

import select
import socket
import threading

from kazoo.client import KazooClient
from kazoo.protocol.states import Callback

from replog.metadata.zookeeper import ZooKeeperStore
from replog.testing.eventually import eventually

__all__ = ["CuttingProxy", "delivered", "expire"]


def expire(store: ZooKeeperStore) -> None:
    """End a session at once, as if its time had run out: another client takes it over and closes it. Waits until the store noticed."""
    client = store._connection.client
    twin = KazooClient(store._connection._hosts, client_id=client.client_id, timeout=10)
    twin.start()
    twin.stop()
    twin.close()
    eventually(lambda: repr(store).endswith("lost>"))


def delivered(store: ZooKeeperStore) -> None:
    """Wait until every watch that fired before now was delivered."""
    if repr(store).endswith("open>"):
        store.read("/nothing")  # answers come in line behind events
        done = threading.Event()
        store._connection._handler.dispatch_callback(Callback("session", done.set, ()))
        assert done.wait(30)


class CuttingProxy:
    """A TCP proxy on loopback that can swallow answers, cut all connections, and refuse new ones."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.swallowing = False
        self.refusing = False
        self.swallowed = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            for each in self._pairs:
                each.close()
            self._pairs.clear()
            self._clients.clear()

    def close(self) -> None:
        self._stopped = True
        self._thread.join()
        self.cut()
        self._listener.close()

    def _run(self) -> None:
        while not self._stopped:
            with self._lock:
                ready, _, _ = select.select([self._listener, *self._pairs], [], [], 0)
                for each in ready:
                    if each is self._listener:
                        self._accept()
                    elif each in self._pairs:
                        self._pass_on(each)
            if not ready:
                select.select([self._listener], [], [], 0.002)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self.refusing:
            client.close()
            return
        server = socket.create_connection(self._to)
        self._pairs |= {client: server, server: client}
        self._clients.add(client)

    def _pass_on(self, source: socket.socket) -> None:
        target = self._pairs[source]
        try:
            data = source.recv(65_536)
            if data and self.swallowing and source not in self._clients:
                self.swallowed += len(data)
                return
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for each in (source, target):
            self._pairs.pop(each, None)
            self._clients.discard(each)
            each.close()
