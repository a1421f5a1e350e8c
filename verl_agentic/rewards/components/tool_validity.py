"""The share of valid calls."""

from __future__ import annotations

from verl_agentic.rewards.answers.tool_calls import is_well_formed, was_carried_out
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample


@component(inline=True)
def tool_validity(sample: Sample, *, strict: bool = True) -> Value:
    """Returns the share of calls that are valid; abstains without calls.

    As a share, it does not reward more calls.

    Args:
        strict: a valid call was carried out: it could be read, the tool exists, the arguments fit, and the limit of
            calls was not reached. False: a valid call could be read.
    """
    calls = sample.calls
    if not calls:
        return ABSTAIN
    is_valid = was_carried_out if strict else is_well_formed
    return sum(map(is_valid, calls)) / len(calls)
