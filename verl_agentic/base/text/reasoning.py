"""Text without its reasoning: the answer, as a preference judge or reward model reads it.

Paper: https://arxiv.org/abs/2509.20357 (RLMT: the model reasons first, the reward model scores the answer alone)
"""

from __future__ import annotations

import re

from verl_agentic.base.text.tags import Scanner

_NAMES = "(?i:think|thought|seed:think|thinking|reasoning)"
_REASONING = re.compile(rf"</?{_NAMES}>|\[/?THINK\]")
_BEGIN_OF_REASONING = re.compile(rf"<{_NAMES}>|\[THINK\]")
END_OF_REASONING = re.compile(rf"</{_NAMES}>|\[/THINK\]")
"""Tags that close reasoning."""


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


def strip_thoughts(text: str) -> str:
    """Returns an answer without the thoughts that it begins with, and without white space around it.

    Tags may have any known name. The opening tag may be missing, because some prompts contain it. Thoughts that are
    never closed leave an empty answer. Tags after other text stay, see `outside_reasoning`.
    """
    text = text.strip()
    while (end := END_OF_REASONING.search(text)) is not None:
        begin = _BEGIN_OF_REASONING.search(text, 0, end.start())
        if begin is not None and begin.start() > 0:
            return text
        text = text[end.end() :].strip()
    return "" if _BEGIN_OF_REASONING.match(text) else text
