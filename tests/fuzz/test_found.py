"""What mutants have found, kept: files and texts that were answered with something else than the declared error."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.fuzz import given, stored

from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.metadata.file import FileStore
from replog.metadata.looking import look_at_file
from replog.security.rules import parse_rules


def with_rows(said: str, folder: Path) -> bytes:
    """The file of a store after this statement."""
    file = folder / "changed"
    file.write_bytes(stored.databases()[0])
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(said)
    return file.read_bytes()


def damaged_schema() -> bytes:
    """SQLite tells of it in a text that is no UTF-8 itself."""
    return stored.databases()[0].replace(b"path TEXT NOT NULL UNIQUE, parent", b"path TEXT NOT NULL UNIQUE\xb3 parent")


@pytest.mark.parametrize("use", [lambda file: look_at_file(str(file), 0.0, stored._all_of), FileStore], ids=["look", "open"])
def test_a_file_whose_damage_sqlite_cannot_tell_in_utf8_is_damaged(use: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_bytes(damaged_schema())
    with pytest.raises(StoreCorrupt):
        use(file)


def damaged_length() -> bytes:
    """The first row on a page of an index is of so many bytes that SQLite finds no memory for it."""
    whole = bytearray(stored.databases()[0])
    at = whole.index(b"\x81\x73\x02\x07\x17")
    whole[at + 1 : at + 7] = b"\xff" * 5 + b"\x7f"
    return bytes(whole)


def test_a_file_that_asks_for_more_memory_than_there_is_is_damaged(tmp_path: Path) -> None:
    """To who writes as well, memory may be short: what became of a commit is not known then."""
    file = tmp_path / "store"
    file.write_bytes(damaged_length())
    file.chmod(0o600)
    with pytest.raises(StoreCorrupt, match="damaged"):
        look_at_file(str(file), 0.0, stored._all_of)
    with pytest.raises(ReplogError, match="damaged"):
        FileStore(file)


def test_names_that_are_no_text_are_damage_to_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_bytes(with_rows("UPDATE nodes SET name = x'ff' WHERE path = '/brokers'", tmp_path))
    file.chmod(0o600)
    with closing(FileStore(file)) as store, pytest.raises(StoreCorrupt):
        store.list("/")


@pytest.mark.parametrize(
    "said",
    [
        "UPDATE nodes SET version = 'three' WHERE path LIKE '/brokers/%'",
        "UPDATE nodes SET created = 'three' WHERE path LIKE '/brokers/%'",
        "UPDATE nodes SET name = x'ff' WHERE path = '/brokers'",
        "UPDATE nodes SET owner = x'ff' WHERE path LIKE '/brokers/%'",
        "UPDATE nodes SET implied = 'three' WHERE path LIKE '/brokers/%'",
    ],
)
def test_a_row_of_other_types_is_shown_as_damaged(said: str, tmp_path: Path) -> None:
    stored.database(with_rows(said, tmp_path))


NESTED = 20_000


@pytest.mark.parametrize(
    "text",
    ["allow = " + "[" * NESTED, "allow = " + "{a=" * NESTED, "allow = " + "9" * 5_000],
    ids=["lists", "tables", "digits"],
)
def test_rules_that_toml_cannot_take_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rules(text)


@pytest.mark.parametrize("read", [given.plan, given.positions, given.page, given.history], ids=lambda read: read.__name__)
@pytest.mark.parametrize("text", ["[" * NESTED, '{"a":' * NESTED, '{"partitions":' + "9" * 5_000 + "}"], ids=["lists", "objects", "digits"])
def test_json_that_python_cannot_take_is_refused(read: Callable[[bytes], None], text: str) -> None:
    read(text.encode())
