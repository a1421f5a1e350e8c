"""Options of a recipe's estimator or loss, in a run that has chosen another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.config.recipe_groups import load_recipe, recipe_names
from verl_agentic.verl.sections import plain_section, root_key


def options_without_recipe(config: Any, *, chooser: str, place: str) -> Iterator[tuple[str, Any, str]]:
    """Yields the options without those that a chosen system or method sets for another estimator or loss.

    An option counts as the recipe's if it has the recipe's value.

    Args:
        config: of the run.
        chooser: key of the estimator or the loss.
        place: key of its options.
    """
    options, name = plain_section(config, place), OmegaConf.select(config, chooser)
    if not isinstance(options, Mapping):
        return
    for group, recipe_name in _chosen_recipes():
        recipe = load_recipe(group, recipe_name)
        owner, prefix = recipe.value(chooser), f"{root_key(place)}."
        recipe_options = {entry.key.removeprefix(prefix): entry.value for entry in recipe.values}
        own_options = {key: value for key, value in options.items() if recipe_options.get(key, ...) != value}
        if owner not in (None, name) and own_options != options:
            yield place, own_options, f"{chooser}={name}: the others are {owner}'s, of the {group} {recipe_name}"


@contextmanager
def replacing_in_errors(place: str) -> Iterator[None]:
    """Adds to errors of the block how a command line replaces all options at a place."""
    try:
        yield
    except ConfigError as refused:
        key = root_key(place)
        raise ConfigError(
            f"{refused}; a command line replaces all options of a config with '~{key}' '+{key}={{NAME: VALUE}}'"
        ) from refused.__cause__


def _chosen_recipes() -> Iterator[tuple[str, str]]:
    """Yields group and name of the bundled system and method of the run that hydra has composed."""
    from hydra.core.hydra_config import HydraConfig

    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    for group in ("system", "method"):
        if (name := choices.get(f"agentic/{group}")) in recipe_names(group):
            yield group, name
