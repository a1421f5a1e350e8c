"""The course of a quickstart: an environment with its rows, demonstrations, recipe files and stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from verl_agentic.base import paths
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import check_keys, read_settings, setting
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.env_package import EnvPackage, load_env_package


@dataclass(frozen=True, kw_only=True)
class Course:
    """The file `course.yaml` of a recipe, beside its `sft.yaml` and `grpo.yaml`."""

    recipe: str
    extends: str = ""
    """The recipe that gives the keys that this file leaves out, and the recipe files that this folder lacks."""
    env: str
    num_train: int
    """Number of training rows."""
    num_demos: int
    """Number of demonstrations for the warm start."""
    num_eval: int = 256
    """Number of held-out rows."""
    num_eval_untrained: int | None = setting(None, min=1)
    """Number of them that the model tries before its first stage, where it surely solves none; by default all."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment's `make_rows`."""
    demos: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment's `demonstrator`, or of `gold_demos.demonstrator_of` where it has solutions only."""
    model: str = ""
    """A pretrained model, as `verl-agentic model fetch` knows it; empty: a tiny random one."""
    preset: str = "0.5m"
    """Size of the tiny model."""
    gpu_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type in which models compute on a GPU, `float32` or `bfloat16`. In `float32` a GPU learns what a CPU learns."""
    cpu_dtype: Literal["float32", "bfloat16"] = "float32"
    """The same on a CPU with instructions for it; every other CPU computes in `float32`."""
    own_tokenizer: bool = True
    """Whether the tokenizer is trained on the environment's texts; otherwise it is the one for arithmetic."""
    token_share: float = 0.5
    """Minimum share of those texts in which a piece must occur to become a token."""
    stages: Any = ({"sft": None}, {"rl": None})
    """The stages as they are written; `stage_list.load_stages` reads them."""

    @property
    def package(self) -> EnvPackage:
        """The environment.

        Raises:
            ConfigError: it has no rows, or neither demonstrations nor solutions.
        """
        package = load_env_package(self.env)
        missing = [] if package.make_rows else ["make_rows(split=, count=, seed=)"]
        if package.demonstrator is None and package.gold is None:
            missing.append("gold(row) or demonstrator(row, rng=)")
        if missing:
            raise ConfigError(
                f"a quickstart needs {' and '.join(missing)} beside make_env, got {self.env!r} without; add what is "
                "missing (docs/extending.md)"
            )
        return package

    @property
    def env_config(self) -> dict[str, Any]:
        """Options of the environment in the recipe."""
        return dict(self._read_agentic().get("env_config") or {})

    @property
    def protocol(self) -> str:
        """The protocol of the recipe."""
        return self._read_agentic().get("protocol") or "chat"

    @property
    def limits(self) -> EpisodeLimits:
        """The limits of the recipe."""
        data = self.read("grpo")["data"]
        prompt, response = data["max_prompt_length"], data["max_response_length"]
        tokens = {"max_response_tokens": response, "max_context_tokens": prompt + response}
        return read_settings(EpisodeLimits, self._read_agentic()["limits"], section="limits", **tokens)

    def file(self, name: str) -> Path:
        """Returns the path of a recipe file, such as `sft` or `grpo`; it may be one of the recipe that it extends.

        Raises:
            ConfigError: there is no such file.
        """
        path = paths.recipe_folder(self.recipe) / f"{name}.yaml"
        if path.is_file() or not self.extends:
            return paths.recipe_file(self.recipe, f"{name}.yaml")
        return load_course(self.extends).file(name)

    def read(self, name: str) -> dict[str, Any]:
        """Returns one of its recipe files, unresolved."""
        return yaml.safe_load(self.file(name).read_text())

    def sources(self, name: str) -> list[str]:
        """Returns the text of a recipe file, and of the files of its folder that it builds on."""
        return list(_iter_sources(self.file(name)))

    def inputs(self) -> list[Any]:
        """Returns all that data and evaluations are made of."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("recipe", "stages")}
        sources = [file.read_text() for file in sorted(self.package.folder.glob("**/*.py"))]
        return [values, repr(self.limits), self.protocol, self.env_config, *sources]

    def named(self, recipe: str) -> Course:
        """Returns the course of a recipe; this one for an empty name."""
        return load_course(recipe) if recipe else self

    def _read_agentic(self) -> dict[str, Any]:
        return self.read("grpo")["agentic"]


def load_course(recipe: str) -> Course:
    """Returns the course of a recipe.

    Raises:
        ConfigError: the recipe is unknown, has no course, or a key of its course is wrong.
    """
    section = f"course.yaml of {recipe!r}"
    values = check_keys(_read_values(recipe), {item.name for item in fields(Course)} - {"recipe"}, section=section)
    return read_settings(Course, values, section=section, recipe=recipe)


def _read_values(recipe: str) -> dict[str, Any]:
    values = yaml.safe_load(paths.recipe_file(recipe, "course.yaml").read_text())
    return {**_read_values(values["extends"]), **values} if "extends" in values else values


def _iter_sources(path: Path) -> Iterator[str]:
    text = path.read_text()
    yield text
    for entry in yaml.safe_load(text).get("defaults", []):
        inner = path.parent / f"{entry}.yaml"
        if inner.is_file():
            yield from _iter_sources(inner)
