"""How to test a system built on replog under faults: accounts that are a replay of a log, simulated from seeds.

    python examples/simulated_ledger.py [FIRST_SEED] [RUNS]

Each client transfers money between accounts by appending to one partition, and keeps its own copy of all balances by reading
that partition. Brokers are killed, cut off and paused meanwhile. In the end every client must hold the same balances, no
transfer that was confirmed may be missing, and no money may have come into being.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from replog.errors import ReplogError
from replog.testing.simulator import SimulatedClient, Violation, Workload, World, draw, run

ACCOUNTS = ("ann", "bob", "cleo")
TOPIC = "t"  # the topic that every simulated run has


class Transfers(Workload):
    """One object serves a whole run; `work` runs once per client."""

    name = "transfers"

    def __init__(self) -> None:
        self.balances: dict[int, Counter[str]] = {}
        self.confirmed: set[str] = set()
        self.seen: dict[int, list[str]] = {}

    async def work(self, client: SimulatedClient) -> None:
        """Transfer while there are faults, then read to the end."""
        balances = self.balances[client.number] = Counter(dict.fromkeys(ACCOUNTS, 100))
        seen = self.seen[client.number] = []
        writer, position, count = client.writer(), 0, 0
        while not client.world.calm:
            count += 1
            payer, payee = client.chance.sample(ACCOUNTS, 2)
            transfer = {"id": f"{client.number}.{count}", "from": payer, "to": payee, "amount": client.chance.randint(1, 20)}
            try:
                await client.append(TOPIC, 0, [json.dumps(transfer).encode()], writer=writer)
                self.confirmed.add(transfer["id"])
            except ReplogError:
                pass  # it may be in the log or not; whoever reads the log knows
            position = await self.catch_up(client, position, balances, seen)
            await client.think()
        await client.rest(30_000)  # appends of others may still be under way
        await self.catch_up(client, position, balances, seen)

    async def catch_up(self, client: SimulatedClient, position: int, balances: Counter[str], seen: list[str]) -> int:
        """Apply what is new; a fetch that fails is tried again."""
        while True:
            try:
                found = await client.fetch(TOPIC, 0, position)
            except ReplogError:
                await client.think()
                continue
            for record in found.records:
                if not record.value.startswith(b"{"):
                    continue  # the simulator's own, to see whether a healed partition takes appends
                transfer = json.loads(record.value)
                if balances[transfer["from"]] >= transfer["amount"]:  # every copy decides alike: the order is the same
                    balances[transfer["from"]] -= transfer["amount"]
                    balances[transfer["to"]] += transfer["amount"]
                seen.append(transfer["id"])
            position = found.next_offset
            if position >= found.high_watermark:
                return position

    def check(self, world: World) -> None:
        """After everything was healed."""
        first = self.balances[1]
        for number, balances in self.balances.items():
            if balances != first:
                raise Violation("balances", f"client 1 has {dict(first)}, client {number} has {dict(balances)}")
        if sum(first.values()) != 100 * len(ACCOUNTS):
            raise Violation("balances", f"money came or went: {dict(first)}")
        missing = self.confirmed - set(self.seen[1])
        if missing:
            raise Violation("confirmed", f"{len(missing)} confirmed transfers are not in the log, {min(missing)} among them")


def main(first: int, runs: int) -> None:
    """Run some seeds; the first violation ends with its plan."""
    for seed in range(first, first + runs):
        work = Transfers()
        outcome = run(seed, plan=draw(seed, partitions=1, clients=3, retention_bytes=0, retention_ms=0), workloads=[work])
        if outcome.violation is not None:
            sys.exit(f"{outcome.plan}\nviolated {outcome.violation}")
        print(f"{outcome.summary}; balances {dict(sorted(work.balances[1].items()))}")


if __name__ == "__main__":
    main(*(int(argument) for argument in (*sys.argv[1:], *("1", "5")[len(sys.argv) - 1 :])))
