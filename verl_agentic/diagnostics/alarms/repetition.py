"""Episodes that go round in circles."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm, ratio
from verl_agentic.finding import Finding, warn

_CALLS = ratio("episode/duplicate_calls", "episode/tool_calls")
_TEXT = "episode/repeated_ngrams"


@alarm(reads=("episode/duplicate_calls|episode/repeated_ngrams",), also=("episode/tool_calls", _TEXT))
def repetition(history: History, *, calls: float = 0.2, text: float = 0.2, window: int = 5) -> Finding | None:
    """The policy repeats a call that has just been answered, or long passages of what it wrote.

    Args:
        history: of a run.
        calls: share of calls that are the same as the one before, with the same answer: such a call tells nothing new.
        text: share of the n-grams of an episode's text that it has had before. Ordinary text has next to none.
        window: steps whose median is compared.
    """
    of_calls, of_text = history.level(_CALLS, window), history.level(_TEXT, window)
    parts, evidence = [], {}
    if of_calls is not None and of_calls >= calls:
        parts.append(f"{of_calls:.0%} of the calls repeat the one before (limit {calls:.0%})")
        evidence["duplicate_call_rate"] = of_calls
    if of_text is not None and of_text >= text:
        parts.append(f"{of_text:.0%} of the text stood in the episode before (limit {text:.0%})")
        evidence["repeated_ngrams"] = of_text
    if not parts:
        return None
    return warn(
        found=" and ".join(parts),
        evidence=evidence,
        advice="see in the viewer what is repeated; add the components tool_outcomes or repetition "
        "(agentic.rubric.components), raise actor_rollout_ref.rollout.temperature, or lower "
        "agentic.limits.max_turns",
    )
