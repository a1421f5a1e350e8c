"""Does the program of the final answer pass the hidden tests?"""

from __future__ import annotations

from typing import Any

from verl_agentic.rewards.code.code_answer import CodeOptions, run_answer
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample


@component(kind="outcome", own_deadline=True, check=lambda **options: CodeOptions.of(options))
async def code_tests(sample: Sample, *, partial: bool = False, **options: Any) -> Value:
    """Returns 1 when the program passes all hidden tests, else 0; with `partial`, passed tests / all tests.

    The program is what `extract_code` finds in the final answer, as a rule its last fenced block of Python; without one
    the value is 0. It runs as `python solution.py < input` would. A test that takes too long has failed. The expected
    outputs never enter the sandbox. Abstains without ground truth.

    Partial credit pays a program that prints one constant for every test that expects it; all-pass does not.

    Args:
        partial: credit for single tests.
        options: see `CodeOptions`.

    Raises:
        DataError: the ground truth is no set of tests, see `CodeTests.from_json`.
        SandboxError: the sandbox failed, not the program.

    DeepCoder is all-pass, on the 15 tests with the longest inputs, 6 to 12 s each (`max_tests: 15, test_s: 6`, with a
    `total_s` to match); here, all tests are run unless told otherwise.
    """
    if sample.ground_truth is None:
        return ABSTAIN
    report = await run_answer(sample, CodeOptions.of(options), stop_at_failure=not partial)
    if report is None:
        return 0.0
    return report.fraction if partial else report.all_passed
