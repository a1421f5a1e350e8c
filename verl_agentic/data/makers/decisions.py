"""Stored trajectories as multiple choice: at each step, the step that was taken among alternatives to it (higher-order
action synthesis, HAS).

Alternatives are what siblings did in the same state, and what a model proposes there. One row is one trajectory of T
steps: T choices, the outputs of the environment between them, and at the end whether the trajectory was right.

Paper: https://arxiv.org/abs/2509.13310 (AgentFounder: step-level scaling, contrastive decision-action synthesis)

Deviations: steps of siblings are alternatives, too; the outcome is that of the environment.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import VOID_REASONS, Message
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.stored_samples import read_samples
from verl_agentic.rewards.sample import Sample, Turn

_ASKED = (
    "An agent works on a task. Below are the task and what happened so far. Write another step that the agent could "
    "take next, in the form of its own steps: thoughts, and a call as NAME(JSON) or an answer. It must differ from all "
    "of the steps listed at the end. Write the step alone, without its result.\n\n{state}\n\nListed steps:\n{known}"
)
_TASK = "{task}\n\nChoose one of the options at each step. When it is done, say whether your decision was correct."
_OUTPUT = re.compile(
    r"</?(?:tool_response|information|observation|result|interpreter|output)\b|^\s*observation\s*:", re.I | re.M
)
_State = tuple[tuple[str, tuple[str, ...]], ...]


class DecisionsMaker(Settings):
    """Options."""

    KEEPS_NEAR: ClassVar = True
    """Trajectories of one task begin with nearly the same options."""
    run: str = ""
    """Folder of a run with a log, or of evaluations."""
    alternatives: int = setting(3, min=1)
    """Alternatives to each step (N)."""
    solved_at: float = 1.0
    """Minimum outcome of a right trajectory."""

    def check_together(self) -> None:
        if not self.run:
            raise ConfigError("run must name a folder with trajectories, got none; add --option run=RUN_DIR")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields the training trajectories of the run with an outcome, in order; without any, those of evaluations."""
        groups: dict[object, list[Sample]] = {}
        whole = [trajectory for trajectory in read_samples(Path(self.run)) if _is_whole(trajectory.sample)]
        # Validation rows of a training run are held out.
        is_training = any(trajectory.split == "train" for trajectory in whole)
        stored = [trajectory for trajectory in whole if trajectory.split == "train" or not is_training]
        for trajectory in stored:
            groups.setdefault(trajectory.key, []).append(trajectory.sample)
        for trajectory in stored[:n]:
            key = f"{seed}-{'/'.join(map(str, trajectory.key))}-{trajectory.session}"
            yield Candidate(
                key=key,
                record=lambda trajectory=trajectory, key=key: self._make_choices(
                    trajectory.sample, groups[trajectory.key], random.Random(key), model
                ),
            )

    async def verify(self, record: Record) -> str | None:
        """Returns why choices are unfit: equal options, an output in an option, or no choice."""
        for step, item in enumerate(record["items"], start=1):
            options = item["options"]
            if len({_normalise_step(option) for option in options}) < len(options):
                return f"two options are equal: at step {step}"
            if any(_OUTPUT.search(option) for option in options):
                return f"an option has the output of a tool: at step {step}"
        return None if record["items"] else "no step"

    async def _make_choices(
        self, sample: Sample, group: Sequence[Sample], rng: random.Random, model: ChatModel | None
    ) -> Record:
        siblings = [sibling for sibling in group if sibling is not sample and sibling.prompt == sample.prompt]
        items, outputs = [], []
        for number, turn in enumerate(sample.turns):
            if not (original := _render_step(turn)):
                raise RefusedError(f"an empty step: step {number + 1}")
            others = await self._collect_alternatives(sample, number, siblings, rng, model)
            options = rng.sample([original, *others], len(others) + 1)
            items.append({"options": options, "original": options.index(original)})
            outputs.append("\n\n".join(turn.observations))
        assert sample.env is not None
        is_right = sample.env.outcome >= self.solved_at
        return {
            "messages": _make_messages(sample.prompt, items, outputs, is_right=is_right),
            "question": "\n".join(message.content for message in sample.prompt if message.role != "system"),
            "items": items,
            "outcome": sample.env.outcome,
            "extra_info": {"choices": hashlib.sha256(json.dumps(items).encode()).hexdigest()[:10]},
            "data_source": "decisions",
        }

    async def _collect_alternatives(
        self, sample: Sample, number: int, siblings: Sequence[Sample], rng: random.Random, model: ChatModel | None
    ) -> list[str]:
        """Returns N alternatives to a step, those of siblings first. Raises RefusedError if there are fewer."""
        state, steps = _collect_state(sample, number), [_render_step(sample.turns[number])]
        same = [
            _render_step(sibling.turns[number])
            for sibling in siblings
            if len(sibling.turns) > number and _collect_state(sibling, number) == state
        ]
        forms = {_normalise_step(steps[0])}
        for step in rng.sample(same, len(same)):
            if _normalise_step(step) not in forms and len(steps) <= self.alternatives:
                steps.append(step)
                forms.add(_normalise_step(step))
        while model is not None and len(steps) <= self.alternatives:
            request = _ASKED.format(
                state=_render_history(sample, number), known="\n".join(f"- {step}" for step in steps)
            )
            steps.append(await ask(model, request))
            if not steps[-1] or _normalise_step(steps[-1]) in forms:
                raise RefusedError(f"the model repeats a step: at step {number + 1}: {steps[-1][:80]!r}")
            forms.add(_normalise_step(steps[-1]))
        if len(steps) <= self.alternatives:
            raise RefusedError(
                f"too few alternatives: {len(steps) - 1} of {self.alternatives} at step {number + 1} of siblings; a "
                "model (--url) writes the others"
            )
        return steps[1:]


def _is_whole(sample: Sample) -> bool:
    return sample.env is not None and bool(sample.turns) and sample.stop_reason not in VOID_REASONS


def _render_step(turn: Turn) -> str:
    """Returns thoughts and calls of a turn as text without the markers of a protocol."""
    calls = [f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})" for call in turn.calls]
    return "\n".join([*filter(None, [turn.content.strip()]), *calls])


def _normalise_step(step: str) -> str:
    return " ".join(step.casefold().split())


def _collect_state(sample: Sample, number: int) -> _State:
    return tuple((turn.text, turn.observations) for turn in sample.turns[:number])


def _render_history(sample: Sample, number: int) -> str:
    lines = [f"{message.role}: {message.content}" for message in sample.prompt]
    for turn in sample.turns[:number]:
        lines += [f"agent: {_render_step(turn)}", *(f"environment: {text}" for text in turn.observations)]
    return "\n\n".join(lines)


def _make_messages(
    prompt: Sequence[Message], items: Sequence[Mapping[str, Any]], outputs: Sequence[str], *, is_right: bool
) -> list[dict[str, Any]]:
    """Returns the conversation: options are messages of the user, choices those of the assistant."""
    before = _TASK.format(task="\n\n".join(message.content for message in prompt))
    messages = []
    for step, (item, output) in enumerate(zip(items, outputs, strict=True), start=1):
        listed = "\n".join(f"Option {place}: {option}" for place, option in enumerate(item["options"], start=1))
        messages.append(Message("user", f"{before}\n\nStep {step}\n{listed}".strip()))
        messages.append(Message("assistant", f"I will choose option {item['original'] + 1}."))
        before = output
    outcome = Message("assistant", f"My decision is {'correct' if is_right else 'incorrect'}.")
    return [message.to_dict() for message in (*messages, Message("user", f"{before}\n\nDone.".strip()), outcome)]


MAKER = DecisionsMaker
