"""Installs what the peers need and is missing, as far as it can, and says what stays missing: `make bench-peers` does so first.

    python -m benchmarks.peers.installing python -m pip install

The arguments are the command that installs a package of PyPI. Servers are packages of Debian: `apt-get` installs them if it is there and
this is root. No service is started: while it installs, the machine's policy on services denies every start.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import etcd, nats, pysyncobj, rabbitmq, redis
from benchmarks.peers.servers import Needs

__all__ = ["PEERS", "install", "services_denied"]

PEERS: dict[str, Needs] = {
    "Redis": redis.NEEDS,
    "NATS JetStream": nats.NEEDS,
    "RabbitMQ streams": rabbitmq.NEEDS,
    "etcd": etcd.NEEDS,
    "PySyncObj": pysyncobj.NEEDS,
}
POLICY = Path("/usr/sbin/policy-rc.d")
"""What Debian asks whether an installed service may be started."""
_DENIED = 101
_SERVICES = ("redis-server", "nats-server", "rabbitmq-server", "etcd")


def install(peers: Mapping[str, Needs], install_python: Sequence[str], policy: Path = POLICY) -> dict[str, str]:
    """Install what is missing, each package by itself; returns for each peer what is still missing, or an empty string."""
    for needs in peers.values():
        if needs.debian and not needs.server():
            _install_debian(needs.debian, policy)
    for needs in peers.values():
        if needs.missing() and needs.pypi:
            subprocess.run([*install_python, needs.pypi], check=False)
    importlib.invalidate_caches()
    return {name: needs.missing() for name, needs in peers.items()}


def _install_debian(package: str, policy: Path) -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    with services_denied(policy) as denied:
        if not denied:
            print(f"{package} is not installed: {policy} would let its service start", flush=True)
            return
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
            subprocess.run(["apt-get", "update", "--quiet"], env=environment, stdout=subprocess.DEVNULL, check=False)
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)


@contextmanager
def services_denied(policy: Path = POLICY) -> Iterator[bool]:
    """Deny the start of services while the block runs, unless a policy is there already; yields whether starts are denied."""
    if policy.exists():
        yield all(subprocess.run([policy, service, "start"], check=False).returncode == _DENIED for service in _SERVICES)
        return
    policy.write_text(f"#!/bin/sh\nexit {_DENIED}\n")
    policy.chmod(0o755)
    try:
        yield True
    finally:
        policy.unlink()


if __name__ == "__main__":
    for _peer, _missing in install(PEERS, sys.argv[1:]).items():
        print(f"{_peer}: {_missing or 'is there'}", flush=True)
