"""Figures and verdict of a probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.evaluate.evaluation_run import summarise
from verl_agentic.evaluate.model_probe import ProbeLimits, probe_figures, probe_findings


def _record(task: str, sample: int, outcome: float, *, calls: int = 2, bad: int = 0, **changed: Any) -> list[Any]:
    numbers = {"num_turns": 1.0, "model_tokens": 2.0, "response_tokens": 3.0, "tool_errors": 0.0, "tools_offered": 1.0}
    row = {"response_mask": [1, 0, 1], "response_ids": [7, 8, 9], "rollout_log_probs": [-0.5, 0.0, -1.5]}
    return [{"uid": task, "session": sample, "acc": outcome, "is_void": False, "stop_reason": "answered",
             "error": "", "id_source": "exact", **row,
             "numbers": {**numbers, "tool_calls": float(calls), "call_error/malformed_json": float(bad)},
             **changed}]  # fmt: skip


def _probe(records: Sequence[list[Any]]) -> dict[str, Any]:
    return probe_figures(records, summarise([rows[-1] for rows in records]))


def _failed(*records: list[Any], **limits: float) -> list[str]:
    figures = _probe(records)
    return [one.check for one in probe_findings(figures, ProbeLimits(**limits)) if one.status == "fail"]


def test_figures_are_counted_over_tasks_calls_and_sampled_tokens() -> None:
    records = [_record("a", 0, 1.0), _record("a", 1, 0.0, bad=1), _record("b", 0, 0.0), _record("b", 1, 0.0)]
    figures = _probe(records)
    assert (figures["k"], figures["pass@k"], figures["pass@1"]["mean"]) == (2, 0.5, 0.25)
    assert figures["mixed"]["mean"] == 0.5, "one of two tasks has solved and failed attempts"
    assert (figures["calls"], figures["valid_calls"]["mean"]) == (8, 7 / 8)
    assert figures["entropy"]["mean"] == pytest.approx(1.0), "observations have no entropy"
    assert _failed(*records) == []


def test_each_fault_of_a_model_fails_its_own_check() -> None:
    good = [_record("a", 0, 1.0), _record("a", 1, 0.0)]
    assert _failed(*(_record("a", sample, 0.0) for sample in range(2))) == ["pass@k", "mixed"]
    assert _failed(*(_record("a", sample, 1.0) for sample in range(2))) == ["mixed"], "nothing is left to learn"
    assert _failed(_record("a", 0, 1.0, bad=2), _record("a", 1, 0.0)) == ["valid calls"]
    assert _failed(_record("a", 0, 1.0, calls=0), _record("a", 1, 0.0, calls=0)) == ["valid calls"]
    sharp = {"response_mask": [1], "response_ids": [7], "rollout_log_probs": [-0.001]}
    assert _failed(_record("a", 0, 1.0, **sharp), _record("a", 1, 0.0, **sharp)) == ["entropy"]
    assert _failed(*good, _record("b", 0, 0.0, is_void=True)) == ["void"]
    assert _failed(*good, min_entropy=1.1) == ["entropy"]


def test_a_server_without_log_probs_leaves_the_entropy_unknown() -> None:
    records = [_record("a", sample, float(sample), rollout_log_probs=[]) for sample in range(2)]
    figures = _probe(records)
    status = {one.check: one.status for one in probe_findings(figures, ProbeLimits())}
    assert figures["entropy"] is None and status["entropy"] == "unknown"


def test_a_limit_must_be_a_number() -> None:
    with pytest.raises(ConfigError, match="limits of a probe"):
        ProbeLimits(min_mixed=float("nan"))
