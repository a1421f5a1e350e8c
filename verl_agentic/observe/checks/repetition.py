"""Alarm: repeated calls and texts."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History, ratio
from verl_agentic.observe.health.alarm import alarm

_CALLS = ratio("episode/duplicate_calls", "episode/tool_calls")
_TEXT = "episode/repeated_ngrams"


@alarm(reads=("episode/duplicate_calls|episode/repeated_ngrams",), also=("episode/tool_calls", _TEXT))
def repetition(history: History, *, calls: float = 0.2, text: float = 0.2, window: int = 5) -> Finding | None:
    """The policy repeats its last call, or long passages of its text.

    Args:
        calls: share of calls that equal the one before, with the same result.
        text: share of the n-grams of an episode's text that occurred before. Ordinary text has nearly none.
        window: steps whose median is compared.
    """
    of_calls, of_text = history.level(_CALLS, window), history.level(_TEXT, window)
    parts, evidence = [], {}
    if of_calls is not None and of_calls >= calls:
        parts.append(f"{of_calls:.0%} of the calls repeat the one before (limit {calls:.0%})")
        evidence["duplicate_call_rate"] = of_calls
    if of_text is not None and of_text >= text:
        parts.append(f"{of_text:.0%} of the text repeats earlier text (limit {text:.0%})")
        evidence["repeated_ngrams"] = of_text
    if not parts:
        return None
    return warn(
        found=" and ".join(parts),
        evidence=evidence,
        advice="look at the repetitions in the viewer; add the components tool_outcomes or repetition "
        "(agentic.rubric.components), raise actor_rollout_ref.rollout.temperature, or lower "
        "agentic.limits.max_turns",
    )
