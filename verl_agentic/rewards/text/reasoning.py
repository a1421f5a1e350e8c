"""Text without its reasoning: the answer, as a preference judge or reward model reads it.

Paper: https://arxiv.org/abs/2509.20357 (RLMT: the model reasons first, the reward model scores the answer alone)
"""

from __future__ import annotations

import re

from verl_agentic.rewards.text.tags import Scanner

_REASONING = re.compile(r"</?(?i:think|thought|seed:think|thinking|reasoning)>|\[/?THINK\]")


def without_thoughts(text: str, *, opening: str = "<think>", closing: str = "</think>") -> str:
    """Returns what stands outside of the reasoning, without white space around it.

    Reasoning that is never closed reaches to the end: what a cut thought says is no answer. All in front of a closing
    tag that nothing opened is reasoning too: there the prompt has opened it. So neither a second block nor a nested one
    carries words past the judge.
    """
    scanner = Scanner((), reasoning=(opening, closing), later_reasoning="any")
    scan = scanner.scan(text)
    if begun_before := [end for start, end in scan.reasoning if not text.startswith(opening, start)]:
        scan = scanner.scan(text[begun_before[-1] :])
    return scan.outside((), with_reasoning=False).strip()


def outside_reasoning(text: str) -> str:
    """Returns the text without reasoning between tags of any known name; unchanged if no such tag is in it.

    See `without_thoughts` for tags that are not closed or not opened.
    """
    for opening in dict.fromkeys(tag[0].replace("/", "", 1) for tag in _REASONING.finditer(text)):
        text = without_thoughts(text, opening=opening, closing=f"{opening[0]}/{opening[1:]}")
    return text
