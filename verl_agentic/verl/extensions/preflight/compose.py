"""The configuration of a run, composed as `python -m verl.trainer.main_ppo` composes it, and what verl makes of it."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import pickle
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import yaml

# What hydra.main does cannot be had from its public compose(), which knows no second folder of configurations.
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import get_class
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

import verl_agentic
from verl_agentic.base.errors import ConfigError
from verl_agentic.checks.preflight.planned_run import MISSING, is_supervised
from verl_agentic.verl.config_root import prepare
from verl_agentic.verl.extensions.preflight.quick_yaml import quick_yaml
from verl_agentic.verl.sections import refused_sections, with_root_keys

_PACKAGES = {"trtllm": "tensorrt_llm"}
_NAME = re.compile(r"""\.\s*(?:get|pop|select)?\(?\s*["']?([A-Za-z_]\w*)|["']([A-Za-z_][\w.]*)["']""")


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A configuration and verl's own beside it."""

    config: DictConfig
    """As verl gets it: without the root `agentic`, with the plugin's choices."""
    plain: dict[str, Any]
    """Resolved."""
    defaults: dict[str, Any]
    unresolved: tuple[str, ...]
    """Keys that could not be resolved, with the reason."""
    chosen: tuple[str, ...]
    """Values that the plugin chose, as `key=value (reason)`."""


def compose(config_dir: Path | None, config_name: str | None, overrides: Sequence[str]) -> Composed:
    """Returns a run's configuration.

    Args:
        config_dir: what `--config-dir` names: a folder of configurations beside verl's own.
        config_name: what `--config-name` names; None for verl's own `ppo_trainer`.
        overrides: as on the command line.

    Raises:
        ConfigError: hydra cannot compose it, or see `prepare`.
    """
    search_path = _search_path()
    if config_dir is not None:
        if not config_dir.is_dir():
            raise ConfigError(f"--config-dir must be a folder, got {str(config_dir)!r}; name the recipe's")
        search_path.prepend(
            provider="command-line", path=f"file://{config_dir.resolve()}", anchor=SearchPathQuery(provider="schema")
        )
    try:
        composed = _compose_config(search_path, config_name or "ppo_trainer", overrides)
        HydraConfig.instance().set_config(composed)
        engine = composed.hydra.runtime.choices.get("model_engine")
        unresolved: list[str] = []
        config = _without_hydra(composed)
        chosen = tuple(prepare(config))
        plain = dict(_to_plain_data(config, "", unresolved))
        return Composed(
            config=config,
            plain=plain,
            defaults=_copy_config(
                _load_defaults("sft_trainer_engine" if is_supervised(plain) else "ppo_trainer", engine)
            ),
            unresolved=tuple(unresolved),
            chosen=chosen,
        )
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as cause:
        raise ConfigError(
            f"the configuration cannot be composed, got {_format_reason(cause)}; fix the key or file that it names"
        ) from cause
    finally:
        GlobalHydra.instance().clear()


def section_fields(hints: Mapping[str, Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Returns path -> the keys that verl's class knows, of every section that verl makes an object of.

    Sections of `DictConfig`s that verl reads key by key are left out, whatever class they name.

    Args:
        hints: what `section_hints` returns.
    """
    # verl makes objects of these; of algorithm, reward and trainer it never does.
    prefixes = ("actor_rollout_ref.", "critic")
    return {path: frozenset(names) for path, names in hints.items() if path.startswith(prefixes)}


def section_hints(config: DictConfig) -> dict[str, dict[str, Any]]:
    """Returns path -> field -> annotation, of every section that names a class of verl's."""
    return dict(_iter_fields(config, ""))


@functools.cache
def read_names() -> frozenset[str]:
    """Returns the names that verl's code, or ours, reads as attributes or keys somewhere."""
    import verl

    names: set[str] = set()
    for package in (verl, verl_agentic):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for attribute, text in _NAME.findall(path.read_text(encoding="utf-8", errors="ignore")):
                names.update(filter(None, (attribute, *text.split("."))))
    return frozenset(names)


def refusals(config: DictConfig) -> dict[str, list[str]]:
    """Returns the refusals of a configuration by who refuses it: `sections`, `plugin`, `verl`; `unchecked`: verl code
    that needs a package that is not installed here."""
    config = _copy_config(config)  # all of them change what they are given
    messages: dict[str, list[str]] = {"sections": _of_sections(config), "plugin": [], "verl": [], "unchecked": []}
    for place, message in itertools.chain(_of_plugin(config), _of_verl(config)):
        if not any(with_root_keys(message).endswith(other) for other in (*messages["sections"], *messages["plugin"])):
            messages[place].append(message)
    return messages


def _of_sections(config: DictConfig) -> list[str]:
    """Returns the refusals of our sections' readers. A value that is not given yet is told by another check."""
    try:
        return [str(refused) for refused in refused_sections(config) if f"'{MISSING}'" not in str(refused)]
    except OmegaConfBaseException:  # an interpolation leads nowhere, which is told by itself
        return []


def _of_plugin(config: DictConfig) -> Iterator[tuple[str, str]]:
    from verl.utils.device import auto_set_device  # with our guard in it, as every trainer of verl calls it

    try:
        auto_set_device(config)
    except Exception as refused:
        yield "plugin", _format_reason(refused)


def _of_verl(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Yields `verl`, or `unchecked` for what needs a package that is not here, and a message."""
    reasons: set[str] = set()
    looks = (_validate_config, _make_trainer, _make_rollout, _make_distillation, _make_reference)
    for look in (_make_supervised,) if is_supervised(config) else looks:
        try:
            look(config)
        except Exception as refused:
            reason = _format_reason(refused)
            # Keys that a class does not know are told by name and place, by a check of their own.
            if "unexpected keyword argument" in reason or "Missing mandatory value" in reason or reason in reasons:
                continue
            reasons.add(reason)
            yield "unchecked" if _needs_backend(refused, config) else "verl", reason


def _validate_config(config: DictConfig) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))


def _make_trainer(config: DictConfig) -> None:
    """Makes the trainer as `main_ppo` does; it starts nothing before its `init`."""
    from verl.trainer.ppo.v1 import get_trainer_cls

    if config.trainer.use_v1:
        OmegaConf.resolve(config)
        get_trainer_cls(config.trainer.v1.trainer_mode)(config)


def _make_rollout(config: DictConfig) -> None:
    """Makes the first objects that verl's workers make of their sections, minutes later; so do the next two."""
    from verl.utils.config import omega_conf_to_dataclass

    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout.checkpoint_engine)


def _make_distillation(config: DictConfig) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    if OmegaConf.select(config, "distillation.enabled"):
        omega_conf_to_dataclass(config.distillation)


def _make_reference(config: DictConfig) -> None:
    """Makes the section of the reference model; verl's worker first names its batch sizes as the actor's are."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass

    reference, model = config.actor_rollout_ref.ref, config.actor_rollout_ref.model
    has_adapter = model.get("lora_rank", 0) > 0 or model.get("lora", {}).get("rank", 0) > 0
    if not need_reference_policy(config) or has_adapter or model.get("lora_adapter_path") is not None:
        return  # with an adapter, the reference is the actor without it
    with open_dict(reference):
        for key in [key for key in reference if str(key).startswith("log_prob_")]:
            value = reference.pop(key)
            name = str(key).removeprefix("log_prob_")
            reference[name if name == "use_dynamic_bsz" else f"ppo_{name}"] = value
        reference.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
    omega_conf_to_dataclass(reference)


def _make_supervised(config: DictConfig) -> None:
    """Makes the objects that verl's SFT trainer begins with."""
    from verl.utils.config import omega_conf_to_dataclass

    for section in ("model", "engine", "optim", "checkpoint"):
        omega_conf_to_dataclass(config[section])


def _needs_backend(error: BaseException, config: DictConfig) -> bool:
    """Returns whether verl failed in code of a rollout backend that is not installed here."""
    name = str(OmegaConf.select(config, "actor_rollout_ref.rollout.name"))
    if name not in ("vllm", "sglang", "trtllm") or importlib.util.find_spec(_PACKAGES.get(name, name)) is not None:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ImportError) or any(f"{name}_rollout" in frame.filename for frame in frames)


def _search_path() -> ConfigSearchPath:
    import verl.trainer

    main = Path(verl.trainer.__path__[0]) / "main_ppo.py"
    return create_automatic_config_search_path(str(main), None, "config")


def _compose_config(search_path: ConfigSearchPath, name: str, overrides: Sequence[str]) -> DictConfig:
    GlobalHydra.instance().clear()
    with quick_yaml():
        return Hydra.create_main_hydra2("main_ppo", search_path).compose_config(name, list(overrides), RunMode.RUN)


@functools.cache
def _load_defaults(trainer: str, engine: str | None) -> dict[str, Any]:
    """Returns verl's own configuration of a trainer for an engine, as plain data."""
    config = _compose_config(_search_path(), trainer, [f"model_engine={engine}"] if engine else [])
    return dict(_to_plain_data(_without_hydra(config), "", []))


def _without_hydra(config: DictConfig) -> DictConfig:
    with open_dict(config):
        config.pop("hydra", None)
    return config


def _to_plain_data(node: Any, path: str, unresolved: list[str]) -> Any:
    """Returns a section as plain data; what cannot be resolved is None, and said in `unresolved`."""
    keys = range(len(node)) if isinstance(node, ListConfig) else list(node)
    values = []
    for key in keys:
        place = f"{path}.{key}" if path else str(key)
        try:
            value = MISSING if OmegaConf.is_missing(node, key) else node[key]
        except InterpolationToMissingValueError:
            value = MISSING
        except OmegaConfBaseException as cause:
            unresolved.append(f"{place}: {_format_reason(cause)}")
            value = None
        values.append(_to_plain_data(value, place, unresolved) if OmegaConf.is_config(value) else value)
    return values if isinstance(node, ListConfig) else dict(zip(map(str, keys), values, strict=True))


def _iter_fields(node: DictConfig, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    target = None if OmegaConf.is_missing(node, "_target_") else node.get("_target_")
    if isinstance(target, str):
        try:
            cls = get_class(target)
        except Exception:  # a class that is not there is refused by verl itself
            cls = None
        if cls is not None and dataclasses.is_dataclass(cls):
            yield path, {"_target_": str, **_read_annotations(cls)}
    for key in node:
        inner = node._get_node(key)
        if isinstance(inner, DictConfig) and not (inner._is_none() or inner._is_missing() or inner._is_interpolation()):
            yield from _iter_fields(inner, f"{path}.{key}" if path else str(key))


@functools.cache
def _read_annotations(cls: type) -> dict[str, Any]:
    try:
        hints = get_type_hints(cls)
    except (NameError, TypeError):  # names that only a type checker imports
        hints = {}
    return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(cls)}


def _copy_config(config: Any) -> Any:
    """Returns a deep copy, in a fifth of the time that `copy.deepcopy` takes for OmegaConf's objects."""
    return pickle.loads(pickle.dumps(config))


def _format_reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no reason given"
    cause = error.__cause__
    if isinstance(error, HydraException) and cause is not None and str(cause) not in text:
        text = f"{text}: {' '.join(str(cause).split())}"
    return f"{type(error).__name__}: {text}"
