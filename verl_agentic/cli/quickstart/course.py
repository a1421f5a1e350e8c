"""The course of a quickstart: an environment with its rows, demonstrations and recipes."""

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
    """Number of training rows."""
    num_demos: int
    """Number of demonstrations for the warm start."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment's `make_rows`."""
    demos: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment's `demonstrator`."""
    preset: str = "0.5m"
    """Size of the tiny model."""
    own_tokenizer: bool = True
    """Whether the tokenizer is trained on the environment's texts; otherwise it is the one for arithmetic."""
    token_share: float = 0.5
    """Minimum share of those texts in which a piece must occur to become a token."""

    @property
    def package(self) -> EnvPackage:
        """The environment.

        Raises:
            ConfigError: it has no rows or no demonstrations.
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
        """Options of the environment in the recipe."""
        return dict(self._agentic().get("env_config") or {})

    @property
    def protocol(self) -> str:
        """The protocol of the recipe."""
        return self._agentic().get("protocol") or "chat"

    @property
    def limits(self) -> EpisodeLimits:
        """The limits of the recipe."""
        data = self.read("grpo")["data"]
        prompt, response = data["max_prompt_length"], data["max_response_length"]
        tokens = {"max_response_tokens": response, "max_context_tokens": prompt + response}
        return read_settings(EpisodeLimits, self._agentic()["limits"], section="limits", **tokens)

    def file(self, name: str) -> Path:
        """Returns the path of its recipe `sft` or `grpo`."""
        return paths.recipe_file(self.recipe, f"{name}.yaml")

    def read(self, name: str) -> dict[str, Any]:
        """Returns one of its recipes, unresolved."""
        return yaml.safe_load(self.file(name).read_text())

    def _agentic(self) -> dict[str, Any]:
        return self.read("grpo")["agentic"]


def load_course(recipe: str) -> Course:
    """Returns the course of a recipe.

    Raises:
        ConfigError: the recipe is unknown, has no course, or its course has unknown keys.
    """
    values = yaml.safe_load(paths.recipe_file(recipe, "course.yaml").read_text())
    unknown = sorted(set(values) - {item.name for item in fields(Course)})
    if unknown:
        raise ConfigError(f"unknown keys in course.yaml of {recipe!r}, got {unknown}; fix the file")
    return Course(recipe=recipe, **values)
