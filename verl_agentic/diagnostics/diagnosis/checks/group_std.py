"""Line 5: the spread of rewards within groups."""

from __future__ import annotations

from typing import Any

from verl_agentic.diagnostics.diagnosis.evidence import Frame, RunEvidence, keys_of, recent_mean
from verl_agentic.diagnostics.thresholds import ALL_0, ALL_1, ORDER, SIGNAL_ADVICE, ZERO_SIGNAL
from verl_agentic.finding import Finding, unknown

_LIMITS = {"all_0": ALL_0, "all_1": ALL_1, "zero_signal": ZERO_SIGNAL}
_SUCCESS = 1.0 - 1e-9
_NO_SPREAD = 1e-9
_SOLVED_AT_FIRST = 0.95
_OTHER_ADVICE = (
    "all siblings have the same reward: check that the scorer reads the episode (agentic.rubric), and that siblings "
    "are sampled (actor_rollout_ref.rollout.temperature above 0)"
)


def group_std(run: RunEvidence) -> Finding:
    """Returns the share of groups without a signal, split by their outcomes."""
    scored = run.valid[run.valid["reward"].notna()]
    shares, look_at = _of_groups(scored) if len(scored) else _of_metrics(run)
    if not shares:
        return unknown("no groups are known: neither trajectories nor credit/* nor critic/advantages/{max,min}")
    if not shares.get("groups", 1):
        found = "no group has two valid episodes: nothing can be compared"
        return Finding(
            status="fail",
            found=found,
            advice="raise actor_rollout_ref.rollout.n above 1; see the line `infrastructure`",
        )
    flat = shares["zero_signal"]
    parts = {name: shares[name] for name in ("all_0", "all_1", "other") if shares.get(name)}
    found = f"{flat:.0%} of groups have no signal"
    found += f" ({', '.join(f'{name} {share:.0%}' for name, share in parts.items())})" if parts else ""
    found += f"; median std within a group {shares['median_std']:.3g}" if "median_std" in shares else ""
    judged = [limit.judge(shares[name]) for name, limit in _LIMITS.items() if name in shares]
    status = ORDER[max(map(ORDER.index, judged))]
    if status == "ok":
        return Finding(status="ok", found=found, evidence=shares)
    most = max(parts, key=lambda name: parts[name], default="mixed")
    if most == "all_1" and _solved_at_first(run):
        found += "; nearly all tasks are solved from the first step on"
        most = "solved_at_first"
    return Finding(
        status=status,
        found=found,
        advice=SIGNAL_ADVICE.get(most, _OTHER_ADVICE),
        evidence=shares,
        look_at=look_at,
    )


def _solved_at_first(run: RunEvidence) -> bool:
    """Returns whether the model that the run began with solves nearly all tasks."""
    outcome = run.series("episode/acc")[:1]
    if not outcome and len(episodes := run.episodes[run.episodes["acc"].notna()]):
        outcome = [(0, float(episodes[episodes["step"] == episodes["step"].min()]["acc"].mean()))]
    return bool(outcome) and outcome[0][1] >= _SOLVED_AT_FIRST


def _of_groups(scored: Frame) -> tuple[dict[str, float], tuple[str, ...]]:
    result = scored["acc"].where(scored["acc"].notna(), scored["reward"])
    keys = [scored["step"], scored["uid"]]
    groups: Any = result.groupby(keys).agg(["min", "max", "count"])
    groups["std"] = scored["reward"].groupby(keys).std(ddof=0)
    groups = groups[groups["count"] > 1]
    if not len(groups):
        return {"groups": 0.0}, ()
    is_equal = groups["min"] == groups["max"]
    is_0, is_1 = is_equal & (groups["max"] == 0), is_equal & (groups["min"] >= _SUCCESS)
    is_flat = is_equal | (groups["std"] < _NO_SPREAD)  # estimators compare rewards, whatever the outcomes are
    shares = {
        "groups": float(len(groups)),
        "zero_signal": float(is_flat.mean()),
        "all_0": float(is_0.mean()),
        "all_1": float(is_1.mean()),
        "other": float((is_flat & ~is_0 & ~is_1).mean()),
        "median_std": float(groups["std"].median()),
    }
    flat = set(groups.index[is_flat])
    shown = scored[[key in flat for key in zip(scored["step"], scored["uid"], strict=True)]]
    return shares, keys_of(shown, count=1)


def _of_metrics(run: RunEvidence) -> tuple[dict[str, float], tuple[str, ...]]:
    names = {"zero_signal": "zero_signal", "all_0": "all_0", "all_1": "all_1", "other": "other_constant"}
    series = {
        name: run.series(f"credit/{metric}_group_frac", f"batch/{metric}_group_frac") for name, metric in names.items()
    }
    if series["zero_signal"]:
        return {name: recent_mean(points) for name, points in series.items() if points}, ()
    high, low = run.series("critic/advantages/max"), dict(run.series("critic/advantages/min"))
    flat = [(step, float(value == low[step] == 0)) for step, value in high if step in low]
    # All or nothing: a step whose advantages are all 0 has no group with a signal.
    return ({"zero_signal": recent_mean(flat)}, ()) if flat else ({}, ())
