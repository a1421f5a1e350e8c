"""Texts of alarms: the docs have all of them, and the keys that they name exist."""

from __future__ import annotations

import inspect
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from verl_agentic.observe.diagnosis.check import check_names, load_check
from verl_agentic.observe.health.monitor import ALARMS

PAGE = Path(__file__).parents[3] / "docs" / "health.md"
_ROOTS = ("agentic", "actor_rollout_ref", "algorithm", "trainer", "data", "critic", "reward")
_KEY = re.compile(rf"(?<![\w./])(?:{'|'.join(_ROOTS)})(?:\.\w+)+")


@pytest.mark.parametrize("name", ALARMS)
def test_the_page_has_every_alarm_with_its_defaults(name: str) -> None:
    alarm = ALARMS[name]
    plain = {k: v for k, v in alarm.defaults.items() if not (isinstance(v, str) and "*" in v)}
    options = ", ".join(f"{k}={v}" if isinstance(v, str) else f"{k}={v:g}" for k, v in plain.items())
    assert f"| `{name}` | {alarm.what} | {options} |" in PAGE.read_text(encoding="utf-8")


def test_keys_that_are_advised_exist() -> None:
    verl = find_spec("verl")
    assert verl is not None and verl.origin is not None
    folder = Path(verl.origin).parent / "trainer" / "config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        composed = hydra.compose("ppo_trainer")
    plugin = files("verl_agentic.config").joinpath("agentic/plugin.yaml")
    OmegaConf.set_struct(composed, False)
    known = OmegaConf.to_container(OmegaConf.merge(composed, OmegaConf.load(str(plugin))), resolve=False)
    modules = [inspect.getmodule(load_check(name).judge) for name in check_names()]
    advised = {key for module in modules for key in _KEY.findall(_text(module))}
    assert len(advised) > 20
    assert [key for key in sorted(advised) if ".custom.agentic." not in key and not _has(known, key)] == []


def _text(module: object) -> str:
    # Strings that stand beside each other are one.
    return re.sub(r'"\s*\n\s*f?"', "", inspect.getsource(module))  # type: ignore[arg-type]


def _has(config: object, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True
