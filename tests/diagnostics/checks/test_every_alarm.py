"""Every alarm, on a run that goes well, on one that breaks at a step, and on one that only looks like it.

A run is a function of seed and step. `well` has every metric that alarms read; a fault changes some of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest

from verl_agentic.observe.health.health_finding import HealthFinding
from verl_agentic.observe.health.monitor import ALARMS, HealthMonitor, HealthSettings

Row = dict[str, float]
Change = Callable[[Row, int, random.Random], Mapping[str, float]]
STEPS, ONSET = 120, 50


def well(step: int, rng: random.Random) -> Row:
    """A run that learns: the reward rises, answers grow by half, entropy halves, nothing is exact."""

    def about(value: float, spread: float = 0.1) -> float:
        return value * rng.uniform(1 - spread, 1 + spread)

    done = step / STEPS
    acc = min(1.0, max(0.0, 0.3 + 0.4 * done + rng.gauss(0, 0.04)))
    calls = about(1.5)
    row = {
        "episode/acc": acc,
        "episode/score": acc + about(0.1),
        "critic/score/mean": acc + 0.1,
        "episode/solved/holdout": acc - about(0.03, 1),
        "episode/clear/judge_paused": 0.0,
        "judge_drift/change": abs(rng.gauss(0.01, 0.01)),
        "judge_drift/shift": rng.gauss(0.0, 0.01),
        "episode/model_tokens": about(300 * (1 + 0.5 * done)),
        "response_length/mean": about(400 * (1 + 0.5 * done)),
        "response_length/max": float(rng.randint(900, 2000)),
        "response_length/clip_ratio": rng.choice([0.01, 0.02, 0.9]),
        "batch/length_reward_corr": rng.gauss(0.1, 0.15),
        "batch/wrong_length": about(380 * (1 + 0.6 * done)),
        "batch/right_length": about(280 * (1 + 0.4 * done)),
        "episode/tools_offered": 2.0,
        "episode/hacking/any": 0.05 if step % 3 else 0.0,
        "episode/hacking/git_history": 0.05 if step % 3 else 0.0,
        "episode/tool_calls": calls,
        "episode/call_error/unknown_tool": calls * abs(rng.gauss(0, 0.02)),
        "episode/call_error/malformed_json": calls * abs(rng.gauss(0.1 * (1 - done), 0.05)),
        "episode/duplicate_calls": calls * abs(rng.gauss(0.05, 0.03)),
        "episode/repeated_ngrams": abs(rng.gauss(0.01, 0.01)),
        "episode/stop/max_tokens": abs(rng.gauss(0.06, 0.04)),
        "episode/stop/context_full": abs(rng.gauss(0.0, 0.01)),
        "episode/stop/timeout": abs(rng.gauss(0.0, 0.002)),
        "episode/void": abs(rng.gauss(0.01, 0.01)),
        "episode/retries": abs(rng.gauss(0.02, 0.02)),
        **{f"episode/error/{kind}": abs(rng.gauss(0.0, 0.003)) for kind in ("env", "sandbox", "policy", "scoring")},
        "batch/entropy": about(0.6 - 0.3 * done),
        "actor/grad_norm": about(0.3, 0.6),
        "actor/pg_loss": rng.gauss(0, 0.02),
        "batch/ref_kl": about(0.06 * done, 0.5),
        "actor/ppo_kl": rng.gauss(0, 0.002),
        "actor/lr": 1e-6,
        "actor/perf/cpu_memory_used_gb": 50 + 6 * (step % 20) / 20 + rng.gauss(0, 1),
        "actor/perf/max_memory_allocated_gb": 60 + rng.gauss(0, 0.5),
        "batch/approx_kl": about(0.0005, 0.5),
        "batch/log_prob_diff/mean": about(0.01, 0.4),
        "batch/log_prob_diff/max": about(1.0, 0.5),
        **{f"batch/log_prob_diff/turn_{turn}": about(0.01 + 0.003 * turn, 0.5) for turn in (0, 1, 2)},
        "batch/log_prob_diff/turn_4_plus": about(0.012, 0.8),
        "batch/within_group_std": about(0.35),
        # Siblings become surer together as they learn.
        "batch/distinct_share": min(1.0, about(0.95 - 0.3 * done)),
        "batch/distinct_action_share": about(0.6 - 0.2 * done),
        # Measured every ten steps, from the first one on.
        **(
            {"batch/prompt_information_per_token": (0.6 - 0.2 * done) * (0.8 + step % 7 / 15)} if step % 10 == 1 else {}
        ),
        "batch/outcome_share": about(0.8),
        "batch/shaping_share/format": about(0.15, 0.5),
        "credit/zero_signal_group_frac": about(0.5, 0.3),
        "credit/all_0_group_frac": about(0.3 * (1 - done), 0.3),
        "credit/all_1_group_frac": about(0.1 + 0.3 * done, 0.3),
        "credit/abs_advantage_mean": about(0.6),
        "credit/explained_variance": -1.0 if step < 15 else rng.gauss(0.3, 0.15),
        "training/gate/drop_rate": about(0.5, 0.4),
        "training/gate/all_0_rate": about(0.3),
        "training/gate/all_1_rate": about(0.2),
        "training/gate/zero_variance/dropped_groups": about(30, 0.3),
        "curriculum/never_solved_share": about(0.4),
    }
    if step % 10 == 0:
        row |= {"val-core/math/acc/mean@8": acc, "val-core/math/acc/best@8/mean": min(1.0, acc + about(0.25))}
    return row


def _stuck(row: Row, rng: random.Random) -> Row:
    """The reward stays where it was at the beginning."""
    acc = 0.3 + rng.gauss(0, 0.02)
    return {"episode/acc": acc, "episode/score": acc + 0.1, "critic/score/mean": acc + 0.1} | {
        "episode/solved/holdout": acc
    }


def _since(step: int, over: int = 30) -> float:
    """0 at the onset, 1 so many steps later."""
    return min(1.0, (step - ONSET) / over)


BREAKS: dict[str, tuple[Change, str]] = {
    # name of the case -> what changes from the onset on, and what the message must hold
    "reward_hacking": (
        lambda row, step, rng: {"episode/hacking/any": 0.4, "episode/hacking/test_edits": 0.7},
        "test_edits 0.7",
    ),
    "zero_signal_groups: all 0": (
        lambda row, step, rng: {"credit/all_0_group_frac": 0.85, "credit/zero_signal_group_frac": 0.9},
        "all 0: 85%",
    ),
    "zero_signal_groups: all 1": (
        lambda row, step, rng: {"credit/all_1_group_frac": 0.9, "credit/zero_signal_group_frac": 0.92},
        "all 1: 90%",
    ),
    # H3: 1k to 8k tokens, correlation .9.
    "length_explosion: paid for": (
        lambda row, step, rng: {
            "episode/model_tokens": 300 + 2100 * _since(step),
            "batch/length_reward_corr": 0.9 + rng.gauss(0, 0.02),
        },
        "its correlation with the reward is 0.",
    ),
    "length_explosion: for nothing": (
        lambda row, step, rng: {"episode/model_tokens": 300 + 900 * _since(step), **_stuck(row, rng)},
        "the reward has changed by",
    ),
    "length_explosion: wrong answers": (
        lambda row, step, rng: {
            "episode/model_tokens": 300 + 900 * _since(step),
            "batch/wrong_length": 380 + 2000 * _since(step),
        },
        "wrong answers are longer",
    ),
    # H4: 3 of 10 calls.
    "invalid_calls: unknown": (
        lambda row, step, rng: {"episode/call_error/unknown_tool": 0.3 * row["episode/tool_calls"]},
        "unknown_tool with 30%",
    ),
    "invalid_calls: malformed": (
        lambda row, step, rng: {"episode/call_error/malformed_json": 0.5 * row["episode/tool_calls"]},
        "malformed_json with 50%",
    ),
    # H5: 2 of 5 calls.
    "repetition: calls": (
        lambda row, step, rng: {"episode/duplicate_calls": 0.4 * row["episode/tool_calls"]},
        "40% of the calls repeat",
    ),
    "repetition: text": (lambda row, step, rng: {"episode/repeated_ngrams": 0.35}, "35% of the text"),
    "entropy_collapse: for nothing": (
        lambda row, step, rng: {"batch/entropy": 0.5 * (1 - 0.9 * _since(step)), **_stuck(row, rng)},
        "limit 30% of the beginning",
    ),
    "entropy_collapse: gone": (lambda row, step, rng: {"batch/entropy": 0.001}, "limit 0.005 with an outcome below"),
    "kl_blowup: reference": (
        lambda row, step, rng: {"batch/ref_kl": 0.06 + 2 * _since(step)},
        "from its reference (limit 0.5)",
    ),
    "kl_blowup: update": (lambda row, step, rng: {"actor/ppo_kl": -0.2}, "0.2 from itself before the update"),
    "kl_blowup: rollout": (lambda row, step, rng: {"batch/approx_kl": 0.3}, "from the rollout policy"),
    # H10: standard deviation .4 to .02 while the reward is flat.
    "echo_trap": (
        lambda row, step, rng: {"batch/within_group_std": 0.4 - 0.38 * _since(step), **_stuck(row, rng)},
        "siblings become alike",
    ),
    # F31: 1 distinct trajectory of 16.
    "low_diversity: texts": (
        lambda row, step, rng: {"batch/distinct_share": (round(1 + 14 * (1 - _since(step))) - 1) / 15},
        "of the siblings that could differ repeat the tokens of another one (limit 90%)",
    ),
    "low_diversity: actions": (
        lambda row, step, rng: {"batch/distinct_action_share": 0.6 * (1 - _since(step))},
        "repeat the actions of another one (4",
    ),
    "template_collapse": (
        lambda row, step, rng: {
            name: value * (1 - 0.95 * _since(step)) for name, value in row.items() if "prompt_" in name
        },
        "nats of information about its prompt",
    ),
    "tool_use_collapse": (
        lambda row, step, rng: {
            name: value * (1 - 0.99 * _since(step)) for name, value in row.items() if "call" in name
        },
        "tool calls per episode",
    ),
    "truncation": (
        lambda row, step, rng: {"episode/stop/max_tokens": 0.1, "episode/stop/context_full": 0.3},
        "mostly by context_full",
    ),
    "rollout_mismatch: all turns": (
        lambda row, step, rng: {
            name: 0.09 for name in row if name.startswith("batch/log_prob_diff/") and "max" not in name
        },
        "differ by 0.09 nats per sampled token (limit 0.05)",
    ),
    "rollout_mismatch: later turns": (
        lambda row, step, rng: {"batch/log_prob_diff/turn_2": 0.2},
        "0.2 nats in turn 2",
    ),
    "reward_part_takeover": (
        lambda row, step, rng: {"batch/shaping_share/format": 0.8, "batch/outcome_share": 0.2, **_stuck(row, rng)},
        "the reward part format has 80%",
    ),
    # H2: a gap of .4.
    "holdout_gap": (
        lambda row, step, rng: {"episode/solved/holdout": row["episode/acc"] - 0.4 * _since(step)},
        "(limit 0.1)",
    ),
    "infra_errors: sandbox": (
        lambda row, step, rng: {"episode/void": 0.3, "episode/error/sandbox": 0.3},
        "30.0% of the episodes are void",
    ),
    "infra_errors: retries": (lambda row, step, rng: {"episode/retries": 0.9}, "0.9 retries per episode"),
    "memory_growth": (
        lambda row, step, rng: {"actor/perf/cpu_memory_used_gb": 50 + 1.0 * (step - ONSET) + rng.gauss(0, 1)},
        "cpu_memory_used_gb grew by",
    ),
    "gradient: not finite": (
        lambda row, step, rng: {"actor/grad_norm": math.nan},
        "actor/grad_norm must be finite, and is nan",
    ),
    "gradient: exploding": (
        lambda row, step, rng: {"actor/grad_norm": 0.3 * 1.3 ** (step - ONSET)},
        "the gradient's norm is",
    ),
    "stalled_learning": (
        lambda row, step, rng: {"credit/abs_advantage_mean": 0.0, "actor/grad_norm": 0.0, **_stuck(row, rng)},
        "advantages and gradient: 0",
    ),
    "critic": (lambda row, step, rng: {"credit/explained_variance": rng.gauss(-0.5, 0.2)}, "the critic explains -0."),
    "judge_drift": (
        lambda row, step, rng: {"judge_drift/change": 0.3, "judge_drift/shift": 0.25},
        "by 0.3 on average (limit 0.1), +0.25",
    ),
    "judge_paused": (lambda row, step, rng: {"episode/clear/judge_paused": 3.0}, "clear 3"),
    "starved": (
        lambda row, step, rng: {"training/gate/drop_rate": 0.93, "training/gate/all_0_rate": 0.8},
        "gates drop 93%",
    ),
    "base_too_weak": (lambda row, step, rng: {"curriculum/never_solved_share": 1.0}, "base too weak: 100%"),
    "boundary_collapse": (
        lambda row, step, rng: (
            {"val-core/math/acc/best@8/mean": 0.4, "val-core/math/acc/mean@8": 0.38}
            if "val-core/math/acc/mean@8" in row
            else {}
        ),
        "the policy solves fewer tasks in several attempts",
    ),
}
MAY_COME_TOO = {
    # What a fault does beside: no fault of the alarm.
    "gradient: exploding": {"echo_trap"},
}
LOOKS_ALIKE: dict[str, Change] = {
    "zero_signal_groups": lambda row, step, rng: {"credit/all_0_group_frac": 0.9 if step % 3 == 0 else 0.4},
    # As much longer as in H3, but what is gained is gained by more than length.
    "length_explosion": lambda row, step, rng: {
        "episode/model_tokens": 300 + 2100 * _since(step),
        "batch/length_reward_corr": 0.3 + rng.gauss(0, 0.15),
    },
    "invalid_calls": lambda row, step, rng: {
        "episode/call_error/unknown_tool": 0.5 * row["episode/tool_calls"] if step in (60, 75, 76, 90) else 0.0
    },
    "repetition": lambda row, step, rng: {"episode/repeated_ngrams": 0.9 if step % 5 == 0 else 0.05},
    # A policy that becomes sure because it learns.
    "entropy_collapse": lambda row, step, rng: {"batch/entropy": 0.5 * (1 - 0.95 * _since(step))},
    "kl_blowup": lambda row, step, rng: {"batch/ref_kl": 5.0 if step % 10 == 0 else 0.1},
    # Siblings that are alike because they succeed.
    "echo_trap": lambda row, step, rng: {
        "batch/within_group_std": 0.05,
        "episode/acc": 0.97,
        "episode/score": 1.07,
        "episode/solved/holdout": 0.95,
    },
    # Two of sixteen in some steps; and in all, because the tasks are solved.
    "low_diversity": lambda row, step, rng: (
        {"batch/distinct_share": 1 / 15 if step % 4 == 0 else 0.3, "batch/distinct_action_share": 0.15}
        if step < 85
        else {"batch/distinct_share": 0.02, "batch/distinct_action_share": 0.0, "episode/acc": 0.95}
    ),
    # One measurement of three is bad; later all: texts became long, but can be told apart as before.
    "template_collapse": lambda row, step, rng: {
        "batch/prompt_retrieval": 0.9,
        **({"batch/prompt_information_per_token": 0.01} if step % 30 == 1 or (step > 85 and step % 10 == 1) else {}),
    },
    "tool_use_collapse": lambda row, step, rng: {"episode/tool_calls": row["episode/tool_calls"] * 0.3},
    "truncation": lambda row, step, rng: {"episode/stop/max_tokens": 0.6 if step % 4 == 0 else 0.15},
    "rollout_mismatch": lambda row, step, rng: {
        "batch/log_prob_diff/mean": 0.5 if step % 6 == 0 else 0.03,
        "batch/log_prob_diff/turn_0": 0.0005,
        "batch/log_prob_diff/turn_2": 0.008,
    },
    # Shaping leads the way, and the outcome follows.
    "reward_part_takeover": lambda row, step, rng: {"batch/shaping_share/format": 0.7, "batch/outcome_share": 0.3},
    "holdout_gap": lambda row, step, rng: {"episode/solved/holdout": row["episode/acc"] - abs(rng.gauss(0.05, 0.04))},
    "infra_errors": lambda row, step, rng: {"episode/void": 0.5 if step % 10 == 0 else 0.02},
    # It grows as much, and falls back, as caches do.
    "memory_growth": lambda row, step, rng: {
        "actor/perf/cpu_memory_used_gb": 50 + 2.0 * ((step - ONSET) % 15) + 0.2 * (step - ONSET)
    },
    "gradient": lambda row, step, rng: {"actor/grad_norm": 30.0 if step % 7 == 0 else 0.3},
    # Nothing to gain, but the reward rises all the same: late rewards of earlier updates.
    "stalled_learning": lambda row, step, rng: {"credit/abs_advantage_mean": 1e-9 if step % 3 else 0.5},
    "critic": lambda row, step, rng: {"credit/explained_variance": rng.gauss(0.1, 0.15)},
    "judge_drift": lambda row, step, rng: {"judge_drift/change": 0.08},
    "judge_paused": lambda row, step, rng: {"episode/clear/judge_failures": 3.0},
    "starved": lambda row, step, rng: {"training/gate/drop_rate": 0.95 if step % 4 == 0 else 0.6},
    # One step in four.
    "reward_hacking": lambda row, step, rng: {"episode/hacking/any": 0.5 if step % 4 == 0 else 0.05},
    "base_too_weak": lambda row, step, rng: {"curriculum/never_solved_share": 0.88},
    "boundary_collapse": lambda row, step, rng: {
        name: value - 0.1 for name, value in row.items() if "best@8" in name and step < 70
    },
}


def played(
    change: Change, *, seed: int, settings: HealthSettings | None = None
) -> tuple[list[HealthFinding], HealthMonitor]:
    """Returns what was found in a run that changes at the onset, and the monitor after it."""
    rng, monitor = random.Random(seed), HealthMonitor(settings)
    found = []
    for step in range(1, STEPS + 1):
        row = well(step, rng)
        if step >= ONSET:
            row |= change(row, step, rng)
        found += monitor.observe(step, row)
    return found, monitor


def only(name: str) -> HealthSettings:
    return HealthSettings(actions={"default": "off", name: "warn"})


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_goes_well_is_silent(seed: int) -> None:
    found, monitor = played(lambda row, step, rng: {}, seed=seed)
    assert found == [] and not monitor.missing
    assert monitor.metrics() == {f"health/{name}": 0.0 for name in ALARMS}


@pytest.mark.sample(1, slow=12)
@pytest.mark.parametrize("case", BREAKS)
def test_a_fault_raises_its_alarm_once_and_no_other(case: str) -> None:
    name, (change, words) = case.split(":")[0], BREAKS[case]
    found, monitor = played(change, seed=1)
    mine = [finding for finding in found if finding.check == name]
    assert len(mine) == 1, found
    assert {finding.check for finding in found} <= {name} | MAY_COME_TOO.get(case, set())
    finding = mine[0]
    assert finding.level == "warn" and finding.step >= ONSET and words in finding.found
    since = int(finding.evidence["since_step"])
    assert finding.found.endswith(f"since step {since}") and ONSET <= since <= finding.step
    assert finding.advice and len(finding.evidence) >= 2
    assert monitor.metrics()[f"health/{name}"] == 1.0


@pytest.mark.parametrize("name", LOOKS_ALIKE)
def test_what_only_looks_like_it_does_not(name: str) -> None:
    found, _ = played(LOOKS_ALIKE[name], seed=0, settings=only(name))
    assert found == []


def test_every_alarm_has_a_fault_and_a_look_alike() -> None:
    assert {case.split(":")[0] for case in BREAKS} == set(LOOKS_ALIKE) == set(ALARMS)


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_without_its_metrics_is_silent_and_says_what_it_needs(name: str) -> None:
    alarm = ALARMS[name]
    rng, monitor = random.Random(0), HealthMonitor(only(name))
    gone = alarm.missing([])
    for step in range(1, 40):
        row = {metric: value for metric, value in well(step, rng).items() if not alarm.has_news({metric: value})}
        assert monitor.observe(step, row) == []
    assert monitor.missing == {name: gone} and gone
