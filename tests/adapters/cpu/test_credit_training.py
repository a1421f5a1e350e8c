"""Every estimator and every policy loss in verl's own trainer, in one run."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from cycling import IMPLICIT, PLAN, VERLS
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl_runs import make_run

from verl_agentic.cpu.tiny_model import make_tiny_model

HERE = Path(__file__).parent


@pytest.mark.nightly
def test_every_estimator_and_loss_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(VERLS) == {estimator.value for estimator in AdvantageEstimator}
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "cycling")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    run = make_run(tmp_path)
    make_tiny_model(tmp_path / "phi", seed=1)
    run.settings = {
        "trainer.v1.trainer_mode": "agentic_cycling",
        "trainer.total_training_steps": len(PLAN),
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        "agentic.branching.initial": 2,
        "agentic.external_sessions": 1,
        "actor_rollout_ref.actor.calculate_entropy": True,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.0,
        "agentic.implicit_reward": f"{{model_path: {tmp_path / 'phi'}, beta: 0.5, outcome_coef: 2.0}}",
        "actor_rollout_ref.actor.optim.lr": 1e-5,
        "agentic.prompt_information": "{every: 10, prompts: 4, tokens: 8}",
        "critic.enable": True,
        "critic.optim.lr": 1e-4,
        "agentic.length_lr.reference_tokens": 20,
        "+algorithm.gdpo_reward_keys": "[acc, num_turns]",
        "agentic.rubric.components": "[{use: 'cycling:places'}]",
    }
    steps = run.finish()
    assert len(steps) == len(PLAN)
    _check_prompt_information(steps, every=10, prompts=4)
    for step, methods in zip(steps, PLAN, strict=True):
        estimator, loss = methods
        assert math.isfinite(step["actor/pg_loss"]) and math.isfinite(step["actor/grad_norm"]), methods
        assert step["actor/grad_norm"] > 0 and 0 < step["actor/lr_scale"] <= 1, methods
        assert 0 < step["episode/external"] < 1, methods
        assert step["critic/advantages/max"] > step["critic/advantages/min"], methods
        assert loss != "rl_plus" or 0 < step["actor/external_frac"] < 1
        assert ("credit/implicit_reward_mean" in step) == (estimator == IMPLICIT)
        if estimator == IMPLICIT:
            _check_implicit_rewards(step)
    first, second = (step["test/teacher_gap"] for step, (_, loss) in zip(steps, PLAN, strict=True) if loss == "sdpo")
    assert 0 <= first < 1e-6 < second, "the teacher begins as the actor, and lags behind"
    assert [step["actor/sdpo_divergence"] > 0 for step in steps if "actor/sdpo_divergence" in step] == [True]


def _check_prompt_information(steps: list[dict[str, float]], *, every: int, prompts: int) -> None:
    """It is measured when it should be, on rows that the engine computes as it does the batch's own."""
    key = "batch/prompt_information"
    assert [step["step"] for step in steps if key in step] == [step["step"] for step in steps][::every]
    for step in steps[::every]:
        assert step[key] <= math.log(prompts) and step["batch/prompt_retrieval"] <= 1
        assert 0 <= step["test/own_log_prob_gap"] < 1e-3


def _check_implicit_rewards(step: dict[str, float]) -> None:
    """They are made of the log-probs that are stored, those of another model than the policy, and reach estimators."""
    assert abs(step["test/log_ratio_mean"]) > 0.01
    assert step["credit/implicit_reward_mean"] == pytest.approx(0.5 * step["test/log_ratio_mean"], rel=1e-3)
    seen = 0.5 * step["test/log_ratio_sum"] + 2.0 * step["test/score_sum"]
    assert step["credit/rewards_seen"] == pytest.approx(seen, rel=1e-3)
    assert 0 <= step["credit/implicit_accuracy"] <= 1
