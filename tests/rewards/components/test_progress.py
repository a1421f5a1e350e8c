"""Stepwise progress attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from samples import call, graded, sample, turn, value

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.base.types import Reward
from verl_agentic.graders.components import progress as module
from verl_agentic.graders.components.progress import progress
from verl_agentic.graders.turns.turn_progress import fused, renormalised, squared_error
from verl_agentic.rewards.sample import Sample

# V-SPA
CONTRIBUTIONS = [0.1, 0.35, 0.05, 0.4]
EPISODE = sample([turn("", call()), turn("", call()), turn("", call(error_kind="unknown_tool")), turn("", call())])


def test_the_fused_reward_is_that_of_the_vector() -> None:
    assert fused(CONTRIBUTIONS, [True, True, False, True]) == pytest.approx([0.6, 0.85, 0.05, 0.9])
    assert squared_error(CONTRIBUTIONS, 1.0) == pytest.approx(0.01)
    assert renormalised(CONTRIBUTIONS, 1.0) == pytest.approx([0.111111, 0.388889, 0.055556, 0.444444], abs=1e-6)
    assert renormalised([0.0, 0.0], 1.0) == [0.5, 0.5] and renormalised([], 1.0) == []


def estimate(episode: Sample) -> Sequence[float]:
    return CONTRIBUTIONS


def estimate_exactly(episode: Sample) -> Sequence[float]:
    assert episode.env is not None
    return renormalised(CONTRIBUTIONS, episode.env.outcome)


def estimate_too_few(episode: Sample) -> Sequence[float]:
    return CONTRIBUTIONS[:2]


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    for estimator in (estimate, estimate_exactly, estimate_too_few):
        monkeypatch.setattr(module, estimator.__name__, estimator, raising=False)


NAME = f"{module.__name__}:estimate"


def test_each_turn_earns_its_fused_reward() -> None:
    verdict = graded(progress, EPISODE, estimator=NAME, cap=3.0)
    assert verdict.turns == pytest.approx({0: 0.6, 1: 0.85, 2: 0.05, 3: 0.9})
    assert verdict.value == pytest.approx(2.4) and verdict.info == {"grounded_share": 0.75}


def test_the_sum_is_scaled_down_to_the_cap() -> None:
    verdict = graded(progress, EPISODE, estimator=NAME)
    assert verdict.value == pytest.approx(1.0)
    assert verdict.turns[1] == pytest.approx(0.85 / 2.4)
    assert value(progress, EPISODE, estimator=NAME, alpha=-10.0, cap=0.5) == pytest.approx(-0.5)


def test_an_estimator_may_make_its_contributions_add_up_to_the_outcome() -> None:
    won = replace(EPISODE, env=Reward(1.0))
    verdict = graded(progress, won, estimator=f"{NAME}_exactly", beta=0.0)
    assert verdict.turns == pytest.approx({0: 0.111111, 1: 0.388889, 2: 0.055556, 3: 0.444444}, abs=1e-6)
    assert value(progress, replace(EPISODE, env=Reward(0.0)), estimator=f"{NAME}_exactly", beta=0.0) == 0.0


def test_the_loss_of_an_estimator_has_the_gradient_of_its_error() -> None:
    learnt = torch.tensor(CONTRIBUTIONS, dtype=torch.float64, requires_grad=True)
    loss = torch.as_tensor(squared_error(learnt, 1.0))  # type: ignore[arg-type]
    loss.backward()
    assert learnt.grad is not None and learnt.grad.tolist() == pytest.approx([-0.2] * 4)  # 2 * (0.9 - 1)


def test_a_turn_without_a_call_is_not_grounded() -> None:
    talk = sample(["a", "b", "c", "d"])
    assert graded(progress, talk, estimator=NAME).turns == pytest.approx(dict(enumerate(CONTRIBUTIONS)))


def test_an_estimator_that_is_none_or_miscounts_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no_such_module"):
        progress.make({"estimator": "no_such_module:f"})
    with pytest.raises(ScoringError, match="got 2"):
        value(progress, EPISODE, estimator=f"{NAME}_too_few")
