"""What proofs and TLS cost: an acknowledgement, a megabyte read, and a connection; plain, with secrets, and with TLS.

Run with `pytest benchmarks/test_security.py --benchmark-enable -s`. Three clusters of two broker processes each, and a client of each;
their loops take turns in one run. Medians; the processors are shared by all of them.
"""

from __future__ import annotations

import os
import secrets
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import report, timed

import replog
from replog.security.authority import make_authority, make_certificate

pytestmark = pytest.mark.processes

ROUNDS = 15
APPENDS = 30
READS = 10
MIB = 1 << 20


def settings(folder: Path, kind: str) -> dict[str, Path | None]:
    """The files of settings of brokers 1 and 2, and of the client."""
    if kind == "plain":
        return dict.fromkeys(("broker/1", "broker/2", "client/a"))
    texts = {}
    if kind == "secret":
        for name in ("broker", "admin"):
            path = folder / f"{name}.secret"
            path.write_text(secrets.token_hex(32))
            path.chmod(0o600)
        both = "[secret]\nbroker='broker.secret'\nadmin='admin.secret'\n"
        texts = {"broker/1": both, "broker/2": both, "client/a": "[secret]\nadmin='admin.secret'\n"}
    else:
        authority = make_authority(folder, days=2)
        for name, of in (("broker/1", "broker/1"), ("broker/2", "broker/2"), ("client/a", "admin/a")):
            made = make_certificate(folder, of, days=2)
            texts[name] = f"[tls]\nauthority='{authority}'\ncertificate='{made}'\nkey='{made.with_suffix('.key')}'\n"
    files: dict[str, Path | None] = {}
    for name, text in texts.items():
        path = folder / f"{name.replace('/', '-')}.toml"
        path.write_text(text)
        path.chmod(0o600)
        files[name] = path
    return files


def cluster(stack: ExitStack, folder: Path, kind: str) -> tuple[replog.Client, Callable[[], replog.Client]]:
    """A client of two brokers, with a topic that has a megabyte; and how another client is made."""
    folder.mkdir()
    files = settings(folder, kind)
    store = f"file://{folder}/store.db"
    running = [
        stack.enter_context(replog.BrokerProcess(n, data=folder / f"b{n}", store=store, security=files[f"broker/{n}"])) for n in (1, 2)
    ]
    endpoints = [one.endpoint for one in running]

    def another() -> replog.Client:
        return replog.connect(endpoints, security=files["client/a"])

    client = stack.enter_context(another())
    client.create_topic("t", replication_factor=2, max_batch_bytes=4 * MIB)
    client.create_topic("large", replication_factor=2, max_batch_bytes=4 * MIB)
    for _ in range(16):
        client.append("large", 0, [os.urandom(MIB // 16)])
    return client, another


def test_security(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    kinds = ("plain", "secret", "tls")
    taken: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        made = {kind: cluster(stack, tmp_path / kind, kind) for kind in kinds}

        def connect_once(kind: str) -> None:
            with made[kind][1]() as client:
                client.topics()

        def loops(kind: str) -> dict[str, tuple[Callable[[], object], int]]:
            client = made[kind][0]
            return {
                "append": (lambda: [client.append("t", 0, ["x" * 100]) for _ in range(APPENDS)], APPENDS),
                "fetch": (lambda: [client.fetch("large", 0, 0, max_bytes=MIB) for _ in range(READS)], READS),
                "connect": (lambda: connect_once(kind), 1),
            }

        def measure() -> None:
            for number in range(ROUNDS + 1):
                for what in ("append", "fetch", "connect"):
                    for kind in (*kinds[number % 3 :], *kinds[: number % 3]):  # whoever is first finds colder caches
                        loop, count = loops(kind)[what]
                        seconds = timed(loop) / count
                        if number:  # the first one warms up
                            taken.setdefault((what, kind), []).append(seconds)

        benchmark.pedantic(measure, rounds=1)
    medians = {each: statistics.median(seconds) for each, seconds in taken.items()}
    figures = {f"{what}_{kind}_us": seconds * 1e6 for (what, kind), seconds in medians.items()}
    for what in ("append", "fetch", "connect"):
        for kind in ("secret", "tls"):
            figures[f"{what}_{kind}_ratio"] = medians[what, kind] / medians[what, "plain"]
    report(benchmark, capsys, "security", figures)
