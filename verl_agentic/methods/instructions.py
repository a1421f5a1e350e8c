"""A population of instructions that evolves with the policy (INSPO).

Each group of rollouts gets one instruction. Its outcomes move the weight of the instruction, by which instructions are
drawn. New ones are tried on a few groups before they join, and the worst leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.sampling.curriculum import InstructionSettings

_MAX_IN_FLIGHT = 4_096
_KEPT_TASKS, _SHOWN_TASKS, _SHOWN_CHARS = 64, 8, 400


@dataclass(kw_only=True)
class Instruction:
    """An instruction and its record."""

    text: str
    weight: float
    groups: int = 0
    """Number of finished groups."""


def draw_probabilities(weights: Sequence[float], *, temperature: float) -> NDArray[np.float64]:
    """Returns softmax(weights / temperature).

    Paper: https://arxiv.org/abs/2512.01945
    """
    scaled = np.asarray(weights, dtype=np.float64) / temperature
    grown = np.exp(scaled - scaled.max())
    return grown / grown.sum()


@dataclass(kw_only=True)
class InstructionPopulation:
    """The living instructions, those on trial, and which group has which.

    Paper: https://arxiv.org/abs/2512.01945. Deviations: a group has one instruction, so that siblings share their
    prompt. A new instruction is verified on training groups instead of replayed questions. The model that reflects sees
    prompts and their success, not whole trajectories.
    """

    settings: InstructionSettings
    rng: np.random.Generator
    living: list[Instruction] = field(default_factory=list)
    trials: list[Instruction] = field(default_factory=list)
    """New instructions; `weight` is the mean outcome of their groups so far."""
    gone: set[str] = field(default_factory=set)
    """Texts that have left or failed their trial; they never come back."""
    tasks: list[tuple[str, str, float]] = field(default_factory=list)
    """Instruction, prompt and mean outcome of the latest groups, for reflection."""
    _in_flight: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.living = self.living or [Instruction(text=text, weight=0.0) for text in self.settings.initial]

    def draw(self, uid: str, prompt: str) -> str:
        """Returns the instruction of a group: one that lacks groups, on trial or at the start, else by weight."""
        pending = [text for text, _ in self._in_flight.values()]
        needed = [(instruction, self.settings.trial_groups) for instruction in self.trials] + [
            (instruction, 1) for instruction in self.living
        ]
        lacking = [
            instruction for instruction, count in needed if instruction.groups + pending.count(instruction.text) < count
        ]
        if lacking:
            chosen = lacking[0]
        else:
            weights = [instruction.weight for instruction in self.living]
            place = self.rng.choice(len(weights), p=draw_probabilities(weights, temperature=self.settings.temperature))
            chosen = self.living[place]
        self._in_flight[uid] = (chosen.text, prompt)
        for old in list(self._in_flight)[: max(0, len(self._in_flight) - _MAX_IN_FLIGHT)]:
            del self._in_flight[old]
        return chosen.text

    def report(self, outcomes: Mapping[str, Sequence[float]]) -> None:
        """Attributes the outcomes of finished groups to their instructions; ends trials that are complete."""
        for uid, values in outcomes.items():
            text, prompt = self._in_flight.pop(uid, ("", None))
            if prompt is None or not values:
                continue
            mean = float(np.mean(values))
            self.tasks = [*self.tasks, (text, prompt[:_SHOWN_CHARS], mean)][-_KEPT_TASKS:]
            for instruction in self.living:
                if instruction.text == text:
                    instruction.weight = (
                        mean if not instruction.groups else self._blend_weight(instruction.weight, mean)
                    )
                    instruction.groups += 1
            for instruction in self.trials:
                if instruction.text == text:
                    instruction.weight = (instruction.weight * instruction.groups + mean) / (instruction.groups + 1)
                    instruction.groups += 1
        for instruction in [
            instruction for instruction in self.trials if instruction.groups >= self.settings.trial_groups
        ]:
            self.trials.remove(instruction)
            self._end_trial(instruction)

    def propose(self, text: str) -> bool:
        """Starts the trial of a new instruction; returns False for an empty or a known one."""
        text = text.strip()
        texts = {instruction.text for instruction in (*self.living, *self.trials)} | self.gone
        if not text or text in texts:
            return False
        self.trials.append(Instruction(text=text, weight=0.0))
        return True

    def _blend_weight(self, weight: float, mean: float) -> float:
        return self.settings.memory * weight + (1.0 - self.settings.memory) * mean

    def _end_trial(self, candidate: Instruction) -> None:
        """Adds a candidate that is at least as good as the worst, which leaves if there are too many."""
        worst = min(self.living, key=lambda instruction: instruction.weight)
        if candidate.weight < worst.weight:
            self.gone.add(candidate.text)
            return
        self.living.append(candidate)
        if len(self.living) > self.settings.size:
            self.living.remove(worst)
            self.gone.add(worst.text)

    def reflection(self) -> str:
        """Returns the request to the model that proposes instructions, with the latest tasks of least success."""
        best_first = sorted(self.living, key=lambda instruction: -instruction.weight)
        lines = "\n".join(f"- {instruction.weight:.2f}: {instruction.text!r}" for instruction in best_first)
        failed = sorted(self.tasks, key=lambda task: task[2])[:_SHOWN_TASKS]
        tasks = "\n".join(f"- success {mean:.2f} with {text!r}: {prompt}" for text, prompt, mean in failed)
        return (
            "An agent gets a task and one of these instructions. Before each is its mean success:\n"
            f"{lines}\n\nTasks that often failed:\n{tasks}\n\nThink about why the agent fails. Then write one new "
            "instruction that would help with all tasks of this kind, without naming a single task, between "
            "<instruction> and </instruction>."
        )

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of a step."""
        weights = [instruction.weight for instruction in self.living]
        return {
            "instructions": float(len(self.living)),
            "instructions_on_trial": float(len(self.trials)),
            "instruction_weight/max": max(weights),
            "instruction_weight/min": min(weights),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "living": [asdict(instruction) for instruction in self.living],
            "trials": [asdict(instruction) for instruction in self.trials],
            "gone": sorted(self.gone),
            "tasks": list(self.tasks),
            "in_flight": dict(self._in_flight),
            "random": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.living = [Instruction(**values) for values in state["living"]]
        self.trials = [Instruction(**values) for values in state["trials"]]
        self.gone, self.tasks = set(state["gone"]), [tuple(task) for task in state["tasks"]]
        self._in_flight = {uid: tuple(pair) for uid, pair in state["in_flight"].items()}
        self.rng.bit_generator.state = state["random"]
