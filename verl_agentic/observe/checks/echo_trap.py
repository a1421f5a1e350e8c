"""Alarm: RAGEN's echo trap."""

from __future__ import annotations

import statistics

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import REWARD, History, Quantity, first_of
from verl_agentic.observe.health.alarm import alarm
from verl_agentic.observe.health.collapse_signs import CollapseWatch

_STD = "batch/within_group_std"
_SERIES: dict[str, Quantity] = {
    "reward_std": _STD,
    "reward": first_of("episode/score", "critic/score/mean"),
    "entropy": "batch/entropy",
    "grad_norm": "actor/grad_norm",
}


@alarm(reads=(_STD, "episode/score|critic/score/mean"), also=("batch/entropy", "actor/grad_norm", *REWARD))
def echo_trap(
    history: History,
    *,
    window: int = 10,
    fallen_to: float = 0.5,
    risen_to: float = 2.0,
    gain: float = 0.25,
    solved: float = 0.9,
) -> Finding | None:
    """The rewards of siblings have become alike without a higher reward, or entropy fell while gradients grew.

    Args:
        window, fallen_to, risen_to, gain: see `CollapseWatch`.
        solved: outcome from which on siblings are alike because they succeed.

    Paper: https://arxiv.org/abs/2504.20073
    """
    watch = CollapseWatch(window=window, fallen_to=fallen_to, risen_to=risen_to, gain=gain)
    series = {
        name: history.first(quantity, window) + history.last(quantity, window)
        for name, quantity in _SERIES.items()
        if history.start(quantity, window) is not None
    }
    if not {"reward_std", "reward"} <= set(series):
        return None
    signs = watch.signs(
        reward_std=series["reward_std"],
        reward=series["reward"],
        entropy=series.get("entropy", ()),
        grad_norm=series.get("grad_norm", ()),
    )
    outcome = history.level("episode/acc", window)
    if not signs["alarm"] or (outcome is not None and outcome >= solved):
        return None
    halves = {name: (values[:window], values[window:]) for name, values in series.items()}
    medians = {name: (statistics.median(before), statistics.median(now)) for name, (before, now) in halves.items()}
    listed = ", ".join(f"{name} {before:.3g} to {now:.3g}" for name, (before, now) in medians.items())
    return warn(
        found=f"siblings become alike and the reward does not rise: {listed} (limits: fallen to {fallen_to:.0%}, risen "
        f"to {risen_to:g} times, gain of {gain:g} standard deviations)",
        evidence={f"{name}_before": before for name, (before, _) in medians.items()}
        | {f"{name}_now": now for name, (_, now) in medians.items()},
        advice="resume from an earlier checkpoint; keep groups with different rewards "
        "(agentic.sampling.gates=[void_groups,{name: top_p_signal, p: 0.9}]), clip higher "
        "(actor_rollout_ref.actor.clip_ratio_high=0.28), update less often per batch "
        "(actor_rollout_ref.actor.ppo_epochs=1)",
    )
