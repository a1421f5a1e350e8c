"""What is learned in a quickstart: an environment with its rows, demonstrations and recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from verl_agentic import paths
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.env_package import EnvPackage, load_env_package
from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings


@dataclass(frozen=True, kw_only=True)
class Course:
    """The file `course.yaml` of a recipe, beside its `sft.yaml` and `grpo.yaml`."""

    recipe: str
    env: str
    num_train: int
    """Training rows."""
    num_demos: int
    """Demonstrations for the warm start."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the environment's `make_rows`."""
    preset: str = "0.5m"
    """Size of the tiny model."""
    own_tokenizer: bool = True
    """Whether the tokenizer is trained on the environment's texts, or is the one for arithmetic."""
    token_share: float = 0.5
    """What less than this share of those texts has stays spelled: lower where words come again, and are no names."""

    @property
    def package(self) -> EnvPackage:
        """The environment.

        Raises:
            ConfigError: it has no rows, or no demonstrations.
        """
        package = load_env_package(self.env)
        if package.make_rows is None or package.demonstrator is None:
            raise ConfigError(
                f"a quickstart needs make_rows and demonstrator of its environment, got {self.env!r} without them; "
                "add them to its package"
            )
        return package

    @property
    def env_config(self) -> dict[str, Any]:
        """Options of the environment, as the recipe trains with them."""
        return dict(self._agentic().get("env_config") or {})

    @property
    def protocol(self) -> str:
        """How actions are written, as the recipe trains with it."""
        return self._agentic().get("protocol") or "chat"

    @property
    def limits(self) -> EpisodeLimits:
        """The limits that the recipe trains with."""
        data = self.read("grpo")["data"]
        prompt, response = data["max_prompt_length"], data["max_response_length"]
        tokens = {"max_response_tokens": response, "max_context_tokens": prompt + response}
        return read_settings(EpisodeLimits, self._agentic()["limits"], section="limits", **tokens)

    def file(self, name: str) -> Path:
        """Returns the path of one of its recipes: `sft` or `grpo`."""
        return paths.recipe_file(self.recipe, f"{name}.yaml")

    def read(self, name: str) -> dict[str, Any]:
        """Returns one of its recipes as it is written."""
        return yaml.safe_load(self.file(name).read_text())

    def _agentic(self) -> dict[str, Any]:
        return self.read("grpo")["agentic"]


def load_course(recipe: str) -> Course:
    """Returns the course of a recipe.

    Raises:
        ConfigError: there is no such recipe, it has no course, or the course has unknown keys.
    """
    values = yaml.safe_load(paths.recipe_file(recipe, "course.yaml").read_text())
    unknown = sorted(set(values) - {item.name for item in fields(Course)})
    if unknown:
        raise ConfigError(f"unknown keys in course.yaml of {recipe!r}, got {unknown}; mend the file")
    return Course(recipe=recipe, **values)
