"""Alarm: responses grow without a benefit."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import REWARD, History, first_of, gain, has_learnt, total
from verl_agentic.observe.health.alarm import alarm

_LENGTH = first_of("episode/model_tokens", "response_length/mean")
_CUT = total(["episode/stop/max_tokens", "episode/stop/context_full"])
_CORRELATION, _WRONG, _RIGHT = "batch/length_reward_corr", "batch/wrong_length", "batch/right_length"


@alarm(
    reads=("episode/model_tokens|response_length/mean",),
    also=(_CORRELATION, _WRONG, _RIGHT, "episode/stop/max_tokens", "episode/stop/context_full", *REWARD),
)
def length_explosion(
    history: History,
    *,
    growth: float = 2.0,
    correlation: float = 0.6,
    wrong_to_right: float = 2.0,
    cut: float = 0.2,
    window: int = 10,
) -> Finding | None:
    """Responses have grown much longer, and length itself is rewarded or does not help.

    Growth alone is not a fault: a policy that learns to reason writes more. It is a fault if reward correlates with
    length among siblings, if wrong answers grow, if answers are cut off, or if the reward does not rise.

    Args:
        growth: ratio to the length in the first window.
        correlation: of length and reward. Below 0.6, length explains less than a third of the reward.
        wrong_to_right: length of wrong answers over that of right ones.
        cut: share of episodes that end at a limit of tokens.
        window: steps of the medians at either end.
    """
    before, now = history.start(_LENGTH, window), history.level(_LENGTH, window)
    if before is None or now is None or now < growth * before or not before:
        return None
    evidence: dict[str, float | str] = {"length_before": before, "length_now": now}
    reasons: list[str] = []

    def note(name: str, value: float | None, limit: float, words: str) -> None:
        if value is not None:
            evidence[name] = value
            if value >= limit:
                reasons.append(f"{words} {value:.2g} (limit {limit:g})")

    note("length_reward_corr", history.level(_CORRELATION, window), correlation, "its correlation with the reward is")
    wrong, right = history.level(_WRONG, window), history.level(_RIGHT, window)
    # Wrong answers that were as much longer from the beginning do not explain the growth.
    if wrong and right and wrong >= growth * (history.start(_WRONG, window) or wrong):
        note("wrong_to_right", wrong / right, wrong_to_right, "wrong answers are longer than right ones, times")
    note("cut_share", history.level(_CUT, window), cut, "the share that is cut off is")
    rise = gain(history, window)
    if rise is not None and not has_learnt(history, window):
        evidence["reward_gain"] = rise
        reasons.append(f"the reward has changed by {rise:+.2g} only")
    if not reasons:
        return None
    return warn(
        found=f"responses are {now / before:.1f} times as long as they were ({before:.0f} to {now:.0f} tokens, limit "
        f"{growth:g} times), and {', '.join(reasons)}",
        evidence=evidence,
        advice="mean the loss over tokens without the length of the row (algorithm.adv_estimator=dr_grpo, "
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm, "
        "actor_rollout_ref.actor.loss_scale_factor='${data.max_response_length}'), add the component overlong or "
        "length_linear (agentic.rubric.components), and look at what makes long answers right",
    )
