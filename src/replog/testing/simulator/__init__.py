"""The simulator: a whole cluster of the real library on virtual time, under faults that one seed decides.

    from replog.testing.simulator import run
    print(run(seed=7).summary)

To simulate a system of your own, subclass `Workload` (see docs/testing.md); `minimise` makes a plan small under which it fails.
`python -m replog.testing.simulator --help` is the command line.
"""

from __future__ import annotations

from replog.testing.simulator.clients import SimulatedClient
from replog.testing.simulator.corpus import Failure, load, write
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import Minimised, minimise
from replog.testing.simulator.plan import Fault, Plan, Shape, draw
from replog.testing.simulator.running import Outcome, run
from replog.testing.simulator.workload import Workload
from replog.testing.simulator.world import World

__all__ = [
    "Failure",
    "Fault",
    "Minimised",
    "Outcome",
    "Plan",
    "Shape",
    "SimulatedClient",
    "Violation",
    "Workload",
    "World",
    "draw",
    "load",
    "minimise",
    "run",
    "write",
]
