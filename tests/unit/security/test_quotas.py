"""Limits of clients, in code and in a file: what is refused, with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import UsageError
from replog.security.quotas import BYTES_PER_S_MIN, Quotas, quotas_of

FILE = """
produce_bytes_per_s = 10_000_000
burst_ms = 2_000

[clients."client/billing"]
produce_bytes_per_s = 50_000_000
fetch_bytes_per_s = 0

[clients."10.0.0.7"]
fetch_bytes_per_s = 1_000_000
"""


def rates(quotas: Quotas, name: str) -> tuple[int, int]:
    found = quotas.of(name)
    return found.produce_bytes_per_s, found.fetch_bytes_per_s


def written(folder: Path, text: str, mode: int = 0o644) -> Path:
    path = folder / "quotas.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_what_is_not_said_is_not_limited() -> None:
    quotas = replog.Quotas()
    assert rates(quotas, "client") == (0, 0)
    assert quotas.burst_ms == 1_000


def test_a_client_has_limits_of_its_own_in_place_of_those_for_everybody() -> None:
    quotas = Quotas(
        produce_bytes_per_s=100_000,
        fetch_bytes_per_s=200_000,
        clients={"client/a": {"produce_bytes_per_s": 0}, "admin": {"fetch_bytes_per_s": 300_000}, "::0001": {"fetch_bytes_per_s": 0}},
    )
    found = {name: rates(quotas, name) for name in ("client/a", "client/b", "admin", "admin/x", "::1")}
    assert found == {
        "client/a": (0, 200_000),
        "client/b": (100_000, 200_000),
        "admin": (100_000, 300_000),
        "admin/x": (100_000, 200_000),
        "::1": (100_000, 0),
    }


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    for quotas in (quotas_of(path), quotas_of(str(path)), Quotas.from_file(path)):
        assert quotas is not None
        assert quotas.burst_ms == 2_000
        assert [rates(quotas, name) for name in ("client/billing", "10.0.0.7", "else")] == [
            (50_000_000, 0), (10_000_000, 1_000_000), (10_000_000, 0),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"produce_bytes_per_s": -1}, "produce_bytes_per_s is -1; allowed are 0 .no limit. and 65536 to 9223372036854775807"),
        ({"fetch_bytes_per_s": BYTES_PER_S_MIN - 1}, "fetch_bytes_per_s is 65535; allowed"),
        ({"fetch_bytes_per_s": 2**63}, "is 9223372036854775808; allowed"),
        ({"produce_bytes_per_s": 1e6}, "is 1000000.0; allowed"),
        ({"produce_bytes_per_s": True}, "is True; allowed"),
        ({"burst_ms": -1}, "burst_ms is -1; allowed are 0 to 3600000"),
        ({"burst_ms": 3_600_001}, "burst_ms is 3600001; allowed"),
        ({"clients": ["client/a"]}, "clients is a mapping"),
        ({"clients": {"client/a": 1_000_000}}, "clients: 'client/a' has limits"),
        ({"clients": {"billing": {}}}, "clients: 'billing' is no client; there are client/NAME"),
        ({"clients": {"broker/1": {}}}, "clients: 'broker/1' is no client"),
        ({"clients": {"10.0.0.300": {}}}, "clients: '10.0.0.300' is no client"),
        ({"clients": {"::1": {}, "0::1": {}}}, "clients: '0::1' is given twice"),
        ({"clients": {7: {}}}, "clients: 7 is no client"),
        ({"clients": {"client/a": {"burst_ms": 1}}}, "client/a: it has no 'burst_ms'; it has produce_bytes_per_s, fetch_bytes_per_s"),
        ({"clients": {"client/a": {"produce_bytes_per": 1}}}, "did you mean 'produce_bytes_per_s'"),
        ({"clients": {"client/a": {7: 1}}}, "client/a: it has no 7; it has"),
        ({"clients": {"client/a": {"produce_bytes_per_s": 1}}}, "clients: client/a: produce_bytes_per_s is 1; allowed"),
    ],
)
def test_what_cannot_work_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Quotas(**arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("produce", "is no TOML"),
        ("produce_byte_per_s = 1_000_000", "it has no 'produce_byte_per_s'; did you mean 'produce_bytes_per_s'"),
        ("[client.a]", "it has no 'client'; did you mean 'clients'"),
        ("burst_ms = 'long'", "burst_ms is 'long'; allowed are 0 to 3600000"),
        ('[clients."client/a"]\nrate = 1', "clients: client/a: it has no 'rate'"),
    ],
)
def test_a_file_that_cannot_work_is_refused_by_its_name(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=words) as caught:
        Quotas.from_file(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mode 666"):
        Quotas.from_file(written(tmp_path, FILE, 0o666))


@pytest.mark.parametrize("given", ["", 7, {"burst_ms": 1}])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"quotas is a replog\.Quotas, or the path"):
        quotas_of(given)


def test_none_are_none() -> None:
    assert quotas_of(None) is None
