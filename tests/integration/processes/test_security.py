"""Clusters whose connections are protected: brokers find each other, clients are let in by what they prove, and commands too."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.authorities import BROKER_SECRET, CLIENT_SECRET, OTHER_SECRET, tls_of

import replog
from replog.errors import ClusterAuthorizationFailed, TopicAuthorizationFailed, Unavailable, UnknownTopicOrPartition, UsageError
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

QUICK = {"session_ms": 3_000, "heartbeat_ms": 300}
ADMIN_SECRET = b"of who may change" * 3
RULES = """
[[allow]]
principals = ["admin"]
actions = ["create", "alter", "describe"]
topics = ["*"]

[[allow]]
principals = ["client/shop"]
actions = ["write"]
topics = ["orders"]

[[allow]]
principals = ["client/bills"]
actions = ["read"]
topics = ["orders", "bills"]
"""


def secret_file(folder: Path, name: str, secret: bytes) -> Path:
    path = folder / name
    path.write_bytes(secret + b"\n")
    path.chmod(0o600)
    return path


def settings(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def brokers(stack: ExitStack, folder: Path, security: dict[int, Path]) -> list[replog.BrokerProcess]:
    """One process each."""
    made = [
        replog.BrokerProcess(n, data=folder / f"b{n}", store=f"file://{folder}/store.db", config=QUICK, security=path)
        for n, path in security.items()
    ]
    return [stack.enter_context(one) for one in made]


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, Path]:
    """Files of settings: of brokers, and of clients."""
    for name, secret in (("broker", BROKER_SECRET), ("client", CLIENT_SECRET), ("admin", ADMIN_SECRET), ("other", OTHER_SECRET)):
        secret_file(tmp_path, f"{name}.secret", secret)
    texts = {
        "broker": "[secret]\nbroker='broker.secret'\nclient='client.secret'\nadmin='admin.secret'\n",
        "client": "[secret]\nclient='client.secret'\n",
        "admin": "[secret]\nadmin='admin.secret'\n",
        "other": "[secret]\nclient='other.secret'\n",
    }
    return {name: settings(tmp_path, name, text) for name, text in texts.items()}


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "replog", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_three_brokers_and_clients_with_secrets(tmp_path: Path, secrets: dict[str, Path]) -> None:
    with ExitStack() as stack:
        running = brokers(stack, tmp_path, dict.fromkeys((1, 2, 3), secrets["broker"]))
        endpoints = ",".join(one.endpoint for one in running)
        done = command("topic", "create", "t", "-b", endpoints, "--security", str(secrets["admin"]))
        assert (done.returncode, done.stderr) == (0, "")
        with replog.connect(endpoints, security=secrets["client"]) as client:
            eventually(lambda: set(client.describe("t").partitions[0].isr) == {1, 2, 3})
            client.append("t", 0, ["one"])
            running[client.leader("t", 0) - 1].kill()
            client.append("t", 0, ["two"])
            assert [record.text() for record in client.read("t")] == ["one", "two"]
        done = command("read", "t", "-b", endpoints, REPLOG_SECURITY=str(secrets["client"]))
        assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
        with replog.connect(endpoints, security=secrets["other"]) as client:
            with pytest.raises(Unavailable, match="have not proven who you are") as caught:
                client.topics(timeout_s=5)
            assert any(one.endpoint in str(caught.value) for one in running)
        lines = [line for one in running for line in one.last_lines]
        assert any("authentication failed" in line and "WARNING" in line for line in lines)
        said = "\n".join([*lines, *(Path(f"/proc/{one.pid}/cmdline").read_text() for one in running if one.is_running)])
        assert "--security" in said
        assert not any(secret.decode() in said for secret in (BROKER_SECRET, CLIENT_SECRET, ADMIN_SECRET, OTHER_SECRET))


def test_three_brokers_with_certificates_beyond_loopback(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    names = {"broker/1", "broker/2", "broker/3", "client/a", "admin/b"}
    files = {}
    for name in sorted(names):
        tls = tls_of(folder, name)
        text = f"[tls]\nauthority='{tls.authority}'\ncertificate='{tls.certificate}'\nkey='{tls.key}'\n"
        files[name] = settings(tmp_path, name.replace("/", "-"), text)
    with ExitStack() as stack:
        running = brokers(stack, tmp_path, {n: files[f"broker/{n}"] for n in (1, 2, 3)})
        endpoints = [one.endpoint for one in running]
        with replog.connect(endpoints, security=files["admin/b"]) as admin:
            admin.create_topic("t", partitions=2, replication_factor=3)
        with replog.connect(endpoints, security=files["client/a"]) as client:
            eventually(lambda: all(set(p.isr) == {1, 2, 3} for p in client.describe("t").partitions))
            payload = [os.urandom(10_000) for _ in range(300)]
            client.append("t", 0, payload)
            assert [record.value for record in client.read("t", partitions=[0])] == payload
        with replog.connect(endpoints) as client, pytest.raises(Unavailable):
            client.topics(timeout_s=2)
    anywhere = {"listen": "tcp://0.0.0.0:0", "advertise": "tcp://127.0.0.1:0"}
    with replog.Broker(1, **anywhere, data=None, store=f"file://{tmp_path}/s.db", security=files["broker/1"]) as one:
        assert one.endpoint.startswith("tcp://127.0.0.1:")


def test_settings_of_commands_are_not_those_of_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLOG_SECURITY", str(tmp_path / "of a client"))
    with replog.BrokerProcess(1, data=None, store=f"file://{tmp_path}/s.db", config=QUICK) as one, replog.connect(one.endpoint) as client:
        assert client.topics() == []


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.org", "0", "127.1", "localhost.localdomain"])
def test_beyond_loopback_nobody_listens_without_tls(tmp_path: Path, host: str) -> None:
    secret = replog.Security(secret={"broker": BROKER_SECRET})
    for security in (None, secret):
        one = replog.Broker(1, listen=f"tcp://{host}:0", data=None, store=f"file://{tmp_path}/s.db", security=security)
        with pytest.raises(UsageError, match="insecure=True"):
            one.open()


def test_an_empty_host_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tcp://host:port"):
        replog.Broker(1, listen="tcp://:0", data=None, store=f"file://{tmp_path}/s.db").open()


def test_listening_insecurely_is_told_at_every_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        where = {"listen": "tcp://0.0.0.0:0", "advertise": "tcp://127.0.0.1:0", "store": f"file://{tmp_path}/s.db"}
        with replog.Broker(1, **where, data=tmp_path / "b", insecure=True):
            pass
    told = [record for record in caplog.records if record.args and record.args[0] == "listens_insecurely"]
    assert [record.levelname for record in told] == ["WARNING", "WARNING"]


def test_an_embedded_cluster_asks_its_clients_too() -> None:
    security = replog.Security(secret={"client": CLIENT_SECRET})
    with replog.Cluster(listen="tcp://127.0.0.1:0", brokers=1, security=security) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["a"])
        with replog.connect(cluster.endpoints, security=security) as client:
            assert [record.text() for record in client.read("t")] == ["a"]
        with replog.connect(cluster.endpoints) as client, pytest.raises(Unavailable, match="have not proven"):
            client.topics(timeout_s=4)


def test_roles_and_rules_of_a_whole_cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    rules = settings(tmp_path, "rules", RULES)
    ours = {"client/shop": CLIENT_SECRET, "client/bills": OTHER_SECRET, "admin": ADMIN_SECRET}
    security = replog.Security(secret=ours, authorizer=rules)
    with replog.Cluster(listen="tcp://127.0.0.1:0", security=security) as cluster, ExitStack() as stack:

        def connected(name: str) -> replog.Client:
            return stack.enter_context(replog.connect(cluster.endpoints, security=replog.Security(secret={name: ours[name]})))

        admin, shop, bills = (connected(name) for name in ("admin", "client/shop", "client/bills"))
        for name in ("orders", "bills"):
            admin.create_topic(name, replication_factor=3)
        assert admin.topics() == ["bills", "orders"]
        assert shop.topics() == ["orders"]
        shop.append("orders", 0, ["one"])
        with shop.producer() as producer:
            producer.send("orders", "two").result()
        with pytest.raises(TopicAuthorizationFailed, match="this client may not read topic 'orders'"):
            list(shop.read("orders"))
        assert [record.text() for record in bills.read("orders")] == ["one", "two"]
        with pytest.raises(TopicAuthorizationFailed, match="this client may not write topic 'orders'"):
            bills.append("orders", 0, ["no"])
        with pytest.raises(UnknownTopicOrPartition):
            shop.append("bills", 0, ["hidden"], timeout_s=5)
        with pytest.raises(ClusterAuthorizationFailed, match="needs the role admin; you are client/shop"):
            shop.create_topic("mine")
        with pytest.raises(TopicAuthorizationFailed, match="admin may not delete topic 'orders'"):
            admin.delete_topic("orders")
        admin.alter_topic("bills", min_isr=2)
        rules.write_text(RULES.replace('"client/bills"]', '"client/bills", "client/shop"]'))
        eventually(lambda: _reads(shop), 30)
    lines = [record.getMessage() for record in caplog.records if record.name == "replog.audit"]
    found = [re.sub(r" address=\S+", "", line) for line in lines]
    assert found == [
        "principal=admin action=create_topic topic=orders total=1 replication_factor=3 outcome=ok",
        "principal=admin action=create_topic topic=bills total=1 replication_factor=3 outcome=ok",
        "principal=client/shop action=create_topic topic=mine total=1 outcome=ClusterAuthorizationFailed",
        "principal=admin action=delete_topic topic=orders outcome=TopicAuthorizationFailed",
        'principal=admin action=alter_topic topic=bills config="min_isr=2" outcome=ok',
    ]


@pytest.mark.parametrize("proof", ["certificates", "secrets"])
def test_the_status_page_shows_the_whole_cluster_whatever_rules_hide_from_clients(tmp_path: Path, proof: str) -> None:
    rules = settings(tmp_path, "rules", RULES.replace('"admin"', '"admin/zoe"'))
    named = {"client/bills": CLIENT_SECRET, "admin/anna": OTHER_SECRET, "admin/zoe": ADMIN_SECRET}

    def security(number: int) -> replog.Security:
        if proof == "secrets":
            return replog.Security(secret={**named, "broker": BROKER_SECRET}, authorizer=rules)
        return replog.Security(secret=named, tls=tls_of(tmp_path / "authority", f"broker/{number}"), authorizer=rules)

    def of_client(name: str) -> replog.Security:
        tls = None if proof == "secrets" else replog.Tls(authority=str(tmp_path / "authority" / "authority.pem"))
        return replog.Security(tls=tls, secret={name: named[name]})

    def told() -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"{page.url}health", timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    made = [
        replog.Broker(n, listen="tcp://127.0.0.1:0", data=None, store=f"file://{tmp_path}/s.db", config=QUICK, security=security(n))
        for n in (1, 2)
    ]
    with made[0] as one, made[1] as two, one.serve_status() as page:
        for broker in made:
            broker.wait_until_ready()
        with replog.connect(one.endpoint, security=of_client("admin/zoe")) as admin:
            admin.create_topic("hidden", replication_factor=1, assignment={0: [2]})
        with urllib.request.urlopen(f"{page.url}status.json", timeout=60) as answer:
            (row,) = json.load(answer)["partitions"]["rows"]
        assert (row["topic"], row["high_watermark"]) == ("hidden", 0)  # which broker 2 has told
        with replog.connect(one.endpoint, security=of_client("client/bills")) as bills:
            assert bills.topics() == []
        two.stop(controlled=False)
        eventually(lambda: told()[0] == 503, 60)
        eventually(lambda: [place["topic"] for place in told()[1].get("leaderless", ())] == ["hidden"], 60)


def _reads(client: replog.Client) -> bool:
    try:
        return [record.text() for record in client.read("orders")] == ["one", "two"]
    except TopicAuthorizationFailed:
        return False


def test_whatever_a_cluster_writes_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with replog.Cluster(tmp_path / "above" / "it" / "c", brokers=2) as cluster, replog.Broker(
            7, listen="tcp://127.0.0.1:0", data=tmp_path / "over" / "b7", store=f"file://{tmp_path}/s.db"
        ) as broker:
            broker.wait_until_ready()
            cluster.create_topic("t", replication_factor=2, flush="ack")
            cluster.append("t", 0, ["a"])
            modes = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    assert len(modes) > 20
    assert [str(path) for path, mode in modes.items() if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)] == []
