"""Patches verl: `auto_set_device` moves the root `agentic`, and stops a run whose adapters or sections are not sound.

It stops before Ray is started.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_agentic.verl.config_root import prepare
from verl_agentic.verl.features import all_adapters, all_features
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.sections import refused_sections, root_keys_in_errors

RESOLVER = "verl_agentic"


def install_resolver(check: Callable[[], None]) -> None:
    """Makes `${verl_agentic:plugin}` and `${verl_agentic:sum,1,2}` resolve when `check` passes.

    A recipe that holds such an interpolation cannot start without the plugin, not even when nothing of it was
    installed: OmegaConf then knows no such resolver, and says so.
    """

    def required(kind: str, *numbers: int) -> str | int:
        check()
        return sum(numbers) if kind == "sum" else kind

    OmegaConf.register_new_resolver(RESOLVER, required, replace=True)


def install_check(load: Callable[[list[str]], None]) -> None:
    """Makes verl's `auto_set_device` call `load` with the adapters that a configuration needs; it may raise.

    All of verl's trainers, SFT included, call it first, in the driver. It also is the last to see `trainer.device=cpu`:
    without the platform cpu it silently writes `cuda` over it.
    """
    from verl.utils import device

    @wrap(device, "auto_set_device")
    def check_and_set_device(auto_set_device: Any, config: Any) -> None:
        if chosen := prepare(config):
            logging.getLogger(__name__).info("verl_agentic chose %s", ", ".join(chosen))
        load(demanded(config))
        # Frame 1 is that of the wrapper, frame 2 that of verl's trainer.
        main = sys._getframe(2).f_globals
        for watch in (watch for features in all_features() for watch in features.watchers):
            watch(config, main)
        with root_keys_in_errors():
            for check in (check for features in all_features() for check in features.checks):
                check(config)
        for refused in refused_sections(config):
            raise refused
        auto_set_device(config)


def demanded(config: DictConfig) -> list[str]:
    """Returns the adapters without which a run with a configuration, and in this environment, must not start."""
    return [
        adapter.module for adapter in all_adapters() if adapter.demanded_by is not None and adapter.demanded_by(config)
    ]
