"""Hindsight relabelling."""

from __future__ import annotations

import pytest
from samples import sample, turn

from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message
from verl_agentic.graders.groups.hindsight import relabelled
from verl_agentic.rewards.sample import Sample


def describe(episode: Sample) -> str | None:
    final = episode.turns[-1].observations[-1]
    return final.replace("page of", "find") if final.startswith("page of") else None


def shop(task: str, final: str, outcome: float) -> Sample:
    return sample(
        [turn("x", observations=[final], mean_log_prob=-1.0, reward=0.2)],
        prompt=[Message("system", "a shop"), Message("user", task)],
        outcome=outcome,
        parts={"speed": 0.1},
        ground_truth=task,
        id=task,
    )


def test_failures_get_a_copy_for_what_they_did_as_in_the_vector() -> None:
    # V-HER
    failed, solved = shop("buy A", "page of B", 0.0), shop("buy C", "bought C", 1.0)
    rows = relabelled([failed, solved], describe)
    told = [(row.prompt[-1].content, row.env.outcome if row.env else None, "relabelled" in row.extra) for row in rows]
    assert told == [("buy A", 0.0, False), ("find B", 1.0, True), ("buy C", 1.0, False)]
    assert rows[0] is failed and rows[2] is solved


def test_a_copy_keeps_the_actions_and_nothing_that_belongs_to_the_old_task() -> None:
    (_, copy) = relabelled([shop("buy A", "page of B", 0.0)], describe)
    assert copy.id == "buy A/hindsight" and copy.prompt[0] == Message("system", "a shop")
    assert copy.turns[0].text == "x" and copy.turns[0].mean_log_prob is None and copy.turns[0].reward == 0.0
    assert (
        copy.extra["relabelled"] is True
        and copy.ground_truth is None
        and copy.env is not None
        and copy.env.total == 1.0
    )


def test_only_failures_get_a_copy() -> None:
    half = shop("buy A", "page of B", 0.5)
    assert len(relabelled([half], describe)) == 2
    assert len(relabelled([half], describe, solved_at=0.5)) == 1
    assert len(relabelled([shop("find B", "page of B", 1.0)], describe)) == 1


def test_an_episode_that_did_nothing_to_speak_of_gets_no_copy() -> None:
    assert len(relabelled([shop("buy A", "you are lost", 0.0)], describe)) == 1


def test_a_task_whose_answer_is_right_or_wrong_is_refused() -> None:
    with pytest.raises(DataError, match="'sum'"):
        relabelled([sample("3", id="sum", ground_truth="4")], describe)


def test_a_prompt_without_a_task_is_refused() -> None:
    odd = sample([turn("x", observations=["page of B"])], prompt=[Message("system", "a")], outcome=0.0)
    with pytest.raises(DataError, match="user"):
        relabelled([odd], describe)
