"""Runs the program of the final answer on hidden tests."""

from __future__ import annotations

from typing import Any

from verl_agentic.graders.code.code_answer import CodeOptions, run_answer
from verl_agentic.rewards.component import Value, component
from verl_agentic.rewards.sample import Sample


@component(
    kind="outcome",
    own_deadline=True,
    check=lambda **options: CodeOptions.of(options),
    needs_ground_truth=True,
    solved=1.0,
)
async def code_tests(sample: Sample, *, partial: bool = False, **options: Any) -> Value:
    """Returns 1 when the program passes all hidden tests, else 0; with `partial`, passed tests / all tests.

    `extract_code` finds the program, usually the last fenced block of Python; without one the value is 0. It runs as
    `python solution.py < input` would. A test that takes too long fails. The expected outputs never enter the sandbox.
    Abstains without ground truth.

    Partial credit rewards a program that prints a constant; all-pass does not.

    Args:
        partial: gives credit for single tests; `acc` is 1 only if all pass.

    Raises:
        DataError: the ground truth is not a set of tests, see `CodeTests.from_json`.
        SandboxError: the sandbox failed, not the program.

    DeepCoder is all-pass, on the 15 tests with the longest inputs, 6 to 12 s each (`max_tests: 15, test_s: 6`, and a
    matching `total_s`). Here, all tests run by default.
    """
    report = await run_answer(sample, CodeOptions.of(options), stop_at_failure=not partial)
    if report is None:
        return 0.0
    return report.fraction if partial else report.all_passed
