"""SPA's progress estimator: values at the ends of turns that sum to the outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from samples import sample, turn

from verl_agentic.base.errors import DataError
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.methods.progress_model import ProgressModel, ProgressTraining, load_progress_model, train_progress
from verl_agentic.rewards.sample import Sample


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny_model(folder, seed=0)
    return folder


def episode(*texts: str) -> Sample:
    return sample([turn(text, observations=["1"]) for text in texts], prompt="2 3")


GOOD, BAD = episode("1 + 2", "2 * 3", "4 + 5"), episode("1 + 2", "2 - 3", "4 + 5")


def test_an_untrained_head_contributes_nothing(tiny: Path) -> None:
    assert ProgressModel(tiny)(GOOD) == [0.0, 0.0, 0.0]


def test_turns_before_the_end_that_is_read_contribute_nothing(tiny: Path) -> None:
    model = ProgressModel(tiny)
    torch.nn.init.ones_(model.head.bias)
    assert model(GOOD) == [1.0, 1.0, 1.0]
    ids, ends = model._encode(GOOD)
    short = ProgressModel(tiny, max_tokens=len(ids) - ends[0] - 1)
    torch.nn.init.ones_(short.head.bias)
    assert short(GOOD) == [0.0, 1.0, 1.0]


@pytest.mark.slow
def test_contributions_sum_to_the_outcome_and_are_at_the_turn_that_decides(tiny: Path, tmp_path: Path) -> None:
    successes = [GOOD, episode("2 * 3"), episode("4 + 5", "2 * 3")]
    failures = [BAD, episode("4 + 5"), episode("2 - 3", "1 + 2")]
    episodes = [*((one, 1.0) for one in successes), *((one, 0.0) for one in failures)]
    model, losses = ProgressModel(tiny), []
    settings = ProgressTraining(steps=80, batch=6, lr=5e-4)
    train_progress(model, episodes, settings, on_step=lambda step, loss: losses.append(loss))
    assert losses[0] == pytest.approx(0.5) and losses[-1] < 0.1
    good, bad = model(GOOD), model(BAD)
    assert (sum(good), sum(bad)) == (pytest.approx(1.0, abs=0.3), pytest.approx(0.0, abs=0.3))
    assert good[0] == pytest.approx(bad[0], abs=1e-5), "a turn does not know the later ones"
    assert sum(good[1:]) - sum(bad[1:]) > 0.6

    model.save(tmp_path)
    assert load_progress_model(str(tmp_path))(GOOD) == pytest.approx(good, abs=1e-5)


def test_equal_outcomes_and_folders_without_a_head_are_refused(tiny: Path) -> None:
    with pytest.raises(DataError, match="got 2 with equal"):
        train_progress(ProgressModel(tiny), [(BAD, 0.0), (BAD, 0.0)], ProgressTraining())
    with pytest.raises(DataError, match="reward progress"):
        load_progress_model(str(tiny))
