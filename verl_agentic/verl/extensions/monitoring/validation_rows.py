"""Patches verl: void episodes of validation have no outcome and no reward.

Wraps `process_validation_metrics`. verl 0.9.1 counts sessions that raised as 0 in `acc`, and leaves them out of
`acc_success_only`. A void episode of this package has raised nothing. Without the patch both curves count it as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl.trainer.ppo import metric_utils
from verl.trainer.ppo.v1 import trainer_base

from verl_agentic.rewards.verl_result import is_result
from verl_agentic.verl.patching import replace, wrap


@wrap(metric_utils, "process_validation_metrics")
def _without_void_results(
    process: Any, data_sources: Any, sample_uids: Any, infos_dict: dict[str, list[Any]], *args: Any, **kwargs: Any
) -> Any:
    is_void = [bool(value) for value in infos_dict.get("void", ())]
    if not any(is_void):
        return process(data_sources, sample_uids, infos_dict, *args, **kwargs)

    def played(values: Sequence[Any]) -> list[Any]:
        return [value for value, void in zip(values, is_void, strict=True) if not void]

    others = {name: values for name, values in infos_dict.items() if not _is_result(name)}
    results = {name: played(values) for name, values in infos_dict.items() if _is_result(name) or name == "pred"}
    curves_by_source = process(data_sources, sample_uids, others, *args, **kwargs)
    for source, curves in process(played(data_sources), played(sample_uids), results, *args, **kwargs).items():
        curves_by_source[source].update({name: curve for name, curve in curves.items() if name not in others})
    return curves_by_source


def _is_result(name: str) -> bool:
    return name == "reward" or is_result(name)


replace(trainer_base, "process_validation_metrics", metric_utils.process_validation_metrics)
