"""Findings of single lines of a diagnosis, from numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from verl_agentic.observe.checklist import HEALTH, LINES, diagnose
from verl_agentic.observe.checks.credit_horizon import credit_horizon
from verl_agentic.observe.checks.entropy_collapse import entropy_collapse
from verl_agentic.observe.checks.mask import mask
from verl_agentic.observe.checks.memory_growth import memory_growth
from verl_agentic.observe.checks.prompt_variance import prompt_variance
from verl_agentic.observe.checks.reward_hacking import reward_hacking
from verl_agentic.observe.checks.reward_part_takeover import reward_part_takeover
from verl_agentic.observe.checks.reward_zeros import reward_zeros
from verl_agentic.observe.checks.rollout_mismatch import rollout_mismatch
from verl_agentic.observe.checks.stop_reasons import fractions, stop_reasons
from verl_agentic.observe.checks.time_spent import time_spent
from verl_agentic.observe.checks.tool_distribution import spread, tool_distribution
from verl_agentic.observe.checks.truncation import truncation
from verl_agentic.observe.checks.validation import pass_k, validation
from verl_agentic.observe.checks.zero_signal_groups import zero_signal_groups
from verl_agentic.observe.diagnosis.check import load_check
from verl_agentic.observe.diagnosis.evidence import RunEvidence
from verl_agentic.observe.diagnosis.record_metrics import pass_rates
from verl_agentic.observe.diagnosis.series import ends, since

RunOf = Callable[..., RunEvidence]
_ALWAYS_KNOWN = {"waiting", "first_errors"}


def test_a_run_with_one_unrelated_metric_is_judged_by_nothing(run_of: RunOf) -> None:
    run = run_of(metrics={"some/number": [1.0, 2.0]})

    found = {name: load_check(name).diagnose(run) for name in LINES}

    unknown = {name for name, verdict in found.items() if verdict.status == "unknown"}
    assert unknown == set(LINES) - _ALWAYS_KNOWN
    assert all(verdict.found for verdict in found.values())


def test_rewards_that_became_zero_are_told_with_the_step(run_of: RunOf) -> None:
    values = [1.0] * 5 + [0.0] * 12

    verdict = reward_zeros.diagnose(run_of(metrics={"critic/score/max": values, "critic/score/min": [0.0] * 17}))

    assert verdict.status == "fail" and "since step 6" in verdict.found
    assert "find the change at that step" in verdict.advice


def test_negative_rewards_are_no_zeros(run_of: RunOf) -> None:
    verdict = reward_zeros.diagnose(run_of(metrics={"critic/score/max": [0.0] * 5, "critic/score/min": [-1.0] * 5}))

    assert verdict.status == "ok"


def _credited(run_of: RunOf, episodes: list[list[float]]) -> RunEvidence:
    """Returns a run with turns of one sampled token and one of an observation, which has an advantage of 9."""
    rows = [
        {
            "response_ids": [1, 2] * len(turns),
            "response_mask": [1, 0] * len(turns),
            "segments": [
                {
                    "start": place,
                    "end": place + 1,
                    "kind": "observation" if place % 2 else "sampled",
                    "turn": place // 2,
                }
                for place in range(2 * len(turns))
            ],
        }
        for turns in episodes
    ]
    updates = [
        {"uid": f"u{number}", "trained_step": 1, "advantages": [a for turn in turns for a in (turn, 9.0)]}
        for number, turns in enumerate(episodes)
    ]
    return run_of(episodes=rows, updates=updates)


def test_turns_that_are_credited_alike_are_told_by_what_it_does_to_the_variance(run_of: RunOf) -> None:
    verdict = credit_horizon.diagnose(_credited(run_of, [[1.0] * 10, [-1.0] * 10, [0.5] * 10, [3.0, 4.0]]))

    assert verdict.status == "warn" and "3 episodes of 10 turns" in verdict.found
    assert verdict.evidence["correlation"] == pytest.approx(1.0) and "10.0x" in verdict.found
    assert "turn_group" in verdict.advice


def test_turns_that_are_told_apart_are_fine(run_of: RunOf) -> None:
    verdict = credit_horizon.diagnose(_credited(run_of, [[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]]))

    # They sum to 0: two turns are correlated by -1/2.
    assert verdict.status == "ok" and verdict.evidence["correlation"] == pytest.approx(-0.5)


def test_episodes_of_one_turn_say_nothing_of_a_horizon(run_of: RunOf) -> None:
    assert credit_horizon.diagnose(_credited(run_of, [[1.0], [2.0]])).status == "unknown"


def test_void_episodes_do_not_count_as_zeros(run_of: RunOf) -> None:
    episodes = [{"reward": 0.0, "is_void": True}] * 9 + [{"reward": 1.0}]

    assert reward_zeros.diagnose(run_of(episodes=episodes)).status == "ok"


def test_responses_as_long_as_their_batch_are_not_cut_off(run_of: RunOf) -> None:
    # verl's clip_ratio is 1 when all responses of a batch have one length, be it far below the budget.
    lengths = {"response_length/clip_ratio": [1.0] * 6, "response_length/max": [100.0] * 6}

    below = truncation.diagnose(run_of(metrics=lengths, config={"data": {"max_response_length": 256}}))

    assert below.status == "ok"


def test_responses_at_the_budget_are_cut_off(run_of: RunOf) -> None:
    lengths = {"response_length/clip_ratio": [0.7] * 6, "response_length/max": [256.0] * 6}

    at_budget = truncation.diagnose(run_of(metrics=lengths, config={"data": {"max_response_length": 256}}))

    assert at_budget.status == "fail" and at_budget.evidence["cut_share"] == pytest.approx(0.7)


def test_a_full_context_is_answered_by_other_keys_than_a_spent_budget(run_of: RunOf) -> None:
    reasons = ["context_full"] * 3 + ["answered"] * 7

    verdict = truncation.diagnose(run_of(episodes=[{"stop_reason": reason} for reason in reasons]))

    assert verdict.status == "warn" and "max_model_len" in verdict.advice


def test_entropy_that_falls_while_the_policy_learns_is_a_warning(run_of: RunOf) -> None:
    falling = [0.6 * math.exp(-step / 3) for step in range(24)]
    rising = [0.2 + 0.03 * step for step in range(24)]

    assert entropy_collapse.diagnose(run_of(metrics={"batch/entropy": falling, "episode/acc": rising})).status == "warn"


def test_reference_kl_of_two_nats_is_a_warning_with_its_step(run_of: RunOf) -> None:
    verdict = diagnose(run_of(metrics={"batch/ref_kl": [0.01] * 6 + [2.0] * 6}))["kl_blowup"]

    # The median of five steps.
    assert verdict.status == "warn" and verdict.found.endswith("since step 9")


def test_groups_are_judged_by_outcome_and_not_by_shaping(run_of: RunOf) -> None:
    episodes = [{"uid": "g", "session": i, "acc": 1.0, "reward": 1.0 + 0.1 * i} for i in range(4)]

    verdict = zero_signal_groups.diagnose(run_of(episodes=episodes))

    assert verdict.status == "fail" and verdict.evidence["all_1_group_frac"] == 1.0


def test_groups_of_one_cannot_be_compared(run_of: RunOf) -> None:
    verdict = zero_signal_groups.diagnose(run_of(episodes=[{"reward": 1.0}, {"reward": 0.0}]))

    assert verdict.status == "unknown"


def test_advantages_of_nothing_but_zero_are_no_signal(run_of: RunOf) -> None:
    zeros = {"critic/advantages/max": [0.0] * 5, "critic/advantages/min": [0.0] * 5}

    assert zero_signal_groups.diagnose(run_of(metrics=zeros)).status == "fail"


def test_tool_diversity_is_the_entropy_over_all_tools() -> None:
    # V-TOOLDIV: H / ln(#tools) and the top share.
    cases = {"a": (8, 0), "b": (4, 4), "c": (6, 2)}
    found = {name: spread({"search": a, "python": b}, num_tools=2) for name, (a, b) in cases.items()}

    assert [share for share, _ in found.values()] == [1.0, 0.5, 0.75]
    assert [entropy for _, entropy in found.values()] == pytest.approx([0.0, 1.0, 0.811278], abs=1e-6)


def test_calls_without_a_name_are_told_as_unreadable(run_of: RunOf) -> None:
    calls = [{"name": "", "error_kind": "malformed_json"}, {"name": "search", "error_kind": ""}]
    tokens = {"response_ids": [1], "response_mask": [1], "token_rewards": [0.0]}

    run = run_of(episodes=[{**tokens, "turns": [{"index": 0, "calls": calls}]}])

    assert tool_distribution.diagnose(run).evidence["calls"] == {"(unreadable)": 1, "search": 1}


def test_a_run_without_calls_and_without_tools_is_fine(run_of: RunOf) -> None:
    verdict = tool_distribution.diagnose(run_of(metrics={"episode/tool_calls": [0.0] * 6}))

    assert verdict.status == "ok" and "0 calls per episode" in verdict.found


def test_tools_in_the_config_that_no_prompt_shows_are_a_warning(run_of: RunOf) -> None:
    config = {"actor_rollout_ref": {"rollout": {"multi_turn": {"tool_config_path": "tools.yaml"}}}}

    assert tool_distribution.diagnose(run_of(metrics={"episode/tool_calls": [0.0] * 6}, config=config)).status == "warn"


def test_the_rate_of_a_prompt_follows_it_over_steps(run_of: RunOf) -> None:
    visits = [(1, 0.0), (2, 1.0), (3, 1.0)]
    episodes = [
        {"step": step, "uid": f"s{step}", "session": i, "task_id": "t", "acc": acc, "reward": acc}
        for step, acc in visits
        for i in range(4)
    ]

    *_, (step, rates, names) = pass_rates(run_of(episodes=episodes))

    # Memory 0.7: (0.7^2 * 0 + 0.7 * 1 + 1) / (0.49 + 0.7 + 1).
    assert step == 3 and names == ["t"]
    assert rates.mean_N[0] == pytest.approx(1.7 / 2.19)


def test_prompts_of_two_kinds_only_are_a_warning(run_of: RunOf) -> None:
    episodes = [
        {"uid": f"p{p}", "task_id": f"p{p}", "session": i, "acc": float(p == 0), "reward": float(p == 0)}
        for p in range(8)
        for i in range(4)
    ]

    verdict = prompt_variance.diagnose(run_of(episodes=episodes))

    assert verdict.status == "warn" and "88% were never solved, 12% always" in verdict.found
    assert "learnability" in verdict.advice


def test_stop_reasons_sum_to_one(run_of: RunOf) -> None:
    reasons = ["answered"] * 4 + ["max_turns"] * 2 + ["max_tokens", "env_done", "no_action", "infra_error"]

    found = fractions(run_of(episodes=[{"stop_reason": reason} for reason in reasons]))

    assert found == {"answered": 0.4, "max_turns": 0.2, "max_tokens": 0.1, "env_done": 0.1, "no_action": 0.1, "infra_error": 0.1}  # fmt: skip  # noqa: E501
    assert sum(found.values()) == pytest.approx(1.0)


def test_running_out_of_turns_is_a_warning(run_of: RunOf) -> None:
    verdict = stop_reasons.diagnose(
        run_of(metrics={"episode/stop/max_turns": [0.8] * 4, "episode/stop/answered": [0.2] * 4})
    )

    assert verdict.status == "warn" and "max_turns" in verdict.advice


def test_pass_k_of_one_prompt(run_of: RunOf) -> None:
    # V-PASSK: n = 8, c = 3.
    run = run_of(episodes=[{"split": "val", "task_id": "t", "acc": float(i < 3)} for i in range(8)])

    found = pass_k(run.rows)

    assert [found[f"pass@{k}"] for k in (1, 2, 4, 8)] == pytest.approx([0.375, 0.642857, 0.928571, 1.0], abs=1e-6)
    assert [found[f"pass^{k}"] for k in (2, 4, 8)] == pytest.approx([0.107143, 0.0, 0.0], abs=1e-6)


def test_pass_hat_k_of_tau_bench(run_of: RunOf) -> None:
    # V-TAU: n = 4, c = 3: 0.75, 0.5, 0.25, 0 for k = 1 to 4.
    run = run_of(episodes=[{"split": "val", "task_id": "t", "acc": float(i < 3)} for i in range(4)])

    found = pass_k(run.rows)

    assert (found["pass@1"], found["pass^2"], found["pass^4"]) == pytest.approx((0.75, 0.5, 0.0))


def test_attempts_at_reward_hacking_are_told_with_what_they_earn(run_of: RunOf) -> None:
    episodes = [
        {"session": i, "hacking": ["network", "test_edits"] if i < 2 else [], "reward": 1.0 if i < 2 else 0.25}
        for i in range(8)
    ]

    verdict = reward_hacking.diagnose(run_of(episodes=episodes))

    assert verdict.status == "warn" and "25% of the episodes attempt" in verdict.found
    assert (
        "test_edits 0.25, network 0.25" in verdict.found
        and "of 2 of 8 recent ones is 1, that of the others 0.25" in verdict.found
    )
    assert verdict.look_at == ("train/1/u0/0/0", "train/1/u1/1/0")


def test_validation_below_its_best_is_a_warning(run_of: RunOf) -> None:
    run = run_of(metrics={"val-core/toy/acc/mean@1": [0.4, 0.6, 0.3]})

    verdict = validation.diagnose(run)

    assert verdict.status == "warn" and "it was 0.6 at step 2" in verdict.found


def test_a_part_in_proportion_to_the_outcome_is_no_takeover(run_of: RunOf) -> None:
    acc = [0.3, 0.28, 0.31, 0.3, 0.29, 0.3]
    parts = {"episode/weighted/answer": [2 * a for a in acc], "episode/weighted/format": [0.01] * 6}

    assert reward_part_takeover.diagnose(run_of(metrics={"episode/acc": acc, **parts})).status == "ok"


def test_a_part_that_is_most_of_the_mass_is_a_takeover(run_of: RunOf) -> None:
    acc = [0.3, 0.2, 0.1, 0.1, 0.05, 0.05]
    metrics = {"episode/acc": acc, "episode/weighted/answer": acc, "episode/weighted/format": [0.8] * 6}

    verdict = reward_part_takeover.diagnose(run_of(metrics=metrics))

    assert verdict.status == "fail" and "the reward part format has 94%" in verdict.found


def test_mismatch_without_records_is_read_per_turn_from_metrics(run_of: RunOf) -> None:
    metrics = {"batch/log_prob_diff/mean": [0.1] * 5, "batch/log_prob_diff/turn_0": [0.01] * 5}

    verdict = rollout_mismatch.diagnose(run_of(metrics={**metrics, "batch/log_prob_diff/turn_1": [0.4] * 5}))

    assert verdict.status == "fail" and "only later turns differ" in verdict.advice


def test_memory_that_is_given_back_is_no_leak(run_of: RunOf) -> None:
    growing = [10.0 + step for step in range(20)]

    assert memory_growth.diagnose(run_of(metrics={"perf/cpu_memory_used_gb": [*growing, 12.0]})).status == "ok"


def test_memory_that_only_grows_is_a_leak(run_of: RunOf) -> None:
    verdict = memory_growth.diagnose(run_of(metrics={"perf/cpu_memory_used_gb": [10.0 + step for step in range(20)]}))

    assert verdict.status == "warn" and "grew by 19 GB in 20 steps" in verdict.found


def test_times_of_rare_stages_count_by_what_they_cost_on_average(run_of: RunOf) -> None:
    saves = [0.0] * 9 + [60.0]
    metrics = {"timing_s/step": [10.0] * 10, "timing_s/gen": [8.0] * 10, "timing_s/save_checkpoint": saves}

    verdict = time_spent.diagnose(run_of(metrics=metrics))

    assert verdict.evidence["share/save_checkpoint"] == pytest.approx(0.6)


def test_steps_that_became_slower_are_told_with_the_length(run_of: RunOf) -> None:
    step = [5.0] * 10 + [15.0] * 10
    metrics = {"timing_s/step": step, "timing_s/gen": step, "response_length/mean": [100 * value for value in step]}

    verdict = time_spent.diagnose(run_of(metrics=metrics))

    assert verdict.status == "warn" and "5 -> 15 s (response length 500 -> 1500)" in verdict.found


def test_the_audit_of_training_counts_though_no_row_is_stored(run_of: RunOf) -> None:
    run = run_of(metrics={"audit/breaches": [0.0, 0.0]})
    assert mask.diagnose(run).status == "ok" and "2 steps audited" in mask.diagnose(run).found

    finding = {"step": 2, "name": "audit/observation_trained", "level": "warn", "message": "3 of 8 rows: ..."}
    line = json.dumps({**finding, "evidence": {"rows": 3.0, "first_row": "u0_0_0"}, "advice": "mend"})
    (run.run_dir / "health.jsonl").write_text(f"{line}\n{{cut")
    verdict = mask.diagnose(RunEvidence(run.run_dir))

    assert verdict.status == "fail" and "observation_trained 3x, such as: step 2" in verdict.found
    assert diagnose(RunEvidence(run.run_dir))[HEALTH].status == "ok"


def test_a_breach_noted_by_the_worker_that_played_is_found_in_the_summaries(run_of: RunOf) -> None:
    noted = {"breach": "text_mismatch: row 0, tokens 3 to 5"}

    verdict = mask.diagnose(run_of(episodes=[noted, {}], metrics={"audit/breaches": [1.0]}))

    assert verdict.status == "fail" and verdict.look_at == ("train/1/u0/0/0",)


def test_a_group_that_was_trained_on_without_a_session_is_a_warning(run_of: RunOf) -> None:
    keys = [{"uid": "g", "session": session, "index": 0} for session in (0, 2)]
    whole = [{"uid": "h", "session": session, "index": 0} for session in (0, 1)]
    tokens = {"response_ids": [1], "response_mask": [1], "token_rewards": [0.0]}

    run = run_of(
        episodes=[{**key, **tokens} for key in (*keys, *whole)],
        updates=[{**key, "trained_step": 1, "mean_advantage": 0.5} for key in (*keys, *whole)],
    )

    verdict = mask.diagnose(run)
    assert verdict.status == "warn" and "group_incomplete 1x" in verdict.found and "uid g" in verdict.found


def test_findings_of_a_running_run_and_of_its_metrics_are_told_once(run_of: RunOf) -> None:
    run = run_of(metrics={"episode/void": [0.5] * 12})
    (finding,) = [json.loads(json.dumps(f)) for f in _replayed(run)]
    (run.run_dir / "health.jsonl").write_text(json.dumps({**finding, "level": "stop"}) + "\n")

    verdict = diagnose(RunEvidence(run.run_dir))[HEALTH]

    assert verdict.status == "fail" and verdict.evidence == {"alarms": ["infra_errors"], "findings": 1}


def test_what_a_line_and_an_alarm_both_found_is_told_in_the_line_only(run_of: RunOf) -> None:
    found = diagnose(run_of(metrics={"episode/void": [0.5] * 12, "episode/repeated_ngrams": [0.9] * 12}))

    line, alarms = found["infra_errors"], found[HEALTH]
    assert line.status == "fail" and alarms.evidence["alarms"] == ["infra_errors", "repetition"]
    assert "see the line `infra errors`" in alarms.found and "void" not in alarms.found
    assert "of the text repeats earlier text" in alarms.found
    assert alarms.advice and alarms.advice != line.advice, "that of the alarm without a line"


def _replayed(run: RunEvidence) -> list[dict[str, Any]]:
    from verl_agentic.observe.health.monitor import HealthMonitor

    monitor = HealthMonitor()
    return [finding.to_dict() for row in run.metrics for finding in monitor.observe(row["step"], row)]


def test_ends_are_medians_and_since_is_the_unbroken_tail() -> None:
    series = [(step, float(value)) for step, value in enumerate((1, 9, 1, 5, 5, 5, 8, 0, 8), start=1)]

    assert ends(series) == (1.0, 8.0)
    assert since(series, lambda value: value == 8) == 9
    assert since(series, lambda value: value == 3) is None
