"""The groups of recipes: every value has a source, groups set different keys, and runs get what the table says."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.config import recipe_groups
from verl_agentic.config.recipe_groups import GROUPS, SOURCES, Recipe, load_recipe, recipe_names

RECIPES = [load_recipe(group, name) for group in GROUPS for name in recipe_names(group)]
OF = {group: [recipe for recipe in RECIPES if recipe.group == group] for group in GROUPS}
HALVES = {
    *("algorithm.adv_estimator", "algorithm.use_kl_in_reward", "critic.enable", "agentic.sampling.gates"),
    *(
        f"actor_rollout_ref.actor.{key}"
        for key in (
            *("policy_loss.loss_mode", "clip_ratio", "clip_ratio_low", "clip_ratio_high", "loss_agg_mode"),
            *("use_kl_loss", "entropy_coeff"),
        )
    ),
}
"""Keys that every method sets, so that a change of method leaves nothing of the old one."""


def contradictions(*recipes: Recipe) -> list[str]:
    """Returns the keys that two recipes set, one of them perhaps a section around the other's."""
    ours, theirs = ({re.sub(r"\[\d+\]$", "", value.key) for value in recipe.values} for recipe in recipes)
    return sorted(
        max(one, other, key=len)
        for one, other in itertools.product(ours, theirs)
        if f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
    )


def test_every_value_has_a_source() -> None:
    without = [
        (recipe.name, value.key, value.source)
        for recipe in RECIPES
        for value in recipe.values
        if not re.match(rf"({'|'.join(SOURCES)})(?=[\s,:;]|$)", value.source)
    ]
    assert all(recipe.values for recipe in RECIPES) and not without


def test_every_method_sets_all_halves_of_a_method() -> None:
    for recipe in OF["method"]:
        assert not HALVES - {re.sub(r"\[\d+\]$", "", value.key) for value in recipe.values}, recipe.name


def test_every_system_names_its_paper_method_and_scale_and_has_a_readme() -> None:
    for recipe in OF["system"]:
        assert (recipe.noted("paper") or recipe.noted("code")) and recipe.readme, recipe.name
        if not recipe.noted("trainer"):  # supervised training has no method, and its sizes are those of another trainer
            assert recipe.noted("method") in recipe_names("method"), recipe.name
            assert recipe.noted("scale") in recipe_names("scale"), recipe.name


@pytest.mark.slow
def test_no_two_groups_set_the_same_key() -> None:
    found = {
        (one.name, other.name): both
        for groups in itertools.combinations(GROUPS, 2)
        for one, other in itertools.product(*(OF[group] for group in groups))
        if not one.noted("trainer") and (both := contradictions(one, other))
    }
    assert not found


# The reader.

_SMALL = """# @package _global_
# Small: a method of a test.
# paper: https://x.org
# code: https://y.org (a: b)
agentic:
  credit: {options: {gamma: 0.5, names: [a, b]}}  # paper 1
  rubric:
    components:
      - {use: env, name: "a # b"}  # code: f.py
      - use: format  # ours: a reason
        options:
          endpoint: "http://y.org"  # ours: another reason
algorithm:
  adv_estimator: grpo  # paper 2
  lam: 1e-6
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(recipe_groups, "_FOLDER", tmp_path)
    for group in GROUPS:
        (tmp_path / group).mkdir()
    (tmp_path / "method" / "small.yaml").write_text(_SMALL)
    load_recipe.cache_clear()
    yield tmp_path / "method"
    load_recipe.cache_clear()


def of(recipe: Recipe) -> dict[str, tuple[Any, str]]:
    return {value.key: (value.value, value.source) for value in recipe.values}


def test_a_source_is_the_comment_on_the_line_of_a_value(folder: Path) -> None:
    recipe = load_recipe("method", "small")
    assert (recipe.title, recipe.summary) == ("Small", "a method of a test.")
    assert recipe.noted("code") == "https://y.org (a: b)" and recipe.noted("scale") == recipe.readme == ""
    assert of(recipe) == {
        "agentic.credit.options.gamma": (0.5, "paper 1"),
        "agentic.credit.options.names": (["a", "b"], "paper 1"),
        "agentic.rubric.components[0]": ({"use": "env", "name": "a # b"}, "code: f.py"),
        "agentic.rubric.components[1]": ({"use": "format", "options": {"endpoint": "http://y.org"}}, "ours: a reason"),
        "algorithm.adv_estimator": ("grpo", "paper 2"),
        "algorithm.lam": (1e-6, ""),
    }
    assert [value.text for value in recipe.values] == [
        *("0.5", "[a, b]", '{use: env, name: "a # b"}', "{use: format, options: {endpoint: 'http://y.org'}}"),
        *("grpo", "1e-6"),
    ]


def test_a_file_that_begins_with_another_has_its_values_and_sources(folder: Path) -> None:
    (folder / "child.yaml").write_text(
        "# @package _global_\n# Child: small with another list.\ndefaults: [small, _self_]\n"
        "agentic:\n  rubric:\n    components: [{use: math}]  # blog\nalgorithm:\n  lam: 2  # issue\n"
    )
    recipe = load_recipe("method", "child")
    assert of(recipe)["algorithm.lam"] == (2, "issue") and of(recipe)["algorithm.adv_estimator"] == ("grpo", "paper 2")
    assert [key for key in of(recipe) if "components" in key] == ["agentic.rubric.components"]
    assert {value.key: value.recipe for value in recipe.values}["algorithm.adv_estimator"] == "small"


def test_an_override_of_the_defaults_is_a_value(folder: Path) -> None:
    (folder / "engine.yaml").write_text(
        "# @package _global_\n# Engine: another one.\ndefaults:\n  - override /model_engine: megatron  # verl: x.sh\n"
    )
    assert of(load_recipe("method", "engine")) == {"model_engine": ("megatron", "verl: x.sh")}


def test_a_section_around_a_key_contradicts_it(folder: Path) -> None:
    (folder / "other.yaml").write_text(
        "# @package _global_\n# Other: a method.\nalgorithm: {lam_of: 1, adv_estimator: {a: 1}}  # ours\n"
    )
    assert contradictions(load_recipe("method", "small"), load_recipe("method", "other")) == [
        "algorithm.adv_estimator.a"
    ]


def test_an_unknown_name_and_a_file_of_another_form_are_errors(folder: Path) -> None:
    with pytest.raises(ConfigError, match="'smal'"):
        load_recipe("method", "smal")
    (folder / "plain.yaml").write_text("algorithm: {lam: 1}\n")
    with pytest.raises(ConfigError, match=r"method/plain\.yaml"):
        load_recipe("method", "plain")
