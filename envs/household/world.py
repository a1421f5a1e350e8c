"""A house as a text world: one command, or several steps of a program, per action."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from verl_agentic import ConfigError
from verl_agentic.bridges.text_world import WorldTurn

from .commands import command_of, read_command, read_steps, step_of
from .house import LAMP, NOTHING, Goal, House, listed
from .planner import next_command

Style = Literal["sentences", "program"]
MAX_STEPS = 50
"""Steps of an episode in ALFWorld."""
_SENTENCES = (
    "Commands: go to ..., open ..., close ..., take ... from ..., put ... in/on ..., clean ... with ..., "
    "heat ... with ..., cool ... with ..., use ..., inventory, look."
)
_PROGRAM = (
    "Act with the steps of a program, one or several per action: [WALK] <place> (1), [OPEN] <place> (1), "
    "[CLOSE] <place> (1), [GRAB] <thing> (1), [PUTBACK] <thing> (1) <place> (1), [WASH] <thing> (1), "
    "[HEAT] <thing> (1) <microwave> (1), [COOL] <thing> (1) <fridge> (1), [SWITCHON] <desklamp> (1)."
)


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """Form of observations and commands. Part of the row's ground truth."""

    style: Style = "sentences"
    admissible: bool = True
    """Whether each observation of the style `sentences` lists the possible commands."""
    max_steps: int = MAX_STEPS

    def __post_init__(self) -> None:
        if self.style not in ("sentences", "program"):
            raise ConfigError(f"style must be 'sentences' or 'program', got {self.style!r}")
        if self.max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, got {self.max_steps!r}")


class HouseholdWorld:
    """A house (`text_world.ExpertWorld`). An action that is not possible costs a step and does nothing."""

    actions = None

    def __init__(self, spec: Mapping[str, Any], presentation: Presentation) -> None:
        self._house = House.from_spec(spec)
        self._shown = presentation
        self._steps = 0

    def reset(self) -> str:
        """Returns the room, the task and the commands."""
        house, is_program = self._house, self._shown.style == "program"
        overview = house.overview()
        if is_program:  # a program is planned ahead, so it says where things are
            overview += "".join(f"\n{name}: {listed(house.contents(name))}." for name in house.receptacles)
        text = f"{overview}\nYour task: {task_text(house.goal)}.\n{_PROGRAM if is_program else _SENTENCES}"
        return text + self._format_admissible()

    def step(self, action: str) -> WorldTurn:
        """Executes an action, up to the first step that is not possible."""
        if self._shown.style == "sentences":
            return self._build_turn(self._act_counted(read_command(action)))
        texts = []
        for step in read_steps(action):
            texts.append(self._act_counted(command_of(step, self._house)))
            if texts[-1] == NOTHING or self._is_over:
                break
        return self._build_turn("\n".join(texts) or self._act_counted(""))

    def expert(self) -> str | None:
        """Returns the next command of a plan that knows where everything is, or the next step."""
        command = next_command(self._house)
        return command if command is None or self._shown.style == "sentences" else step_of(command)

    def random_action(self, rng: random.Random) -> str:
        """Returns a possible command or step."""
        commands = self._house.admissible()
        return rng.choice(
            commands if self._shown.style == "sentences" else [step_of(command) for command in commands[:-2]]
        )

    def close(self) -> None:
        """Nothing to release."""

    @property
    def _is_over(self) -> bool:
        return self._house.is_won or self._steps >= self._shown.max_steps

    def _act_counted(self, command: str) -> str:
        self._steps += 1
        return self._house.act(command)

    def _build_turn(self, text: str) -> WorldTurn:
        full_text = text if self._is_over else text + self._format_admissible()
        return WorldTurn(
            text=full_text, is_valid=not text.endswith(NOTHING), is_over=self._is_over, is_won=self._house.is_won
        )

    def _format_admissible(self) -> str:
        if self._shown.style == "program" or not self._shown.admissible:
            return ""
        return f"\nPossible commands: {', '.join(self._house.admissible())}."


def task_text(goal: Goal) -> str:
    """Returns a goal as a sentence."""
    states = {"clean": "clean ", "heat": "hot ", "cool": "cool "}
    if goal.kind == "look_in_light":
        return f"look at the {goal.thing} under the {LAMP}"
    count = "two" if goal.kind == "pick_two" else "a"
    return f"put {count} {states.get(goal.kind, '')}{goal.thing}{'s' * (count == 'two')} in/on a {goal.receptacle}"
