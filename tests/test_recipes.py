"""Every recipe composes with verl's own configuration, and says how it is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from verl_agentic.base.paths import recipes_dir

pytest.importorskip("verl")
RECIPES = sorted(path for path in recipes_dir().glob("*/*.yaml") if path.name != "course.yaml")


@pytest.mark.sample(1)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.parent.name}/{recipe.stem}")
def test_a_recipe_composes_and_has_only_keys_that_verl_knows(recipe: Path) -> None:
    command = recipe.read_text().split("\n")[1]
    module = re.search(r"-m (verl\.trainer\.\w+|verl_agentic\.verl\.extensions\.offline\.\w+)", command)
    assert module is not None and f"--config-name {recipe.stem}" in command
    missing = [word for word in command.split() if re.match(r"[\w.]+=[A-Z]+$", word)]
    search = "hydra.searchpath=[pkg://verl.trainer.config,pkg://verl_agentic.config]"
    with initialize_config_dir(str(recipe.parent), version_base=None):
        # Struct mode: an unknown key is an error.
        config = compose(recipe.stem, overrides=[search, *missing])
    device = "cpu" if "agentic/tiny" in recipe.read_text() or "agentic/cpu" in recipe.read_text() else "cuda"
    assert OmegaConf.select(config, "trainer.device") == device
    assert ("VERL_PLATFORM=cpu" in command) == (device == "cpu")
