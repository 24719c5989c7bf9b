"""Real ZooKeeper servers for tests: one, or an ensemble of three. On free loopback ports, with their data in a folder of the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.java import java, spark_jars

from replog.testing.eventually import eventually

__all__ = ["Ensemble", "ZooKeeperServer", "free_ports"]

JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
TICK_MS = 200
STARTS_MAX = 5
# The server ends with this shell, whatever becomes of the tests: its standard input is theirs.
KEEPER = '"$@" & pid=$!; echo $pid; cat > /dev/null; kill -9 $pid; wait $pid 2> /dev/null'


class ZooKeeperServer:
    """One server process. Kill it and start it again as you like; port and data stay."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        number: int | None = None,
        members: str = "",
        heap_mib: int = 128,
        jars: tuple[str, ...] = JARS,
    ) -> None:
        self.port = port or free_ports(1)[0]
        self._heap_mib = heap_mib
        self._jars = jars
        self._folder = folder
        self._number = number
        self._members = members
        self._may_move = port is None
        self._keeper: subprocess.Popen[str] | None = None
        self.pid = 0
        folder.mkdir(parents=True)
        if number is not None:
            (folder / "data").mkdir()
            (folder / "data" / "myid").write_text(str(number))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> ZooKeeperServer:
        """Start it, and wait until it answers; at another port if somebody was faster."""
        for _ in range(STARTS_MAX):
            self._launch()
            if not wait or eventually(self._up_or_gone) == "up":
                return self
            assert self._may_move, f"the server at {self.address} ended: {self.log()}"
            self.kill()
            self.port = free_ports(1)[0]
        raise AssertionError(f"no server after {STARTS_MAX} tries: {self.log()}")

    def _launch(self) -> None:
        configuration = self._folder / "zoo.cfg"
        configuration.write_text(
            f"dataDir={self._folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\ntickTime={TICK_MS}\n"
            "initLimit=50\nsyncLimit=25\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n"
            "minSessionTimeout=400\nmaxSessionTimeout=60000\nforceSync=no\n" + self._members
        )
        main = "ZooKeeperServerMain" if self._number is None else "quorum.QuorumPeerMain"
        jars = [str(jar) for name in self._jars for jar in spark_jars().glob(f"{name}-[0-9]*.jar")]
        flags = [f"-Xmx{self._heap_mib}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars)]
        with (self._folder / "log").open("a") as log:
            self._keeper = subprocess.Popen(
                ["sh", "-c", KEEPER, "sh", java(), *flags, f"org.apache.zookeeper.server.{main}", str(configuration)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline())

    def _up_or_gone(self) -> str:
        if self.asked("ruok") == "imok":
            return "up"
        return "gone" if not self._lives() else ""

    def _lives(self) -> bool:
        try:
            with open(f"/proc/{self.pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def asked(self, word: str) -> str:
        """What the server says to a four-letter word; empty if it says nothing."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4_096), b"")).decode()
        except OSError:
            return ""

    def mode(self) -> str:
        """`standalone`, `leader`, `follower`, or empty while it is none of these."""
        lines = (line.partition(": ") for line in self.asked("srvr").splitlines())
        return next((value for key, _, value in lines if key == "Mode"), "")

    def signal(self, number: signal.Signals) -> None:
        """Send the server a signal: SIGSTOP, SIGCONT."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end. Nothing happens if it does not run."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.close()
            self._keeper.wait()
            self._keeper.stdout.close()
            self._keeper = None

    def log(self) -> str:
        """The end of what it printed."""
        return (self._folder / "log").read_text()[-2_000:]


class Ensemble:
    """Three servers."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(9)
        clients, others = ports[:3], ports[3:]
        members = "".join(f"server.{n + 1}=127.0.0.1:{others[2 * n]}:{others[2 * n + 1]}\n" for n in range(3))
        self.members = [
            ZooKeeperServer(folder / f"server-{n + 1}", port=clients[n], number=n + 1, members=members) for n in range(3)
        ]

    @property
    def addresses(self) -> str:
        return ",".join(member.address for member in self.members)

    def leader(self) -> ZooKeeperServer | None:
        """Who leads; None while nobody does."""
        return next((member for member in self.members if member.mode() == "leader"), None)

    @contextmanager
    def running(self) -> Iterator[Ensemble]:
        """All three, serving, until the block ends."""
        try:
            for member in self.members:
                member.start(wait=False)
            eventually(lambda: sorted(member.mode() for member in self.members) == ["follower", "follower", "leader"], 60)
            yield self
        finally:
            for member in self.members:
                member.kill()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
