"""The recipes of StarPO and StarPO-S: the numbers that they resolve to, and that preflight lets them start."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from verl_agentic.base.errors import DataError
from verl_agentic.base.paths import recipes_dir
from verl_agentic.base.settings import read_settings
from verl_agentic.checks.preflight.result import judge
from verl_agentic.data.prepare import make_rows, to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.verl.extensions.preflight.compose import compose
from verl_agentic.verl.extensions.preflight.plan_run import plan
from verl_agentic.verl.replay_buffer.gate_options import GateOptions

FOLDER = recipes_dir() / "text_game"
TEXT_GAME = load_env_package("text_game")
NAMES = ("starpo", "starpo_s")
# As the recipe's README makes them.
LEVELS = {"game": "sokoban", "coordinates": True, "max_moves": 10, "actions_per_turn": 2}


@functools.cache
def resolved(name: str) -> dict[str, Any]:
    return compose(FOLDER, name, ["actor_rollout_ref.model.path=MODEL"]).plain


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
def test_both_have_the_public_numbers(name: str) -> None:
    config = resolved(name)
    actor, rollout = config["actor_rollout_ref"]["actor"], config["actor_rollout_ref"]["rollout"]
    assert (config["data"]["train_batch_size"], rollout["n"]) == (8, 16)
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["entropy_coeff"]) == (0.2, 0.28, 0.001)
    assert actor["use_kl_loss"] is config["algorithm"]["use_kl_in_reward"] is False
    agentic = rollout["custom"]["agentic"]
    assert (agentic["protocol"], agentic["limits"]["max_turns"]) == ("ragen", 5)
    (row,) = make_rows(TEXT_GAME, split="train", count=1, seed=0, options={**LEVELS, "actions_per_turn": 3})
    with pytest.raises(DataError, match="got 3"):
        TEXT_GAME.make_env(row, **agentic["env_config"])
    rubric = Rubric.from_config(config["reward"])
    penalty = next(term for term in rubric.terms if term.name == "format_penalty")
    assert penalty.component.options["failure"] == 0.1 and penalty.component.low == -0.5


def test_starpo_compares_trajectories_without_a_critic() -> None:
    config = resolved("starpo")
    assert config["algorithm"]["adv_estimator"] == "grpo" and not config["critic"]["enable"]
    assert config["trainer"]["v1"]["sampler"]["custom_sampler"]["name"] is None


@pytest.mark.slow
def test_starpo_s_adds_a_critic_and_keeps_the_groups_that_differ_most() -> None:
    config = resolved("starpo_s")
    assert config["algorithm"]["adv_estimator"] == "gae" and config["critic"]["enable"]
    assert config["critic"]["model"]["path"] == "MODEL"
    sampler = config["trainer"]["v1"]["sampler"]
    assert sampler["custom_sampler"]["name"] == "GatedReplayBuffer"
    gates = read_settings(GateOptions, sampler["sampler_kwargs"], section="sampler_kwargs").gates
    assert [(gate.name, dict(gate.options)) for gate in gates] == [("void_groups", {}), ("top_p_signal", {"p": 0.9})]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
def test_preflight_lets_them_start(
    name: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    rows = make_rows(TEXT_GAME, split="train", count=16, seed=0, options=LEVELS)
    records = to_records(rows, env_id="text_game", split="train", agent_name="env_agent")
    write_parquet(records, tmp_path / "rows.parquet")
    files = [f"data.{split}_files={tmp_path / 'rows.parquet'}" for split in ("train", "val")]
    run = plan(
        FOLDER,
        name,
        [f"actor_rollout_ref.model.path={tiny_model}", *files, f"trainer.default_local_dir={tmp_path}/out"],
    )
    assert [result for result in judge(run) if result.status == "fail"] == []
    assert [trial.outcome for trial in run.gold] == [1.0, 1.0]
    assert run.prompt is not None and "</think><answer>" in run.prompt.text
