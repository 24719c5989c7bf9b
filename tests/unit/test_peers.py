"""What the benchmarks beside other systems rest on: servers that end, packages that start nothing, and ratios the right way up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.peers import comparison, installing
from benchmarks.peers import servers as servers_module
from benchmarks.peers.etcd import put_request, txn_request
from benchmarks.peers.servers import Needs, Servers
from benchmarks.targets import Target

# Says its process id, and goodbye when it is asked to end; a deaf one does not listen.
SERVER = """
import os, pathlib, signal, sys
place = pathlib.Path(sys.argv[1])
def end(*_):
    place.with_suffix(".bye").touch()
    sys.exit()
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2:] else end)
place.with_suffix(".new").write_text(str(os.getpid()))
place.with_suffix(".new").rename(place)
signal.pause()
"""
APT = """#!/bin/sh
echo "$@" >> {folder}/asked
[ -x {policy} ] || echo "a service was started" >> {folder}/asked
[ "$1" != install ] || [ -e {folder}/updated ] || exit 100
[ "$1" != update ] || touch {folder}/updated
[ "$1" != install ] || ln -s /bin/true {folder}/surely-no-server
"""
INSTALL = "install --yes --quiet --no-install-recommends surely-a-package"
NEEDS = Needs(program="surely-no-server", debian="surely-a-package", module="surely_no_module", pypi="surely-no-package")

# ---------------------------------------------------------------------------------------------------------------------- servers


@pytest.mark.parametrize("deaf", [(), ("deaf",)], ids=["hears", "deaf"])
def test_servers_are_gone_after_the_block(tmp_path: Path, deaf: tuple[str, ...]) -> None:
    pids = []
    with Servers(tmp_path, end_s=0.2 if deaf else 15) as servers:
        for number in range(2):
            place = tmp_path / f"pid-{number}"
            servers.start(f"server-{number}", [sys.executable, "-c", SERVER, str(place), *deaf])
            pids.append(int(servers.eventually(lambda place=place: place.exists() and place.read_text())))  # type: ignore[misc]
        for pid in pids:
            os.kill(pid, 0)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(list(tmp_path.glob("*.bye"))) == (0 if deaf else 2), "one that hears is asked, and not killed"


def test_who_waits_is_told_the_last_words_of_a_server_that_ended(tmp_path: Path) -> None:
    with Servers(tmp_path) as servers:
        servers.start("first", [sys.executable, "-c", SERVER, str(tmp_path / "pid")])
        servers.start("second", [sys.executable, "-c", "import sys; sys.exit('no place to listen')"])
        with pytest.raises(RuntimeError, match="second ended with status 1: no place to listen"):
            servers.eventually(lambda: False)


# ------------------------------------------------------------------------------------------------------------------- installing


def test_what_is_missing_is_named_with_the_package_that_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert NEEDS.missing().endswith("no surely-no-server on PATH to compare with (Debian: apt-get install surely-a-package)")
    (tmp_path / NEEDS.program).symlink_to("/bin/true")
    assert NEEDS.missing().endswith("no Python package surely_no_module to compare with (PyPI: pip install surely-no-package)")
    assert Needs(program=NEEDS.program, module="pytest").missing() == ""


def test_a_server_is_found_where_debian_puts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(servers_module, "SBIN", str(tmp_path))
    assert NEEDS.server() == ""
    (tmp_path / NEEDS.program).symlink_to("/bin/true")
    assert NEEDS.server() == str(tmp_path / NEEDS.program)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[str]]:
    """A machine whose only programs are apt-get, and pip; gives what they were asked for."""
    (tmp_path / "apt-get").write_text(APT.format(folder=tmp_path, policy=tmp_path / "policy"))
    (tmp_path / "pip").write_text(f"#!/bin/sh\necho pip $@ >> {tmp_path}/asked\n")
    for program in ("apt-get", "pip"):
        (tmp_path / program).chmod(0o755)
    for program in ("ln", "touch"):
        (tmp_path / program).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked = tmp_path / "asked"
    return lambda: asked.read_text().splitlines() if asked.exists() else []


def test_packages_are_installed_and_no_service_starts(machine: Callable[[], list[str]], tmp_path: Path) -> None:
    left = installing.install({"Peer": NEEDS}, ["pip", "install"], tmp_path / "policy")
    assert machine() == [INSTALL, "update --quiet", INSTALL, "pip install surely-no-package"]
    assert not (tmp_path / "policy").exists()
    assert "pip install surely-no-package" in left["Peer"], "this pip installs nothing"


def test_what_is_there_is_not_installed(machine: Callable[[], list[str]], tmp_path: Path) -> None:
    (tmp_path / NEEDS.program).symlink_to("/bin/true")
    peers = {"Peer": Needs(program=NEEDS.program, debian=NEEDS.debian, module="pytest", pypi="pytest")}
    assert installing.install(peers, ["pip", "install"], tmp_path / "policy") == {"Peer": ""}
    assert machine() == []


def test_only_root_installs_servers(machine: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    left = installing.install({"Peer": NEEDS}, ["pip", "install"], tmp_path / "policy")
    assert machine() == ["pip install surely-no-package"]
    assert "apt-get install surely-a-package" in left["Peer"]


@pytest.mark.parametrize(("status", "denied"), [(101, True), (0, False)])
def test_a_policy_that_is_there_is_asked_and_kept(
    machine: Callable[[], list[str]], tmp_path: Path, status: int, denied: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy"
    policy.write_text(f"#!/bin/sh\nexit {status}\n")
    policy.chmod(0o755)
    installing.install({"Peer": NEEDS}, ["pip", "install"], policy)
    assert (INSTALL in machine()) == denied
    assert policy.read_text() == f"#!/bin/sh\nexit {status}\n"
    assert ("would let its service start" in capsys.readouterr().out) == (not denied)


# ----------------------------------------------------------------------------------------------------------------- what is said


def test_requests_of_etcd_are_protocol_buffers() -> None:
    put = put_request(b"k", b"v")
    assert put == b"\x0a\x01k\x12\x01v"
    assert put_request(b"k", bytes(300))[:6] == b"\x0a\x01k\x12\xac\x02"
    assert txn_request([put, put]) == 2 * (b"\x12\x08\x12\x06" + put)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The figures that are reported, and the bounds of targets."""
    figures: dict[str, float] = {}

    def report(_benchmark: Any, _capsys: Any, _name: str, these: dict[str, float], *targets: Target) -> None:
        figures.update(these)
        figures.update({f"target of {one.figure}": one.bound for one in targets})

    monkeypatch.setattr(comparison, "report", report)
    return figures


BENCHMARK = SimpleNamespace(pedantic=lambda *_, **__: None, extra_info={})


def test_a_ratio_says_how_many_times_as_fast_as_the_peer(monkeypatch: pytest.MonkeyPatch, told: dict[str, float]) -> None:
    taken = {"replog": [1.0, 2.0, 0.5], "peer": [2.0, 2.0, 2.0], "bare": [0.5, 1.0, 0.5]}
    monkeypatch.setattr(comparison, "by_turns", lambda loops, *_, **__: {side: taken[side] for side in loops})
    comparison.compare_bulk(BENCHMARK, None, "peer best mode", [bytes(100)] * 1000, list, list, rounds=3, target=3, bare=list)
    assert told["target of ratio"] == 3
    assert (told["ratio"], told["ratio_min"], told["ratio_max"]) == (2.0, 1.0, 4.0)
    assert (told["replog_records_per_s"], told["peer_records_per_s"], told["replog_mb_per_s"]) == (1000, 500, 0.1)
    assert (told["bare_ratio"], told["replog_of_bare"]) == (4.0, 0.5)


def test_what_is_not_measured_caps_nothing(monkeypatch: pytest.MonkeyPatch, told: dict[str, float]) -> None:
    monkeypatch.setattr(comparison, "by_turns", lambda loops, *_, **__: {side: [1.0] for side in loops})
    comparison.compare_bulk(BENCHMARK, None, "peer best mode", [bytes(100)], list, list, rounds=1, target=3)
    assert told["ratio"] == 1.0
    assert not [name for name in told if "bare" in name]


def test_acknowledgements_are_compared_by_rounds_without_the_first(monkeypatch: pytest.MonkeyPatch, told: dict[str, float]) -> None:
    client: Any = None
    ours, theirs = iter([99.0, 1.0, 2.0, 4.0]), iter([1.0, 4.0, 4.0, 4.0])
    monkeypatch.setattr(comparison, "times_of", lambda _, count: [next(ours)] * count)
    comparison.compare_acknowledgements(
        BENCHMARK, None, client, "peer put", lambda _, count: [next(theirs)] * count, acks=2, rounds=3
    )
    assert (told["ratio"], told["ratio_min"], told["ratio_max"]) == (2.0, 1.0, 4.0)
    assert "target of ratio" not in told
    assert (told["replog_us"], told["peer_us"], told["rounds"]) == (2e6, 4e6, 3)
