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

from verl_agentic.config.recipe_groups import GROUPS, SourcedValue, load_recipe, recipe_names

pytest.importorskip("verl")
SFT = [name for name in recipe_names("system") if load_recipe("system", name).noted("trainer")]
NAMES = {group: [name for name in recipe_names(group) if name not in SFT] for group in GROUPS}
MEGATRON = [name for name in NAMES["scale"] if name.endswith("_megatron")]
# Every file at least once, and every system with Megatron, whose sections have fewer keys.
COMBINATIONS = [
    *itertools.islice(zip(*(itertools.cycle(NAMES[group] or [""]) for group in GROUPS), strict=True), 60),
    *((system, method, MEGATRON[0]) for system, method in zip(NAMES["system"], itertools.cycle(NAMES["method"]))),
]


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


@pytest.mark.parametrize("names", sorted(set(COMBINATIONS)), ids="-".join)
def test_a_run_gets_every_value_of_its_groups(names: tuple[str, ...], tmp_path: Path) -> None:
    values = [
        value for group, name in zip(GROUPS, names, strict=True) if name for value in load_recipe(group, name).values
    ]
    _check(composed(tmp_path, *names), values)


@pytest.mark.parametrize("name", SFT)
def test_a_system_of_supervised_training_composes_with_its_trainer(name: str, tmp_path: Path) -> None:
    recipe = load_recipe("system", name)
    _check(defaults_composed(tmp_path, recipe.noted("trainer"), f"agentic/system: {name}"), recipe.values)


def _check(composed: DictConfig, values: Sequence[SourcedValue]) -> None:
    config = OmegaConf.to_container(composed, resolve=False)
    assert {value.key: _at(config, value) for value in values} == {value.key: value.value for value in values}


def _at(config: Any, value: SourcedValue) -> Any:
    for part in re.findall(r"[^.\[\]]+", value.key):
        config = config[int(part) if isinstance(config, list) else part]
    return config
