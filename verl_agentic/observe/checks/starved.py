"""Alarm: gates drop nearly all groups."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_DROPPED = "training/gate/drop_rate"
_RATES = ("training/gate/all_0_rate", "training/gate/all_1_rate")


@alarm(reads=(_DROPPED,), also=(*_RATES, "training/gate/*/dropped_groups"))
def starved(history: History, *, drop_rate: float = 0.8, window: int = 5) -> Finding | None:
    """Gates drop most groups, so that a step costs many batches.

    Args:
        drop_rate: share of judged groups; at 0.8 a step costs five times as much.
        window: steps whose median is compared.
    """
    dropped = history.level(_DROPPED, window)
    if dropped is None or dropped < drop_rate:
        return None
    too_hard, too_easy = (history.level(name, window) for name in _RATES)
    gates = {name.split("/")[2]: history.level(name, window) or 0.0 for name in _list_gates(history)}
    worst = max(gates, key=lambda gate: gates[gate], default="unknown")
    if too_hard is not None and too_easy is not None and max(too_hard, too_easy) >= 0.5:
        advice = "tasks are too hard: use easier ones" if too_hard > too_easy else "tasks are too easy: use harder ones"
        advice += " (agentic.curriculum.name=learnability)"
    else:
        advice = f"loosen the gate {worst} (agentic.sampling.gates)"
    return warn(
        found=f"gates drop {dropped:.0%} of the groups (limit {drop_rate:.0%}), most of them by {worst}",
        evidence={"drop_rate": dropped, **gates}
        | {n: v for n, v in (("all_0_rate", too_hard), ("all_1_rate", too_easy)) if v is not None},
        advice=advice,
    )


def _list_gates(history: History) -> list[str]:
    return history.matching("training/gate/*/dropped_groups")
