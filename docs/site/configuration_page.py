"""Writes `docs/configuration.md` and `config/agentic/plugin.yaml` from the classes that read sections.

A program: it loads adapters that change verl.

python docs/site/configuration_page.py docs/configuration.md verl_agentic/config/agentic/plugin.yaml
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

import yaml

from verl_agentic.base.settings import dataclass_in, hints_of, in_words
from verl_agentic.cpu.inference.scheduler import EngineOptions
from verl_agentic.credit.estimate import CreditSettings
from verl_agentic.episode.loop_settings import LoopSettings
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.models.reward_model import RewardModel
from verl_agentic.methods.cost_limits import CostLimitSettings
from verl_agentic.methods.losses.hl_gauss import BinSettings
from verl_agentic.methods.losses.implicit_reward import ImplicitRewardSettings
from verl_agentic.methods.losses.length_lr import LengthLrSettings
from verl_agentic.methods.losses.linear_lr import LinearLrSettings
from verl_agentic.methods.losses.pear import PearSettings
from verl_agentic.methods.losses.suggestions import SuggestionSettings
from verl_agentic.methods.losses.target_network import TargetSettings
from verl_agentic.methods.prompt_information import PromptInformationSettings
from verl_agentic.observe.health.monitor import HealthSettings
from verl_agentic.observe.live.stuck_episodes import WaitingOptions
from verl_agentic.rewards.rubric import Entry, RubricSettings
from verl_agentic.sampling.curriculum import CurriculumSettings
from verl_agentic.sandbox.boxes.landlock_backend import LandlockConfig
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceConfig
from verl_agentic.sandbox.docker.docker_backend import DockerConfig
from verl_agentic.sandbox.run_code.remote_backend import RemoteConfig
from verl_agentic.verl.config_root import ROOT, place_of
from verl_agentic.verl.engine.loss_config import PolicyLossConfig
from verl_agentic.verl.extensions.offline.dpo_trainer import DpoSettings
from verl_agentic.verl.extensions.offline.outcome_trainer import OutcomeSettings
from verl_agentic.verl.extensions.offline.warm_start_trainer import WarmStartSettings
from verl_agentic.verl.replay_buffer.gate_options import GateOptions

CHAPTERS: Mapping[str, Mapping[str, Any]] = {
    "Episodes": {"agentic": LoopSettings, "agentic.health": HealthSettings, "agentic.waiting": WaitingOptions},
    "Prompts and groups": {"agentic.curriculum": CurriculumSettings, "agentic.sampling": GateOptions},
    "Credit and losses": {
        "agentic.credit": CreditSettings,
        "agentic.implicit_reward": ImplicitRewardSettings,
        "agentic.cost_limits": CostLimitSettings,
        "agentic.length_lr": LengthLrSettings,
        "agentic.linear_lr": LinearLrSettings,
        "agentic.prompt_information": PromptInformationSettings,
        "agentic.self_teacher": TargetSettings,
        "agentic.policy_loss": PolicyLossConfig,
        "agentic.critic.categorical": BinSettings,
        "agentic.critic.target": TargetSettings,
    },
    "Rewards": {
        "agentic.rubric": RubricSettings,
        "agentic.rubric.components[i]": Entry,
        "options of the components `judge`, `self_judge` and `arena`": JudgeOptions,
        "options of the components `orm`, `prm`, `rm` and `rm_z`": RewardModel,
    },
    "Rollout server": {"agentic.engine": EngineOptions},
    "Offline training": {
        "dpo": DpoSettings,
        "implicit_reward": OutcomeSettings,
        "pear": PearSettings,
        "suggestions": SuggestionSettings,
        "warm_start": WarmStartSettings,
    },
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
to verl's configuration. Put `agentic/plugin` into the defaults of your config. Then write the keys in YAML or on the
command line, such as `agentic.credit.clip=5`:

```yaml
hydra:
  searchpath: [pkg://verl_agentic.config]

defaults:
  - ppo_trainer
  - agentic/plugin
  - _self_

agentic:
  env: python_math
  limits:
    max_turns: 4
```

Unknown keys, wrong types and numbers out of bounds are refused before Ray starts; `verl-agentic preflight` reports all
of them at once. Numbers are never infinite or NaN.

A section is set if one of its keys is set. To take all defaults of an optional section, set one key to its default:
`agentic.prompt_information.every=10`. If a section is set, its keys marked `required` must be set, too. Keys of
`env_config` and `options` are free: write `agentic.env_config={top_k: 1}`, or `+agentic.env_config.top_k=1`. If your
config already has such keys, `'~agentic.env_config' '+agentic.env_config={top_k: 1}'` replaces all of them.

**Places in verl's configuration.** Before anything else reads the configuration, the plugin moves every key to the
place where verl passes it on, and removes the root `agentic`. The place is named below each heading. Errors and logged
configurations name the place. You may write a key at its place instead. The same key with different values at both
is an error.

**Choices.** The plugin also chooses what your keys need, and logs it in one line: `trainer.v1.trainer_mode=agentic_*`
for features that need it, `trainer.v1.sampler.custom_sampler` for gates and replay,
`reward.reward_manager.name=rubric` for a rubric, and one of verl's reward workers in place of eight, because a rubric
scores in the event loops, the agent loop `env_agent` if `agentic.env` is set, the options of an estimator or a loss
without those that a system or method sets for another estimator or loss, and `rollout.skip_tokenizer_init=False` for
SGLang with a protocol whose turns end with a text. A value of yours that
contradicts such a choice is an error.

This page and `agentic/plugin.yaml` are generated:
`python docs/site/configuration_page.py docs/configuration.md
verl_agentic/config/agentic/plugin.yaml`.
"""
_PLUGIN_HEADER = """\
# @package _global_
# A recipe that includes this does not start without the plugin verl_agentic. Every key of the plugin is declared, so
# that the command line takes it: agentic.limits.max_turns=4. docs/configuration.md says what the keys mean.
# Generated: python docs/site/configuration_page.py docs/configuration.md \\
#   verl_agentic/config/agentic/plugin.yaml

actor_rollout_ref:
  rollout:
    custom:
      agentic:
        # Unsupported interpolation type verl_agentic? The plugin is not installed: pip install . in a clone of it
        required: ${verl_agentic:plugin}

"""


def page() -> str:
    """Returns the page."""
    lines = [_INTRODUCTION]
    for chapter, sections in CHAPTERS.items():
        lines.append(f"## {chapter}\n")
        for path, kind in sections.items():
            lines += _format_section(path, kind)
    return "\n".join(lines)


def plugin_yaml() -> str:
    """Returns the file `agentic/plugin.yaml`: all keys below the root, none of them set."""
    root: dict[str, Any] = {}
    for path, kind in (item for sections in CHAPTERS.values() for item in sections.items()):
        if not path.startswith(ROOT) or "[" in path:
            continue
        section = {ROOT: root}
        for name in path.split("."):
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section.update(_build_unset_keys(kind))
    return _PLUGIN_HEADER + yaml.safe_dump({ROOT: root}, sort_keys=False).replace("'???'", "???")


def _collect_meanings(kind: type) -> dict[str, str]:
    """Returns the docstring of each field of a dataclass, with those of its bases."""
    meanings: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if cls.__module__.startswith("verl_agentic."):
            meanings.update(_iter_docstrings(cls))
    return meanings


def _iter_docstrings(kind: type) -> Iterator[tuple[str, str]]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # pyright: ignore
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield ast.unparse(field.target), inspect.cleandoc(str(text.value.value))


def _select_fields(kind: type) -> list[dataclasses.Field[Any]]:
    """Returns the fields that are keys of ours: of a config class of verl, only those that we have added.

    `required` is no key of users: `agentic/plugin` sets it.
    """
    ours = {
        name for cls in kind.__mro__ if cls.__module__.startswith("verl_agentic.") for name in _list_annotations(cls)
    }
    return [field for field in dataclasses.fields(kind) if field.name in ours - {"required"}]  # pyright: ignore


def _list_annotations(kind: type) -> set[str]:
    return set(vars(kind).get("__annotations__", {}))


def _build_unset_keys(kind: type) -> dict[str, Any]:
    inner = {field.name: _find_inner_section(kind, field) for field in _select_fields(kind)}
    return {name: "???" if section is None else _build_unset_keys(section) for name, section in inner.items()}


def _find_inner_section(kind: type, field: dataclasses.Field[Any]) -> Any:
    return None if field.metadata.get("read") else dataclass_in(hints_of(kind)[field.name])


def _format_section(path: str, kind: type) -> list[str]:
    about = _summarise_docstring(kind.__doc__ or "")
    title = path if " " in path else f"`{path}`"
    lines = [f"### {title[0].upper()}{title[1:]}\n"]
    lines += [f"In verl's configuration: `{place_of(path)}`\n"] if path.startswith(ROOT) else []
    lines += [f"{about}\n"]
    lines += ["| key | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    lines += [_format_row(kind, field) for field in _select_fields(kind)] + [""]
    for field in _select_fields(kind):
        if (inner := _find_inner_section(kind, field)) is not None:
            lines += _format_section(f"{path}.{field.name}", inner)
    return lines


def _format_row(kind: type, field: dataclasses.Field[Any]) -> str:
    accepted = "see meaning" if field.metadata.get("read") else in_words(hints_of(kind)[field.name]).removeprefix("a ")
    bounds = str(field.metadata.get("bounds") or "").strip("()")
    meaning = _summarise_docstring(_collect_meanings(kind)[field.name])
    default = "see meaning" if "Default: " in meaning else _format_default(field)
    cells = [f"`{field.name}`", accepted, default, bounds, meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _summarise_docstring(docstring: str) -> str:
    """Returns the first paragraph of a docstring on one line, in the words of YAML."""
    first = " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())
    return re.sub(r"\bNone\b", "`null`", first)


def _format_default(field: dataclasses.Field[Any]) -> str:
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
    Path(sys.argv[2]).write_text(plugin_yaml(), encoding="utf-8")
