"""The share of passed tests, as shaping for `resolved`."""

from __future__ import annotations

from typing import Literal

from verl_agentic.graders.code.issue_tests import results_of
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample

Part = Literal["f2p", "p2p"]


@component()
def resolved_partial(sample: Sample, *, part: Part = "f2p") -> float:
    """Returns the share of the FAIL_TO_PASS tests (or, by `part`, of the PASS_TO_PASS tests) that pass.

    0 for a change that touches tests, as in `resolved`, and for an episode without an answer and without a call. The
    PASS_TO_PASS share is 1 for an episode that changes nothing, so gate it: `only_if: {resolved_partial: 0.5}`.

    Raises:
        DataError: results or ground truth have another form.
        ScoringError: there are no results.
    """
    results = results_of(sample)
    if results is None:
        return 0.0
    return results.f2p_fraction if part == "f2p" else results.p2p_fraction
