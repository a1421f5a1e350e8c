"""Alarm: memory leaks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_HOST, _DEVICE = "*perf/cpu_memory_used_gb", "*perf/max_memory_allocated_gb"
_SLOW = Limit(warn=1.5, fail=2.0)
"""Ratio to the beginning of the run, for host memory: a leak that is too slow for the window."""
_KEPT = 0.9
"""Share of the peak; with less at the end, the memory was released."""
_MIN_STEPS, _ENDS = 6, 10
_ADVICE = {
    "host": "see which process grows (`ray memory`, py-spy): environments or sandboxes that are not released "
    "(Env.close), tools or workers that keep results, data.dataloader_num_workers, caches of a judge; meanwhile resume "
    "from a checkpoint (trainer.save_freq) before it is full",
    "device": "lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu, or cap data.max_response_length",
}


@alarm(reads=(f"{_HOST}|{_DEVICE}",), patience=5)
def memory_growth(
    history: History, *, growth: float = 0.2, least_gb: float = 1.0, steadiness: float = 0.8, window: int = 30
) -> Finding | None:
    """Memory of a machine or device grows step by step.

    Args:
        growth: in the window, as a share of the memory at its beginning.
        least_gb: minimum growth in the window.
        steadiness: Kendall's tau with time, 1 if every step takes more than all before. A leak only grows; caches and
            other users of the machine also give memory back.
        window: number of steps.
    """
    names = [*history.matching(_HOST), *history.matching(_DEVICE)]
    status, grown = "ok", [(0.0, name, values) for name in names if (values := history.last(name, 1))]
    if not grown:
        return None
    for name in names:
        recent = history.last(name, window)
        if len(recent) == window and _compute_kendall_tau(recent) >= steadiness:
            gained = _compute_theil_sen_slope(recent) * (window - 1)
            if gained >= max(least_gb, growth * abs(recent[0])):
                status = "warn"
                grown.append((gained, name, recent))
    for name in history.matching(_HOST):
        values = history.first(name, len(history))
        slow = _SLOW.judge(_compute_ratio(history, name)) if len(values) >= _MIN_STEPS else "ok"
        if slow != "ok" and _compute_kendall_tau(values) >= steadiness and values[-1] >= _KEPT * max(values):
            status = slow
            grown.append((values[-1] - values[0], name, values))
    gained, name, values = max(grown)
    return judged(
        status,
        found=f"{name} grew by {gained:.3g} GB in {len(values)} steps, to {values[-1]:.3g} GB (limit {growth:.0%} and "
        f"{least_gb:g} GB)",
        evidence={"metric": name, "grown_gb": gained, "now_gb": values[-1], "gb_per_step": gained / len(values)},
        advice=_ADVICE["host" if name.endswith("cpu_memory_used_gb") else "device"],
        check=name,
    )


def _compute_ratio(history: History, name: str) -> float:
    """Returns the memory at the end as a multiple of that at the beginning; 1 if the run is too short."""
    before, now = history.start(name, _ENDS), history.level(name, _ENDS)
    return now / before if before and now else 1.0


def _compute_theil_sen_slope(values: Sequence[float]) -> float:
    """Returns the median of the slopes of all pairs (Theil-Sen)."""
    pairs = ((i, j) for j in range(len(values)) for i in range(j))
    return statistics.median((values[j] - values[i]) / (j - i) for i, j in pairs)


def _compute_kendall_tau(values: Sequence[float]) -> float:
    """Returns Kendall's tau with time: the share of pairs that rise less that of pairs that fall."""
    signs = [(values[j] > values[i]) - (values[j] < values[i]) for j in range(len(values)) for i in range(j)]
    return sum(signs) / len(signs)
