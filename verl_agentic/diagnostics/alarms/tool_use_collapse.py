"""A policy that no longer uses its tools."""

from __future__ import annotations

from verl_agentic.diagnostics.alarm import REWARD, History, Row, Seen, alarm, gain


def _calls(row: Row) -> float | None:
    """Returns calls per episode; with verl's own loops, turns beyond the question and its answer, in pairs."""
    if "episode/tool_calls" in row:
        return row["episode/tool_calls"]
    return max(0.0, (row["num_turns/mean"] - 2) / 2) if "num_turns/mean" in row else None


@alarm(reads=("episode/tool_calls|num_turns/mean",), also=REWARD)
def tool_use_collapse(
    history: History, *, fallen_to: float = 0.1, was: float = 0.1, expected: float = 0.0, window: int = 5
) -> Seen | None:
    """Tools were called and are not any more, or are not called though they should be.

    Args:
        history: of a run.
        fallen_to: share of the highest level that there was (median of as many steps in a row).
        was: calls per episode that there must have been; fewer are chance.
        expected: calls per episode that are too few whatever there was before; 0: tools need not be used. Metrics do
            not tell whether there are tools.
        window: steps of the medians.
    """
    now = history.level(_calls, window)
    if now is None:
        return None
    best = history.best(_calls, window)
    has_fallen = best is not None and best >= was and now <= fallen_to * best
    if not has_fallen and not now < expected:
        return None
    rise = gain(history, window)
    told = f"{best:.2g} at best before, limit {fallen_to:.0%} of that" if has_fallen else f"expected {expected:g}"
    return Seen(
        what=f"the policy makes {now:.2g} tool calls per episode ({told}) while the reward "
        + (f"has changed by {rise:+.2g}" if rise is not None else "is not known"),
        evidence={"tool_calls_now": now, **({"tool_calls_best": best} if best is not None else {})},
        advice="look at what calls cost: errors of the tools (episode/tool_errors), penalties in "
        "reward.rubric.components, budgets "
        "(actor_rollout_ref.rollout.custom.agentic.limits); see that answers without tools earn less "
        "(verl-agentic reward audit), and that the prompt offers the tools (verl-agentic preflight)",
        kind="fallen" if has_fallen else "too_few",
    )
