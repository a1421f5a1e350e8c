"""A run that combines groups gets each value at its key, in verl's configuration with its struct mode."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from verl_agentic.config.recipe_groups import GROUPS, Recipe, SourcedValue, load_recipe, recipe_names

pytest.importorskip("verl")
SFT = [name for name in recipe_names("system") if load_recipe("system", name).noted("trainer")]
NAMES = {group: [name for name in recipe_names(group) if name not in SFT] for group in GROUPS}
# Every file at least once.
COMBINATIONS = list(
    itertools.islice(zip(*(itertools.cycle(names or [""]) for names in NAMES.values()), strict=True), 40)
)
FSDP_ONLY = {
    "system/rlvrr": ["actor_rollout_ref.actor.optim.lr_scheduler_type", "actor_rollout_ref.actor.optim.min_lr_ratio"],
}
"""Systems that set keys which Megatron's sections do not have."""


def composed(folder: Path, *names: str) -> DictConfig:
    """Returns the configuration of a run with files of the groups; an empty name leaves the group out."""
    chosen = {group: name for group, name in zip(GROUPS, names, strict=True) if name}
    base = next((load_recipe(*pair).noted("base") for pair in chosen.items() if load_recipe(*pair).noted("base")), "")
    groups = [f"agentic/{group}: {name}" for group, name in chosen.items()]
    return defaults_composed(folder, "ppo_trainer", base or "agentic/plugin", *groups)


def defaults_composed(folder: Path, *defaults: str) -> DictConfig:
    (folder / "my_run.yaml").write_text(f"defaults: [{', '.join(defaults)}, _self_]\n")
    search = "hydra.searchpath=[pkg://verl.trainer.config,pkg://verl_agentic.config]"
    with initialize_config_dir(str(folder), version_base=None):
        return compose("my_run", overrides=[search])


@pytest.mark.sample(1, slow=8)
@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
def test_a_run_gets_every_value_of_its_groups(names: tuple[str, ...], tmp_path: Path) -> None:
    values = [
        value for group, name in zip(GROUPS, names, strict=True) if name for value in load_recipe(group, name).values
    ]
    _check(composed(tmp_path, *names), values)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SFT)
def test_a_system_of_supervised_training_composes_with_its_trainer(name: str, tmp_path: Path) -> None:
    recipe = load_recipe("system", name)
    _check(defaults_composed(tmp_path, recipe.noted("trainer"), f"agentic/system: {name}"), recipe.values)


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the configurations without groups, by their trainer."""
    starts = {
        "ppo_trainer": ["ppo_trainer", "agentic/plugin"],
        "ppo_megatron_trainer": ["ppo_megatron_trainer", "agentic/plugin"],
        "sft_trainer_engine": ["sft_trainer_engine", "agentic/cpu_sft"],
    }
    folder = tmp_path_factory.mktemp("declared")
    return {
        name: OmegaConf.to_container(defaults_composed(folder, *start), resolve=False) for name, start in starts.items()
    }


@pytest.mark.slow
def test_every_key_is_one_of_verl_or_of_the_plugin(declared: dict[str, Any]) -> None:
    for recipe in (load_recipe(group, name) for group in GROUPS for name in recipe_names(group)):
        engine = "ppo_megatron_trainer" if recipe.value("model_engine") == "megatron" else "ppo_trainer"
        assert not _undeclared(recipe, declared[recipe.noted("trainer") or engine]), recipe.name


def test_systems_and_methods_go_with_megatron(declared: dict[str, Any]) -> None:
    recipes = [load_recipe(group, name) for group in ("system", "method") for name in NAMES[group]]
    missing = {
        f"{recipe.group}/{recipe.name}": _undeclared(recipe, declared["ppo_megatron_trainer"]) for recipe in recipes
    }
    assert {name: keys for name, keys in missing.items() if keys} == FSDP_ONLY


def _undeclared(recipe: Recipe, config: Any) -> list[str]:
    return [value.key for value in recipe.values if not _has(config, re.findall(r"[^.\[\]]+", value.key))]


def _has(config: Any, parts: Sequence[str]) -> bool:
    """Returns whether a configuration has a key; sections without keys of their own take any."""
    if not parts or not isinstance(config, dict) or not config:
        return True
    return parts[0] in config and _has(config[parts[0]], parts[1:])


def _check(composed: DictConfig, values: Sequence[SourcedValue]) -> None:
    config = OmegaConf.to_container(composed, resolve=False)
    assert {value.key: _at(config, value) for value in values} == {value.key: value.value for value in values}


def _at(config: Any, value: SourcedValue) -> Any:
    for part in re.findall(r"[^.\[\]]+", value.key):
        config = config[int(part) if isinstance(config, list) else part]
    return config


@pytest.mark.slow
def test_long_horizons_have_a_small_learning_rate_that_falls(tmp_path: Path) -> None:
    plain, long = (
        defaults_composed(tmp_path, "ppo_trainer", name) for name in ("agentic/plugin", "agentic/long_horizon")
    )
    rates = [config.actor_rollout_ref.actor.optim.lr for config in (plain, long)]
    assert rates == [1e-6, 5e-7] and long.agentic.linear_lr.min_ratio == 0.1
    assert long.actor_rollout_ref.actor.optim.lr_scheduler_type == "constant", "as agentic.linear_lr needs"


_OWN = {
    "ppo_trainer": """
actor_rollout_ref: {model: {enable_gradient_checkpointing: true}, actor: {use_dynamic_bsz: false}}
critic: {model: {enable_gradient_checkpointing: true}}
trainer: {logger: [file]}
""",
    "sft_trainer_engine": """
model: {enable_gradient_checkpointing: true}
data: {num_workers: 2, use_dynamic_bsz: true, custom_cls: {name: Mine}}
checkpoint: {save_contents: [model]}
trainer: {logger: [file]}
""",
}
"""Values of recipes that do not depend on the device."""


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("trainer", "base", "group"),
    [("ppo_trainer", "agentic/tiny", "one_gpu"), ("sft_trainer_engine", "agentic/tiny_sft", "one_gpu_sft")],
)
def test_a_recipe_that_moves_to_a_gpu_changes_nothing_but_device_and_types(
    trainer: str, base: str, group: str, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text("# @package _global_" + _OWN[trainer])
    before, after = (
        dict(_leaves(OmegaConf.to_container(defaults_composed(tmp_path, trainer, base, "own", *more), resolve=False)))
        for more in ((), (f"agentic/{group}",))
    )
    changed = {key.rsplit(".", 1)[-1] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    types, kernels = {"dtype", "param_dtype"}, {"use_fused_kernels", "impl_backend"}
    assert changed <= {"device", "backend", "free_cache_engine", "num_gpus"} | types | kernels
    assert {"device", *types} <= changed


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    if not isinstance(node, dict) or not node:
        return [(path, node)]
    return [leaf for name, inner in node.items() for leaf in _leaves(inner, f"{path}.{name}")]
