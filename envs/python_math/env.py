"""The environment `python_math`: one tool, `python`; the boxed answer is compared with the ground truth."""

from __future__ import annotations

from verl_agentic import EnvRow, Reward, StopReason, ToolEnv, Transcript
from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.graders.maths.boxed_math import math_answer
from verl_agentic.sandbox.interface import Limits
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig
from verl_agentic.tools.python import PythonTool
from verl_agentic.tools.python_session import PythonSessionTool

from .tasks import Tool, check_tool

# A session keeps its sandbox for the whole episode, so every parallel episode needs one.
_SESSIONS = PoolConfig(size=256, warm=2)
_SHOWN_CHARS = 80
_UNANSWERED = r"An earlier attempt gave no complete answer in a \boxed{}."
_CALL = "Let the tool do the calculation, and print its result."
_COPY = r"Copy the operands and the result digit by digit, and give the result in a \boxed{}."
_CALLS_OF_CPU_TIME = 60  # the CPU time of a session is that of all its calls


class PythonMathEnv(ToolEnv):
    """A question, a Python interpreter, and one right answer (`row.ground_truth`)."""

    def __init__(self, row: EnvRow, tool: PythonTool | PythonSessionTool | None, *, tool_timeout_s: float) -> None:
        super().__init__(row, [] if tool is None else [tool], tool_timeout_s=tool_timeout_s)
        self._tool = tool

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the last boxed answer of the policy is right, else 0.

        The answer must be fully evaluated. A box in the reasoning, beside a call, or in a truncated turn does not
        count.
        """
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        return Reward(await math_answer(transcript.final_answer, self.row.ground_truth, must_be_evaluated=True))

    async def guidance(self, transcript: Transcript) -> str:
        """Returns feedback on a failed attempt, without the right answer; used with `guidance: true`."""
        boxed = last_boxed(transcript.final_answer)
        has_run = any(message.role == "tool" and not message.is_error for message in transcript.messages)
        parts = [f"An earlier attempt answered {boxed[:_SHOWN_CHARS]}, which is wrong." if boxed else _UNANSWERED]
        if self._tool is not None:
            parts.append(_COPY if has_run else _CALL)
        return " ".join(parts)

    async def close(self) -> None:
        """Ends the interpreter, if there is one."""
        if isinstance(self._tool, PythonSessionTool):
            await self._tool.close()


def make_env(
    row: EnvRow,
    *,
    tool: Tool = "python",
    stateful: bool = False,
    code_timeout_s: float = 10.0,
    memory_mb: int = 512,
    sandbox: str = "auto",
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> PythonMathEnv:
    """Returns the environment of one episode.

    Args:
        row: question and ground truth.
        tool: `none` for questions that are answered without a tool. A row's `extra.tool` takes precedence.
        stateful: True gives the episode one interpreter, which keeps variables between calls and shows the value of a
            last expression. False runs every call in a fresh process, which costs less.
        code_timeout_s: wall time of one tool call, in seconds.
        memory_mb: memory of one tool call, or of the interpreter, in MiB.
        sandbox: backend that runs the code: `auto`, `namespaces`, `docker`, `landlock`, `remote` or `local`.
        at_least: weakest isolation that is allowed. By default `auto` uses `landlock` or stronger, and a named backend
            is accepted without a check.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        ConfigError: an unknown tool.
    """
    tool = row.extra.get("tool") or tool
    check_tool(tool)
    if tool == "none":
        return PythonMathEnv(row, None, tool_timeout_s=10 * code_timeout_s)
    cpu_s = int(code_timeout_s) + 1  # a second more, so that the wall limit acts first
    limits = Limits(
        wall_s=code_timeout_s,
        cpu_s=cpu_s * (_CALLS_OF_CPU_TIME if stateful else 1),
        memory_mb=memory_mb,
        output_bytes=2_000,
    )
    sandboxes = pool_of(pool, sandbox, at_least=at_least, config=_SESSIONS if stateful else None)
    python = (PythonSessionTool if stateful else PythonTool)(sandboxes, limits=limits)
    return PythonMathEnv(row, python, tool_timeout_s=10 * code_timeout_s)
