"""The environment `reasoning_gym`: one question, one answer, and the grader of its generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import DataError
from verl_agentic.base.text.tags import last_block
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward, StopReason

from .grading import grade
from .problems import Problem, load_problem
from .rows import ANSWER_TAG


class ReasoningGymEnv(ToolEnv):
    """A problem without tools."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [])
        self._task, self._number, self._options = _read_truth(row)
        self._problem: Problem | None = None

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row.

        Raises:
            DataError: the installed reasoning-gym makes another problem of the row.
        """
        self._problem = await in_thread(load_problem, self._task, self._number, self._options)
        if self._problem.solution != self.row.ground_truth.get("answer"):
            raise DataError(
                f"the row has a problem of another reasoning-gym, got {self.row.ground_truth}, but the installed one "
                f"has the answer {self._problem.solution!r}; make the rows anew"
            )
        return self.row.prompt

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 for a score of 1, else 0; `score` in the info is the grader's partial credit.

        The answer is the last `<answer>...</answer>` of the final answer, or all of it without such tags.
        """
        if self._problem is None or transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        text = transcript.final_answer
        tagged = last_block([text], ANSWER_TAG)
        score = await in_thread(grade, self._task, self._problem, text if tagged is None else tagged)
        return Reward(float(score >= 1.0), info={"score": score})


def make_env(row: EnvRow) -> ReasoningGymEnv:
    """Returns the environment of one episode. Raises DataError if the row names no problem."""
    return ReasoningGymEnv(row)


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution of a row."""
    answer = row.ground_truth["answer"]
    return lambda messages: Message("assistant", answer)


def _read_truth(row: EnvRow) -> tuple[str, int, Mapping[str, Any]]:
    truth = row.ground_truth
    if not isinstance(truth, Mapping) or not {"task", "number", "answer"} <= set(truth):
        raise DataError(f"the ground truth names no problem, got {truth!r}; make the rows with make_rows")
    return str(truth["task"]), int(truth["number"]), truth.get("options") or {}
