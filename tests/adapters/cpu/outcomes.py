"""Components of rubrics whose outcome a test chooses: a random model does nothing right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample

_attempts: Counter[str] = Counter()
"""Number of attempts of each prompt, in the one worker that scores."""


@component(kind="outcome", inline=True)
def alternating(sample: Sample, *, hopeless: int = 0, every: int = 1, until: str = "") -> float:
    """Returns 0 and 1 in turn for the attempts at a prompt.

    Args:
        sample: the episode.
        hopeless: so many prompts are never solved, from the first one on.
        every: they come at this distance.
        until: once this file exists, nothing is solved any more.
    """
    prompt = sample.prompt[-1].content
    _attempts[prompt] += 1
    number, offset = divmod(list(_attempts).index(prompt), every)
    if (number < hopeless and not offset) or (until and Path(until).exists()):
        return 0.0
    return float(_attempts[prompt] % 2 == 0)
