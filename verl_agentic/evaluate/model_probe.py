"""Checks of an evaluated model: whether RL in that environment can start from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding
from verl_agentic.evaluate.evaluation_log import EpisodeRows, has_log_probs, sampled_log_probs
from verl_agentic.evaluate.evaluation_run import figure, is_success
from verl_agentic.observe.success_over_attempts import proportion_interval

_UNREADABLE = ("malformed_json", "not_an_object", "wrong_arguments", "unknown_tool", "in_reasoning", "unclosed",
               "empty", "too_many")  # fmt: skip
"""Errors of calls that are the policy's, in the names of `CALL_ERRORS`."""


@dataclass(frozen=True, kw_only=True)
class ProbeLimits:
    """Limits of the checks; our own values, in line with the alarms of a run."""

    min_pass_at_k: float = 0.1
    """Share of tasks that at least one of K attempts solves."""
    min_mixed: float = 0.05
    """Share of tasks whose attempts differ. Other groups have no advantage in GRPO."""
    min_valid_calls: float = 0.7
    """Share of tool calls that could be parsed and name a known tool."""
    min_entropy: float = 0.05
    """Nats per sampled token. Models after RL are often below, and explore little."""
    max_void: float = 0.1
    """Share of episodes that failed because of infrastructure."""

    def __post_init__(self) -> None:
        if not all(0 <= value < math.inf for value in vars(self).values()):
            raise ConfigError(f"limits of a probe must be numbers from 0 on, got {vars(self)}; change them")


def probe_figures(episodes: Sequence[EpisodeRows], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the figures of a probe, each None if it cannot be known.

    - `pass@1`, `pass@k`, `k`: as in the summary of `evaluate`.
    - `mixed`: share of tasks with at least one solved and one failed attempt.
    - `valid_calls`: share of calls without an error of the policy, `calls`: their number.
    - `entropy`: mean of -log p over the sampled tokens of an episode, then over episodes, in nats. At temperature 1
      without top-p, it is an unbiased estimate of the policy's entropy per token.
    - `offers_tools`: whether an episode had tools. `void`: share of void episodes.

    Args:
        episodes: of `evaluate`, sampled at temperature 1.
        summary: of the same evaluation.
    """
    tasks: dict[str, list[EpisodeRows]] = {}
    for rows in episodes:
        if not rows[-1]["is_void"]:
            tasks.setdefault(rows[-1]["uid"], []).append(rows)
    groups = list(tasks.values())
    numbers = [rows[-1]["numbers"] for group in groups for rows in group]
    calls = sum(int(counts["tool_calls"]) for counts in numbers)
    bad = sum(int(counts.get(f"call_error/{kind}", 0)) for counts in numbers for kind in _UNREADABLE)
    valid = max(0, calls - bad)
    solved = [[is_success(rows[-1]) for rows in group] for group in groups]
    entropies = [[value for rows in group if (value := _compute_entropy(rows)) is not None] for group in groups]
    k = max(map(int, summary.get("pass_at_k", {})), default=0)
    return {
        "k": k,
        "pass@1": summary.get("success"),
        "pass@k": summary["pass_at_k"][str(k)] if k else None,
        "mixed": figure([[float(0 < sum(group) < len(group))] for group in solved]) if groups else None,
        "valid_calls": {"mean": valid / calls, "ci95": list(proportion_interval(valid, calls))} if calls else None,
        "calls": calls,
        "entropy": figure(entropies, is_share=False) if any(entropies) else None,
        "offers_tools": any(counts.get("tools_offered", 0) > 0 for counts in numbers),
        "void": summary["void"] / summary["episodes"] if summary["episodes"] else None,
    }


def probe_findings(figures: Mapping[str, Any], limits: ProbeLimits) -> list[Finding]:
    """Returns a finding per check. A model is a good start for RL if none fails."""
    k = figures["k"]
    findings = [
        _judge_minimum("pass@k", figures["pass@k"], limits.min_pass_at_k, f"of the tasks are solved in {k} attempts",
               "start from a model that solves some tasks (SFT), or use easier tasks"),
        _judge_minimum("mixed", figures["mixed"], limits.min_mixed, "of the tasks have solved and failed attempts",
               "use easier or harder tasks; groups of equal outcomes have no advantage"),
        _judge_calls(figures, limits),
        _judge_minimum("entropy", figures["entropy"], limits.min_entropy, "nats per sampled token",
               "prefer the base model over one that RL has trained before", unit="nats"),
    ]  # fmt: skip
    void = figures["void"]
    if void is None or void > limits.max_void:
        message = "no episode was run" if void is None else f"{void:.1%} of the episodes are void (limit "\
               f"{limits.max_void:.0%})"  # fmt: skip
        findings.append(Finding(check="void", status="fail", found=message, advice="read void_errors in summary.json"))
    return findings


def _judge_calls(figures: Mapping[str, Any], limits: ProbeLimits) -> Finding:
    share = figures["valid_calls"]
    if share is None and figures["void"] != 1:
        if not figures["offers_tools"]:
            return Finding(check="valid calls", status="ok", found="the environment offers no tools")
        share = 0.0
    return _judge_minimum("valid calls", share, limits.min_valid_calls, f"valid of {figures['calls']} calls",
                  "check --tool-format and the chat template, or warm up with SFT")  # fmt: skip


def _judge_minimum(check: str, value: Any, limit: float, quantity: str, advice: str, *, unit: str = "share") -> Finding:
    if value is None:
        return Finding(check=check, status="unknown", found="no episode or no log-probs to measure it by")
    mean = value["mean"] if isinstance(value, Mapping) else value
    texts = (f"{mean:.1%}", f"{limit:.0%}") if unit == "share" else (f"{mean:.3g}", f"{limit:g}")
    if mean >= limit:
        return Finding(check=check, status="ok", found=f"{texts[0]} {quantity}")
    return Finding(check=check, status="fail", found=f"{texts[0]} {quantity} (limit {texts[1]})", advice=advice)


def _compute_entropy(rows: EpisodeRows) -> float | None:
    """Returns the mean of -log p over the sampled tokens of an episode; None without log-probs."""
    values = sampled_log_probs(rows) if has_log_probs(rows) else []
    return -sum(values) / len(values) if values else None
