"""Text that the framework puts into the policy's turns: forced tool choices, and parts of earlier solutions.

Forced text is context (mask 0).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from verl_agentic.base.env import EnvRow
from verl_agentic.base.settings import Settings, setting

PARTIAL_SOLUTION = "partial_solution"
"""Key of `extra_info` with a partial solution: the text of a first turn."""


class Exploration(Settings):
    """Forced text of an episode."""

    epsilon_tool: float = setting(0.0, min=0, max=1)
    """Chance that a turn begins with a call of a tool chosen at random."""
    partial_solution: float = setting(0.0, min=0, max=1)
    """Share of the row's partial solution that the first turn begins with."""
    seed: int | str = 0
    """Seed of the choices; differs between episodes."""

    def tool(self, turn: int, tools: Sequence[str]) -> str | None:
        """Returns the tool that turn `turn` is forced to call, or None."""
        rng = random.Random(f"{self.seed}/{turn}")
        return rng.choice(list(tools)) if tools and rng.random() < self.epsilon_tool else None

    def beginning(self, row: EnvRow) -> str:
        """Returns the forced start of the first turn, or an empty text."""
        solution = row.extra.get(PARTIAL_SOLUTION) or ""
        return solution[: round(len(solution) * self.partial_solution)]
