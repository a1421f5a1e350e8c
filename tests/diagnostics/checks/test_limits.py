"""Limits of alarms: one number raises the alarm and makes a diagnosis warn; a worse one makes it fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.observe.diagnosis.check import ORDER, Limit
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.monitor import ALARMS

_JUST = 0.01
"""Distance of the values from a limit, as a share of it."""


@dataclass(frozen=True)
class Case:
    """An option of an alarm, and the value from which on a diagnosis fails."""

    alarm: str
    option: str
    fail: float | None
    per_value: Mapping[str, float]
    """Metrics of every step of the second half, each as a multiple of the judged value."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Metrics that are the same at every step."""
    before: float | None = None
    """The judged value at every step of the first half; None: as in the second."""


_NO_GAIN = {"episode/acc": 0.3}
CASES = [
    Case("kl_blowup", "reference", 10.0, {"batch/ref_kl": 1}),
    Case("kl_blowup", "update", 0.5, {"actor/ppo_kl": -1}),
    Case("kl_blowup", "rollout", 0.5, {"batch/approx_kl": 1}),
    Case("entropy_collapse", "fallen_to", 0.1, {"batch/entropy": 0.5}, _NO_GAIN, 1.0),
    Case("truncation", "share", 0.5, {"episode/stop/max_tokens": 0.5, "episode/stop/context_full": 0.5}),
    *(
        Case("zero_signal_groups", kind, 0.95, {f"{by}/{name}_group_frac": 1 for name in {kind, "zero_signal"}})
        for kind in ("all_0", "all_1", "zero_signal")
        for by in ("credit", "batch")
    ),
    Case("invalid_calls", "unknown_tool", 0.3, {"episode/call_error/unknown_tool": 2}, {"episode/tool_calls": 2.0}),
    Case("tool_use_collapse", "fallen_to", 0.02, {"episode/tool_calls": 1.5}, {}, 1.0),
    Case("base_too_weak", "never_solved", 0.95, {"curriculum/never_solved_share": 1}),
    *(Case("infra_errors", "void", 0.2, {name: 1}) for name in ("episode/void", "batch/void_session_frac")),
    Case("rollout_mismatch", "mean", 0.3, {"batch/log_prob_diff/mean": 1}),
    Case("rollout_mismatch", "probs", 0.1, {"training/rollout_probs_diff_mean": 1}),
    Case(
        *("reward_part_takeover", "share", 0.7),
        {"batch/shaping_share/format": 1},
        {"batch/outcome_share": 0.2, **_NO_GAIN},
    ),
    Case("reward_hacking", "share", None, {"episode/hacking/any": 1, "episode/hacking/network": 1}),
]


def _judge(case: Case, value: float) -> str:
    """Returns the status of a run of 40 steps."""

    def row(judged: float) -> dict[str, float]:
        return {**{name: factor * judged for name, factor in case.per_value.items()}, **case.beside}

    first = row(value if case.before is None else case.before)
    finding = ALARMS[case.alarm](History([first] * 20 + [row(value)] * 20))
    assert finding is not None and bool(finding.advice) == (finding.status != "ok")
    return finding.status


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alarm}.{case.option}-{min(case.per_value)}")
def test_an_alarm_changes_its_status_at_its_limits(case: Case) -> None:
    warn = ALARMS[case.alarm].defaults[case.option]
    worse = -1 if case.fail is not None and case.fail < warn else 1
    assert _judge(case, warn * (1 - worse * _JUST)) == "ok"
    assert _judge(case, warn * (1 + worse * _JUST)) == "warn"
    if case.fail is not None:
        assert _judge(case, case.fail * (1 - worse * _JUST)) == "warn"
        assert _judge(case, case.fail * (1 + worse * _JUST)) == "fail"


@given(warn=st.floats(0.1, 1), fail=st.floats(0.1, 1), own=st.floats(0.1, 1), values=st.tuples(*[st.floats(0, 2)] * 2))
def test_a_worse_value_is_never_judged_milder(warn: float, fail: float, own: float, values: tuple[float, ...]) -> None:
    limit = Limit(warn=warn, fail=fail)
    better, worse = sorted(values, reverse=fail < warn)
    for limit_of_user in (None, own):
        statuses = [limit.judge(value, warn=limit_of_user) for value in (better, worse)]
        assert ORDER.index(statuses[0]) <= ORDER.index(statuses[1])
    assert limit.judge(warn) != "ok" and limit.judge(fail) == "fail"
