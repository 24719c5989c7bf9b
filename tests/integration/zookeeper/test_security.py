"""ZooKeeper with credentials, with TLS, and with a root that anybody may change."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.authorities import tls_of
from tests.integration.zookeeper.conftest import OpenStore
from tests.integration.zookeeper_server import JARS, ZooKeeperServer, free_ports

from replog.errors import ReplogError, TimedOut, UsageError
from replog.metadata.zookeeper.looking import look_at_zookeeper
from replog.ports import Create
from replog.runtime.urls import open_store as open_url
from replog.security.settings import Tls

pytestmark = pytest.mark.zookeeper

AUTH = ("digest", "replog", "a password that nobody guesses")
NETTY = tuple(
    f"netty-{name}"
    for name in (
        "buffer", "codec", "codec-base", "common", "handler", "resolver", "transport", "transport-classes-epoll",
        "transport-native-epoll", "transport-native-unix-common",
    )
)  # fmt: skip


def auth_file(folder: Path) -> Path:
    path = folder / "auth"
    path.write_text(f"{AUTH[1]}:{AUTH[2]}\n")
    path.chmod(0o600)
    return path


# ------------------------------------------------------------------------------------------------------------ access lists


def test_a_root_that_anybody_may_change_is_refused(open_store: OpenStore, address: str) -> None:
    open_store()  # makes it without credentials
    with pytest.raises(UsageError, match="anybody may change /test-"):
        open_store(auth=AUTH, secure=True)
    with pytest.raises(UsageError, match="needs auth"):
        open_store(secure=True)


def test_the_root_of_a_server_is_one(open_store: OpenStore, server: ZooKeeperServer) -> None:
    with pytest.raises(UsageError, match="anybody may change / in ZooKeeper"):
        open_store(server.address, auth=AUTH, secure=True)


def test_a_new_root_is_the_creators_alone(open_store: OpenStore, address: str, server: ZooKeeperServer) -> None:
    store = open_store(auth=AUTH, secure=True)
    store.commit([Create("/a/b", b"x")])
    assert store.session().read("/a/b") is not None
    hosts, _, chroot = address.partition("/")
    client = KazooClient(hosts, auth_data=[("digest", ":".join(AUTH[1:]))])
    client.start(timeout=30)
    try:
        for path in ("", "/a", "/a/b"):
            acls, _ = client.get_acls(f"/{chroot}{path}")
            assert [(one.id.scheme, one.perms) for one in acls] == [("digest", 31)]
    finally:
        client.stop()
        client.close()


def test_a_url_names_the_file_with_the_credentials(address: str, tmp_path: Path) -> None:
    url = f"zookeeper://{address}?auth={auth_file(tmp_path)}&secure=true&session_ms=4000"
    with open_url(url, session_ms=9_000) as store:
        assert store.session_ms == 4_000
        store.commit([Create("/a", b"x")])
        assert "password" not in repr(store)
    found = look_at_zookeeper(address, 30, lambda look: look.read(["/a"]), auth=AUTH)
    assert found[0] is not None
    assert found[0].value == b"x"
    found = look_at_zookeeper(address, 30, lambda look: look.read(["/a"]))
    assert found[0] is not None
    assert "does not allow" in found[0].problem


# --------------------------------------------------------------------------------------------------------------------- TLS


def server_files(folder: Path, name: str) -> Path:
    """Key and certificate of a server, as ZooKeeper takes them; a certificate that names this host."""
    tls_of(folder, "broker/1")  # and the authority
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=zk"]
    words += ["-CA", f"{folder}/authority.pem", "-CAkey", f"{folder}/authority.key", "-keyout", str(key), "-out", str(certificate)]
    words += ["-addext", f"subjectAltName={name}", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    both = folder / f"{name}-both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that asks for certificates of its clients, and the folder of the authority of both."""
    folder = tmp_path_factory.mktemp("authority")
    files, port = server_files(folder, "IP:127.0.0.1"), free_ports(1)[0]
    more = f"secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nssl.clientAuth=need\n"
    more += f"ssl.keyStore.location={files}\nssl.keyStore.type=PEM\n"
    more += f"ssl.trustStore.location={folder}/authority.pem\nssl.trustStore.type=PEM\n"
    more += "ssl.hostnameVerification=false\n"  # of clients, which have no names
    server = ZooKeeperServer(tmp_path_factory.mktemp("encrypted") / "server", members=more, jars=(*JARS, *NETTY)).start()
    yield f"127.0.0.1:{port}", folder
    server.kill()


def test_a_store_over_tls(encrypted: tuple[str, Path], tmp_path: Path, open_store: OpenStore) -> None:
    address, folder = encrypted
    tls = tls_of(folder, "broker/1")
    store = open_store(f"{address}/tls", tls=tls, auth=AUTH, secure=True)
    large = bytes(range(256)) * 2_000
    store.commit([Create("/a", large)])
    found = store.session().read("/a")
    assert found is not None
    assert found.value == large
    url = f"zookeeper://{address}/tls?auth={auth_file(tmp_path)}&authority={tls.authority}&certificate={tls.certificate}&key={tls.key}"
    with open_url(url, session_ms=9_000) as another:
        assert another.list("/") == ["a"]


def test_a_server_of_another_authority_or_name_is_not_believed(
    encrypted: tuple[str, Path], tmp_path: Path, open_store: OpenStore
) -> None:
    address, folder = encrypted
    tls = tls_of(folder, "broker/1")
    stranger = Tls(authority=tls_of(tmp_path / "other", "broker/1").authority, certificate=tls.certificate, key=tls.key)
    with pytest.raises(ReplogError) as caught:
        open_store(f"{address}/tls", tls=stranger, timeout_s=3)
    assert isinstance(caught.value, TimedOut)
    assert "; the last that was tried: its certificate is not accepted" in str(caught.value)
    elsewhere = "localhost:" + address.partition(":")[2]  # which its certificate does not name
    with pytest.raises(TimedOut):
        open_store(f"{elsewhere}/tls", tls=tls, timeout_s=3)
    with pytest.raises(TimedOut):
        open_store(f"{address}/tls", timeout_s=3)
