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

    An option counts as the recipe's if it has the recipe's value, unless a file or the command line of the run sets it.

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
        equal_names = {key for key, value in options.items() if recipe_options.get(key, ...) == value}
        if owner in (None, name) or not equal_names:
            continue
        if dropped_names := equal_names - _find_own_options(place):
            own_options = {key: value for key, value in options.items() if key not in dropped_names}
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


def _find_own_options(place: str) -> set[str]:
    """Returns the names of the options that the run sets itself: in its files without the recipes, or on its command
    line."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if not GlobalHydra.instance().is_initialized():
        return set()
    run = HydraConfig.get()
    texts = list(run.overrides.task)
    groups = [f"agentic/{group}" for group, _ in _chosen_recipes()]
    in_files = [group for group in groups if not any(text.startswith(f"+{group}=") for text in texts)]
    files = hydra.compose(run.job.config_name, [f"~{group}" for group in in_files])
    command_line = OmegaConf.create()
    for override in OverridesParser.create().parse_overrides(texts):
        if "/" not in override.key_or_group and not override.is_delete():
            OmegaConf.update(command_line, override.key_or_group, override.value(), force_add=True)
    sections = [OmegaConf.select(config, key) for config in (files, command_line) for key in (place, root_key(place))]
    return {str(name) for section in sections if OmegaConf.is_config(section) for name in section}


def _chosen_recipes() -> Iterator[tuple[str, str]]:
    """Yields group and name of the bundled system and method of the run that hydra has composed."""
    from hydra.core.hydra_config import HydraConfig

    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    for group in ("system", "method"):
        if (name := choices.get(f"agentic/{group}")) in recipe_names(group):
            yield group, name
