"""Environment of the task and record of a training, for the sides of `peers.py` in other environments.

A side writes into its folder:

- `steps.jsonl`: a record per step, which is one batch of rollouts and the updates on it. It waits for its turn.
- `rows.jsonl`: all training rows, with the loss mask and the log-probs of the trainer.
- `turns.jsonl`: rows of the sampled turns of the first step with the log-probs of the sampler, if the trainer has them.
- `model`: the trained model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from _peers_turns import Turns

from verl_agentic import Action, EnvRow, StopReason, ToolCall, Transcript, load_env_package


class TaskEnvironment:
    """The tool and the score of an environment whose tool keeps nothing between calls."""

    def __init__(self, name: str, row: EnvRow) -> None:
        """Makes the environment that answers all calls."""
        self._make_env = load_env_package(name).make_env
        self._env = self._make_env(row)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns what the policy sees of a call."""
        calls = (ToolCall(name, arguments),)
        observation = await self._env.step(Action(turn=0, text="", content="", tool_calls=calls))
        return observation.messages[0].content

    async def outcome(self, answer: str | None, ground_truth: str) -> float:
        """Returns the score of an episode; the answer is None if the last turn was cut or made a call."""
        stop = StopReason.MAX_TURNS if answer is None else StopReason.ANSWERED
        action = Action(turn=0, text=answer or "", content=answer or "")
        env = self._make_env(EnvRow(prompt=(), ground_truth=ground_truth))
        return float((await env.score(Transcript(messages=(), actions=(action,), stop_reason=stop))).outcome)


class TrainingRecord:
    """Writes the files of a side, and waits for the turn of every step."""

    def __init__(self, out: Path) -> None:
        """Opens the files."""
        self._files = {name: (out / f"{name}.jsonl").open("w", buffering=1) for name in ("steps", "rows", "turns")}
        self._turns, self._started, self._rollout_s = Turns(out), 0.0, 0.0
        self.step = 0
        """Number of the current step, from 1."""

    def begin_step(self) -> None:
        """Begins the next step as soon as it is granted."""
        self.step += 1
        self._turns.wait(self.step)
        self._started = time.perf_counter()

    def end_rollouts(self) -> None:
        """Notes that all episodes of the step have ended."""
        self._rollout_s = time.perf_counter() - self._started

    def add_rows(self, success: float, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the step and its rows, which have `prompt_ids`, `response_ids`, `mask` and `log_probs`."""
        self._write("steps", [{"step": self.step, "success": success, "rollout_s": self._rollout_s}])
        self._write("rows", ({"step": self.step, **row} for row in rows))

    def add_turns(self, turns: Iterable[Mapping[str, Any]]) -> None:
        """Writes sampled turns, in the form of rows."""
        self._write("turns", turns)

    def _write(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        self._files[name].write("".join(json.dumps(record) + "\n" for record in records))
