"""Alarm: siblings are alike."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_TEXTS, _ACTIONS = "batch/distinct_share", "batch/distinct_action_share"


@alarm(reads=(f"{_TEXTS}|{_ACTIONS}",), also=("episode/acc",))
def low_diversity(
    history: History, *, share: float = 0.1, fallen_to: float = 0.3, solved: float = 0.9, window: int = 5
) -> Finding | None:
    """The sessions of a group are hardly distinct in their tokens, or have become hardly distinct in their actions.

    Some tasks have few actions, such as yes and no. So equal actions count only if diversity has fallen.

    Args:
        share: share (d - 1) / (n - 1) for d distinct sessions of n: 0 for 1 of 16, 0.07 for 2 of 16.
        fallen_to: share of the distinct actions in the first window.
        solved: outcome from which on siblings are alike because they succeed, if the raw outcome is known.
        window: steps whose median is compared.
    """
    outcome = history.level("episode/acc", window)
    if outcome is not None and outcome >= solved:
        return None
    texts, actions, before = (
        history.level(_TEXTS, window),
        history.level(_ACTIONS, window),
        history.start(_ACTIONS, window),
    )
    if texts is not None and texts <= share:
        kind, now, description = "texts", texts, "repeat the tokens of another one"
    elif actions is not None and before is not None and actions <= min(share, fallen_to * before):
        kind, now, description = (
            "actions",
            actions,
            f"repeat the actions of another one ({1 - before:.0%} at the beginning)",
        )
    else:
        return None
    return warn(
        found=f"{1 - now:.0%} of the siblings that could differ {description} (limit {1 - share:.0%})",
        evidence={"distinct_share": now, **({"outcome": outcome} if outcome is not None else {})},
        advice="raise actor_rollout_ref.rollout.temperature towards 1, clip higher "
        "(actor_rollout_ref.actor.clip_ratio_high=0.28), reward entropy (actor_rollout_ref.actor.entropy_coeff=0.001), "
        "lower actor_rollout_ref.actor.optim.lr, or resume from an earlier checkpoint",
        check=kind,
    )
