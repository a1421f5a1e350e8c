"""Every fixture of a broken run is diagnosed by the line that is to name it, and by no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_agentic.observe.checklist import HEALTH, LINES, diagnose, exit_code
from verl_agentic.observe.checks.grader import _is_right, grader
from verl_agentic.observe.checks.learning import learning
from verl_agentic.observe.checks.task_variety import task_variety
from verl_agentic.observe.diagnosis.check import check_names, load_check
from verl_agentic.observe.diagnosis.evidence import RunEvidence
from verl_agentic.observe.health.alarm import Alarm

_NAMES = (
    *("rewards_all_zero", "everything_truncated", "observation_trained", "reward_on_observation"),
    *("last_token_untrained", "text_encoded_again", "log_probs_shifted", "entropy_collapse", "kl_blowup"),
    *(
        "groups_all_0",
        "groups_all_1",
        "few_prompts_solved",
        "tool_never_called",
        "tool_use_collapse",
        "unknown_tool",
        "tool_hangs",
    ),
    *("infra_failures", "later_turns_mismatch", "reward_part_takeover", "memory_growth", "killed_run"),
    *("crashed_actor", "trainer_sleeps", "constant_reward", "grader_pays_everything", "tool_always_fails"),
    *("weights_never_arrive", "learning_rate_of_0", "reward_never_rises", "few_tasks"),
)


def test_a_healthy_run_is_ok_in_every_line(broken_runs: Any, tmp_path: Path) -> None:
    verdicts = diagnose(RunEvidence(broken_runs.make("healthy", tmp_path)))

    assert {name: verdict.found for name, verdict in verdicts.items() if verdict.status != "ok"} == {}
    assert list(verdicts) == [*LINES, HEALTH, "run_state"]
    assert exit_code(verdicts) == 0


@pytest.mark.sample(1, slow=10)
@pytest.mark.parametrize("name", _NAMES)
def test_a_fault_is_named_by_its_line_alone(name: str, broken_runs: Any, tmp_path: Path) -> None:
    fault = broken_runs.FAULTS[name]

    verdicts = diagnose(RunEvidence(broken_runs.make(name, tmp_path)))

    verdict = verdicts[fault.check]
    assert verdict.status == ("warn" if fault.is_warned_of else "fail"), verdict
    told = f"{verdict.found} | {verdict.advice}"
    assert [words for words in fault.says if words not in told] == [], told
    others = {check: v.found for check, v in verdicts.items() if v.status == "fail" and check != fault.check}
    assert set(others) == set(fault.also), others
    assert exit_code(verdicts) == (0 if fault.is_warned_of else 1)


def test_every_fixture_is_tested(broken_runs: Any) -> None:
    assert set(broken_runs.FAULTS) == set(_NAMES)


def test_every_check_of_records_is_a_line() -> None:
    """An alarm without a line is part of the line of all alarms."""
    records = {name for name in check_names() if not isinstance(load_check(name), Alarm)}
    assert records <= {*LINES, "run_state"} and set(LINES) <= set(check_names())


@pytest.mark.slow
def test_a_failure_that_follows_from_another_names_its_line(broken_runs: Any, tmp_path: Path) -> None:
    verdict = diagnose(RunEvidence(broken_runs.make("groups_all_0", tmp_path)))["base_too_weak"]

    assert verdict.found.startswith("base too weak: 100% of the prompts") and verdict.status == "warn"
    assert verdict.advice == "this follows from the line `zero signal groups`: fix that first"


@pytest.mark.slow
def test_a_run_without_metrics_is_judged_by_its_trajectories(broken_runs: Any, tmp_path: Path) -> None:
    """The same checks read metrics that are computed from the records."""
    for name in ("everything_truncated", "groups_all_1", "infra_failures", "unknown_tool", "later_turns_mismatch"):
        run = broken_runs.healthy(12)
        broken_runs.FAULTS[name].break_run(run)
        run.metrics = {}
        verdicts = diagnose(RunEvidence(run.write(tmp_path / name)))
        assert verdicts[broken_runs.FAULTS[name].check].status == "fail", name


def test_the_same_fixture_is_the_same_run(broken_runs: Any, tmp_path: Path) -> None:
    first, second = (
        RunEvidence(broken_runs.make("unknown_tool", tmp_path / name)).rows.to_dict("list") for name in ("a", "b")
    )

    assert str(first) == str(second)


_SPOILED = sorted(set(_NAMES) - {"trainer_sleeps"})  # it costs time only


@pytest.mark.nightly
@pytest.mark.nightly
@settings(max_examples=8)
@given(seed=st.integers(0, 999), name=st.sampled_from(_SPOILED), logged_steps=st.integers(12, 20))
def test_any_spoiled_run_fails_by_the_line_of_its_cause_alone(
    seed: int, name: str, logged_steps: int, broken_runs: Any, tmp_path: Path
) -> None:
    run, fault = broken_runs.healthy(logged_steps, seed=seed), broken_runs.FAULTS[name]
    fault.break_run(run)
    verdicts = diagnose(RunEvidence(run.write(tmp_path / f"{name}-{uuid4()}")))
    failed = {check for check, verdict in verdicts.items() if verdict.status == "fail"}
    assert failed == {fault.check, *fault.also} and exit_code(verdicts) == 1


@pytest.mark.slow
@settings(max_examples=6)
@given(seed=st.integers(0, 999), logged_steps=st.integers(3, 20))
def test_no_healthy_run_raises_an_alarm(seed: int, logged_steps: int, broken_runs: Any, tmp_path: Path) -> None:
    run = broken_runs.healthy(logged_steps, seed=seed)
    verdicts = diagnose(RunEvidence(run.write(tmp_path / str(uuid4()))))
    assert {name: v.found for name, v in verdicts.items() if v.status in ("warn", "fail")} == {}


@pytest.mark.slow
def test_equal_rewards_of_different_outcomes_are_no_signal(broken_runs: Any, tmp_path: Path) -> None:
    run = broken_runs.healthy()
    for record in run.trajectories:
        record["reward"] = 0.5
    del run.metrics["credit/zero_signal_group_frac"]
    assert diagnose(RunEvidence(run.write(tmp_path / "run")))["zero_signal_groups"].status == "fail"


@pytest.mark.slow
def test_a_flat_reward_is_a_failure_only_of_a_whole_run_that_is_over_or_long(broken_runs: Any, tmp_path: Path) -> None:
    def status(name: str, *, total: int = 24, first_step: int = 1) -> str:
        run = broken_runs.healthy()
        broken_runs.reward_never_rises(run)
        run.config["trainer"]["total_training_steps"] = total
        folder = run.write(tmp_path / name)
        evidence = RunEvidence(folder)
        evidence.metrics = [row for row in evidence.metrics if row["step"] >= first_step]
        return learning.diagnose(evidence).status

    assert status("over") == "fail"
    assert status("goes_on", total=100) == "warn"
    assert status("resumed", first_step=8) == "warn"


def test_a_reward_that_rises_slowly_but_surely_rises(run_of: Any) -> None:
    noisy = [0.30 + 0.001 * step + (0.004 if step % 2 else -0.004) for step in range(30)]
    assert learning.diagnose(run_of(metrics={"episode/acc": noisy})).status == "ok"
    assert learning.diagnose(run_of(metrics={"episode/acc": [0.95] * 30})).status == "ok"


@pytest.mark.parametrize(
    ("truth", "answer", "is_right"),
    [
        ('"42"', r"so \\boxed{42}", True),
        ("42", "It is 42.0.", True),
        ('"0.5"', "1/2", True),
        ('"1200"', "1,200", True),
        ('"42"', "421", False),
        ('"-3"', "3", False),
        ('"Paris"', "It is Paris.", True),
        ('["Paris", "Lutetia"]', "lutetia", True),
        ('"Paris"', "Rome", False),
        ("null", "42", None),
        ('{"tests": []}', "42", None),
        ('"42"', "", None),
    ],
)
def test_an_answer_is_right_if_the_ground_truth_is_in_it(truth: str, answer: str, is_right: bool | None) -> None:
    record = {"place": "last", "final_answer": answer, "acc": 1.0, "ground_truth": truth}
    assert _is_right(record) == is_right


@pytest.mark.sample(1)
@pytest.mark.parametrize(("wrong_outcome", "num_wrong", "status"), [(1.0, 20, "fail"), (0.1, 20, "ok"), (1.0, 4, "ok")])
def test_a_grader_fails_if_many_wrong_answers_are_paid(
    run_of: Any, wrong_outcome: float, num_wrong: int, status: str
) -> None:
    right = {"final_answer": "42", "acc": 1.0, "ground_truth": '"42"', "response_ids": [1]}
    wrong = {**right, "final_answer": "41", "acc": wrong_outcome}
    assert grader.diagnose(run_of(episodes=[right] * 20 + [wrong] * num_wrong)).status == status
    # If no answer has the ground truth, it is not the text of an answer.
    hidden = {**wrong, "ground_truth": '"state"'}
    assert grader.diagnose(run_of(episodes=[hidden] * 20)).status == "ok"


@pytest.mark.slow
def test_rows_with_other_numbers_and_the_same_content_are_the_same_task(run_of: Any) -> None:
    def episodes(num_tasks: int) -> list[dict[str, Any]]:
        return [
            {"step": 1 + n // 8, "task_id": str(n), "prompt_ids": [n % num_tasks], "extra": f'{{"index": {n}}}',
             "response_ids": [1]}
            for n in range(64)
        ]  # fmt: skip

    assert task_variety.diagnose(run_of(episodes=episodes(4))).status == "fail"
    assert task_variety.diagnose(run_of(episodes=episodes(48))).status == "ok"


def test_the_metrics_of_a_real_run_that_has_learnt_raise_no_alarm(run_of: Any) -> None:
    noted = json.loads((Path(__file__).parents[2] / "fixtures" / "healthy_run.json").read_text())
    num_steps = max(len(values) for values in noted.values() if isinstance(values, list))
    metrics = {name: values if isinstance(values, list) else [values] * num_steps for name, values in noted.items()}
    verdicts = diagnose(run_of(metrics=metrics))
    assert {name: v.found for name, v in verdicts.items() if v.status in ("warn", "fail")} == {}
    assert verdicts["learning"].status == "ok"
