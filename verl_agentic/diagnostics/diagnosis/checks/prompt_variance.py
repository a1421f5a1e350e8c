"""Line 7: variance of the reward per prompt."""

from __future__ import annotations

from typing import Any

from verl_agentic.diagnostics.diagnosis.evidence import RECENT_STEPS, RunEvidence, recent_mean
from verl_agentic.diagnostics.thresholds import NEVER_SOLVED, NEVER_SOLVED_ADVICE
from verl_agentic.finding import Finding, unknown
from verl_agentic.sampling.prompts.pass_rates import PassRates

_ONE_SIDED = 0.9
_MIN_PROMPTS = 4


def prompt_variance(run: RunEvidence) -> Finding:
    """Returns the shares of prompts that are never, sometimes and always solved."""
    rates, _ = pass_rates(run)
    if rates is None:
        return _from_metrics(run)
    found = {name: value for name, value in rates.metrics().items() if name != "seen_share"}
    mean, std = rates.mean_N, rates.std_N
    never, always = found["never_solved_share"], found["always_solved_share"]
    evidence = {**found, "prompts": float(len(rates)), "spread_between": float(mean.std())}
    evidence["mean_std_within"] = float(std.mean())
    told = (
        f"{len(rates)} prompts: {never:.0%} never solved, {always:.0%} always, {1 - never - always:.0%} mixed; "
        f"mean std within a prompt {evidence['mean_std_within']:.3g}"
    )
    if complaint := rates.complaint():
        weak, _, advice = complaint.partition("; ")
        return Finding(status="fail", found=f"{weak} ({told})", advice=advice, evidence=evidence)
    return _judged(never, always, told, evidence, count=len(rates))


def pass_rates(run: RunEvidence) -> tuple[PassRates | None, list[str]]:
    """Returns the running success rate of every prompt, and its name; None without outcomes.

    The `task_id` identifies a prompt; a row without one is a prompt of its own (`uid`).
    """
    episodes = run.episodes[~run.episodes["is_void"].astype(bool)]
    outcome = episodes["acc"].where(episodes["acc"].notna(), episodes["reward"])
    episodes = episodes.assign(outcome=outcome)[outcome.notna()]
    if not len(episodes):
        return None, []
    prompt = episodes["task_id"].where(episodes["task_id"] != "", episodes["uid"])
    names: Any = prompt.drop_duplicates().tolist()
    number = {name: place for place, name in enumerate(names)}
    rates = PassRates(len(names), prior_trials=0.0)
    for (_, name), group in episodes["outcome"].groupby([episodes["step"], prompt]):
        rates.record(number[name], group.tolist())
    return rates, names


def _from_metrics(run: RunEvidence) -> Finding:
    never, always = (run.series(f"curriculum/{name}_solved_share") for name in ("never", "always"))
    if not never or not always:
        return _from_outcomes(run)
    shares = recent_mean(never), recent_mean(always)
    told = f"of the prompts seen {shares[0]:.0%} are never solved, {shares[1]:.0%} always (curriculum/*)"
    return _judged(*shares, told, {"never_solved_share": shares[0], "always_solved_share": shares[1]})


def _from_outcomes(run: RunEvidence) -> Finding:
    """Judges by the mean outcome of every step, which only shows whether no prompt was solved."""
    outcome = [value for _, value in run.series("episode/acc")]
    if len(outcome) < RECENT_STEPS or max(outcome) > 0:
        return unknown("outcomes of single prompts are not known: no trajectories, no curriculum/never_solved_share")
    told = f"base too weak: the outcome of all episodes is 0 in all {len(outcome)} steps"
    return Finding(status="fail", found=told, advice=NEVER_SOLVED_ADVICE, evidence={"outcome": 0.0})


def _judged(never: float, always: float, told: str, evidence: dict[str, float], count: int = _MIN_PROMPTS) -> Finding:
    if count >= _MIN_PROMPTS and (status := NEVER_SOLVED.judge(never)) != "ok":
        return Finding(status=status, found=f"base too weak: {told}", advice=NEVER_SOLVED_ADVICE, evidence=evidence)
    if count < _MIN_PROMPTS or never + always < _ONE_SIDED:
        return Finding(status="ok", found=told, evidence=evidence)
    advice = "hardly any prompt is solved sometimes: agentic.curriculum.name=learnability draws those;  " + (
        "easier rows or an SFT warm start make more of them" if never > always else "harder rows make more of them"
    )
    return Finding(status="warn", found=told, advice=advice, evidence=evidence)
