"""Ratios are compared with the accepted ones in the direction in which they are better."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(_FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("bench", _FOLDER / "bench.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(_FOLDER))


def line(ratio: float | None, *, target: str | None = None, ok: bool | None = True) -> dict[str, Any]:
    verdict = {"ratio": {"value": ratio, "target": target, "ok": ok}} if target else {}
    return {"ratios": {"ratio": ratio}, "targets": verdict}


@pytest.mark.parametrize(
    ("accepted", "now", "target", "is_worse"),
    [
        (0.60, 0.68, "<= 1.0", False),  # 13 %
        (0.60, 0.70, "<= 1.0", True),  # 17 %
        (0.60, 0.10, "<= 1.0", False),
        (0.60, 0.70, None, True),  # without a target, lower is better
        (5.0, 4.4, ">= 4.0", False),  # 12 %
        (5.0, 4.2, ">= 4.0", True),  # 16 %
        (5.0, 9.0, ">= 4.0", False),
        (0.001, 0.010, "<= 0.5", False),  # less than 2 % of the bound
        (0.001, 0.012, "<= 0.5", True),
        (0.0, 0.0, "<= 0.0", False),
        (0.6, None, "<= 1.0", False),  # it could not be taken here, and the benchmark says why
    ],
)
def test_a_ratio_is_worse_beyond_15_percent(
    bench: Any, accepted: float, now: float | None, target: str | None, is_worse: bool
) -> None:
    assert bool(bench.problems_of([line(now, target=target)], {"ratio": accepted})) is is_worse


def test_the_better_of_two_runs_counts(bench: Any) -> None:
    assert bench.problems_of([line(0.9), line(0.6)], {"ratio": 0.6}) == []
    assert bench.problems_of([line(0.6), line(0.9)], {"ratio": 0.6}) == []
    assert len(bench.problems_of([line(0.9), line(0.8)], {"ratio": 0.6})) == 1
    missed, met = line(1.1, target="<= 1.0", ok=False), line(1.0, target="<= 1.0")
    assert bench.problems_of([missed, met], {}) == []
    assert bench.problems_of([missed, missed], {}) == ["ratio is 1.1, the target is <= 1.0"]


def test_what_is_not_measured_any_more_is_a_failure_and_a_missed_goal_is_none(bench: Any) -> None:
    assert bench.problems_of([{}, {}], {}) == ["it printed no result"]
    assert "not printed any more" in bench.problems_of([line(0.5)], {"other": 0.5})[0]
    assert bench.problems_of([line(1.1, target="<= 1.0 (goal)", ok=False)], {}) == []


def test_every_benchmark_is_run_or_left_out_by_name(bench: Any) -> None:
    scripts = {path.stem for path in _FOLDER.glob("[!_]*.py")} - {"bench"}
    left_out = {
        "soak_sandbox",
        "rollout_server",
        "engines",
        "cluster",
        "env_server",
        "first_hour",
        "gpu",
        "graders",
        "house",
        "rollout_path",
        "search_recall",
        "shared_prompts",
        "step_cost",
        "tool_calls",
    }
    assert scripts == set(bench._ALL) | left_out
    assert all(name in bench.__doc__ for name in left_out)
