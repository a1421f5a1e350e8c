"""Reward 1 for a resolved issue: all tests to fix and all tests not to break pass."""

from __future__ import annotations

from verl_agentic.graders.code.issue_tests import results_of
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome")
def resolved(sample: Sample) -> float:
    """Returns 1 when all FAIL_TO_PASS and all PASS_TO_PASS tests pass, else 0.

    Also 0 for a change that touches tests, `conftest.py` or other files loaded before tests, or that could not be
    applied. A test that did not run has failed. It grades existing results (`results_of`) and runs nothing. For partial
    credit as shaping, use `resolved_partial`.

    Raises:
        DataError: results or ground truth have another form.
        ScoringError: there are no results.

    Paper: https://arxiv.org/abs/2310.06770 (SWE-bench)
    """
    results = results_of(sample)
    return 0.0 if results is None else results.resolved
