"""The commands and their arguments: what may be typed, and what is said of what may not."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final, NoReturn

from replog.cli import arguments as parse
from replog.cli.completion import SHELLS
from replog.cli.context import BOOTSTRAP
from replog.cli.exits import EXITS, USAGE
from replog.cli.spoken import nearest
from replog.cli.templates import FIELDS, template
from replog.security.settings import VARIABLE

__all__ = ["Misspelt", "Parser", "check_broker", "make_parser", "wants_json"]

_RAW: Final = argparse.RawDescriptionHelpFormatter
_PLAIN: Final = "numbers of bytes and times as plain numbers (default: 1.5 KiB, 3 min 20 s)"
"""What --raw means, unless the command says otherwise."""
_WATCH: Final[dict[str, Any]] = {"nargs": "?", "type": parse.interval, "const": 1.0, "metavar": "SECONDS"}
"""An option that may say how much time is between two looks."""


class Misspelt(SystemExit):
    """What was typed is no command. Who typed it has been told."""

    def __init__(self, why: str, step: str) -> None:
        super().__init__(USAGE)
        self.why = why
        self.step = step


def wants_json(words: Sequence[str]) -> bool:
    """Whether somebody asks for JSON, as far as words say it that need not be a command."""
    options = list(words[: words.index("--")] if "--" in words else words)
    formats = [after for word, after in pairwise(options) if word == "--format"]
    return "--format=json" in options or "json" in formats


class Parser(argparse.ArgumentParser):
    """Names the nearest word that is known, and where all of them stand."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """As argparse does; an option that is not known is refused by the command that it was given to."""
        asked: argparse.Namespace
        asked, rest = self.parse_known_args(args, namespace)
        if rest:
            owner: Parser = getattr(asked, "parser", self)
            unknown = next((word for word in rest if word.startswith("-")), None)
            known = [name for name in owner._option_string_actions if name.startswith("--")]
            hint = "" if unknown is None else nearest(unknown.partition("=")[0], known)
            owner.error(f"unrecognized arguments: {shlex.join(rest)}{hint}")
        return asked

    def error(self, message: str) -> NoReturn:
        """End the command with status 2: what is wrong, and where it is said what is right."""
        self.print_usage(sys.stderr)
        step = f"{self.prog} --help"
        self._print_message(f"{self.prog}: error: {message}\nnext: {step}\n", sys.stderr)
        raise Misspelt(message, step)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Raises OSError where stdout cannot be written: argparse would say nothing, and end with 0."""
        try:
            if message and file is not None:
                file.write(message)
        except OSError:
            if file is sys.stdout:
                raise

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            words = [str(one) for one in action.choices]
            raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(words)}{nearest(str(value), words)}")


@cache
def make_parser() -> argparse.ArgumentParser:
    """The whole command line. It takes 20 ms to make, and nothing changes it: a program that runs many commands makes it once."""
    from replog import __version__

    parser = Parser(
        prog="replog", description="A replicated log.", epilog=EXITS, formatter_class=_RAW, parents=[_common()], allow_abbrev=False
    )
    parser.set_defaults(bootstrap=None, format="table", raw=False, security=None, timeout=None)
    parser.add_argument("--version", action="version", version=f"replog {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(group: Any, name: str, place: str, text: str, raw: str = _PLAIN) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = group.add_parser(
            name, parents=[_common(raw)], help=text, description=text, epilog=EXITS, formatter_class=_RAW, allow_abbrev=False
        )
        made.set_defaults(run=place, parser=made)
        return made

    def noun(name: str, text: str) -> Callable[..., argparse.ArgumentParser]:
        verbs = commands.add_parser(name, help=text, description=text).add_subparsers(metavar="VERB", required=True)
        return lambda *words: command(verbs, *words)

    demo = command(commands, "demo", "demo:demo", "three brokers in a temporary folder; one is killed")
    written = "written before, and after (default: %(default)s; at most 1000000)"
    demo.add_argument("--records", type=parse.demo_records, default=1_000, metavar="N", help=written)
    broker = command(commands, "broker", "broker:broker", "run a broker in this process; or drain one")
    _broker(broker)
    drain = command(broker.add_subparsers(metavar="VERB"), "drain", "leaders:drain", "move what a broker leads to others")
    drain.add_argument("broker", type=parse.number, metavar="ID", help="its number; it serves again after a restart")
    _cluster(noun("cluster", "the feature level, and raising it after an upgrade"))
    health = "whether all is led, copied and controlled (exit status)"
    _health(command(commands, "health", "health:health", health))
    command(commands, "controller", "controller:controller", "which broker decides, since which epoch").add_argument(
        "--watch", **_WATCH, help="go on, and tell each change and when it was seen"
    )
    top = command(commands, "top", "busy:top", "how much is appended, by topic and by broker that leads, and what is behind")
    top.add_argument("--interval", type=parse.interval, default=2.0, metavar="SECONDS", help="between two looks (default: %(default)g)")
    pages = "status pages of brokers (--http): bytes per second, as these count them"
    top.add_argument("urls", nargs="*", type=parse.filled, metavar="URL", help=pages)
    top.add_argument("--once", action="store_true", help="end after two looks")
    counted = command(commands, "metrics", "metrics:metrics", "numbers for monitoring, as Prometheus text")
    of = "a broker's status page (--http): all that it has counted. Without it: what any broker knows of all of them"
    counted.add_argument("url", nargs="?", type=parse.filled, metavar="URL", help=of)
    counted.add_argument("--partitions", action="store_true", help="with URL: also offsets, lags and sizes of each partition")
    _topic(noun("topic", "make, describe, change and delete topics"))
    _explain(command(commands, "explain", "leaders:explain", "why partitions are as they are, and what can be done"))
    _reassign(noun("reassign", "move partitions to other brokers"))
    _elect(command(commands, "elect", "leaders:elect", "elect the preferred leaders of partitions, or others"))
    _produce(command(commands, "produce", "records:produce", "append a record for each line of stdin"))
    _read(command(commands, "read", "records:read", "print records", "the bytes of values as they are, with nothing between records"))
    _log(noun("log", "look at a broker's files, and repair them"))
    _store(noun("store", "look at the metadata store, without writing"))
    cert = command(commands, "cert", "certificates:cert", "make certificates, and an authority for them")
    cert.add_argument("folder", type=parse.filled, metavar="DIR", help="where the authority is, or is made")
    cert.add_argument("names", nargs="*", type=parse.filled, metavar="NAME", help="broker/3, client/billing, admin/anna")
    cert.add_argument("--days", type=parse.count, metavar="N", help="how long they are good (default: 365, or as long as the authority)")
    shell = command(commands, "completion", "completion:completion", "a script that completes what is typed, for bash or zsh")
    shell.add_argument("shell", choices=SHELLS, metavar="bash|zsh")
    command(commands, "help", "overview:show", "the commands, on one screen")
    return parser


def _health(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", **_WATCH, help="go on, and tell what changes; look again after so long (default: 1)")
    parser.add_argument("--exit-when-healthy", action="store_true", help="go on until it is")
    parser.add_argument("--within", type=parse.interval, metavar="SECONDS", help="the same, for so long at most")
    parser.add_argument("--brokers", type=parse.count, default=0, metavar="N", help="not healthy with fewer than N")


def _common(raw: str = _PLAIN) -> argparse.ArgumentParser:
    """What may stand before the command and behind it; `raw`: what --raw means there. Made anew each time: a parser's defaults would be
    those of all its users."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    whom = f"brokers to ask: tcp://HOST:PORT,HOST:PORT (default: ${BOOTSTRAP})"
    common.add_argument("-b", "--bootstrap", type=parse.filled, metavar="URLS", help=whom)
    common.add_argument("--format", choices=("table", "json"), help="for people or for programs (default: table)")
    common.add_argument("--raw", action="store_true", help=raw)
    proof = f"a file that says how to prove who you are, and what brokers must prove (default: ${VARIABLE})"
    common.add_argument("--security", type=parse.filled, metavar="FILE", help=proof)
    patience = "for each question (default: 30; broker: no limit; top: 6 or the interval, unless --once)"
    common.add_argument("--timeout", type=parse.seconds, metavar="SECONDS", help=patience)
    return common


def _broker(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--id", type=parse.broker_id, metavar="N", help="the broker's number")
    add("--listen", type=parse.filled, metavar="URL", help="tcp://HOST:PORT; port 0 takes a free one")
    add("--advertise", type=parse.filled, metavar="URL", help="where others reach it, if not where it listens; port 0 is that of --listen")
    add("--data", type=parse.filled, metavar="DIR", help="where its logs live; memory:// keeps them in memory")
    add("--store", type=parse.store, metavar="URL", help="the metadata store: file://PATH or zookeeper://HOSTS/CHROOT")
    add("--rack", type=parse.rack, help="where it stands: replicas of a partition are spread over racks")
    add("--config", action="append", type=parse.setting, metavar="KEY=VALUE", help="a key of BrokerConfig; repeat it for more")
    alive = "after this long without a sign of life others take it for dead (100 to 86400000; default: 9000)"
    add("--session-ms", type=parse.count, metavar="MS", help=alive)
    add("--quotas", type=parse.filled, metavar="FILE", help="a file that says how fast clients may send and fetch")
    add("--insecure", action="store_true", help="listen beyond loopback without TLS")
    page = "serve the status page, /health, /metrics and /status.json there; port 0 takes a free one"
    add("--http", type=parse.http, metavar="HOST:PORT", help=page)
    add("--until-stdin-closes", action="store_true", help="end, controlled, when stdin is closed: with the process that started it")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="what stderr is told (default: %(default)s)")


def check_broker(asked: argparse.Namespace) -> None:
    """What running a broker needs, and its verbs do not."""
    if asked.run == "broker:broker":
        missing = [f"--{name}" for name in ("id", "listen", "data", "store") if getattr(asked, name) is None]
        if missing:
            asked.parser.error(f"the following arguments are required: {', '.join(missing)}")


def _cluster(command: Callable[..., argparse.ArgumentParser]) -> None:
    command("show", "levels:show", "the cluster's feature level, and which levels each broker supports")
    level = command("raise", "levels:raise_level", "let brokers write what came with a newer version: once all run it, for good")
    level.add_argument("level", type=parse.count, metavar="LEVEL", help="the level to have; having it already is fine")


def _topic(command: Callable[..., argparse.ArgumentParser]) -> None:
    create = command("create", "topics:create", "create a topic")
    create.add_argument("topic", type=parse.filled)
    create.add_argument("-p", "--partitions", type=parse.count, default=1, metavar="N", help="default: %(default)s")
    create.add_argument("-r", "--replication-factor", type=parse.count, metavar="N", help="default: 3, or the brokers there are")
    create.add_argument("-c", "--config", action="append", type=parse.setting, metavar="KEY=VALUE", help="min_isr=2, ...; repeatable")
    create.add_argument("--exist-ok", action="store_true", help="leave an existing topic as it is")
    command("list", "topics:list_topics", "all topics")
    describe = command("describe", "topics:describe", "leader, replicas, in-sync set and offsets of each partition")
    describe.add_argument("topic", nargs="?", type=parse.filled, help="default: all of them")
    for names, kind, text in (
        (("--under-replicated",), "under_replicated", "just partitions with fewer replicas in sync than they should have"),
        (("--under-min-isr",), "under_min_isr", "just those with fewer in sync than min_isr: acks=all is refused"),
        (("--at-min-isr",), "at_min_isr", "just those with min_isr in sync: none may leave"),
        (("--unavailable", "--leaderless"), "leaderless", "just those without a leader (several of these: any of them)"),
    ):
        describe.add_argument(*names, dest=kind, action="store_true", help=text)
    _explain(command("explain", "leaders:explain", "why partitions are as they are, and what can be done"))
    alter = command("alter", "reshape:alter", "change a topic's configuration")
    alter.add_argument("topic", type=parse.filled)
    alter.add_argument("config", nargs="+", type=parse.setting, metavar="KEY=VALUE", help="min_isr=1, retention_ms=none, ...")
    add = command("add-partitions", "reshape:add_partitions", "give a topic more partitions")
    add.add_argument("topic", type=parse.filled)
    add.add_argument("total", type=parse.count, metavar="TOTAL", help="how many it has then")
    remove = command("remove-partitions", "reshape:remove_partitions", "remove the highest partitions of a topic and everything in them")
    remove.add_argument("topic", type=parse.filled)
    remove.add_argument("partitions", nargs="+", type=parse.number, metavar="N", help="a partition's number")
    remove.add_argument("--yes", action="store_true", help="do not ask; it takes this where no terminal is")
    remove.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    delete = command("delete", "topics:delete", "delete a topic and everything in it")
    delete.add_argument("topic", type=parse.filled)
    delete.add_argument("--yes", action="store_true", help="do not ask; it takes this where no terminal is")
    delete.add_argument("--dry-run", action="store_true", help="only say what would be deleted")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", type=parse.filled, metavar="TOPIC", help="default: the partitions that are not well, of all")
    parser.add_argument("partition", nargs="?", type=parse.number, metavar="PARTITION", help="default: all of them")
    parser.add_argument("--limit", type=parse.count, metavar="N", help="without TOPIC: so many at most, the worst first (default: 20)")


def _reassign(command: Callable[..., argparse.ArgumentParser]) -> None:
    generate = command("generate", "reassign:generate", "print a plan that balances topics over brokers, with the least movement")
    generate.add_argument("--brokers", nargs="+", type=parse.number, metavar="N", help="default: all that serve")
    generate.add_argument("--topic", action="append", metavar="TOPIC", help="repeatable (default: all)")
    execute = command("execute", "reassign:execute", "carry a plan out")
    execute.add_argument("plan", metavar="PLAN", help="a file, or - for stdin")
    execute.add_argument("--watch", action="store_true", help="show how far it is, until it is done")
    undo = "write the plan that leads back there first, as a new file"
    execute.add_argument("--dry-run", action="store_true", help="only say what would move where, and what would be refused")
    execute.add_argument("--undo", type=parse.filled, metavar="FILE", help=undo)
    status = command("status", "reassign:status", "what is queued and under way, and how far it is")
    status.add_argument("--watch", **_WATCH, help="again and again, until nothing is left (default: each second)")
    cancel = command("cancel", "reassign:cancel", "take a plan back: what is under way goes back where it was")
    cancel.add_argument("plan", nargs="?", metavar="PLAN", help="a file, or - for stdin")
    cancel.add_argument("--all", action="store_true", help="everything that is queued or under way")


def _elect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("partitions", nargs="*", type=parse.filled, metavar="TOPIC[:N]", help="one partition, or all of a topic")
    which = "every partition that its preferred leader does not lead; with --unclean: that nobody leads"
    parser.add_argument("--all", action="store_true", help=which)
    parser.add_argument("--preferred", action="store_true", help="the preferred leader, if it is in sync: what it does anyway")
    parser.add_argument("--to", type=parse.broker_id, metavar="BROKER", help="this one, if it is in sync, in place of the preferred leader")
    parser.add_argument("--unclean", action="store_true", help="where nobody leads: any live replica, although records may be lost")
    parser.add_argument("--yes", action="store_true", help="do not ask; --unclean takes this where no terminal is")
    parser.add_argument("--dry-run", action="store_true", help="only say who could lead with --unclean, and how far each reaches")


def _produce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=parse.filled)
    between = "what stands between key and value; without it there are no keys"
    parser.add_argument("-k", "-K", "--key-separator", type=parse.filled, metavar="TEXT", help=between)
    parser.add_argument("-p", "--partition", type=parse.number, metavar="N", help="default: by key, or in turn")
    waits = "who has to have it before it counts as stored: nobody, the leader, or every replica in sync (default: %(default)s)"
    parser.add_argument("--acks", type=parse.acks, choices=parse.ACKS, default="all", help=waits)
    parser.add_argument("--batch", type=parse.count, default=1_000, metavar="N", help="most lines in one go (default: %(default)s)")


def _read(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=parse.filled)
    parser.add_argument("-p", "--partition", type=parse.number, action="append", metavar="N", help="repeatable (default: all)")
    where = "earliest, latest, an offset, or an ISO time (default: %(default)s)"
    parser.add_argument("--start", type=parse.position, default="earliest", metavar="WHERE", help=where)
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("-f", "--follow", action="store_true", help="go on with what is appended later")
    ends.add_argument("-e", "--exit", action="store_true", help="end where the records end now: what it does unless it follows")
    parser.add_argument("-K", "--keys", action="store_true", help="print the key, and a tab, before the value")
    parser.add_argument("--offsets", action="store_true", help="print partition, tab, offset, tab first")
    printed = r"print records like this, and nothing else: '{partition} {offset} {key} {value}\n'; fields are " + ", ".join(FIELDS)
    parser.add_argument("--template", type=template, metavar="TEXT", help=printed)
    parser.add_argument("-c", "-n", "--count", type=parse.number, metavar="N", help="end after N records")


def _log(command: Callable[..., argparse.ArgumentParser]) -> None:
    dump = command("dump", "logs:dump", "every batch in the files, or every record")
    dump.add_argument("--records", action="store_true", help="the records as well")
    verify = command("verify", "logs:verify", "every byte against its checksums; damaged places are named")
    where = "a broker's data directory, one of its log folders, or the folder of a Cluster"
    dump.add_argument("folder", type=parse.filled, metavar="DIR|FILE", help=f"{where}; or one segment, wherever it was copied to")
    verify.add_argument("folder", type=parse.filled, metavar="DIR", help=where)
    for parser in (dump, verify):
        parser.add_argument("--topic", type=parse.filled, help="only this one")
    repair = command("repair", "repair:repair", "say what is damaged in a stopped broker's files; with --yes, cut it off")
    repair.add_argument("folder", type=parse.filled, metavar="DIR", help="a broker's data directory, or one of its log folders")
    repair.add_argument("--yes", type=parse.filled, metavar="PLAN", help="do what was shown under this name, and nothing else")
    repair.add_argument("--dry-run", action="store_true", help="only say it, although --yes is there; without --yes that is all it does")
    repair.add_argument("--evidence", type=parse.filled, metavar="FOLDER", help="where what is cut is copied first (default: beside DIR)")


def _store(command: Callable[..., argparse.ArgumentParser]) -> None:
    some = command("list", "stores:list_nodes", "the nodes below a path, with their values")
    some.add_argument("-r", "--recursive", action="store_true", help="and what is below them")
    one = command("get", "stores:get", "one node, with its value", "just the bytes of the value, as they are")
    for parser, optional in ((some, True), (one, False)):
        more: dict[str, Any] = {"nargs": "?", "default": "/"} if optional else {}
        parser.add_argument("path", metavar="PATH", help="such as /brokers/ids" + (" (default: /)" if optional else ""), **more)
        where = "file://PATH or zookeeper://HOSTS/CHROOT, as its brokers were given it"
        parser.add_argument("--store", type=parse.store, required=True, metavar="URL", help=where)
