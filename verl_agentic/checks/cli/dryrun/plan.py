"""The plan of a dry run: configuration, model, rows, policy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import AgenticError, ConfigError, DataError
from verl_agentic.checks.cli.dryrun.model import DryrunModel, make_model
from verl_agentic.checks.cli.dryrun.translate import Translation, translate
from verl_agentic.checks.dryrun.step_report import ExpectedStep
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.log.files.as_verl import refuse_changed
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.files.rows import row_of_columns, write_rows
from verl_agentic.verl.extensions.preflight.compose import Composed, compose

_AGENTIC = "actor_rollout_ref.rollout.custom.agentic"
_NUM_ROWS = 16  # if the configuration names no rows
_LOOKED_AT = 8
_CORRECTIONS = ("rollout_is", "rollout_rs", "bypass_mode")


@dataclass(frozen=True, kw_only=True)
class DryrunOptions:
    """The command line."""

    config_dir: Path | None
    config_name: str | None
    overrides: Sequence[str]
    model: str = "tiny"
    policy: str | None = None
    """`scripted`, `sampled`, or None: scripted if possible."""
    out: Path


@dataclass(kw_only=True)
class DryrunPlan:
    """The plan of a run."""

    translation: Translation
    model: DryrunModel
    rows: str
    """Source of the rows, for the report."""
    policy: str
    """The policy, for the report."""
    expected: ExpectedStep = field(default_factory=ExpectedStep)

    def write(self, folder: Path, *, ray_folder: str) -> Path:
        """Writes the complete configuration of the run and returns its path."""
        config = self.translation.config
        self.translation.set("ray_kwargs.ray_init._temp_dir", ray_folder, "Ray's sockets need short paths")
        hydra = {"hydra": {"output_subdir": None, "job": {"chdir": False}, "run": {"dir": str(folder / "hydra")}}}
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(hydra) + OmegaConf.to_yaml(config))
        return path


def make_plan(options: DryrunOptions) -> DryrunPlan:
    """Returns the plan; writes the model, and rows if there are none, into the folder of the dry run.

    Raises:
        AgenticError: the configuration, or a file that it names, is invalid.
    """
    composed = compose(options.config_dir, options.config_name, options.overrides)
    config = composed.config
    path = _read_choice(composed, "actor_rollout_ref.model.path")
    named = _read_choice(composed, "data.train_files")
    model = make_model(options.out / "model", choice=options.model, path=path)
    translation = translate(config, out=options.out, own_tokenizer=model.has_own_tokenizer)
    if translation.untranslated:
        raise ConfigError("the configuration cannot run on a CPU, got " + "; ".join(translation.untranslated))
    _set_model(translation, model)
    if options.model == "tiny":
        _unmask_cut_episodes(translation)
    package = _load_package(translation)
    files, rows = _prepare_rows(translation, named, package, options)
    policy = _choose_policy(translation, package, files, options.policy)
    return DryrunPlan(
        translation=translation, model=model, rows=rows, policy=policy, expected=_make_expected_step(translation)
    )


def _set_model(translation: Translation, model: DryrunModel) -> None:
    for section in ("actor_rollout_ref.model", "critic.model"):
        if translation.has(f"{section}.path"):
            translation.set(f"{section}.path", str(model.folder), "a tiny model")
        for key in ("tokenizer_path", "hf_config_path", "lora_adapter_path"):
            if translation.get(f"{section}.{key}") is not None:
                translation.set(f"{section}.{key}", None, "a tiny model")
    if translation.get("algorithm.implicit_reward") is not None:
        translation.set("algorithm.implicit_reward.model_path", str(model.folder), "a tiny model")
    if translation.get("data.tokenizer") is not None:
        translation.set("data.tokenizer", None, "a tiny model")


def _unmask_cut_episodes(translation: Translation) -> None:
    """Turns masks of cut episodes off: those of a random model all are, and then no row has a signal."""
    for key, value in (("mask_stops", []), ("mask_overlong", None)):
        if translation.get(f"reward.rubric.{key}") is not None:
            translation.set(f"reward.rubric.{key}", value, "the episodes of a random model are cut off")


def _read_choice(composed: Composed, key: str) -> Any:
    """Returns a value that the user chose; None for verl's default.

    Raises:
        ConfigError: the user's value cannot be resolved.
    """
    for entry in composed.unresolved:
        place = entry.partition(":")[0]
        if f"{place}.".startswith(f"{key}.") or key.startswith(f"{place}."):
            raise ConfigError(f"{key} cannot be resolved, got {entry}; fix the ${{...}}, or set a value")
    value, default = (functools.reduce(_get_item, key.split("."), tree) for tree in (composed.plain, composed.defaults))
    return None if value == default else value


def _get_item(tree: Any, name: str) -> Any:
    return tree.get(name) if isinstance(tree, Mapping) else None


def _load_package(translation: Translation) -> EnvPackage | None:
    env = translation.get(f"{_AGENTIC}.env")
    return None if env is None else load_env_package(str(env))


def _prepare_rows(
    translation: Translation, named: Any, package: EnvPackage | None, options: DryrunOptions
) -> tuple[list[str], str]:
    """Returns the files of training rows, and their description."""
    if named is None:
        if package is None or package.make_rows is None:
            raise ConfigError("the configuration names no rows, got data.train_files of verl itself; set it")
        path = options.out / "rows.jsonl"
        made_rows = package.make_rows(
            split="train", count=_NUM_ROWS, seed=0, **_read_course_options(options.config_dir)
        )
        write_rows(made_rows, path)
        files = [str(path)]
        description = f"{len(made_rows)} rows that {package.env_id} makes: data.train_files is not set"
    else:
        files = [named] if isinstance(named, str) else [str(file) for file in named]
        description = ", ".join(files)
        for file in files:
            if "://" in file:
                continue
            if not Path(file).expanduser().exists():
                raise DataError(
                    f"no such file of rows, got data.train_files={file}; set it, or leave it out for rows that the "
                    "environment makes"
                )
            refuse_changed(Path(file).expanduser())
    translation.set("data.train_files", files, "rows of the environment") if named is None else None
    translation.set("data.val_files", files, "no validation")
    return files, description


def _read_course_options(folder: Path | None) -> dict[str, Any]:
    path = folder / "course.yaml" if folder is not None else None
    return dict((yaml.safe_load(path.read_text()) or {}).get("options") or {}) if path and path.is_file() else {}


def _choose_policy(translation: Translation, package: EnvPackage | None, files: list[str], choice: str | None) -> str:
    """Makes some sessions follow the environment's solution, if possible; returns a description."""
    if choice == "sampled":
        return "all sessions are sampled"
    why_not = _why_not_scripted(translation, package, files)
    if why_not and choice == "scripted":
        raise ConfigError(f"--policy scripted is not possible, got: {why_not}; leave it out")
    if why_not:
        return f"all sessions are sampled: {why_not}"
    if not translation.get(f"{_AGENTIC}.external_sessions"):
        translation.set(
            f"{_AGENTIC}.external_sessions", 1, "a random model calls no tools: one session follows the solution"
        )
    count, size = translation.get(f"{_AGENTIC}.external_sessions"), translation.get("actor_rollout_ref.rollout.n")
    return f"the environment's solution generates {count} of {size} sessions of every prompt, by external_sessions"


def _why_not_scripted(translation: Translation, package: EnvPackage | None, files: list[str]) -> str:
    if translation.get("actor_rollout_ref.rollout.agent.default_agent_loop") != "env_agent" or package is None:
        return "the agent loop is not env_agent with an environment"
    if package.gold is None:
        return f"{package.env_id} has no solution (gold)"
    if translation.get("actor_rollout_ref.rollout.n", 1) < 2:
        return "rollout.n is 1"
    if translation.get(f"{_AGENTIC}.protocol_options.self_written"):
        return "the policy writes the observations itself, and nothing answers the searches of a solution"
    try:
        for row in _read_first_rows(files[0]):
            package.gold(row)
    except AgenticError as cause:
        return f"the solution of a row is unknown: {cause}"
    return ""


def _read_first_rows(file: str) -> list[EnvRow]:
    """Returns the first rows of a file, as the environment gets them."""
    records = itertools.islice(numbered_records(Path(file).expanduser()), _LOOKED_AT)
    return [row_of_columns(record, f"{file}:{number}") for number, record in records]


def _make_expected_step(translation: Translation) -> ExpectedStep:
    correction = translation.get("algorithm.rollout_correction") or {}
    return ExpectedStep(
        loss_mode=str(translation.get("actor_rollout_ref.actor.policy_loss.loss_mode", "vanilla")),
        has_correction=any(correction.get(name) for name in _CORRECTIONS),
        has_critic=translation.has_critic,
        scripted=bool(translation.get(f"{_AGENTIC}.external_sessions")),
    )
