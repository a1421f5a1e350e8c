"""Self-evolving tasks: nothing unchecked enters, and what teaches nothing leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verl_agentic.sampling.prompts.pass_rates import PassRates
from verl_agentic.sampling.prompts.task_sets import TaskSet, is_worth_posing


def test_a_valid_proposal_enters_and_others_cost_their_proposer() -> None:
    tasks = TaskSet()
    checked = {"6 * 7": True, "1 // 0": False}

    def is_known(row: Mapping[str, Any]) -> bool:
        return checked[row["program"]]

    entered = tasks.propose({"program": "6 * 7"}, check=is_known)
    refused = tasks.propose({"program": "1 // 0"}, check=is_known)
    broken = tasks.propose({"program": "?"}, check=is_known)
    again = tasks.propose({"program": "6 * 7"}, check=is_known)
    assert (entered.place, entered.penalty) == (0, 0.0)
    assert (refused.place, refused.reason, refused.penalty) == (None, "the check refused it", -0.5)
    assert (broken.place, broken.penalty) == (None, -0.5)
    assert broken.reason.startswith("the check failed, got KeyError: '?' (")
    assert (again.place, again.reason) == (None, "proposed before")
    assert tasks.rows == [{"program": "6 * 7"}]


def test_solved_and_hopeless_tasks_leave_after_their_patience_and_others_stay() -> None:
    tasks, rates = TaskSet(patience=2), PassRates(3 + 3)
    for number in range(3):
        tasks.propose({"task": number}, check=lambda row: True)
    groups = {0: [0.0], 3: [1.0, 1.0], 4: [0.0, 0.0], 5: [1.0, 0.0]}
    for outcomes_at in (groups, groups):
        assert tasks.retire(rates) == []
        for prompt, outcomes in outcomes_at.items():
            rates.record(prompt, outcomes)
    assert tasks.retire(rates) == [0, 1]
    assert tasks.is_alive_N.tolist() == [False, False, True]
    assert tasks.retire(rates) == []
    assert tasks.propose({"task": 0}, check=lambda row: True).reason == "proposed before"


def test_what_webrl_keeps_is_the_vector() -> None:
    assert is_worth_posing(np.array([0.02, 0.05, 0.4, 0.75, 0.8])).tolist() == [False, True, True, True, False]


def test_tasks_whose_value_is_out_of_bounds_leave_after_their_first_group() -> None:
    tasks, rates = TaskSet(value_bounds=[0.05, 0.75]), PassRates(1 + 6, prior_trials=0.0)
    for number in range(6):
        tasks.propose({"task": number}, check=lambda row: True)
    passes = [0.02, 0.05, 0.4, 0.75, 0.8]  # the sixth is not played yet
    for place, rate in enumerate(passes):
        rates.record(1 + place, [rate])
    rates.record(0, [1.0])
    assert tasks.retire(rates) == [0, 4]
    assert tasks.is_alive_N.tolist() == [False, True, True, True, False, True]
    assert TaskSet().retire(rates) == []
    unseen = TaskSet(value_bounds=[0.05, 0.4])
    unseen.propose({"task": 0}, check=lambda row: True)
    assert unseen.retire(PassRates(1)) == [], "the prior of 1/2 is no evidence"


def test_a_restored_set_is_the_saved_one() -> None:
    tasks, rates, restored = TaskSet(patience=1), PassRates(2), TaskSet(patience=1)
    for number in range(2):
        tasks.propose({"task": number}, check=lambda row: True)
    rates.record(1, [1.0])
    tasks.retire(rates)
    restored.load_state_dict(tasks.state_dict())
    assert restored.rows == tasks.rows
    assert restored.is_alive_N.tolist() == [True, False]
