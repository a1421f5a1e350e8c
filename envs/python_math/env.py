"""The environment `python_math`: one tool, `python`; the boxed answer is judged by math-verify."""

from __future__ import annotations

import functools

from verl_agentic.env import EnvRow, ToolEnv, Transcript
from verl_agentic.rewards.math import math_answer
from verl_agentic.sandbox.base import Limits
from verl_agentic.sandbox.local import LocalSandbox
from verl_agentic.tools.python import PythonTool
from verl_agentic.types import Reward


class PythonMathEnv(ToolEnv):
    """A question, a Python interpreter, and one right answer (`row.ground_truth`)."""

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 when the last boxed answer that the policy wrote is right, else 0."""
        return Reward(await math_answer(transcript.final_answer, str(self.row.ground_truth)))


@functools.cache
def _sandbox() -> LocalSandbox:
    # One for all episodes of a process: its limit on running processes is what keeps the machine responsive.
    return LocalSandbox()


def make_env(row: EnvRow, *, code_timeout_s: float = 10.0, memory_mb: int = 512) -> PythonMathEnv:
    """Returns the environment of one episode.

    Args:
        row: question and ground truth.
        code_timeout_s: wall time of one tool call, in seconds.
        memory_mb: address space of one tool call, in MiB.
    """
    cpu_s = int(code_timeout_s) + 1  # a second more, so that the wall limit speaks first
    limits = Limits(wall_s=code_timeout_s, cpu_s=cpu_s, memory_mb=memory_mb, output_bytes=2_000)
    return PythonMathEnv(row, [PythonTool(_sandbox(), limits=limits)], tool_timeout_s=10 * code_timeout_s)
