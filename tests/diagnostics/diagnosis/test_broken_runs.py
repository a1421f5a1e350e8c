"""Every fixture of a broken run is diagnosed by the line that is to name it, and by no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_agentic.diagnostics.diagnosis.checklist import CHECKS, diagnose, exit_code
from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence

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
    assert list(verdicts) == list(CHECKS)
    assert exit_code(verdicts) == 0


@pytest.mark.sample(8)
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


def test_the_first_seven_lines_are_the_checklist_in_its_order() -> None:
    order = ["reward_zeros", "length_truncation", "mask", "kl_entropy", "group_std"]

    assert list(CHECKS)[:7] == [*order, "tool_distribution", "prompt_variance"]


def test_the_seventh_line_names_a_base_that_is_too_weak(broken_runs: Any, tmp_path: Path) -> None:
    verdict = diagnose(RunEvidence(broken_runs.make("groups_all_0", tmp_path)))["prompt_variance"]

    assert verdict.found.startswith("base too weak: no attempt at any of the 8 prompts")
    assert verdict.advice == "this follows from the line `group std`: fix that first"


def test_the_same_fixture_is_the_same_run(broken_runs: Any, tmp_path: Path) -> None:
    first, second = (
        RunEvidence(broken_runs.make("unknown_tool", tmp_path / name)).rows.to_dict("list") for name in ("a", "b")
    )

    assert str(first) == str(second)
