"""The environment `everyday`: one tool, `python`; the answer is compared with the ground truth."""

from __future__ import annotations

import re

from verl_agentic import EnvRow, Reward, StopReason, ToolEnv, Transcript
from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.sandbox.interface import Limits
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of
from verl_agentic.tools.python import PythonTool

_GROUPED = re.compile(r"\d{1,3}(,\d{3})+")
_OUTPUT_BYTES = 200


class EverydayEnv(ToolEnv):
    """A question, a Python interpreter, and one right answer (`row.ground_truth`)."""

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the final answer is the right one, else 0.

        Case, spaces, quotes, a full stop and commas between thousands do not count. If the answer has a box, the last
        one is compared.
        """
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        answer = last_boxed(transcript.final_answer)
        answer = transcript.final_answer if answer is None else answer
        return Reward(float(_normalize_answer(answer) == _normalize_answer(str(self.row.ground_truth))))


def make_env(
    row: EnvRow,
    *,
    code_timeout_s: float = 5.0,
    memory_mb: int = 256,
    sandbox: str = "auto",
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> EverydayEnv:
    """Returns the environment of one episode.

    Args:
        row: question and ground truth.
        code_timeout_s: wall time of one tool call, in seconds.
        memory_mb: memory of one tool call, in MiB.
        sandbox: backend that runs the code: `auto`, `namespaces`, `docker`, `landlock`, `remote` or `local`.
        at_least: weakest isolation that is allowed. By default `auto` uses `landlock` or stronger, and a named backend
            is accepted without a check.
        pool: `process` for a pool per process, `node` for one pool per node.
    """
    limits = Limits(
        wall_s=code_timeout_s, cpu_s=int(code_timeout_s) + 1, memory_mb=memory_mb, output_bytes=_OUTPUT_BYTES
    )
    tool = PythonTool(pool_of(pool, sandbox, at_least=at_least, config=None), limits=limits)
    return EverydayEnv(row, [tool], tool_timeout_s=10 * code_timeout_s)


def _normalize_answer(text: str) -> str:
    text = text.strip().strip("\"'`.").strip().casefold()
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text
