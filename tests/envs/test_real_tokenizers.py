"""Bundled environments are fit for the tokenizers of real models, and solutions fit in the budgets of recipes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from real_tokenizers import REAL

from verl_agentic.base.paths import envs_dir, recipes_dir
from verl_agentic.base.settings import read_settings
from verl_agentic.base.types import StopReason
from verl_agentic.cli import main
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.verl.rollout.model_codec import load_codec

ENVS = sorted(path.parent.name for path in envs_dir().glob("*/__init__.py"))
TINY_BUDGETS = {"babyai", "text_game"}
"""Recipes whose budgets are only large enough for the tokenizers of their tiny models."""
RECIPES = sorted({path.parent.name for path in recipes_dir().glob("*/grpo.yaml")} - TINY_BUDGETS - {"sandbox_fusion"})


@pytest.mark.nightly
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("env_id", ENVS)
def test_an_environment_passes_its_validation(
    env_id: str, name: str, real_tokenizer: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["env", "validate", env_id, "--model", str(real_tokenizer(name)), "--count", "4"])
    assert code == 0, capsys.readouterr().out


@pytest.mark.sample(6, slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("recipe", RECIPES)
def test_solutions_fit_in_the_budgets_of_a_recipe(
    recipe: str, name: str, real_tokenizer: Callable[[str], Path]
) -> None:
    config = yaml.safe_load((recipes_dir() / recipe / "grpo.yaml").read_text())
    agentic, data = config["agentic"], config["data"]
    prompt, response = data["max_prompt_length"], data["max_response_length"]
    budgets = {"max_response_tokens": response, "max_context_tokens": prompt + response, "max_retries": 0}
    limits = read_settings(EpisodeLimits, agentic["limits"], section="limits", **budgets)
    package = load_env_package(agentic["env"])
    assert package.make_rows is not None and package.gold is not None
    tokenizer, codec = load_codec(str(real_tokenizer(name)), protocol=agentic.get("protocol", "chat"))
    course, env_config = recipes_dir() / recipe / "course.yaml", agentic.get("env_config", {})
    options = load_course(recipe).options if course.is_file() else {}
    if recipe == "docstrings":  # its embedding model is not on every machine
        env_config["retriever"] = "bm25"
    for row in package.make_rows(split="train", count=8, seed=3, **options):
        setup = scripted(package.gold(row), codec=codec, tokenizer=tokenizer, limits=limits)
        episode = asyncio.run(
            run_episode(
                row,
                make_env=lambda row: package.make_env(row, **env_config),
                setup=setup,
                request_id="r",
            )
        )
        is_solved = episode.reward.outcome == 1.0
        # Rows without a course may need more turns than the recipe allows.
        assert is_solved or episode.stop_reason is StopReason.MAX_TURNS, (episode.stop_reason, episode.error)
        assert len(episode.trajectories[0].prompt_ids) <= prompt
