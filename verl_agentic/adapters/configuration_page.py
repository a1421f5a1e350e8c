"""Writes `docs/configuration.md` from the classes that read the sections of a configuration. A program: it loads
adapters that change verl.

python -m verl_agentic.adapters.configuration_page docs/configuration.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_agentic.adapters.engine.loss_config import PolicyLossConfig
from verl_agentic.adapters.offline.dpo_trainer import DpoSettings
from verl_agentic.adapters.offline.outcome_trainer import OutcomeSettings
from verl_agentic.adapters.replay_buffer.gate_options import GateOptions
from verl_agentic.adapters.sections import AGENTIC, ROLLOUT
from verl_agentic.agent_loops.loop_settings import LoopSettings
from verl_agentic.algorithms.batch_metrics.prompt_information import PromptInformationSettings
from verl_agentic.algorithms.estimate import CreditSettings
from verl_agentic.algorithms.losses.hl_gauss import BinSettings
from verl_agentic.algorithms.losses.implicit_reward import ImplicitRewardSettings
from verl_agentic.algorithms.losses.length_lr import LengthLrSettings
from verl_agentic.algorithms.losses.target_network import TargetSettings
from verl_agentic.diagnostics.health.monitor import HealthSettings
from verl_agentic.diagnostics.live.stuck_episodes import WaitingOptions
from verl_agentic.inference.scheduler import EngineOptions
from verl_agentic.rewards.judge.options import JudgeOptions
from verl_agentic.rewards.models.reward_model import RewardModel
from verl_agentic.rewards.rubric import Entry, RubricSettings
from verl_agentic.sampling.curriculum import CurriculumSettings
from verl_agentic.sandbox.docker.docker_backend import DockerConfig
from verl_agentic.sandbox.landlock_backend import LandlockConfig
from verl_agentic.sandbox.namespaces_backend import NamespaceConfig
from verl_agentic.sandbox.run_code.remote_backend import RemoteConfig
from verl_agentic.settings import dataclass_in, hints_of, in_words

CHAPTERS: Mapping[str, Mapping[str, Any]] = {
    "Episodes": {AGENTIC: LoopSettings, f"{AGENTIC}.health": HealthSettings, f"{AGENTIC}.waiting": WaitingOptions},
    "Prompts and groups": {
        "data.curriculum": CurriculumSettings,
        "trainer.v1.sampler.sampler_kwargs": GateOptions,
    },
    "Credit and losses": {
        "algorithm.credit": CreditSettings,
        "algorithm.implicit_reward": ImplicitRewardSettings,
        "algorithm.length_lr": LengthLrSettings,
        "algorithm.prompt_information": PromptInformationSettings,
        "algorithm.self_teacher": TargetSettings,
        "actor_rollout_ref.actor.policy_loss": PolicyLossConfig,
        "critic.categorical": BinSettings,
        "critic.target": TargetSettings,
    },
    "Rewards": {
        "reward.rubric": RubricSettings,
        "reward.rubric.components[i]": Entry,
        "options of the components `judge`, `self_judge` and `arena`": JudgeOptions,
        "options of the components `orm`, `prm`, `rm` and `rm_z`": RewardModel,
    },
    "Rollout server": {f"{ROLLOUT}.engine_kwargs.agentic": EngineOptions},
    "Offline training": {"dpo": DpoSettings, "implicit_reward": OutcomeSettings},
    "Sandboxes": {
        "options of the backend `namespaces`": NamespaceConfig,
        "options of the backend `landlock`": LandlockConfig,
        "options of the backend `docker`": DockerConfig,
        "options of the backend `remote`": RemoteConfig,
    },
}
_INTRODUCTION = """\
# Configuration

This page is a reference for people who write the configuration of a run. It lists every key that `verl-agentic` adds
to verl's configuration. Each heading is the path of a section, such as `algorithm.credit`. The command line takes the
same paths: `algorithm.credit.clip=5`. Unknown keys, wrong types and numbers out of bounds are refused before Ray
starts; `verl-agentic preflight` reports all of them at once.

Numbers are never infinite or NaN. If a section is set, its keys marked `required` must be set, too.

This page is generated: `python -m verl_agentic.adapters.configuration_page docs/configuration.md`.
"""


def page() -> str:
    """Returns the page."""
    lines = [_INTRODUCTION]
    for chapter, sections in CHAPTERS.items():
        lines.append(f"## {chapter}\n")
        for path, kind in sections.items():
            lines += _section(path, kind)
    return "\n".join(lines)


def _meanings(kind: type) -> dict[str, str]:
    """Returns the docstring of each field of a dataclass, with those of its bases."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("verl_agentic."):
            found.update(_docstrings(one))
    return found


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # pyright: ignore
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield ast.unparse(field.target), inspect.cleandoc(str(text.value.value))


def _fields(kind: type) -> list[dataclasses.Field[Any]]:
    """Returns the fields that are keys of ours: of a config class of verl, only those that we have added."""
    ours = {name for one in kind.__mro__ if one.__module__.startswith("verl_agentic.") for name in _annotated(one)}
    return [field for field in dataclasses.fields(kind) if field.name in ours]  # pyright: ignore


def _annotated(kind: type) -> set[str]:
    return set(vars(kind).get("__annotations__", {}))


def _inner(kind: type, field: dataclasses.Field[Any]) -> Any:
    return None if field.metadata.get("read") else dataclass_in(hints_of(kind)[field.name])


def _section(path: str, kind: type) -> list[str]:
    about = _plain(kind.__doc__ or "")
    title = path if " " in path else f"`{path}`"
    lines = [f"### {title[0].upper()}{title[1:]}\n", f"{about}\n"]
    lines += ["| key | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    lines += [_row(kind, field) for field in _fields(kind)] + [""]
    for field in _fields(kind):
        if (inner := _inner(kind, field)) is not None:
            lines += _section(f"{path}.{field.name}", inner)
    return lines


def _row(kind: type, field: dataclasses.Field[Any]) -> str:
    accepted = "see meaning" if field.metadata.get("read") else in_words(hints_of(kind)[field.name]).removeprefix("a ")
    bounds = str(field.metadata.get("bounds") or "").strip("()")
    meaning = _plain(_meanings(kind)[field.name])
    default = "see meaning" if "Default: " in meaning else _default(field)
    cells = [f"`{field.name}`", accepted, default, bounds, meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _plain(docstring: str) -> str:
    """Returns the first paragraph of a docstring on one line, in the words of YAML."""
    first = " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())
    return re.sub(r"\bNone\b", "`null`", first)


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is dataclasses.MISSING:
        return "required"
    if dataclasses.is_dataclass(value):
        return "see meaning" if field.metadata.get("read") else "its defaults"
    # A factory may read the environment, and a default that is no plain data has no notation.
    is_known = field.default_factory in (dataclasses.MISSING, dict)
    is_plain = value is None or isinstance(value, str | float | int | dict) or set(map(type, value)) <= {str}
    return f"`{json.dumps(value)}`" if is_known and is_plain else "see meaning"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
