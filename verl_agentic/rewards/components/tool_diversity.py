"""Rewards the use of several tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.answers.tool_calls import normalised_entropy, was_carried_out
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample


def _check_options(tools: Sequence[str]) -> None:
    if isinstance(tools, str) or len(set(tools)) < 2:
        raise ConfigError(f"tool_diversity.tools must be a list of two or more names of tools, got {tools!r}")


@component(inline=True, info=("top_share",), check=_check_options)
def tool_diversity(sample: Sample, *, tools: Sequence[str]) -> Graded:
    """Returns the normalised entropy of the calls over the tools: 0 for one tool, 1 for a uniform distribution.

    Only calls that were carried out count. It also rewards tools that the task does not need, so use a low weight.

    Args:
        tools: names of the policy's tools.
    """
    called = Counter(call.name for call in sample.calls if was_carried_out(call))
    counts = [called[tool] for tool in dict.fromkeys(tools)]
    top_share = max(counts) / sum(counts) if any(counts) else 0.0
    return Graded(value=min(1.0, normalised_entropy(counts)), info={"top_share": top_share})
