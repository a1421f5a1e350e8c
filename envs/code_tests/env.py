"""The environment `code_tests`: write a program, run the public tests, fix it; hidden tests score it."""

from __future__ import annotations

from typing import Any

from verl_agentic import ConfigError, EnvRow, Reward, StopReason, Tool, ToolEnv, Transcript
from verl_agentic.graders.code.compare_outputs import TOLERANCE
from verl_agentic.graders.code.extract_program import extract_code
from verl_agentic.graders.code.run_tests import CodeRules, CodeTests, run_tests
from verl_agentic.sandbox.interface import Limits, Runner
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of
from verl_agentic.tools.python import PythonTool

from .tools import RunTestsTool

_WAIT_S = 30.0  # for a sandbox, on a busy machine
_SHOWN_CHARS = 400


class CodeTestsEnv(ToolEnv):
    """A task with public tests for the policy and hidden ones for the reward (`row.ground_truth`)."""

    def __init__(
        self,
        row: EnvRow,
        tools: list[Tool],
        *,
        hidden: CodeTests,
        runner: Runner,
        test_s: float,
        memory_mb: int,
        rules: CodeRules,
        pass_rate_weight: float,
        tool_timeout_s: float,
    ) -> None:
        if not 0 <= pass_rate_weight <= 1:
            raise ConfigError(
                f"pass_rate_weight must be 0 to 1, so that the outcome counts most, got {pass_rate_weight!r}"
            )
        super().__init__(row, tools, tool_timeout_s=tool_timeout_s)
        self._hidden, self._runner = hidden, runner
        self._test_s, self._memory_mb, self._rules = test_s, memory_mb, rules
        self._pass_rate_weight = pass_rate_weight

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the program of the final answer (see `extract_code`) passes all hidden tests, else 0.

        `info["pass_rate"]` is the share of passed tests, and a part of the reward if it has a weight. A last turn that
        calls a tool or is truncated is not an answer.
        """
        is_answer = transcript.stop_reason is StopReason.ANSWERED
        code = extract_code(transcript.final_answer, fn_name=self._hidden.fn_name) if is_answer else None
        rate = outcome = 0.0
        if code is not None:
            report = await run_tests(
                code, self._hidden, self._runner, test_s=self._test_s, memory_mb=self._memory_mb, rules=self._rules
            )
            rate, outcome = report.fraction, report.all_passed
        parts = {"pass_rate": self._pass_rate_weight * rate} if self._pass_rate_weight else {}
        return Reward(outcome, parts, info={"pass_rate": rate})


def make_env(
    row: EnvRow,
    *,
    run_tests: bool = True,
    python: bool = False,
    test_s: float = 2.0,
    memory_mb: int = 1024,
    prelude: bool = False,
    checker: str = "lines",
    tolerance: float = TOLERANCE,
    shown_failures: int = 3,
    pass_rate_weight: float = 0.0,
    sandbox: str = "auto",
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> CodeTestsEnv:
    """Returns the environment of one episode.

    Args:
        row: statement, public tests (`extra["public_tests"]`) and hidden ones (`ground_truth`), both as
            `graders.code.run_tests.CodeTests.from_json` takes them.
        run_tests: give the policy the tool `run_tests`. Without it, a row needs no public tests.
        python: also give the policy a tool `python` that runs any code.
        test_s: wall time of one test, in seconds.
        memory_mb: address space of one test, in MiB.
        prelude: see `graders.code.run_tests.CodeRules`.
        checker: how outputs are compared.
        tolerance: of expected numbers that are not integers.
        shown_failures: failed public tests that are shown after a run.
        pass_rate_weight: weight of the share of passed hidden tests in the reward, 0 to 1.
        sandbox: backend that runs the code: `auto`, `namespaces`, `docker`, `landlock`, `remote` or `local`.
        at_least: weakest isolation that is allowed. By default `auto` uses `landlock` or stronger, and a named backend
            is accepted without a check.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        DataError: the row has no tests.
        ConfigError: an option is out of its range.
    """
    hidden = CodeTests.from_json(row.ground_truth)
    public = CodeTests.from_json(row.extra.get("public_tests") or {}) if run_tests else None
    rules = CodeRules(prelude=prelude, checker=checker, tolerance=tolerance)
    runner = pool_of(pool, sandbox, at_least=at_least)
    judging: dict[str, Any] = {"test_s": test_s, "memory_mb": memory_mb, "rules": rules}
    display: dict[str, Any] = {"shown_failures": shown_failures, "shown_chars": _SHOWN_CHARS}
    tools: list[Tool] = [RunTestsTool(runner, public, **judging, **display)] if public else []
    all_s = test_s * (len(public.inputs) if public else 1)
    if python:
        limits = Limits(wall_s=all_s, cpu_s=int(all_s) + 1, memory_mb=memory_mb, output_bytes=2_000)
        tools.append(PythonTool(runner, limits=limits))
    return CodeTestsEnv(
        row,
        tools,
        hidden=hidden,
        runner=runner,
        **judging,
        pass_rate_weight=pass_rate_weight,
        tool_timeout_s=all_s + _WAIT_S,
    )
