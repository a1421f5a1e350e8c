"""An alarm and the line of the diagnosis that judges the same thing change their minds at the same number."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.diagnostics import thresholds
from verl_agentic.diagnostics.diagnosis.checklist import load_diagnosis
from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence
from verl_agentic.diagnostics.health.alarm import History
from verl_agentic.diagnostics.health.monitor import ALARMS
from verl_agentic.diagnostics.thresholds import Limit
from verl_agentic.finding import Finding

_STEPS = 40
_JUST = 0.01
"""Distance of the values from a limit, as a share of it."""


@dataclass(frozen=True)
class Pair:
    """One thing that is judged twice."""

    alarm: str
    option: str
    """Option of the alarm."""
    check: str
    limit: Limit
    per_value: Mapping[str, float]
    """Metrics of every step of the second half, each as a multiple of the judged value."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Metrics that are the same at every step."""
    before: float | None = None
    """The judged value at every step of the first half; None: as in the second."""

    def metrics(self, value: float) -> dict[str, float]:
        """Returns the metrics of a step, given the judged value."""
        return {**{name: factor * value for name, factor in self.per_value.items()}, **self.beside}


_NO_GAIN = {"episode/acc": 0.3}
_SIGNALS = {"all_0": thresholds.ALL_0, "all_1": thresholds.ALL_1, "zero_signal": thresholds.ZERO_SIGNAL}
PAIRS = [
    Pair("kl_blowup", "reference", "kl_entropy", thresholds.KL_REFERENCE, {"batch/ref_kl": 1}),
    Pair("kl_blowup", "update", "kl_entropy", thresholds.KL_UPDATE, {"actor/ppo_kl": -1}),
    Pair("kl_blowup", "rollout", "kl_entropy", thresholds.KL_ROLLOUT, {"batch/approx_kl": 1}),
    Pair(
        *("entropy_collapse", "fallen_to", "kl_entropy", thresholds.ENTROPY_LEFT),
        {"batch/entropy": 0.5},
        beside=_NO_GAIN,
        before=1.0,
    ),
    Pair(
        *("truncation", "share", "length_truncation", thresholds.TRUNCATED),
        {"episode/stop/max_tokens": 0.5, "episode/stop/context_full": 0.5},
    ),
    *(
        Pair(
            *("zero_signal_groups", name, "group_std", limit),
            {f"{prefix}/zero_signal_group_frac": 1, f"{prefix}/{name}_group_frac": 1},
            beside={f"{prefix}/{other}_group_frac": 0.0 for other in ("all_0", "all_1") if other != name},
        )
        for name, limit in _SIGNALS.items()
        for prefix in ("credit", "batch")
    ),
    Pair(
        *("invalid_calls", "unknown_tool", "tool_distribution", thresholds.UNKNOWN_TOOL),
        {"episode/call_error/unknown_tool": 2},
        beside={"episode/tool_calls": 2.0},
    ),
    Pair(
        *("tool_use_collapse", "fallen_to", "tool_distribution", thresholds.TOOL_CALLS_LEFT),
        {"episode/tool_calls": 1.5},
        before=1.0,
    ),
    Pair(
        *("base_too_weak", "never_solved", "prompt_variance", thresholds.NEVER_SOLVED),
        {"curriculum/never_solved_share": 1},
        beside={"curriculum/always_solved_share": 0.0},
    ),
    *(
        Pair("infra_errors", "void", "infrastructure", thresholds.VOID, {name: 1})
        for name in ("episode/void", "credit/void_session_frac", "batch/void_session_frac")
    ),
    Pair("rollout_mismatch", "mean", "rollout_mismatch", thresholds.MISMATCH, {"batch/log_prob_diff/mean": 1}),
    Pair(
        *("rollout_mismatch", "probs", "rollout_mismatch", thresholds.MISMATCH_PROBS),
        {"training/rollout_probs_diff_mean": 1},
    ),
    Pair(
        *("reward_part_takeover", "share", "reward_parts", thresholds.PART_SHARE),
        {"batch/shaping_share/format": 1},
        beside={"batch/outcome_share": 0.2, **_NO_GAIN},
    ),
]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair.alarm}.{pair.option}-{'/'.join(pair.metrics(0.5))}")
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


def _both(
    alarm: str, check: str, rows: Sequence[Mapping[str, float]], run_of: Callable[..., RunEvidence]
) -> tuple[Finding | None, Finding]:
    """Returns what the alarm and the line say of the metrics of all steps."""
    verdict = load_diagnosis(check)(run_of(metrics={name: [row[name] for row in rows] for name in rows[0]}))
    return ALARMS[alarm](History(rows)), verdict


def _judged(pair: Pair, value: float, run_of: Callable[..., RunEvidence]) -> tuple[bool, str]:
    """Returns whether the alarm holds, and what the line says."""
    half = _STEPS // 2
    first = pair.metrics(value if pair.before is None else pair.before)
    seen, verdict = _both(pair.alarm, pair.check, [first] * half + [pair.metrics(value)] * half, run_of)
    assert seen is None or (seen.advice and seen.advice == verdict.advice), "one text for one fault"
    return seen is not None, verdict.status


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

    assert public - _imported(folder / "checks") == set()
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

    seen, verdict = _both("memory_growth", "memory", [{"perf/cpu_memory_used_gb": value} for value in values], run_of)

    assert seen is None or seen.advice == verdict.advice
    # A fifth of 50 GB is 10.
    assert (seen is not None, verdict.status) == ((True, "warn") if gained_gb > 10 else (False, "ok"))


@pytest.mark.parametrize(("offered", "outcome", "is_bad"), [(2, 0.3, True), (0, 0.3, False), (2, 0.95, False)])
def test_tools_that_were_never_called_are_judged_alike(
    offered: int, outcome: float, is_bad: bool, run_of: Callable[..., RunEvidence]
) -> None:
    row = {"episode/tool_calls": 0.0, "episode/tools_offered": float(offered), "episode/acc": outcome}

    seen, verdict = _both("tool_use_collapse", "tool_distribution", [row] * 20, run_of)

    assert seen is None or seen.advice == verdict.advice
    assert (seen is not None, verdict.status) == ((True, "fail") if is_bad else (False, "ok"))
    assert seen is None or ("2 tools are offered" in seen.found and seen.check == "never")


@pytest.mark.parametrize("outcome", [0.5, 0.99])
def test_a_policy_without_entropy_is_judged_alike(outcome: float, run_of: Callable[..., RunEvidence]) -> None:
    row = {"batch/entropy": 0.001, "episode/acc": outcome}

    seen, verdict = _both("entropy_collapse", "kl_entropy", [row] * 30, run_of)

    assert seen is None or seen.advice == verdict.advice
    assert (seen is not None, verdict.status) == ((True, "warn") if outcome < 0.95 else (False, "ok"))


@pytest.mark.parametrize("share", [0.09, 0.11])
def test_attempts_at_reward_hacking_are_judged_alike(share: float, run_of: Callable[..., RunEvidence]) -> None:
    row = {"episode/hacking/any": share, "episode/hacking/git_history": 2 * share, "episode/hacking/network": 0.0}

    seen, verdict = _both("reward_hacking", "reward_hacking", [row] * 20, run_of)

    assert seen is None or seen.advice == verdict.advice
    assert (seen is not None, verdict.status) == ((True, "warn") if share > 0.1 else (False, "ok"))
    assert "git_history" in verdict.found and "network" not in verdict.found
    assert seen is None or seen.check == "git_history"


@pytest.mark.parametrize("later", [0.05, 0.03])
def test_later_turns_are_judged_alike(later: float, run_of: Callable[..., RunEvidence]) -> None:
    names = {"mean": 0.02, "turn_0": 0.01, "turn_1": later}
    row = {f"batch/log_prob_diff/{name}": value for name, value in names.items()}

    seen, verdict = _both("rollout_mismatch", "rollout_mismatch", [row] * 20, run_of)

    assert seen is None or seen.advice == verdict.advice
    assert (seen is not None, verdict.status) == ((True, "warn") if later >= 0.04 else (False, "ok"))


def test_outcomes_that_are_all_zero_are_judged_alike(run_of: Callable[..., RunEvidence]) -> None:
    seen, verdict = _both("base_too_weak", "prompt_variance", [{"episode/acc": 0.0}] * 20, run_of)

    assert seen is None or seen.advice == verdict.advice
    assert verdict.status == "fail" and seen is not None


@given(warn=st.floats(0.1, 1), fail=st.floats(0.1, 1), values=st.lists(st.floats(0, 2), min_size=2, max_size=2))
def test_a_worse_value_is_never_judged_milder(warn: float, fail: float, values: list[float]) -> None:
    limit, order = Limit(warn=warn, fail=fail), thresholds.ORDER
    better, worse = sorted(values, reverse=fail < warn)

    assert order.index(limit.judge(better)) <= order.index(limit.judge(worse))
    assert limit.judge(warn) != "ok" and limit.judge(fail) == "fail"
