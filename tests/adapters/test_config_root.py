"""Users write below `agentic`; every value arrives where verl, and the readers of sections, look for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

pytest.importorskip("verl")

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.config_root import PLUGIN, ROOT, place_of, prepare, root_key
from verl_agentic.verl.extensions.preflight.compose import compose
from verl_agentic.verl.reward.reward_features import VERLS_WORKERS
from verl_agentic.verl.sections import AGENTIC

_RECIPE = """
hydra:
  searchpath: [pkg://verl_agentic.config]
defaults:
  - ppo_trainer
  - agentic/plugin
  - _self_
"""
_VERLS: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"policy_loss": {"loss_mode": "vanilla"}},
        "rollout": {"agent": {"default_agent_loop": "single_turn_agent"}, "custom": None},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "critic": {"enable": None},
    "reward": {"reward_manager": {"name": "naive", "source": "register"}, "custom_reward_function": {"path": None}},
    "trainer": {"v1": {"trainer_mode": "sync", "sampler": {"custom_sampler": {"path": None}, "sampler_kwargs": {}}}},
}


def config_of(root: Any, **verls: Any) -> DictConfig:
    config = OmegaConf.create({**_VERLS, ROOT: root})
    for key, value in verls.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    OmegaConf.set_struct(config, True)
    return config


def leaves(tree: Mapping[str, Any], key: str = "") -> Iterator[str]:
    for name, inner in tree.items():
        place = f"{key}.{name}".lstrip(".")
        yield from leaves(inner, place) if isinstance(inner, Mapping) else [place]


@pytest.mark.slow
def test_the_command_line_takes_every_declared_key_and_puts_it_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RECIPE)
    declared: Any = OmegaConf.to_container(OmegaConf.load(PLUGIN), resolve=False)
    keys = [f"{ROOT}.{key}" for key in leaves(declared[ROOT])]
    assert len(keys) > 90
    config = compose(tmp_path, "run", [f"{key}=text{number}" for number, key in enumerate(keys)]).config
    raw: Any = OmegaConf.to_container(config, resolve=False)
    assert ROOT not in raw
    assert len({place_of(key) for key in keys}) == len(keys)
    for number, key in enumerate(keys):
        assert OmegaConf.select(config, place_of(key)) == f"text{number}", key
        assert root_key(place_of(key)) == key


def test_a_run_that_sets_no_key_has_only_verls_configuration(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RECIPE)
    composed = compose(tmp_path, "run", [])
    custom = composed.plain["actor_rollout_ref"]["rollout"].pop("custom")
    composed.defaults["actor_rollout_ref"]["rollout"].pop("custom", None)
    assert custom == {"agentic": {"required": "plugin"}} and composed.chosen == ()
    assert composed.plain == composed.defaults


def test_free_keys_and_sections_may_be_appended_and_unknown_ones_may_not(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RECIPE)
    overrides = ["agentic.credit.options={gamma: 0.9}", "+agentic.env_config.top_k=1", "agentic.rubric=rubric.yaml"]
    config = compose(tmp_path, "run", overrides).config
    assert config.algorithm.credit == {"options": {"gamma": 0.9}}
    assert OmegaConf.select(config, f"{AGENTIC}.env_config") == {"top_k": 1}
    assert config.reward.rubric == "rubric.yaml"
    with pytest.raises(ConfigError, match=r"agentic\.limits\.max_turn"):
        compose(tmp_path, "run", ["agentic.limits.max_turn=4"])


def test_sections_are_set_as_far_as_their_keys_are() -> None:
    config = config_of(
        {"limits": {"max_turns": 4, "max_retries": "???"}, "compaction": {"strategy": "???"}, "branching": {}}
    )
    prepare(config)
    assert OmegaConf.select(config, AGENTIC) == {"limits": {"max_turns": 4}, "branching": {}}
    assert ROOT not in config


def test_verls_places_may_be_written_directly_and_beside_the_root() -> None:
    places = {"limits": {"max_turns": 4, "max_retries": 0}}
    config = config_of({"limits": {"max_turns": 4}, "env": "x"}, actor_rollout_ref__rollout__custom={"agentic": places})
    prepare(config)
    assert OmegaConf.select(config, AGENTIC) == {**places, "env": "x"}
    prepare(before := config.copy())
    assert before == config


def test_different_values_at_both_places_are_refused_with_both_paths() -> None:
    custom = {"agentic": {"limits": {"max_turns": 3}}}
    with pytest.raises(ConfigError, match=r"agentic\.limits\.max_turns"):
        prepare(config_of({"limits": {"max_turns": 4}}, actor_rollout_ref__rollout__custom=custom))


@pytest.mark.parametrize("root", [{"limts": {}}, 3, ["a"]])
def test_a_root_that_cannot_be_moved_is_refused(root: Any) -> None:
    with pytest.raises(ConfigError, match=r"agentic"):
        prepare(config_of(root))


def test_interpolations_to_the_root_follow_it() -> None:
    root = {"limits": {"max_turns": 4}, "env_config": {"turns": "${agentic.limits.max_turns}", "odd.key": 1}}
    config = config_of(root, trainer__names=["run of ${agentic.limits.max_turns} turns", "${trainer.v1.trainer_mode}"])
    prepare(config)
    assert list(config.trainer.names) == ["run of 4 turns", "sync"]
    assert OmegaConf.select(config, f"{AGENTIC}.env_config") == {"turns": 4, "odd.key": 1}


def test_configurations_without_the_root_stay_as_they_are() -> None:
    for config in (OmegaConf.create({"trainer": {"device": "cpu"}}), OmegaConf.create({})):
        before = config.copy()
        assert prepare(config) == [] and config == before


_LOOP = "actor_rollout_ref__rollout__agent__default_agent_loop"
_SHUFFLED = {"data__shuffle": True}
_CURRICULUM = {"curriculum": {"name": "learnability"}}


@pytest.mark.parametrize(
    ("root", "verls", "chosen"),
    [
        ({"env": "x"}, {}, ["actor_rollout_ref.rollout.agent.default_agent_loop=env_agent (agentic.env)"]),
        ({"env": "x"}, {"actor_rollout_ref__rollout__agent__default_agent_loop": "tool_agent"}, []),
        ({"rubric": "r.yaml"}, {}, ["reward.reward_manager.name=rubric (agentic.rubric)"]),
        ({"rubric": "r.yaml"}, {"reward__reward_manager__name": "rubric"}, []),
        (
            {"rubric": "r.yaml"},
            {"reward__reward_manager__name": "rubric", "reward__num_workers": 8},
            ["reward.num_workers=1 (agentic.rubric)"],
        ),
        ({"rubric": "r.yaml"}, {"reward__reward_manager__name": "rubric", "reward__num_workers": 4}, []),
        ({"env": None}, {"reward__num_workers": 8}, []),
        ({"sampling": {"poll_interval_s": 0.1}}, {}, []),
        (
            {"sampling": {"poll_interval_s": 0.1, "replay": {"capacity": 4}}},
            {},
            [
                "trainer.v1.sampler.custom_sampler.path=pkg://verl_agentic.verl.replay_buffer.gated_buffer "
                "(agentic.sampling.replay)",
                "trainer.v1.sampler.custom_sampler.name=GatedReplayBuffer (agentic.sampling.replay)",
            ],
        ),
        ({"sampling": {"gates": []}}, {}, []),
        (
            {"sampling": {"gates": [], "keep_surplus": 1}},
            {},
            [
                "trainer.v1.sampler.custom_sampler.path=pkg://verl_agentic.verl.replay_buffer.gated_buffer "
                "(agentic.sampling.keep_surplus)",
                "trainer.v1.sampler.custom_sampler.name=GatedReplayBuffer (agentic.sampling.keep_surplus)",
            ],
        ),
        ({"sampling": {"gates": ["mine"]}}, {"trainer__v1__sampler__custom_sampler__path": "mine.py"}, []),
        ({"credit": {"clip": 5}}, {}, []),
        (
            {"env": "x"},
            {
                "actor_rollout_ref__rollout__agent__default_agent_loop": "env_agent",
                "data__val_max_samples": 8,
                **_SHUFFLED,
            },
            ["data.seed=1 (data.val_max_samples)"],
        ),
        (
            {"curriculum": {"name": "learnability"}},
            {"data__train_max_samples": 8, **_SHUFFLED},
            ["data.seed=1 (data.train_max_samples)"],
        ),
        (_CURRICULUM, {"data__train_max_samples": 8, "data__seed": 0, **_SHUFFLED}, []),
        (_CURRICULUM, {"data__train_max_samples": 8, "data__shuffle": False}, []),
        (_CURRICULUM, {}, []),
        ({}, {"data__train_max_samples": 8, **_SHUFFLED}, []),
        ({"policy_loss": {"per_session": False}}, {}, []),
    ],
)
def test_what_a_feature_needs_is_chosen_where_verls_default_is(root: Any, verls: Any, chosen: list[str]) -> None:
    assert prepare(config_of(root, **verls)) == chosen


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
@pytest.mark.parametrize(
    ("root", "verls", "reason"),
    [
        ({"length_lr": {"reference_tokens": 64}}, {}, "agentic.length_lr"),
        ({"guidance": True}, {}, "agentic.guidance"),
        ({"policy_loss": {"per_session": True}}, {}, "agentic.policy_loss.per_session"),
        ({"critic": {"target": {"tau": 0.1}}}, {}, "agentic.critic.target"),
        ({}, {"algorithm__adv_estimator": "gigpo"}, "algorithm.adv_estimator=gigpo"),
        ({}, {"algorithm__adv_estimator": "remax"}, "algorithm.adv_estimator=remax"),
        (
            {},
            {"actor_rollout_ref__actor__policy_loss__loss_mode": "pacs"},
            "actor_rollout_ref.actor.policy_loss.loss_mode=pacs",
        ),
    ],
)
def test_the_trainer_that_a_feature_needs_is_that_of_the_users_mode(
    mode: str, root: Any, verls: Any, reason: str
) -> None:
    config = config_of(root, **verls, trainer__v1__trainer_mode=mode)
    assert prepare(config) == [f"trainer.v1.trainer_mode=agentic_{mode} ({reason})"]
    assert config.trainer.v1.trainer_mode == f"agentic_{mode}"
    assert prepare(config) == []


@pytest.mark.parametrize(
    "verls",
    [
        {"reward__reward_manager__name": "dapo"},
        {"reward__reward_manager__source": "importlib"},
        {"reward__custom_reward_function__path": "score.py"},
    ],
)
def test_a_rubric_beside_another_reward_manager_is_refused(verls: Any) -> None:
    with pytest.raises(ConfigError, match=r"reward\.rubric"):
        prepare(config_of({"rubric": "r.yaml"}, **verls))


def test_a_rubric_leaves_one_of_verls_reward_workers(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RECIPE)
    rubric = "agentic.rubric={components: [{use: env}]}"
    assert compose(tmp_path, "run", []).config.reward.num_workers == VERLS_WORKERS, "verl's default"
    assert compose(tmp_path, "run", [rubric]).config.reward.num_workers == 1
    assert compose(tmp_path, "run", [rubric, "reward.num_workers=3"]).config.reward.num_workers == 3


def test_a_choice_whose_configuration_does_not_resolve_is_left_to_verl() -> None:
    config = config_of({"env": "${nowhere}", "rubric": "r.yaml"})
    assert prepare(config) == ["reward.reward_manager.name=rubric (agentic.rubric)"]


def test_the_run_of_the_readme_composes_with_its_command_line(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    recipe = next(block for block in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL) if "agentic/plugin" in block)
    (tmp_path / "my_run.yaml").write_text(recipe)
    composed = compose(tmp_path, "my_run", ["agentic.limits.max_turns=6"])
    assert OmegaConf.select(composed.config, AGENTIC).limits == {"max_turns": 6, "turn_timeout_s": 120}
    assert all(f"# verl_agentic chose {chosen}\n" in readme for chosen in composed.chosen) and composed.chosen
