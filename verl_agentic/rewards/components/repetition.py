"""A penalty for repeated text."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.repeated_text import repeated_share
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample

_MAX_CHARS = 200_000


def _check_options(n: int) -> None:
    if n < 1:
        raise ConfigError(f"repetition.n must be 1 or more, got {n}")


@component(low=-1.0, high=0.0, inline=True, check=_check_options)
def repetition(sample: Sample, *, n: int = 40) -> float:
    """Returns -(share of repeated n-grams) of the text outside calls; -1 where a turn opens `<think>` more than once.

    Only the last 200,000 characters count.

    Args:
        n: words per n-gram. Short n-grams repeat in any long text.

    Paper: https://arxiv.org/abs/2502.03373 (algorithm 1). Deviations: the paper has n = 40 tokens and a penalty on each
    repeated token. Here: n words and one share per episode, as in open-r1, and numbers that only count on are equal.
    """
    if any(turn.text.count("<think>") > 1 for turn in sample.turns):
        return -1.0
    texts: list[str] = []
    num_chars_left = _MAX_CHARS
    for turn in reversed(sample.turns):
        if num_chars_left <= 0:
            break
        texts.append(turn.content[-num_chars_left:])
        num_chars_left -= len(texts[-1])
    return -repeated_share(texts[::-1], n=n)
