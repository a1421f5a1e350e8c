"""Base of environments in which the policy proposes a task and copies of the policy try to solve it.

The proposer's final answer is a task. The environment verifies it, lets untrained sub-agents try it, and reports their
success rate, which `graders.groups.self_play` rewards. A verified task is appended to a file that the trainer reads
(`agentic.curriculum.task_set`), so that it is trained on from the next batch on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, SubAgentRunner, Transcript, is_training
from verl_agentic.base.errors import ConfigError, DataError, EnvError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.tools.delegate import NoAnswerError
from verl_agentic.base.tools.tool_env import ToolEnv, run_all
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, Tool
from verl_agentic.data.prepare import to_records
from verl_agentic.graders.groups.self_play import SOLVE_RATE
from verl_agentic.log.files.rows import row_of_columns

_AGENT = "env_agent"
_SHOWN_CHARS = 300


class SelfPlay(Settings):
    """Settings of a proposer's environment."""

    attempts: int = setting(8, min=1)
    """Number of attempts of the solver at each proposed task."""
    proposals: str = ""
    """JSON lines file that verified tasks of training episodes are appended to: that of
    `agentic.curriculum.task_set.proposals`. Empty: they are not kept."""
    keep: Sequence[float] = (0.0, 1.0)
    """`[low, high]`: success rates, both included, of the tasks that are kept."""

    def check_together(self) -> None:
        if len(self.keep) != 2 or not 0 <= self.keep[0] <= self.keep[1] <= 1:
            raise ConfigError(f"keep must be [low, high] from 0 to 1, got {list(self.keep)}; change it")


class InvalidProposalError(Exception):
    """A proposal that is no task; its message is the reason. Never leaves the environment."""

    def __init__(self, reason: str, *, is_well_formed: bool, **info: float) -> None:
        super().__init__(reason)
        self.info = {"well_formed": float(is_well_formed), **info}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A verified task."""

    row: EnvRow
    """The row of the solver; its `task_id` is replaced."""
    tools: Sequence[Tool] = ()
    """Tools of the solver."""
    max_turns: int = 1
    """Turns of the solver."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Numbers for the proposer's reward."""


class ProposerEnv(ToolEnv):
    """A proposer's episode. A subclass defines `verify`, and `is_right` or `grade`.

    The outcome is 1 for a verified task. `Reward.info` has `well_formed` and, for a verified task, `solve_rate`.
    """

    def __init__(
        self,
        row: EnvRow,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        *,
        settings: SelfPlay,
        tool_timeout_s: float = 30.0,
    ) -> None:
        """Makes the environment of a row; the tools are the proposer's."""
        super().__init__(row, tools, tool_timeout_s=tool_timeout_s)
        self._settings = settings
        self._run_sub_agent: SubAgentRunner | None = None
        self._reward = Reward(0.0, info={"well_formed": 0.0})
        self._accepted: EnvRow | None = None

    async def verify(self, answer: str) -> Proposal:
        """Returns the task of the proposer's final answer. Raises InvalidProposalError if there is none."""
        raise NotImplementedError

    async def is_right(self, proposal: Proposal, answer: str) -> bool:
        """Returns whether an answer of the solver is right."""
        raise NotImplementedError

    async def grade(self, proposal: Proposal, answers: Sequence[str]) -> tuple[EnvRow, float]:
        """Returns the solver's row and the success rate; an attempt without an answer is an empty text."""
        is_right = {answer: await self.is_right(proposal, answer) for answer in set(answers) if answer}
        return proposal.row, sum(is_right.get(answer, False) for answer in answers) / len(answers)

    def use_sub_agents(self, run: SubAgentRunner) -> None:
        """Keeps the runner for the attempts of the solver."""
        super().use_sub_agents(run)
        self._run_sub_agent = run

    async def ask(self, prompt: Sequence[Message], *, tools: Sequence[Tool] = (), max_turns: int = 1) -> str:
        """Returns the answer of an untrained copy of the policy; empty if it gives none.

        Raises:
            InvalidProposalError: the prompt cannot be posed, for example because it is too long.
        """
        if self._run_sub_agent is None:
            raise EnvError("a proposer needs a loop that runs sub-agents, got none; use run_episode")
        try:
            return await self._run_sub_agent(prompt, tools=tools, max_turns=max_turns, is_trained=False)
        except NoAnswerError:
            return ""
        except DataError as cause:  # the policy wrote the prompt
            raise InvalidProposalError(f"it cannot be posed: {cause}", is_well_formed=True) from cause

    async def step(self, action: Action) -> Observation:
        """Answers calls; the final answer is verified and tried."""
        observation = await super().step(action)
        if observation.stop is StopReason.ANSWERED:
            answer = Transcript(messages=(), actions=(action,), stop_reason=observation.stop).final_answer
            await self._try_proposal(answer)
        return observation

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 for a verified task, which is appended to the file of proposals in training."""
        if self._accepted is not None and self._settings.proposals and is_training.get():
            path, env_id = Path(self._settings.proposals), str(self.row.extra.get("env", ""))
            await in_thread(lambda: append_proposal(path, self._accepted, env_id=env_id))
        return self._reward

    async def _try_proposal(self, answer: str) -> None:
        try:
            proposal = await self.verify(answer)
            attempts = (
                self.ask(proposal.row.prompt, tools=proposal.tools, max_turns=proposal.max_turns)
                for _ in range(self._settings.attempts)
            )
            answers = await run_all(attempts)
        except InvalidProposalError as refused:
            self._reward = Reward(0.0, info=refused.info, details={"refused": str(refused)})
            return
        row, rate = await self.grade(proposal, answers)
        low, high = self._settings.keep
        self._accepted = _add_task_id(row) if low <= rate <= high else None
        excerpts = [answer[:_SHOWN_CHARS] for answer in answers]
        self._reward = Reward(
            1.0,
            info={"well_formed": 1.0, **proposal.info, SOLVE_RATE: rate},
            details={"task": row.prompt[-1].content, "attempts": excerpts},
        )


def _add_task_id(row: EnvRow) -> EnvRow:
    """Returns the row with an id that equal tasks share."""
    content = json.dumps([[message.content for message in row.prompt], row.ground_truth], sort_keys=True)
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return replace(row, extra={**row.extra, "task_id": f"proposed-{digest}"})


def append_proposal(path: Path, row: EnvRow | None, *, env_id: str) -> None:
    """Appends a row with the columns of `verl-agentic prepare`; several processes may do so at once."""
    assert row is not None
    (record,) = to_records([row], env_id=env_id, split="train", agent_name=_AGENT)
    append_record(path, record)


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Appends a line to a file of proposals; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def is_complete(row: Mapping[str, Any]) -> bool:
    """Returns whether a line of the file is a row with a ground truth: a `check` of `agentic.curriculum.task_set`.

    The environment has verified the task before it wrote the line. Raises DataError for a malformed row.
    """
    return row_of_columns(row, "a proposal").ground_truth is not None
