"""A penalty for repeated text."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import count

from verl_agentic.errors import ConfigError
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample

# Words in scripts with spaces, characters in those without; long runs in pieces, so that "aaaa..." has many words.
_EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_EAST_ASIAN}]|[^\W{_EAST_ASIAN}]{{1,16}}|[^\w\s]")
_MAX_CHARS = 200_000


def repeated_share(texts: list[str], *, n: int) -> float:
    """Returns the share of repeated n-grams over all texts, in [0, 1]; 0 if no text is long enough."""
    seen: set[int] = set()
    total = 0
    letters: defaultdict[str, int] = defaultdict(count().__next__)  # one for each word: n-grams become slices
    for text in texts:
        spelt = "".join(map(chr, map(letters.__getitem__, _WORD.findall(text))))
        starts = range(len(spelt) - n + 1)
        seen.update([hash(spelt[at : at + n]) for at in starts])
        total += len(starts)
    return 1.0 - len(seen) / total if total else 0.0


def _check(n: int) -> None:
    if n < 1:
        raise ConfigError(f"repetition.n must be 1 or more, got {n}")


@component(low=-1.0, high=0.0, inline=True, check=_check)
def repetition(sample: Sample, *, n: int = 40) -> float:
    """Returns -(share of repeated n-grams) of the text outside calls; -1 where a turn opens `<think>` more than once.

    Only the last 200,000 characters count.

    Args:
        n: words per n-gram. Short n-grams repeat in any long text.

    Paper: https://arxiv.org/abs/2502.03373 (algorithm 1). Deviations: the paper has n = 40 tokens and a penalty on each
    repeated token. Here: n words and one share per episode, as in open-r1.
    """
    if any(turn.text.count("<think>") > 1 for turn in sample.turns):
        return -1.0
    texts: list[str] = []
    left = _MAX_CHARS
    for turn in reversed(sample.turns):
        if left <= 0:
            break
        texts.append(turn.content[-left:])
        left -= len(texts[-1])
    return -repeated_share(texts[::-1], n=n)
