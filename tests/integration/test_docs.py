"""The pages in docs/ are true: their code runs, their links lead somewhere, and what they name exists."""

from __future__ import annotations

import argparse
import ast
import builtins
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import pytest
from tests.integration.test_readme import PAGES as ELSEWHERE
from tests.pages import ROOT, python, run_python

from replog.cli.command import make_parser
from replog.config import _TOPIC_ALIASES, BrokerConfig, ClientConfig, TopicConfig
from replog.metrics.names import BY_NAME
from replog.runtime.pump import LOUD
from replog.testing.simulator import invariants

DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", *DOCS]
WITH_SESSION = "docs/spark.md"  # its blocks need a Spark session, and are run in the tests of Spark
RUN_HERE = [page for page in DOCS if page not in (*ELSEWHERE, WITH_SESSION)]

FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SETTINGS = {field.name for cls in (TopicConfig, BrokerConfig, ClientConfig) for field in attrs.fields(cls)} | set(_TOPIC_ALIASES)
NO_SETTINGS = {"commit_ops_max", "since_ms", *BY_NAME}  # called like one: an attribute of a store, a key of an answer, and metrics
SETTING_LIKE = re.compile(r"[a-z]+(?:_[a-z]+)*_(?:ms|bytes|max|ms_max|bytes_max|per_s)")


# ------------------------------------------------------------------------------------------------------------------- code


@pytest.mark.processes
@pytest.mark.parametrize("code", [pytest.param(code, id=name) for page in RUN_HERE for name, code in python(page)])
def test_block_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "custom_store.py").write_text((ROOT / "examples" / "custom_store.py").read_text(encoding="utf-8"), encoding="utf-8")
    run_python(code, tmp_path)


def test_every_block_is_at_the_margin_where_it_is_found() -> None:
    for page in DOCS:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.count("```python") == len(python(page)), page
    assert {page for page in RUN_HERE if python(page)} >= {"docs/quickstart.md", "docs/operations.md"}


# ------------------------------------------------------------------------------------------------------------------ links


def prose(text: str) -> str:
    """A page without its code blocks."""
    return FENCED.sub("", text)


def anchor(heading: str) -> str:
    """What a heading is called in a link."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """All places of a page that a link may lead to."""
    return {anchor(found[1]) for found in re.finditer(r"^#+ (.*)$", prose(text), re.MULTILINE)}


def broken_links(page: Path) -> Iterator[str]:
    """Relative links that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"\[[^]]*\]\(([^)\s]+)\)", prose(text)):
        target, _, place = found[1].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target) if target else page
        if not path.exists():
            yield f"{page.name}: {found[1]}: there is no such file"
        elif place and place not in anchors(path.read_text(encoding="utf-8")):
            yield f"{page.name}: {found[1]}: there is no such heading"


def test_links_that_lead_nowhere_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One `two`: three\n\n[x](b.md) [y](#one-two-three) [z](#two) [w](https://example.com/#a)\n```text\n[v](c.md)\n```\n")
    assert list(broken_links(page)) == ["a.md: b.md: there is no such file", "a.md: #two: there is no such heading"]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert list(broken_links(ROOT / page)) == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page for page in DOCS if f"]({Path(page).name})" not in index] == ["docs/README.md"]


# ------------------------------------------------------------------------------------------------------------------ names


@cache
def words_of_the_code() -> frozenset[str]:
    """Every name and every word in a string in the sources, the tests, the tools and the examples."""
    words: set[str] = set(dir(builtins)) | set(BY_NAME) | {"current_timestamp"}  # and a function of Spark's SQL
    for folder in ("src", "tests/simulation", "tools", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            words.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
            words.update(path.parts)
            words.add(path.stem)
    return frozenset(words)


@cache
def strings_of_the_actors() -> frozenset[str]:
    """Every string that stands alone in what emits events, docstrings excepted."""
    found: set[str] = set()
    for folder in ("broker", "controller", "partition", "transport"):
        for path in (ROOT / "src" / "replog" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", node.value):
                    found.add(node.value)
    return frozenset(found)


def inline(text: str) -> list[str]:
    """All inline code of a page."""
    joined = re.sub(r"(?<!\n)\n(?![\n|#]|[-*] |\d+\. )", " ", prose(text))  # lines of a paragraph: code may go on in the next one
    return re.findall(r"`([^`\n]+)`", joined)


def unknown_names(text: str) -> list[str]:
    """Names in inline code that the code does not have."""
    said = [word for code in inline(text) for word in re.findall(r"(?<![\w./$<-])[A-Za-z_]\w*(?![\w/<-])", code)]
    names = [word for word in said if re.fullmatch(r"[a-z]+(_[a-z]+)+|[A-Z][a-z]+([A-Z][a-z]+)+", word)]
    return [name for name in dict.fromkeys(names) if name not in words_of_the_code()]


def unknown_settings(text: str) -> list[str]:
    """What looks like a key of a configuration, and is none."""
    said = [word for code in inline(text) for word in re.findall(r"(?<![\w.])[a-z_]+(?![\w(])", code)]
    return [word for word in dict.fromkeys(said) if SETTING_LIKE.fullmatch(word) and word not in SETTINGS | NO_SETTINGS]


def unknown_metrics(text: str) -> list[str]:
    """Names of metrics, in prose and in code, that there are not."""
    said = (re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\breplog_[a-z_]+[a-z]\b", text))
    return [name for name in dict.fromkeys(said) if name not in BY_NAME]


@pytest.mark.parametrize("page", PAGES)
def test_metrics_exist(page: str) -> None:
    assert unknown_metrics((ROOT / page).read_text(encoding="utf-8")) == []


def test_names_that_are_not_there_are_seen() -> None:
    assert unknown_metrics("replog_leaders `replog_leadres` replog_request_seconds_bucket") == ["replog_leadres"]
    assert unknown_names("`create_topics(1)` `create_topic` `NotEnoughReplica` `Unavailable`") == ["create_topics", "NotEnoughReplica"]
    assert unknown_settings("`session_ms=9` `sesion_ms` `--config retention_byte_max=1`") == ["sesion_ms", "retention_byte_max"]


@pytest.mark.parametrize("page", PAGES)
def test_names_exist(page: str) -> None:
    assert unknown_names((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", RUN_HERE)
def test_settings_exist(page: str) -> None:
    assert unknown_settings((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_events_of_the_handbook_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = text.partition("### Events")[2].partition("\n## ")[0]
    rows = [(re.findall(r"`(\w+)`", row[1]), row[2]) for row in re.finditer(r"^\| (`.*?) \| (\w+) \|", table, re.MULTILINE)]
    events = {name: level for names, level in rows for name in names}
    assert sorted(set(events) - strings_of_the_actors()) == []
    assert {name for name, level in events.items() if level == "warning"} == LOUD


def test_the_invariants_of_the_guarantees_are_those_of_the_simulator() -> None:
    numbers = {rule.name for rule in vars(invariants).values() if isinstance(rule, type) and issubclass(rule, invariants.Invariant)}
    numbers.discard("")
    said = set(re.findall(r"\bS\d+\b", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")))
    assert sorted(said - numbers) == []
    assert sorted(numbers - said) == ["S15", "S7"]  # states of the store and order of positions: means, and no promises


# ---------------------------------------------------------------------------------------------------------------- figures

NUMBER = r"\d+(?:[.,]\d+)*"
MEASURED = re.compile(rf"{NUMBER}(?: to {NUMBER})? (?:us|ms|s|KB|MB/s|%|times)(?!\w)")


def figures(text: str) -> list[str]:
    """What was measured, of a piece of a page: times, rates and shares, and bytes in the units of measurements (KB; limits are in KiB)."""
    return MEASURED.findall(" ".join(text.split()))


def ranges(text: str) -> list[str]:
    """All "0.1 to 0.2" of a page: in a table the unit stands at the head."""
    return re.findall(f"{NUMBER} to {NUMBER}", text)


def test_pages_repeat_what_the_page_about_costs_says() -> None:
    """Whoever sizes a deployment reads the same figures wherever he reads them; performance.md names the benchmark that prints each."""
    why, operations, costs = ((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("why.md", "operations.md", "performance.md"))
    repeated = figures(why.partition("## What it costs")[2].partition("\n## ")[0])
    sizes = figures(operations.partition("**Sizes.**")[2].partition("\nStart with")[0])
    assert min(len(repeated), len(sizes)) >= 5
    assert [one for one in (*repeated, *sizes) if one not in figures(costs) and one.rpartition(" ")[0] not in ranges(costs)] == []


def test_figures_are_seen() -> None:
    said = "in 0.09 to\n0.19 ms, 38 to 45 MB/s, 0.8 % of a core; 1.1 KB, 4.2 to 5.7 times; `fetch_bytes_max` (8 MiB), 10,000 topics"
    assert figures(said) == ["0.09 to 0.19 ms", "38 to 45 MB/s", "0.8 %", "1.1 KB", "4.2 to 5.7 times"]
    assert ranges(said) == ["38 to 45", "4.2 to 5.7"]


# --------------------------------------------------------------------------------------------------------------- commands


def set_in(text: str) -> list[str]:
    """Lines of a page that are code because they are set in."""
    return [line for line in prose(text).splitlines() if line.startswith("    ")]


def commands(text: str) -> list[str]:
    """Every command line of replog on a page: in blocks of shell, in lines that are set in, and inline."""
    lines = [line for kind, block in FENCED.findall(text) if kind in ("sh", "text") for line in block.splitlines()]
    lines += set_in(text)
    shell = [piece.strip() for line in lines for piece in re.split(r"&&|\|\||[|;]|\buntil !", line)]
    said = [code.strip() for code in inline(text.replace("\\|", "|"))]
    return [one for one in (*shell, *said) if re.match(r"replog [a-z]", one)]


def wrong_command(line: str) -> str | None:
    """Why there is no such command; None if there is. Only its words and its options are looked at, no values."""
    words = shlex.split(line.replace("'", ""), comments=True)[1:]
    parser: argparse.ArgumentParser = make_parser()
    passed = False  # whether the word before was an option, whose value this one may be
    for word in words:
        choices = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if word.startswith("--"):
            option = re.match(r"--[a-z-]+", word)
            if option is not None and option[0] not in parser._option_string_actions:
                return f"{line}: {parser.prog} has no option {option[0]}"
        elif choices and not passed and re.fullmatch(r"[a-z|-]+", word):
            known = choices[0]
            missing = [name for name in word.split("|") if name not in known]
            if missing:
                return f"{line}: {parser.prog} has no command {missing[0]}"
            parser = known[word.split("|")[0]]
        passed = word.startswith("-")
    return None


@pytest.mark.parametrize(
    ("line", "ok"),
    [
        ("replog topic create orders --partitions 2", True),
        ("replog topic create|list", True),
        ("replog topic make orders", False),
        ("replog healthy", False),
        ("replog health --exit", False),
        ("replog broker --id $id --data data/b$id 2>> data/b$id.log &", True),
    ],
)
def test_commands_that_are_not_there_are_seen(line: str, ok: bool) -> None:
    assert commands(f"`{line}`") == [line]
    assert (wrong_command(line) is None) is ok


def test_commands_that_are_set_in_are_seen() -> None:
    assert commands("So:\n\n    replog log repair data/b1\n\nand on.") == ["replog log repair data/b1"]


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    found = commands((ROOT / page).read_text(encoding="utf-8"))
    assert [wrong for wrong in map(wrong_command, found) if wrong] == []


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = (ROOT / page).read_text(encoding="utf-8")
    said = re.findall(r"(?:^ *|`)make ([a-z-]+)", text, re.MULTILINE)
    assert [target for target in said if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
