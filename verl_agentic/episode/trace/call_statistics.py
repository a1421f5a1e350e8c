"""Statistics of an episode's calls and text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from verl_agentic.base.text.repeated_text import repeated_share
from verl_agentic.rewards.answers.tool_calls import call_key, normalised_entropy, succeeded, was_carried_out
from verl_agentic.rewards.sample import Call, Turn

NGRAM = 20
"""Words per n-gram; shorter n-grams repeat in any long text."""
_MAX_CHARS = 20_000
_MAX_TOOLS = 32
_WORD = re.compile(r"\d+|[^\W\d_]{4,}")


def call_statistics(turns: Sequence[Turn]) -> dict[str, float]:
    """Returns statistics of an episode, with the same keys for all episodes.

    - `duplicate_calls`: see `num_duplicates`.
    - `unused_calls`: see `num_unused`.
    - `failed_calls`, `corrected_calls`: see `corrections`.
    - `repeated_ngrams`: share of repeated 20-grams of words in the policy's last 20,000 characters; 0 for short
      episodes.

    Args:
        turns: turns of the episode in order; empty for a void one.
    """
    calls = [call for turn in turns for call in turn.calls]
    failed, corrected = corrections(calls)
    return {
        "duplicate_calls": float(num_duplicates(calls)),
        "unused_calls": float(num_unused(turns)),
        "failed_calls": float(failed),
        "corrected_calls": float(corrected),
        "repeated_ngrams": repeated_share(_keep_newest([turn.text for turn in turns]), n=NGRAM),
    }


def tools_called(turns: Sequence[Turn]) -> dict[str, int]:
    """Returns the number of executed calls of the 32 most called tools.

    Names that the policy made up do not count.
    """
    calls = (call for turn in turns for call in turn.calls)
    return dict(Counter(call.name for call in calls if was_carried_out(call)).most_common(_MAX_TOOLS))


def tool_metrics(episodes: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Returns `calls/<tool>`, mean calls per episode of the 32 most called tools, and `tool_distribution` over all."""
    counted: Counter[str] = Counter()
    for counts in episodes:
        counted.update(counts)
    top = dict(counted.most_common(_MAX_TOOLS))
    means = {f"calls/{name}": count / len(episodes) for name, count in top.items()}
    return {**means, **{f"tool_{name}": value for name, value in tool_distribution(top).items()}} if top else {}


def num_duplicates(calls: Sequence[Call]) -> int:
    """Returns the number of calls that repeat the previous one with the same result.

    A different result of the same call (the next page, a step in a maze) does not count.
    """
    return sum(a.result == b.result and _is_same_call(a, b) for a, b in pairwise(calls))


def num_unused(turns: Sequence[Turn]) -> int:
    """Returns the number of successful calls whose results the policy never used.

    A result is used if a later turn has one of its numbers or words (of at least 4 letters) that the call did not have
    itself. So `print(1)` is unused, and so are most calls of tools that only act.
    """
    unused, later = 0, frozenset[str]()
    for turn in reversed(turns):
        for call in turn.calls:
            if succeeded(call):
                shared = _split_words(call.result or "") & later
                unused += not shared or shared <= _split_words(f"{call.name} {dict(call.arguments)}")
        later |= _split_words(turn.text)
    return unused


def corrections(calls: Sequence[Call]) -> tuple[int, int]:
    """Returns the number of failed calls, and how many of them a later call corrected.

    A successful call with other arguments corrects the last open failed call of the same tool, or one with a wrong tool
    name. Each call corrects one. The ratio of both numbers is the self-correction rate.
    """
    failed, corrected = 0, 0
    is_open: list[Call] = []
    for call in calls:
        if call.is_error or not was_carried_out(call):
            failed += 1
            is_open.append(call)
        elif succeeded(call):
            place = next((i for i in reversed(range(len(is_open))) if _is_fix(call, is_open[i])), None)
            if place is not None:
                corrected += 1
                del is_open[place]
    return failed, corrected


def tool_distribution(counts: Mapping[str, int], *, tools: Sequence[str] = ()) -> dict[str, float]:
    """Returns `top_share`, the share of the most called tool, and `entropy`, H / ln n over n tools.

    Args:
        counts: tool -> calls.
        tools: existing tools; empty: the called ones. With one tool the entropy is 0.
    """
    called = [counts.get(name, 0) for name in dict.fromkeys([*tools, *counts])]
    entropy = normalised_entropy(called) if len(called) > 1 else 0.0
    return {"top_share": max(called) / sum(called) if any(called) else 0.0, "entropy": min(1.0, entropy)}


def _is_fix(call: Call, failed: Call) -> bool:
    if failed.error_kind == "unknown_tool":
        return True
    return call.name == failed.name and not _is_same_call(call, failed)


def _split_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text[:_MAX_CHARS].casefold()))


def _is_same_call(a: Call, b: Call) -> bool:
    return a.name == b.name and call_key(a) == call_key(b)


def _keep_newest(texts: Sequence[str]) -> list[str]:
    newest: list[str] = []
    num_left = _MAX_CHARS
    for text in reversed(texts):
        if num_left <= 0:
            break
        newest.append(text[-num_left:])
        num_left -= len(newest[-1])
    return newest[::-1]
