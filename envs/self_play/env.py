"""The environment `self_play`: rows of proposers and rows of solvers."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic import DataError, EnvRow, Reward, StopReason, ToolEnv, Transcript
from verl_agentic.data.proposer_env import SelfPlay
from verl_agentic.graders.maths.boxed_math import math_answer
from verl_agentic.sandbox.interface import Runner
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of

from .programs import ProgramProposer, is_right
from .questions import QuestionProposer


class SolverEnv(ToolEnv):
    """A task without tools: the final answer is compared with the ground truth."""

    def __init__(self, row: EnvRow, runner: Runner) -> None:
        super().__init__(row, [])
        self._runner = runner

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 for the right output, arguments that lead to the output, or the right boxed answer."""
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        answer, truth = transcript.final_answer, self.row.ground_truth
        if self.row.extra["kind"] == "math":
            return Reward(await math_answer(answer, truth, must_be_evaluated=True))
        return Reward(float(await is_right(truth, self.row.extra["mode"], answer, self._runner)))


def make_env(
    row: EnvRow,
    *,
    attempts: int = 8,
    proposals: str = "",
    keep: Sequence[float] = (0.0, 1.0),
    sandbox: str = "auto",
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> ToolEnv:
    """Returns the environment of one episode.

    Args:
        row: names its `kind` (`code` or `math`) and its `role` (`propose` or `solve`).
        attempts: number of attempts of the solver at a proposed task.
        proposals: file that verified tasks are appended to; empty: they are not kept.
        keep: `[low, high]`: success rates of the tasks that are kept.
        sandbox: backend that runs programs; see `python_math`.
        at_least: weakest isolation that is allowed.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        ConfigError: an option is out of its range.
        DataError: the row names no kind and role of this environment.
    """
    settings = SelfPlay(attempts=attempts, proposals=proposals, keep=tuple(keep))
    kind = (row.extra.get("kind"), row.extra.get("role"))
    runner = pool_of(pool, sandbox, at_least=at_least)
    if kind in (("code", "solve"), ("math", "solve")):
        return SolverEnv(row, runner)
    if kind == ("code", "propose"):
        return ProgramProposer(row, runner, settings=settings)
    if kind == ("math", "propose"):
        return QuestionProposer(row, settings=settings)
    raise DataError(f"a row must have the kind code or math and the role propose or solve, got {kind}; make it anew")
