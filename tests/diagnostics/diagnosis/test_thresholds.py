"""An alarm and the line of the diagnosis that judges the same thing change their minds at the same number."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.diagnostics import thresholds
from verl_agentic.diagnostics.alarm import History
from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence
from verl_agentic.diagnostics.health import ALARMS
from verl_agentic.diagnostics.thresholds import Limit
from verl_agentic.registry import load_from

_CHECKS = "verl_agentic.diagnostics.diagnosis.checks"
_STEPS = 40
_JUST = 0.01
"""How far from a limit values lie, as a share of it."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One thing that is judged twice."""

    alarm: str
    option: str
    """Of the alarm."""
    check: str
    limit: Limit
    metrics: Callable[[float], Mapping[str, float]]
    """Of every step of the second half, given the judged value."""
    before: Mapping[str, float] | None = None
    """Of every step of the first half; None: as in the second."""


_NO_GAIN = {"episode/acc": 0.3}
PAIRS = [
    Pair(
        alarm="kl_blowup",
        option="reference",
        check="kl_entropy",
        limit=thresholds.KL_REFERENCE,
        metrics=lambda value: {"actor/kl_loss": value},
    ),
    Pair(
        alarm="kl_blowup",
        option="reference",
        check="kl_entropy",
        limit=thresholds.KL_REFERENCE,
        metrics=lambda value: {"actor/reward_kl_penalty": value},
    ),
    Pair(
        alarm="kl_blowup",
        option="update",
        check="kl_entropy",
        limit=thresholds.KL_UPDATE,
        metrics=lambda value: {"actor/ppo_kl": -value},
    ),
    Pair(
        alarm="kl_blowup",
        option="rollout",
        check="kl_entropy",
        limit=thresholds.KL_ROLLOUT,
        metrics=lambda value: {"batch/approx_kl": value},
    ),
    Pair(
        alarm="entropy_collapse",
        option="fallen_to",
        check="kl_entropy",
        limit=thresholds.ENTROPY_LEFT,
        metrics=lambda value: {"actor/entropy": 0.5 * value, **_NO_GAIN},
        before={"actor/entropy": 0.5, **_NO_GAIN},
    ),
    Pair(
        alarm="truncation",
        option="share",
        check="length_truncation",
        limit=thresholds.TRUNCATED,
        metrics=lambda value: {"episode/stop/max_tokens": 0.5 * value, "episode/stop/context_full": 0.5 * value},
    ),
    *(
        Pair(
            alarm="zero_signal_groups",
            option=name,
            check="group_std",
            limit=limit,
            metrics=lambda value, name=name, prefix=prefix: {
                **{f"{prefix}/{other}_group_frac": 0.0 for other in ("all_0", "all_1")},
                f"{prefix}/zero_signal_group_frac": value,
                f"{prefix}/{name}_group_frac": value,
            },
        )
        for name, limit in (
            ("all_0", thresholds.ALL_0),
            ("all_1", thresholds.ALL_1),
            ("zero_signal", thresholds.ZERO_SIGNAL),
        )
        for prefix in ("credit", "batch")
    ),
    Pair(
        alarm="invalid_calls",
        option="unknown_tool",
        check="tool_distribution",
        limit=thresholds.UNKNOWN_TOOL,
        metrics=lambda value: {"episode/tool_calls": 2.0, "episode/call_error/unknown_tool": 2.0 * value},
    ),
    Pair(
        alarm="tool_use_collapse",
        option="fallen_to",
        check="tool_distribution",
        limit=thresholds.TOOL_CALLS_LEFT,
        metrics=lambda value: {"episode/tool_calls": 1.5 * value},
        before={"episode/tool_calls": 1.5},
    ),
    Pair(
        alarm="base_too_weak",
        option="never_solved",
        check="prompt_variance",
        limit=thresholds.NEVER_SOLVED,
        metrics=lambda value: {"curriculum/never_solved_share": value, "curriculum/always_solved_share": 0.0},
    ),
    *(
        Pair(
            alarm="infra_errors",
            option="void",
            check="infrastructure",
            limit=thresholds.VOID,
            metrics=lambda value, name=name: {name: value},
        )
        for name in ("episode/void", "credit/void_session_frac", "batch/void_session_frac")
    ),
    Pair(
        alarm="rollout_mismatch",
        option="mean",
        check="rollout_mismatch",
        limit=thresholds.MISMATCH,
        metrics=lambda value: {"batch/log_prob_diff/mean": value},
    ),
    Pair(
        alarm="rollout_mismatch",
        option="probs",
        check="rollout_mismatch",
        limit=thresholds.MISMATCH_PROBS,
        metrics=lambda value: {"training/rollout_probs_diff_mean": value},
    ),
    Pair(
        alarm="reward_part_takeover",
        option="share",
        check="reward_parts",
        limit=thresholds.PART_SHARE,
        metrics=lambda value: {"batch/shaping_share/format": value, "batch/outcome_share": 0.2, **_NO_GAIN},
    ),
]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair.alarm}.{pair.option}-{'/'.join(pair.metrics(0.5))}")
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


def _judged(pair: Pair, value: float, run_of: Callable[..., RunEvidence]) -> tuple[bool, str]:
    """Returns whether the alarm holds, and what the line says."""
    after = pair.metrics(value)
    rows = [dict(pair.before or after) if step < _STEPS // 2 else dict(after) for step in range(_STEPS)]
    verdict = load_from(_CHECKS, pair.check)(run_of(metrics={name: [row[name] for row in rows] for name in after}))
    return ALARMS[pair.alarm](History(rows)) is not None, verdict.status


def _beside(limit: float, pair: Pair, *, worse: bool) -> float:
    grows = pair.limit.fail >= pair.limit.warn
    return limit * (1 + _JUST if worse == grows else 1 - _JUST)


def test_both_are_silent_just_before_the_limit(pair: Pair, run_of: Callable[..., RunEvidence]) -> None:
    assert _judged(pair, _beside(pair.limit.warn, pair, worse=False), run_of) == (False, "ok")


def test_both_speak_just_behind_the_limit(pair: Pair, run_of: Callable[..., RunEvidence]) -> None:
    assert _judged(pair, _beside(pair.limit.warn, pair, worse=True), run_of) == (True, "warn")


def test_the_line_fails_just_behind_its_own_limit(pair: Pair, run_of: Callable[..., RunEvidence]) -> None:
    assert _judged(pair, _beside(pair.limit.fail, pair, worse=True), run_of) == (True, "fail")


def test_the_default_of_the_option_is_the_limit(pair: Pair) -> None:
    assert ALARMS[pair.alarm].defaults[pair.option] == pair.limit.warn


def test_every_limit_is_that_of_a_pair() -> None:
    limits = {name for name, value in vars(thresholds).items() if isinstance(value, Limit)}

    assert {name for name in limits if not any(pair.limit is getattr(thresholds, name) for pair in PAIRS)} == set()


def test_every_threshold_is_imported_by_an_alarm_and_a_line() -> None:
    public = {name for name, value in vars(thresholds).items() if isinstance(value, float | int | Limit)} - {
        "_MIN_GAIN"
    }
    folder = Path(thresholds.__file__ or "").parent
    # What the line needs of these is in a function of the alarm.
    by_function = {"MEMORY_GROWTH", "MEMORY_MIN_GB", "MEMORY_STEADINESS"}

    assert public - _imported(folder / "alarms") == set()
    assert public - _imported(folder / "diagnosis" / "checks") == by_function


def _imported(folder: Path) -> set[str]:
    nodes = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == thresholds.__name__]
    return {alias.name for node in froms for alias in node.names}


@pytest.mark.parametrize("gained_gb", [9.0, 11.0])
def test_memory_of_a_window_is_judged_alike(gained_gb: float, run_of: Callable[..., RunEvidence]) -> None:
    window = thresholds.MEMORY_WINDOW
    grown = [50.0 + gained_gb * step / (window - 1) for step in range(window)]
    values = [50.0] * window + grown

    verdict = load_from(_CHECKS, "memory")(run_of(metrics={"perf/cpu_memory_used_gb": values}))
    seen = ALARMS["memory_growth"](History({"perf/cpu_memory_used_gb": value} for value in values))

    # A fifth of 50 GB is 10.
    assert (seen is not None, verdict.status) == ((True, "warn") if gained_gb > 10 else (False, "ok"))


@pytest.mark.parametrize(("offered", "outcome", "is_bad"), [(2, 0.3, True), (0, 0.3, False), (2, 0.95, False)])
def test_tools_that_were_never_called_are_judged_alike(
    offered: int, outcome: float, is_bad: bool, run_of: Callable[..., RunEvidence]
) -> None:
    row = {"episode/tool_calls": 0.0, "episode/tools_offered": float(offered), "episode/acc": outcome}

    verdict = load_from(_CHECKS, "tool_distribution")(run_of(metrics={name: [v] * 20 for name, v in row.items()}))
    seen = ALARMS["tool_use_collapse"](History([row] * 20))

    assert (seen is not None, verdict.status) == ((True, "fail") if is_bad else (False, "ok"))
    assert seen is None or ("2 tools are offered" in seen.what and seen.kind == "never")


@pytest.mark.parametrize("outcome", [0.5, 0.99])
def test_a_policy_without_entropy_is_judged_alike(outcome: float, run_of: Callable[..., RunEvidence]) -> None:
    row = {"actor/entropy": 0.001, "episode/acc": outcome}

    verdict = load_from(_CHECKS, "kl_entropy")(run_of(metrics={name: [v] * 30 for name, v in row.items()}))
    seen = ALARMS["entropy_collapse"](History([row] * 30))

    assert (seen is not None, verdict.status) == ((True, "warn") if outcome < 0.95 else (False, "ok"))


@pytest.mark.parametrize("share", [0.09, 0.11])
def test_attempts_at_reward_hacking_are_judged_alike(share: float, run_of: Callable[..., RunEvidence]) -> None:
    row = {"episode/hacking/any": share, "episode/hacking/git_history": 2 * share, "episode/hacking/network": 0.0}

    verdict = load_from(_CHECKS, "reward_hacking")(run_of(metrics={name: [v] * 20 for name, v in row.items()}))
    seen = ALARMS["reward_hacking"](History([row] * 20))

    assert (seen is not None, verdict.status) == ((True, "warn") if share > 0.1 else (False, "ok"))
    assert "git_history" in verdict.found and "network" not in verdict.found
    assert seen is None or seen.kind == "git_history"


@pytest.mark.parametrize("later", [0.05, 0.03])
def test_later_turns_are_judged_alike(later: float, run_of: Callable[..., RunEvidence]) -> None:
    names = {"mean": 0.02, "turn_0": 0.01, "turn_1": later}
    row = {f"batch/log_prob_diff/{name}": value for name, value in names.items()}

    verdict = load_from(_CHECKS, "rollout_mismatch")(run_of(metrics={name: [v] * 20 for name, v in row.items()}))
    seen = ALARMS["rollout_mismatch"](History([row] * 20))

    assert (seen is not None, verdict.status) == ((True, "warn") if later >= 0.04 else (False, "ok"))


def test_outcomes_that_are_all_zero_are_judged_alike(run_of: Callable[..., RunEvidence]) -> None:
    verdict = load_from(_CHECKS, "prompt_variance")(run_of(metrics={"episode/acc": [0.0] * 20}))

    assert verdict.status == "fail" and ALARMS["base_too_weak"](History([{"episode/acc": 0.0}] * 20)) is not None


@given(warn=st.floats(0.1, 1), fail=st.floats(0.1, 1), values=st.lists(st.floats(0, 2), min_size=2, max_size=2))
def test_a_worse_value_is_never_judged_milder(warn: float, fail: float, values: list[float]) -> None:
    limit, order = Limit(warn=warn, fail=fail), thresholds.ORDER
    better, worse = sorted(values, reverse=fail < warn)

    assert order.index(limit.judge(better)) <= order.index(limit.judge(worse))
    assert limit.judge(warn) != "ok" and limit.judge(fail) == "fail"
