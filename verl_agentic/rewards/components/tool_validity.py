"""Can the policy's calls be carried out?"""

from __future__ import annotations

from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.tool_calls.calls import is_well_formed, was_carried_out


@component(inline=True)
def tool_validity(sample: Sample, *, strict: bool = True) -> Value:
    """Returns the share of calls that are valid; abstains without calls.

    A share, so that more calls earn no more.

    Args:
        strict: valid is a call that a tool got to work on: it could be read, the tool exists, the arguments fit, the
            limit of calls was not passed. False: a call that could be read.
    """
    calls = sample.calls
    if not calls:
        return ABSTAIN
    is_valid = was_carried_out if strict else is_well_formed
    return sum(map(is_valid, calls)) / len(calls)
