"""What somebody at a terminal may do next about what a command raised: the line `next:` behind an error."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Final

from replog.errors import Code, Rejected, ReplogError, Unavailable

__all__ = ["next_step", "typed"]

_COMMAND: Final = re.compile(r"`([^`]*)`")
"""A command in a text of these tables: without the word `replog`, and with {topic} and {partition} for words of their own."""

_LOOK: Final = "`explain {topic}` says who is missing, and why"
_STORED: Final = "`read {topic}` shows what was stored"
_UNLED: Final = "`explain {topic} {partition}` says why"
_STEPS: Final = {
    Code.LEADER_NOT_AVAILABLE: "`explain {topic}` says why",
    Code.NOT_ENOUGH_REPLICAS: _LOOK,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _LOOK,
    Code.OFFSET_OUT_OF_RANGE: "`topic describe {topic}` says which offsets there are; --start earliest takes the first",
    Code.REASSIGNMENT_IN_PROGRESS: "`reassign status` shows it; `reassign cancel PLAN` takes back what a plan names, --all everything",
    Code.NO_REASSIGNMENT_IN_PROGRESS: (
        "`reassign status` shows what is under way; what is done is taken back by `reassign execute FILE`, with the FILE of --undo"
    ),
    Code.LOG_DIRECTORY_FULL: "`topic describe {topic}` names the leader; its log says which disk or limit is full (log full)",
    Code.BROKER_ID_NOT_REGISTERED: "`health` says which brokers there are",
}
"""What helps, whichever command was refused."""
_TOPICS: Final = "`topic list` names the topics there are"
_MAKES: Final = "`topic create {topic}` makes this one"
_UNPROVEN: Final = "--security FILE, or REPLOG_SECURITY, names the settings with the secret or the certificate that this cluster knows"
_NOBODY: Final = "see whether a broker runs there; --bootstrap names others, --timeout waits for longer"
_CLOSED: Final = (
    "something listens there and hangs up; its log says why; for a broker with TLS, --security FILE, or REPLOG_SECURITY, has the settings"
)
_CERTIFIED: Final = (
    'docs/security.md, "When somebody is not let in", says what each reason means; '
    "--security FILE, or REPLOG_SECURITY, names the files of this side"
)
_PAGE: Final = "see whether the broker runs, and was started with --http and this address"
_STORE: Final = "see whether the store is up; --timeout waits for longer"
_ELSEWHERE: Final = "`health` says what is wrong with the cluster; --timeout waits for longer"
_LOOKS: Final = {
    "topics:create": "`topic describe {topic}` says whether it was made",
    "topics:delete": "`topic list` says whether it is still there",
    "reshape:alter": "`topic describe {topic}` says how it is now",
    "reshape:add_partitions": "`topic describe {topic}` says how many it has now",
    "reshape:remove_partitions": "`topic describe {topic}` says how many it has now",
    "reassign:execute": "`reassign status` says what is queued and under way now",
    "reassign:cancel": "`reassign status` says what is queued and under way now",
    "leaders:elect": "`topic describe` says who leads now",
    "leaders:drain": "`health` says what the cluster is like now",
    "levels:raise_level": "`cluster show` says which level it has now",
    "records:produce": f"{_LOOK}; {_STORED}",
}
"""What says whether a change was made whose answer has not come, although somebody is there."""
_HEARD: Final = re.compile(r"\bbroker [0-9]+\b|the last answer was|answer to a repetition")
_UNHEARD: Final = re.compile(r"answer of any broker|not reached: tcp://|no connection can be opened")
"""In what the client says of its waiting: that somebody of the cluster was found, or nobody; ..."""
_HUNG_UP: Final = re.compile(r"not reached: (tcp://\S+ \([^()]*\), )*tcp://\S+ \(closed by the peer\)")
_NO_TLS: Final = re.compile(r"not reached: .*\((it does not speak TLS|it has (ended|reset) the connection|[^()]*certificate)")
"""... that somebody was there who hung up, or that TLS or a certificate was in the way; ..."""
_NO_LEADER: Final = re.compile(r"\bfor (\S+)-([0-9]+) to have a leader\b")
"""... and that the partition had no leader: whoever said so was there, whichever other broker was not reached."""


def typed(asked: argparse.Namespace, *words: str) -> str:
    """A command as it is to be typed after the one `asked`: with the options by which that found the cluster."""
    options = [("--bootstrap", asked.bootstrap), ("--security", asked.security)]
    given = [word for name, value in options if value is not None for word in (name, value)]
    return shlex.join(["replog", *given, *words])


def next_step(problem: ReplogError, asked: argparse.Namespace, *, is_misspelt: bool = False) -> str:
    """What may be done about what the command `asked` raised; empty where the problem says so itself, or nothing helps.

    `is_misspelt`: a name near the one that nobody knows was told already.
    """
    topic, partition = getattr(asked, "topic", None), ""
    step = _step(problem, asked, is_misspelt=is_misspelt)
    if isinstance(problem, Rejected):
        topic = problem.topic or topic
    elif found := _NO_LEADER.search(str(problem)):
        topic, partition = found[1], found[2]

    def command(found: re.Match[str]) -> str:
        words: list[str] = []
        for word in found[1].split():
            if word == "{partition}":
                words.append(partition)
            elif word != "{topic}":
                words.append(word)
            elif isinstance(topic, str):
                words += ["--", topic] if topic.startswith("-") else [topic]
        return typed(asked, *words)

    return _COMMAND.sub(command, step)


def _step(problem: ReplogError, asked: argparse.Namespace, *, is_misspelt: bool) -> str:
    """As `next_step`, with its commands as they stand in the tables."""
    if isinstance(problem, Unavailable):
        return _unanswered(str(problem), asked)
    if not isinstance(problem, Rejected):
        return ""
    if problem.code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        if problem.partition is not None and "unknown topic" not in str(problem):
            return ""  # it says which there are
        return f"{_TOPICS}, {_MAKES}" if asked.run == "records:produce" and not is_misspelt else _TOPICS
    return _STEPS.get(problem.code, "")


def _unanswered(text: str, asked: argparse.Namespace) -> str:
    """What to do where nobody answered: who should have is not the same for all commands."""
    module = asked.run.partition(":")[0]
    if module == "demo":  # it starts what it waits for
        return ""
    if "have not proven who you are" in text:
        return _UNPROVEN
    if module in ("broker", "stores"):
        return _STORE if module == "stores" else ""
    if getattr(asked, "url", None) or any(text.startswith(url.rstrip("/")) for url in getattr(asked, "urls", ())):
        return _PAGE
    if _NO_LEADER.search(text):
        may_be_stored = asked.run == "records:produce" and "it was never sent" not in text
        return f"{_UNLED}; {_STORED}" if may_be_stored else _UNLED
    if _UNHEARD.search(text) and not _HEARD.search(text):  # then no other command would be answered either
        return _CERTIFIED if _NO_TLS.search(text) else _CLOSED if _HUNG_UP.search(text) else _NOBODY
    return _LOOKS.get(asked.run, _ELSEWHERE)
