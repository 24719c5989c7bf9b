"""What a workload is: something that every client of a run does.

To simulate a system of your own, subclass `Workload`, give it to `run(..., workloads=[...])`, and write `work` with what
`SimulatedClient` offers; `check` is called at the very end, when everything has been healed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from replog.testing.simulator.clients import SimulatedClient

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["Workload"]


class Workload:
    """Something that every client of a run does. One object serves the whole run."""

    name: ClassVar[str] = ""

    async def work(self, client: SimulatedClient) -> None:
        """Do it, until `client.world.calm`. An exception that leaves it is a violation, called "crash"."""
        raise NotImplementedError

    def check(self, world: World) -> None:
        """Everything is healed and idle: raise `Violation` if something is not as it should be."""
