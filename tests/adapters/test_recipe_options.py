"""Options of a method's estimator or loss are not those of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl")

from verl_agentic.base.errors import ConfigError
from verl_agentic.config.recipe_groups import load_recipe, recipe_names
from verl_agentic.verl.engine.engine_features import policy_loss_options
from verl_agentic.verl.extensions.preflight.compose import Composed, compose
from verl_agentic.verl.trainer.trainer_features import credit_settings

OWN = """
from verl_agentic import Loss, advantage, policy_loss

@advantage()
def mine(batch, *, scale: float = 1.0, gamma: float = 1.0):
    return batch.to_tokens(scale * batch.outcomes_S)

@policy_loss()
def pulled(batch, *, coef: float = 0.1):
    return Loss(per_token_BT=-batch.advantages_BT * batch.log_prob_BT)
"""
LOSS = "actor_rollout_ref.actor.policy_loss"
WITH_OPTIONS = {
    kind: [
        name
        for name in recipe_names("method")
        if any(value.key.startswith(f"agentic.{kind}.options") for value in load_recipe("method", name).values)
    ]
    for kind in ("credit", "policy_loss")
}


def composed_of(folder: Path, method: str, *overrides: str, more: str = "") -> Composed:
    (folder / "mine.py").write_text(OWN)
    (folder / "run.yaml").write_text(
        "hydra: {searchpath: [pkg://verl_agentic.config]}\n"
        f"defaults: [ppo_trainer, agentic/plugin, agentic/method: {method}, _self_]\n{more}\n"
    )
    return compose(folder, "run", overrides)


def options_of(composed: Composed, place: str) -> Any:
    return OmegaConf.to_container(OmegaConf.select(composed.config, place))


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", WITH_OPTIONS["credit"])
def test_another_estimator_gets_no_option_of_the_methods_and_the_log_says_so(method: str, tmp_path: Path) -> None:
    place, mine = "algorithm.credit.options", f"algorithm.adv_estimator={tmp_path}/mine.py:mine"
    assert options_of(composed_of(tmp_path, method), place)
    composed = composed_of(tmp_path, method, mine)
    assert dict(credit_settings(composed.config).options) == {}
    owner = load_recipe("method", method).value("algorithm.adv_estimator")
    assert any(f"the others are {owner}'s, of the method {method}" in choice for choice in composed.chosen)
    composed = composed_of(tmp_path, method, mine, "+agentic.credit.options.scale=0.5")
    assert dict(credit_settings(composed.config).options) == {"scale": 0.5}


@pytest.mark.parametrize("method", WITH_OPTIONS["policy_loss"])
def test_another_loss_gets_no_option_of_the_methods(method: str, tmp_path: Path) -> None:
    mine = f"{LOSS}.loss_mode={tmp_path}/mine.py:pulled"
    composed = composed_of(tmp_path, method, mine, "+agentic.policy_loss.options.coef=0.2")
    assert policy_loss_options(composed.config) == {"coef": 0.2}


def test_the_methods_estimator_keeps_its_options_and_those_of_the_user(tmp_path: Path) -> None:
    composed = composed_of(tmp_path, "gigpo", "agentic.credit.options.gamma=0.9")
    assert options_of(composed, "algorithm.credit.options") == {"gamma": 0.9, "omega": 1.0, "norm": "mean_std"}


@pytest.mark.parametrize("place", ["file", "line", "mapping"])
def test_an_option_of_the_user_stays_also_where_it_has_the_methods_value(place: str, tmp_path: Path) -> None:
    gamma = load_recipe("method", "gigpo").value("agentic.credit.options.gamma")
    more = f"agentic: {{credit: {{options: {{gamma: {gamma}}}}}}}" if place == "file" else ""
    line = {
        "line": [f"agentic.credit.options.gamma={gamma}"],
        "mapping": [f"agentic.credit.options={{gamma: {gamma}}}"],
    }
    mine = f"algorithm.adv_estimator={tmp_path}/mine.py:mine"
    composed = composed_of(tmp_path, "gigpo", mine, *line.get(place, []), more=more)
    assert dict(credit_settings(composed.config).options) == {"gamma": gamma}
    assert any("the others are gigpo's" in choice for choice in composed.chosen)
    added = composed_of(tmp_path, "dapo", "agentic/method=gigpo", mine, *line.get(place, []), more=more)
    assert dict(credit_settings(added.config).options) == {"gamma": gamma}


def test_an_unknown_option_is_refused_with_the_override_that_replaces_all(tmp_path: Path) -> None:
    mine = f"algorithm.adv_estimator={tmp_path}/mine.py:mine"
    composed = composed_of(tmp_path, "gigpo", mine, "+agentic.credit.options.scael=0.5")
    with pytest.raises(ConfigError, match="'scael'"):
        credit_settings(composed.config)
    overrides = ("~agentic.credit.options", "+agentic.credit.options={scale: 0.5, gamma: 0.95}")
    composed = composed_of(tmp_path, "vapo", mine, *overrides)
    assert dict(credit_settings(composed.config).options) == {"scale": 0.5, "gamma": 0.95}
