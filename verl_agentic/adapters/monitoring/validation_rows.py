"""Patches verl: void episodes of validation have no outcome and no reward.

Wraps `process_validation_metrics`. verl counts sessions that raised as 0 in `acc`, and leaves them out of
`acc_success_only`. A void episode of this package has raised nothing. Without the patch both curves count it as 0.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo import metric_utils
from verl.trainer.ppo.v1 import trainer_base

from verl_agentic.adapters.patching import replace, wrap
from verl_agentic.rewards.verl_result import is_result


@wrap(metric_utils, "process_validation_metrics")
def _without_void_results(
    process: Any, data_sources: Any, sample_uids: Any, infos_dict: dict[str, list[Any]], *args: Any, **kwargs: Any
) -> Any:
    is_void = [bool(value) for value in infos_dict.get("void", ())]
    if any(is_void):
        infos_dict = {
            name: [None if void else value for value, void in zip(values, is_void, strict=True)]
            if name == "reward" or is_result(name)
            else values
            for name, values in infos_dict.items()
        }
    return process(data_sources, sample_uids, infos_dict, *args, **kwargs)


replace(trainer_base, "process_validation_metrics", metric_utils.process_validation_metrics)
