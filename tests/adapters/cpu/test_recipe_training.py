"""Every environment's recipe trains: two steps of `main_ppo`, as its second line says, with fewer rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl_runs import Run

from verl_agentic.cli.quickstart.course import load_course
from verl_agentic.data.rows import write_rows
from verl_agentic.data.tiny_model import make_tiny_model
from verl_agentic.diagnostics import load
from verl_agentic.env_package import known_envs, load_env_package
from verl_agentic.paths import recipes_dir

pytestmark = pytest.mark.slow
# The quickstart is the recipe of python_math.
RECIPES = {env: "quickstart" if env == "python_math" else env for env in known_envs()}


@pytest.mark.parametrize("env", RECIPES)
def test_the_recipe_of_an_environment_trains(tmp_path: Path, env: str) -> None:
    steps = _train(tmp_path, env, RECIPES[env])
    assert [step["episode/void"] for step in steps] == [0, 0]


def test_a_rubric_trains_and_its_parts_are_metrics(tmp_path: Path) -> None:
    for step in _train(tmp_path, "python_math", "math_rubric"):
        parts = [name.removeprefix("episode/reward/") for name in step if name.startswith("episode/reward/")]
        assert sorted(parts) == ["math", "overlong", "tool_outcomes", "tool_validity"]
        total = sum(step[f"episode/weighted/{name}"] for name in parts)
        assert step["episode/score"] == pytest.approx(total) == pytest.approx(step["critic/score/mean"], abs=1e-5)
        assert step["episode/scoring/failed"] == 0 and step["episode/acc"] == step["episode/reward/math"]


def _train(tmp_path: Path, env: str, recipe: str) -> list[dict[str, float]]:
    """Returns the metrics of two steps."""
    make_rows = load_env_package(env).make_rows
    assert make_rows is not None
    folder = recipes_dir() / recipe
    options = load_course(folder.name).options if (folder / "course.yaml").is_file() else {}
    make_tiny_model(tmp_path / "model", seed=0)
    write_rows(make_rows(split="train", count=8, seed=0, **options), tmp_path / "rows.jsonl")
    run = Run(tmp_path, config=(folder, "grpo"))
    run.settings = {
        "data.train_batch_size": 4,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.rollout.n": 2,
        "trainer.total_training_steps": 2,
        "trainer.save_freq": -1,
        "trainer.logger": "[file]",
    }
    steps = run.finish()
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        assert step["training/rollout_probs_diff_max"] < 1e-4
        assert step["audit/breaches"] == 0
        assert sum(
            value for name, value in step.items() if name.startswith("time/") and name != "time/validation_s"
        ) == pytest.approx(step["timing_s/step"], rel=1e-3)
    _check_log(tmp_path, steps)
    return steps


def _check_log(folder: Path, steps: list[dict[str, float]]) -> None:
    """Checks that every trajectory is in the log, with what the trainer made of it."""
    frame = load(folder, ["session", "reward", "acc", "paid", "trained_step", "turns", "advantages", "response_mask"])
    for step in steps:
        own = frame[frame.trained_step == step["step"]]
        assert sorted(own.session) == [0] * 4 + [1] * 4
        assert own.reward.mean() == pytest.approx(own.paid.mean()) == pytest.approx(step["critic/score/mean"], abs=1e-5)
        assert own.acc.mean() == pytest.approx(step["episode/acc"])
        assert all(map(len, own.turns)) and all(
            len(a) == len(m) for a, m in zip(own.advantages, own.response_mask, strict=True)
        )
