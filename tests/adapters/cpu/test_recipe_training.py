"""Recipes train: two steps of `main_ppo` with all bundled environments in one batch, and two with a rubric."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl_runs import Run

from verl_agentic.base.env import EnvRow
from verl_agentic.base.paths import envs_dir, recipes_dir
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import write_rows
from verl_agentic.observe import load

pytestmark = pytest.mark.slow
SDK_AGENT = Path(__file__).parents[2] / "bridges" / "harness" / "sdk_agent.py"
RANK = Path(__file__).parents[2] / "rewards" / "scorer_components.py"


def test_rows_of_every_environment_train_in_one_run(tmp_path: Path) -> None:
    # The prompts of swe_edit hold parts of files, those of support_desk a policy. tests/cli/test_swe_recipes.py trains
    # on the former. Bridges have tests of their own.
    envs = sorted({path.parent.name for path in envs_dir().glob("*/__init__.py")} - {"swe_edit", "support_desk"})
    rows = [row for env in envs for row in _rows(env, count=2, **_course_options(env))]
    # Prompts of security hold a program; verl leaves out rows with longer prompts.
    lengths = {"data.max_prompt_length": 2048, "data.max_response_length": 256}
    steps = _train(
        tmp_path,
        recipes_dir() / "code_tests",
        rows,
        **{"agentic.env": "null", "data.train_batch_size": len(rows), **lengths},
    )
    assert [step["episode/void"] for step in steps] == [0, 0]
    _check_log(tmp_path, steps, groups=len(rows))
    frame = load(tmp_path, ["env", "reward", "paid"])
    assert set(frame.env) == set(envs) and frame.reward.tolist() == pytest.approx(frame.paid.tolist())


@pytest.mark.nightly
def test_a_rubric_that_ranks_groups_trains_and_its_parts_are_metrics(tmp_path: Path) -> None:
    recipe = OmegaConf.load(recipes_dir() / "math_rubric" / "grpo.yaml")
    recipe.agentic.rubric.components.append({"use": f"{RANK}:rank", "weight": 0.4})
    OmegaConf.save(recipe, tmp_path / "grpo.yaml")
    rows = _rows("python_math", count=8)
    steps = _train(tmp_path, tmp_path, rows, **{"actor_rollout_ref.rollout.n": 4})
    for step in steps:
        parts = [name.removeprefix("episode/reward/") for name in step if name.startswith("episode/reward/")]
        assert sorted(parts) == ["math", "overlong", "rank", "tool_outcomes", "tool_validity"]
        total = sum(step[f"episode/weighted/{name}"] for name in parts)
        assert step["episode/score"] == pytest.approx(total) == pytest.approx(step["critic/score/mean"], abs=1e-5)
        assert step["episode/scoring/failed"] == 0 and step["episode/acc"] == step["episode/reward/math"]
        # Ranks of four are 0, 1/3, 2/3 and 1, known before the advantages are computed.
        assert step["episode/reward/rank"] == pytest.approx(0.5)


@pytest.mark.nightly
def test_an_agent_of_the_openai_agents_sdk_trains_behind_the_gateway(tmp_path: Path) -> None:
    pytest.importorskip("agents")
    recipe = OmegaConf.load(recipes_dir() / "gateway" / "grpo.yaml")
    recipe.agentic.env_config.agent = f"{SDK_AGENT}:run"
    OmegaConf.save(recipe, tmp_path / "grpo.yaml")
    rows = _rows("harness", count=4)
    steps = _train(tmp_path, tmp_path, rows, **{"data.max_prompt_length": 256, "data.max_response_length": 256})
    assert [step["episode/void"] for step in steps] == [0, 0]
    assert all(step["episode/tools_offered"] == 1 for step in steps)
    _check_log(tmp_path, steps, groups=4)
    assert set(load(tmp_path, ["env"]).env) == {"harness"}


def _rows(env: str, *, count: int, **options: Any) -> list[EnvRow]:
    make_rows = load_env_package(env).make_rows
    assert make_rows is not None
    rows = make_rows(split="train", count=count, seed=0, **options)
    return [replace(row, extra={**row.extra, "env": env}) for row in rows]


def _course_options(env: str) -> dict[str, Any]:
    folder = recipes_dir() / env
    return load_course(env).options if (folder / "course.yaml").is_file() else {}


def _train(tmp_path: Path, recipe: Path, rows: list[EnvRow], **settings: Any) -> list[dict[str, float]]:
    """Returns the metrics of two steps."""
    make_tiny_model(tmp_path / "model", seed=0)
    write_rows(rows, tmp_path / "rows.jsonl")
    run = Run(tmp_path, config=(recipe, "grpo"))
    run.settings = {
        "data.train_batch_size": 4,
        "actor_rollout_ref.actor.ppo_mini_batch_size": "${data.train_batch_size}",
        "actor_rollout_ref.rollout.n": 2,
        "trainer.total_training_steps": 2,
        "trainer.save_freq": -1,
        "trainer.logger": "[file]",
        **settings,
    }
    steps = run.finish()
    assert [step["step"] for step in steps] == [1, 2]
    # One poll at most is waited for when the batch is ready: the interval bounds the wait. That it is the one of the
    # YAML is shown by tests/adapters/replay_buffer/test_episode_buffer.py.
    shared = OmegaConf.load(str(files("verl_agentic.config").joinpath("agentic/one_device.yaml")))
    assert shared.agentic.sampling.poll_interval_s / steps[-1]["timing_s/step"] < 0.15
    for step in steps:
        assert step["training/rollout_probs_diff_max"] < 1e-4
        assert step["audit/breaches"] == 0
        assert sum(value for name, value in step.items() if name.startswith("episode/stop/")) == pytest.approx(1)
        assert sum(
            value for name, value in step.items() if name.startswith("time/") and name != "time/validation_s"
        ) == pytest.approx(step["timing_s/step"], rel=1e-3)
    return steps


def _check_log(folder: Path, steps: list[dict[str, float]], *, groups: int) -> None:
    """Checks that every trajectory is in the log, with what the trainer made of it."""
    frame = load(folder, ["session", "acc", "paid", "trained_step", "turns", "advantages", "response_mask"])
    for step in steps:
        own = frame[frame.trained_step == step["step"]]
        assert sorted(own.session) == sorted([0, 1] * groups)
        assert own.paid.mean() == pytest.approx(step["critic/score/mean"], abs=1e-5)
        assert own.acc.mean() == pytest.approx(step["episode/acc"])
        assert all(map(len, own.turns)) and all(
            len(a) == len(m) for a, m in zip(own.advantages, own.response_mask, strict=True)
        )
