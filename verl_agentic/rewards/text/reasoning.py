"""What is left of a text when its reasoning is taken out: the answer, as a preference judge or reward model reads it.

Paper: https://arxiv.org/abs/2509.20357 (RLMT: the model reasons first, the reward model scores the answer alone)
"""

from __future__ import annotations

import re

_REASONING = re.compile(r"</?(?i:think|thought|seed:think|thinking|reasoning)>|\[/?THINK\]")


def without_thoughts(text: str, *, opening: str = "<think>", closing: str = "</think>") -> str:
    """Returns what stands outside of the reasoning, without white space around it.

    Reasoning that is never closed reaches to the end: what a cut thought says is no answer. All in front of a closing
    tag that nothing opened is reasoning too: there the prompt has opened it. So neither a second block nor a nested one
    carries words past the judge.
    """
    kept: list[str] = []
    outside = 0  # where the text outside of reasoning goes on; -1 inside
    for tag in re.finditer(f"{re.escape(opening)}|{re.escape(closing)}", text):
        if tag[0] == closing:
            if outside >= 0:
                kept.clear()
            outside = tag.end()
        elif outside >= 0:
            kept.append(text[outside : tag.start()])
            outside = -1
    if outside >= 0:
        kept.append(text[outside:])
    return "".join(kept).strip()


def outside_reasoning(text: str) -> str:
    """Returns the text without reasoning between tags of any known name; unchanged if no such tag is in it.

    See `without_thoughts` for tags that are not closed or not opened.
    """
    for opening in dict.fromkeys(tag[0].replace("/", "", 1) for tag in _REASONING.finditer(text)):
        text = without_thoughts(text, opening=opening, closing=f"{opening[0]}/{opening[1:]}")
    return text
