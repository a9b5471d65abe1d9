"""A policy driven as a cache drives it, on a tree that is known, beside the slow version."""

from __future__ import annotations

import random
from dataclasses import dataclass

from slow_states import Forest, Position, SlowStates

from tree_placement.policy import (
    Extent,
    PathPart,
    PlannedState,
    PolicySettings,
    SparsePolicy,
    Visit,
    next_to_admit,
)
from tree_placement.policy.branches import path_to


@dataclass(frozen=True)
class Prompt:
    """What of a prompt the tree holds, and where its own tokens end on the same branch."""

    visit: Visit
    path: tuple[PathPart, ...]
    length: int

    def position(self, depth: int) -> Position:
        branch, at = path_to(self.path, depth)[0]
        return branch, at


class DrivenPolicy:
    """Random prompts over a forest; what lives and is known is kept track of aside.

    Parameters
    ----------
    policy
        Told of every prompt, and of every state that comes or goes.
    slots
        States that live at most.
    seed
        Of the forest and the prompts.
    """

    def __init__(self, policy: SparsePolicy, slots: int, seed: int) -> None:
        self.policy = policy
        self.slots = slots
        self.draw = random.Random(seed)
        self.forest = Forest(self.draw, branches=12)
        self.slow = SlowStates(self.forest, policy.settings.missed_states)
        self._next_id = 0

    def prompt(self) -> Prompt:
        branch, overlap = self.forest.position()
        length = overlap + self.draw.choice((1, 64, 300, self.draw.randrange(1, 5000)))
        visit = Visit(
            namespace=self.draw.choice(("", "other")),
            path=self.forest.path((branch, overlap)),
            overlap=overlap,
            earlier_length=overlap + self.draw.randrange(2000),
            turn=self.draw.randrange(10),
        )
        return Prompt(visit, self.forest.path((branch, length)), length)

    def live_on(self, prompt: Prompt) -> list[int]:
        return self.slow.live_on_path(prompt.position(prompt.visit.overlap))

    def extent(self, prompt: Prompt) -> Extent:
        states = self.live_on(prompt)
        start = self.slow.live[states[0]][1] if states else 0
        return Extent(start, prompt.length, len(self.slow.live) >= self.slots)

    def plan(self, prompt: Prompt) -> tuple[PlannedState, ...]:
        origin = self.policy.observe(prompt.visit, prompt.length)
        self.slow.pass_by(prompt.position(prompt.visit.overlap))
        return self.policy.plan(prompt.visit, origin, self.extent(prompt))

    def publish(self, prompt: Prompt, planned: tuple[PlannedState, ...]) -> None:
        """Publish planned states, and let those live that are worth a slot."""
        self.policy.publish(prompt.path, planned)
        for each in planned:
            self.slow.know(prompt.position(each.depth), each.new.share)
        start = self.extent(prompt).start
        waiting = [
            each for each in planned if prompt.position(each.depth) not in self.slow.live.values()
        ]
        taken: list[int] = []
        while waiting:
            best, above = next_to_admit(waiting, taken, start)
            if len(self.slow.live) >= self.slots:
                displaced = next(self.policy.eviction_order())
                if not self.policy.is_worth_a_slot(best, above, displaced):
                    return
                self.remove(displaced)
            waiting.remove(best)
            taken.append(best.depth)
            self.add(prompt, best)

    def add(self, prompt: Prompt, planned: PlannedState) -> None:
        position, state = prompt.position(planned.depth), self._next_id
        self.policy.add(state, prompt.path, planned)
        self.slow.know(position, planned.new.share)
        self.slow.live[state] = position
        self._next_id += 1
        while (surplus := self.policy.surplus(state, lambda _: True)) is not None:
            self.remove(surplus)
            if surplus == state:
                return

    def remove(self, state: int) -> None:
        self.policy.remove(state)
        del self.slow.live[state]

    def serve(self, prompts: int) -> None:
        for _ in range(prompts):
            prompt = self.prompt()
            self.publish(prompt, self.plan(prompt))


def driven(seed: int, slots: int = 12, states_per_path: int | None = None) -> DrivenPolicy:
    """A policy of a random budget a path, that has served some prompts."""
    budget = states_per_path or random.Random(seed).randrange(1, 9)
    settings = PolicySettings(states_per_path=budget, missed_states=200)
    run = DrivenPolicy(SparsePolicy(settings), slots, seed)
    run.serve(40)
    return run
