"""The abstract model of replication: every step that the published rules allow, for the whole of a tiny cluster.

The store and its controller act at once; everything between brokers is late, lost or repeated as it likes. Commands are kept for
ever, so that a broker may hear of any epoch at any time, or never; a fenced broker is only taken out of the ISR and goes
on in its belief, so that a failure and a zombie are one step; an answer to a fetch or a proposal that comes late is a fetch or a
learning that happens early or late. Sources: KAFKA's own specification of replication (truncation, fencing, expansion), KIP-497
(proposals), KIP-380 and KIP-903 (lives).

>>> model = Model(Bounds(replicas=2, records=1, epochs=1))
>>> for action, state in model.successors(model.initial):
...     print(model.tell(action))
the controller takes 1 out of the ISR
replica 0 hears that it leads epoch 0
replica 1 hears that 0 leads epoch 0
>>> result = model.explore()
>>> result.exhausted, result.violation, result.states
(True, None, 27)
"""

from __future__ import annotations

from collections.abc import Callable

from replog.testing.exploration.logs import Logs
from replog.testing.exploration.rules import Bounds, Rules
from replog.testing.exploration.search import Result, explore
from replog.testing.exploration.soundness import Soundness
from replog.testing.exploration.state import IDLE, Layout, ModelState, State
from replog.testing.exploration.steps import Action, Steps
from replog.testing.exploration.symmetry import Symmetry

__all__ = ["TEXTS", "Action", "Model"]

TEXTS = {
    "elect": "the controller elects {0}",
    "fail": "the controller takes leader {0} for dead and elects {1}",
    "abandon": "the controller takes leader {0} for dead and has nobody else",
    "fence": "the controller takes {0} out of the ISR",
    "lead": "replica {0} hears that it leads epoch {1}",
    "follow": "replica {0} hears that {2} leads epoch {1}",
    "append": "leader {0} appends",
    "advance": "leader {0} moves its high watermark to {1}",
    "change": "leader {0} makes the ISR {1:set}",
    "propose": "leader {0} proposes the ISR {1:set}",
    "store": "the store takes the ISR {1:set} from leader {0}",
    "refuse": "leader {0} hears that its proposal is refused",
    "forget": "leader {0} forgets how far {1} had come",
    "void": "leader {0} has proposed somebody who has registered anew",
    "learn": "leader {0} learns the stored ISR {1:set}",
    "fetch": "replica {0} fetches from {1}",
    "acknowledge": "leader {1} counts the fetch of {0}",
    "restart": "replica {0} restarts with {1} records, high watermark {2}, and {3} leads",
}


class Model:
    """One world under one set of rules."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()
        self.logs = Logs(bounds, self.rules)
        layout = self.layout = Layout(bounds, self.logs)
        self._steps = Steps(bounds, self.rules, layout, self.logs)
        self.successors: Callable[[State], list[tuple[Action, State]]] = self._steps.successors
        """Each possible step of a state as (action, the state after it), always in the same order."""
        soundness = Soundness(layout, self.logs)
        self.check: Callable[[State], str | None] = soundness.check
        """What is wrong with a state; None if nothing is."""
        self.lost: Callable[[State], str | None] = soundness.lost
        """What users lose in a state; None if nothing. `check` tells this and more."""
        self.symmetry = Symmetry(layout)
        self.canonical: Callable[[State], State] = self.symmetry.canonical
        """The one of all renamings of a state that stands for them."""
        self.fingerprint: Callable[[State], int] = layout.fingerprint
        """A state as one number, which no other state has."""
        idle = layout.make_core(0, 0, IDLE, -1, 0, 0, 0) << layout.rest_bits
        commands = layout.make_commands([(0, 0)] + [(-1, 0)] * (bounds.epochs - 1))
        store = layout.make_store(layout.everyone, 0, 0, 0, 0, 0)
        self.initial: State = (*[idle] * layout.n, store, commands)
        """A new partition: all replicas in sync, the first to lead epoch 0, and none has heard of it."""

    def explore(
        self,
        *,
        symmetry: bool = True,
        losses_only: bool = False,
        states_max: int | None = None,
        depth_max: int | None = None,
        progress: Callable[[int, int, int], None] | None = None,
    ) -> Result[State, Action]:
        """Search this world to its end, or to the first state that breaks an invariant; with `losses_only`, that loses records."""
        return explore(
            self.initial,
            self.successors,
            self.lost if losses_only else self.check,
            fingerprint=self.fingerprint,
            canonical=self.canonical if symmetry else None,
            states_max=states_max,
            depth_max=depth_max,
            progress=progress,
            action_text=self.tell,
            state_text=lambda state: str(self.view(state)),
        )

    def view(self, state: State) -> ModelState:
        """A state to read."""
        return self.layout.view(state)

    def pack(self, view: ModelState) -> State:
        """The reverse of `view`; what nobody can need any more is dropped from the commands."""
        return self._steps.settled(self.layout.pack(view))

    def explain(self, before: ModelState, after: ModelState, *, steps_max: int = 1) -> tuple[Action, ...] | None:
        """The steps that lead from `before` to `after`: () if they are the same; None if no `steps_max` steps do.

        For comparing with something that is not the model, which may do more at once: choose `steps_max` so, and the bounds with
        `proposals`, `positions` and `idle_steps`, and beyond what the other will ever need. Only ways are looked at that leave
        alone the replicas and the store where they are the same in both.
        """
        begun, wanted = self.pack(before), self.pack(after)
        kept = [at for at in range(self.layout.n + 1) if begun[at] == wanted[at]]
        ways: dict[State, tuple[Action, ...]] = {begun: ()}
        level = list(ways)
        while wanted not in ways and level and len(ways[level[0]]) < steps_max:
            following = []
            for state in level:
                for action, successor in self.successors(state):
                    if successor not in ways and all(successor[at] == begun[at] for at in kept):
                        ways[successor] = (*ways[state], action)
                        following.append(successor)
            level = following
        return ways.get(wanted)

    def allows(self, before: ModelState, after: ModelState, *, steps_max: int = 1) -> bool:
        """Whether nothing or at most `steps_max` steps lead from `before` to `after`. See `explain`."""
        return self.explain(before, after, steps_max=steps_max) is not None

    def tell(self, action: Action) -> str:
        """An action for people."""
        name, *parameters = action
        sets = [("{" + ",".join(map(str, self.layout.members(p))) + "}") if p >= 0 else "-" for p in parameters]
        nobody = ["nobody" if p < 0 or (p == self.layout.n and name in ("restart", "follow")) else str(p) for p in parameters]
        text = TEXTS[name]
        for at, (plain, members) in enumerate(zip(nobody, sets, strict=True)):
            text = text.replace(f"{{{at}:set}}", members).replace(f"{{{at}}}", plain)
        return text
