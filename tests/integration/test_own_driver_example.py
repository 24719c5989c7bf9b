"""The example of a driver of one's own works as printed, with the types that it has, and drives what a driver has to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import own_driver

from replog.client.client import Client
from replog.client.core import ClientCore
from replog.codec import decode, encode
from replog.config import ClientConfig
from replog.log.memory import MemoryLogDirectory
from replog.model import Address
from replog.testing.clock import SeededIds
from replog.transport.memory import MemoryTransport

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_driver.py"


def client_in(world: own_driver.World) -> Client:
    return Client(own_driver.InWorld(world, ClientCore("me", config=ClientConfig(), ids=SeededIds(9), bootstrap=[1, 2, 3])))


def test_it_works_as_printed_and_each_run_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for _ in range(2):
        own_driver.main()
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    lines = told[0].splitlines()
    assert [line.split(":")[0].strip() for line in lines[2:8]] == list("012345")
    assert lines[7].endswith("an order after a failover")
    assert len({line.split(" broker ")[1].split()[0] for line in lines[:2]}) == 2, "another broker leads"


class Coded(MemoryTransport):
    """As over a network: what arrives was read from a frame."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        super().send(sender, to, decode(b"".join(encode(message))))


def test_no_more_goes_over_the_transport_than_messages_of_the_protocol() -> None:
    world = own_driver.World(Coded())
    for number in (1, 2, 3):
        world.start_broker(number, MemoryLogDirectory())
    client = client_in(world)
    client.create_topic("orders", replication_factor=3)
    client.append("orders", 0, ["a"])
    assert [record.text() for record in client.read("orders")] == ["a"]


def test_its_types_are_right() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy", str(EXAMPLE)], cwd=EXAMPLE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_flushes_and_a_broker_comes_back() -> None:
    world = own_driver.World()
    directories = {number: MemoryLogDirectory() for number in (1, 2, 3)}
    for number, directory in directories.items():
        world.start_broker(number, directory)
    client = client_in(world)
    client.create_topic("payments", replication_factor=3, flush="ack")
    client.append("payments", 0, ["a"])
    leader = client.leader("payments", 0)
    assert leader is not None
    world.kill_broker(leader)
    directories[leader].crash(power=True)
    client.append("payments", 0, ["b"])
    world.start_broker(leader, directories[leader].reopened())
    end_ms = world.now_ms + 60_000
    while len(client.describe("payments").partitions[0].isr) < 3 and world.now_ms < end_ms:
        world.pass_time(end_ms)
    assert len(client.describe("payments").partitions[0].isr) == 3
    assert [record.text() for record in client.read("payments")] == ["a", "b"]
