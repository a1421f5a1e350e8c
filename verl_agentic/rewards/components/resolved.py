"""Is the issue resolved: do the tests pass that the change should mend, and those that it should not break?"""

from __future__ import annotations

from verl_agentic.rewards.code.issue_tests import results_of
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome")
def resolved(sample: Sample) -> float:
    """Returns 1 when all FAIL_TO_PASS and all PASS_TO_PASS tests pass, else 0.

    0, too, for a change that touches a test, `conftest.py` or what else is loaded before the tests, or that could not
    be applied. A test that did not run has failed. It grades results and runs nothing: see `results_of` for whence they
    come. The partial forms are shaping: `resolved_partial`.

    Raises:
        DataError: results or ground truth are not what they should be.
        ScoringError: there are no results.

    Paper: https://arxiv.org/abs/2310.06770 (SWE-bench)
    """
    results = results_of(sample)
    return 0.0 if results is None else results.resolved
