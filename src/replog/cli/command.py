"""The commands and their arguments, and what becomes of what they raise."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, BinaryIO, Final, TextIO

from replog.cli import arguments as parse
from replog.cli.context import BOOTSTRAP, Context
from replog.cli.exits import BAD, EXITS, INTERRUPTED, OK, UNREACHABLE, exit_of
from replog.cli.output import Output, OutputClosed, OutputFailed, buffered_stdout, quieten
from replog.cli.spoken import cannot, spoken
from replog.client.client import Client
from replog.errors import ReplogError

__all__ = ["main", "make_parser"]

_RAW: Final = argparse.RawDescriptionHelpFormatter


def main(
    argv: Sequence[str] | None = None,
    *,
    client: Client | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Run one command and return its exit status. `client` is used instead of connecting, and stays its owner's."""
    parser = make_parser()
    try:
        asked = parser.parse_args(argv)
        _check_broker(asked, parser)
        if hasattr(asked, "config"):
            asked.settings = parse.settings(asked.config, parser)
    except SystemExit as end:  # --help, --version, or what argparse has refused
        return end.code if isinstance(end.code, int) else BAD
    with contextlib.ExitStack() as opened:  # in this order, so that a closed stream's number is no other file's
        given = stdin or (opened.enter_context(open(os.devnull, "rb")) if sys.stdin is None else sys.stdin.buffer)
        out = stdout or (opened.enter_context(open(os.devnull, "wb")) if sys.stdout is None else buffered_stdout())
        told = stderr or sys.stderr or opened.enter_context(open(os.devnull, "w", encoding="utf-8"))
        output = Output(out, told, asked.format, pretty=out.isatty())
        try:
            status = _run(asked.run, Context(asked, output, given, client))
            output.flush()
            return status
        except (OutputClosed, OutputFailed) as lost:
            if stdout is None:
                quieten(sys.stdout)
            if isinstance(lost, OutputClosed):
                return OK
            output.note(f"replog: {spoken(str(lost))}")
            return BAD


def _run(place: str, context: Context) -> int:
    """Run the command that `place` names ("module:function"); what it raises becomes a line on stderr and a status."""
    module, _, name = place.partition(":")
    try:
        command: Callable[[Context], int] = getattr(import_module(f"replog.cli.{module}"), name)
        return command(context)
    except ReplogError as problem:
        context.output.flush()
        context.output.note(f"replog: {spoken(str(problem))}")
        status = exit_of(problem)
        return UNREACHABLE if module == "health" and status > BAD else status
    except KeyboardInterrupt:
        context.output.flush()
        return INTERRUPTED
    except OSError as problem:  # files that cannot be read, a terminal that has gone
        context.output.note(f"replog: {cannot(problem)}")
        return BAD


# ------------------------------------------------------------------------------------------------------------- arguments


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from replog import __version__

    parser = argparse.ArgumentParser(
        prog="replog", description="A replicated log.", epilog=EXITS, formatter_class=_RAW, parents=[_common()], allow_abbrev=False
    )
    parser.set_defaults(bootstrap=None, format="table", timeout=None)
    parser.add_argument("--version", action="version", version=f"replog {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(group: Any, name: str, place: str, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = group.add_parser(
            name, parents=[_common()], help=text, description=text, epilog=EXITS, formatter_class=_RAW, allow_abbrev=False
        )
        made.set_defaults(run=place)
        return made

    broker = command(commands, "broker", "broker:broker", "run a broker in this process; or drain one")
    _broker(broker)
    drain = command(broker.add_subparsers(metavar="VERB"), "drain", "leaders:drain", "move what a broker leads to others")
    drain.add_argument("broker", type=parse.number, metavar="ID", help="its number; it serves again after a restart")
    topic = commands.add_parser("topic", help="make, describe, change and delete topics").add_subparsers(metavar="VERB", required=True)
    _topic(lambda *words: command(topic, *words))
    moves = commands.add_parser("reassign", help="move partitions to other brokers").add_subparsers(metavar="VERB", required=True)
    _reassign(lambda *words: command(moves, *words))
    _elect(command(commands, "elect", "leaders:elect", "elect the preferred leaders of partitions"))
    _produce(command(commands, "produce", "records:produce", "append a record for each line of stdin"))
    _read(command(commands, "read", "records:read", "print records"))
    log = commands.add_parser("log", help="look at a broker's files").add_subparsers(metavar="VERB", required=True)
    _log(lambda *words: command(log, *words))
    health = command(commands, "health", "health:health", "whether everything is led, copied and controlled: 0 yes, 1 no, 2 nobody answers")
    health.add_argument("--watch", action="store_true", help="go on, and tell what changes")
    health.add_argument("--exit-when-healthy", action="store_true", help="go on until it is")
    health.add_argument("--brokers", type=parse.count, default=0, metavar="N", help="not healthy with fewer than N")
    return parser


def _common() -> argparse.ArgumentParser:
    """What may stand before the command and behind it. Made anew each time: a parser's defaults would be those of all its users."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    whom = f"brokers to ask: tcp://HOST:PORT,HOST:PORT (default: ${BOOTSTRAP})"
    common.add_argument("-b", "--bootstrap", type=parse.filled, metavar="URLS", help=whom)
    common.add_argument("--format", choices=("table", "json"), help="for people or for programs (default: table)")
    common.add_argument("--timeout", type=parse.seconds, metavar="SECONDS", help="for each question (default: 30; broker: no limit)")
    return common


def _broker(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--id", type=parse.broker_id, metavar="N", help="the broker's number")
    add("--listen", type=parse.filled, metavar="URL", help="tcp://HOST:PORT; port 0 takes a free one")
    add("--data", type=parse.filled, metavar="DIR", help="where its logs live; memory:// keeps them in memory")
    add("--store", type=parse.store, metavar="URL", help="the metadata store: file://PATH or zookeeper://HOSTS/CHROOT")
    add("--rack", type=parse.filled, help="where it stands: replicas of a partition are spread over racks")
    add("--config", action="append", type=parse.setting, metavar="KEY=VALUE", help="a key of BrokerConfig; repeat it for more")
    alive = "after this long without a sign of life others take it for dead (100 to 86400000; default: 9000)"
    add("--session-ms", type=parse.count, metavar="MS", help=alive)
    add("--insecure", action="store_true", help="listen beyond loopback, although nobody proves who they are")
    add("--until-stdin-closes", action="store_true", help="end, controlled, when stdin is closed: with the process that started it")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="what stderr is told (default: %(default)s)")


def _check_broker(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """What running a broker needs, and its verbs do not."""
    if asked.run == "broker:broker":
        missing = [f"--{name}" for name in ("id", "listen", "data", "store") if getattr(asked, name) is None]
        if missing:
            parser.error(f"the following arguments are required: {', '.join(missing)}")


def _topic(command: Callable[..., argparse.ArgumentParser]) -> None:
    create = command("create", "topics:create", "create a topic")
    create.add_argument("topic", type=parse.filled)
    create.add_argument("-p", "--partitions", type=parse.count, default=1, metavar="N", help="default: %(default)s")
    create.add_argument("-r", "--replication-factor", type=parse.count, metavar="N", help="default: 3, or the brokers there are")
    create.add_argument("-c", "--config", action="append", type=parse.setting, metavar="KEY=VALUE", help="min_isr=2, ...; repeatable")
    create.add_argument("--exist-ok", action="store_true", help="leave an existing topic as it is")
    command("list", "topics:list_topics", "all topics")
    describe = command("describe", "topics:describe", "leader, replicas, in-sync set and offsets of each partition")
    describe.add_argument("topic", type=parse.filled)
    explain = command("explain", "leaders:explain", "why a partition is as it is, in sentences")
    explain.add_argument("topic", type=parse.filled)
    explain.add_argument("partition", nargs="?", type=parse.number, metavar="N", help="default: all of them")
    alter = command("alter", "reshape:alter", "change a topic's configuration")
    alter.add_argument("topic", type=parse.filled)
    alter.add_argument("config", nargs="+", type=parse.setting, metavar="KEY=VALUE", help="min_isr=1, retention_ms=none, ...")
    add = command("add-partitions", "reshape:add_partitions", "give a topic more partitions")
    add.add_argument("topic", type=parse.filled)
    add.add_argument("total", type=parse.count, metavar="TOTAL", help="how many it has then")
    remove = command("remove-partitions", "reshape:remove_partitions", "remove the highest partitions of a topic and everything in them")
    remove.add_argument("topic", type=parse.filled)
    remove.add_argument("partitions", nargs="+", type=parse.number, metavar="N", help="a partition's number")
    remove.add_argument("--yes", action="store_true", help="do not ask (only a terminal is asked)")
    remove.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    delete = command("delete", "topics:delete", "delete a topic and everything in it")
    delete.add_argument("topic", type=parse.filled)
    delete.add_argument("--yes", action="store_true", help="do not ask (only a terminal is asked)")
    delete.add_argument("--dry-run", action="store_true", help="only say what would be deleted")


def _reassign(command: Callable[..., argparse.ArgumentParser]) -> None:
    generate = command("generate", "reassign:generate", "print a plan that balances topics over brokers, with the least movement")
    generate.add_argument("--brokers", nargs="+", type=parse.number, metavar="N", help="default: all that serve")
    generate.add_argument("--topic", action="append", metavar="TOPIC", help="repeatable (default: all)")
    execute = command("execute", "reassign:execute", "carry a plan out")
    execute.add_argument("plan", metavar="PLAN", help="a file, or - for stdin")
    execute.add_argument("--watch", action="store_true", help="show how far it is, until it is done")
    status = command("status", "reassign:status", "what is queued and under way, and how far it is")
    status.add_argument("--watch", action="store_true", help="again and again, until nothing is left")
    cancel = command("cancel", "reassign:cancel", "take a plan back: what is under way goes back where it was")
    cancel.add_argument("plan", nargs="?", metavar="PLAN", help="a file, or - for stdin")
    cancel.add_argument("--all", action="store_true", help="everything that is queued or under way")


def _elect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("partitions", nargs="*", type=parse.filled, metavar="TOPIC[:N]", help="one partition, or all of a topic")
    parser.add_argument("--all", action="store_true", help="every partition that its preferred leader does not lead")
    parser.add_argument("--unclean", action="store_true", help="where nobody leads: any live replica, although records may be lost")
    parser.add_argument("--yes", action="store_true", help="do not ask (only a terminal is asked)")


def _produce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=parse.filled)
    between = "what stands between key and value; without it there are no keys"
    parser.add_argument("-k", "--key-separator", type=parse.filled, metavar="TEXT", help=between)
    parser.add_argument("-p", "--partition", type=parse.number, metavar="N", help="default: by key, or in turn")
    parser.add_argument("--acks", type=parse.acks, default="all", help="0, 1 or all (default: %(default)s)")
    parser.add_argument("--batch", type=parse.count, default=1_000, metavar="N", help="most lines in one go (default: %(default)s)")


def _read(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", type=parse.filled)
    parser.add_argument("-p", "--partition", type=parse.number, action="append", metavar="N", help="repeatable (default: all)")
    where = "earliest, latest, an offset, or an ISO time (default: %(default)s)"
    parser.add_argument("--start", type=parse.position, default="earliest", metavar="WHERE", help=where)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended later")
    parser.add_argument("--keys", action="store_true", help="print the key, and a tab, before the value")
    parser.add_argument("--offsets", action="store_true", help="print partition, tab, offset, tab first")
    parser.add_argument("-n", "--count", type=parse.number, metavar="N", help="end after N records")


def _log(command: Callable[..., argparse.ArgumentParser]) -> None:
    dump = command("dump", "logs:dump", "every batch in the files, or every record")
    dump.add_argument("--records", action="store_true", help="the records as well")
    verify = command("verify", "logs:verify", "every byte against its checksums; damaged places are named")
    for parser in (dump, verify):
        where = "a broker's data directory, one of its log folders, or the folder of a Cluster"
        parser.add_argument("folder", type=parse.filled, metavar="DIR", help=where)
        parser.add_argument("--topic", type=parse.filled, help="only this one")
