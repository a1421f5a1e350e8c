"""The recipe of hard tasks with a process reward model: groups of failures are kept, and their turns are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import yaml

from verl_agentic.base.paths import recipe_file
from verl_agentic.credit.advantage import load_advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.estimate import CreditSettings, estimate
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.sampling.curriculum import load_curriculum


@pytest.fixture(scope="module")
def recipe() -> Any:
    return yaml.safe_load(recipe_file("math_rubric", "hard_steps.yaml").read_text())


def test_the_rubric_and_the_curriculum_are_valid_and_no_gate_drops_failures(recipe: Any) -> None:
    rubric = Rubric.from_mapping(recipe["agentic"]["rubric"])
    assert [term.name for term in rubric.terms] == ["math", "prm"]
    load_curriculum(recipe["agentic"]["curriculum"]["name"]).check_options(recipe["agentic"]["curriculum"]["options"])
    assert recipe["agentic"]["sampling"]["gates"] == ["void_groups"]


def test_turns_of_a_group_of_failures_have_an_advantage_by_their_scores(recipe: Any) -> None:
    # Two failed sessions of two turns; the first turns have the scores 0.4 and 0, the second ones 0.1.
    rewards = torch.tensor([[0.4, 0.0, 0.1], [0.0, 0.0, 0.1]])
    batch = CreditBatch.of(rewards=rewards, mask=torch.tensor([[1, 0, 1]] * 2), groups=["g", "g"])
    batch = replace(batch, turn_ids_BT=torch.tensor([[0, 0, 1]] * 2))
    advantages = estimate(load_advantage(recipe["algorithm"]["adv_estimator"]), batch, CreditSettings())
    torch.testing.assert_close(advantages.advantages_BT, torch.tensor([[0.4, 0.0, 0.0], [-0.4, 0.0, 0.0]]))
