"""CodeRL's four levels: compile error, runtime error, wrong output, right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl_agentic.graders.code.code_answer import CodeOptions, run_answer
from verl_agentic.graders.code.run_tests import TestVerdict
from verl_agentic.rewards.component import Value, component
from verl_agentic.rewards.sample import Sample

COMPILE_ERROR, RUNTIME_ERROR, FAILED_TEST, PASSED = -1.0, -0.6, -0.3, 1.0


def coderl_reward(verdicts: Sequence[TestVerdict]) -> float:
    """Returns -1 for a compile error, else -0.6 for a runtime error in any test, else -0.3 for a wrong output, else 1.

    A test that took too long, or that was left out, counts as a runtime error.
    """
    if "compile_error" in verdicts:
        return COMPILE_ERROR
    if any(verdict in ("error", "timeout", "not_run") for verdict in verdicts):
        return RUNTIME_ERROR
    return FAILED_TEST if "wrong" in verdicts else PASSED


@component(
    low=COMPILE_ERROR,
    high=PASSED,
    kind="outcome",
    own_deadline=True,
    check=lambda **options: CodeOptions.of(options),
    needs_ground_truth=True,
    solved=PASSED,
)
async def coderl(sample: Sample, **options: Any) -> Value:
    """Returns -1, -0.6, -0.3 or 1: does not compile, fails to run, fails a test, passes all; see `coderl_reward`.

    An answer without a program does not compile. Abstains without ground truth. The paper's critic is not part of it.

    Raises:
        DataError: the ground truth is not a set of tests, see `CodeTests.from_json`.
        SandboxError: the sandbox failed, not the program.

    Paper: https://arxiv.org/abs/2207.01780
    """
    report = await run_answer(sample, CodeOptions.of(options), stop_at_failure=True)
    return COMPILE_ERROR if report is None else coderl_reward(report.verdicts)
