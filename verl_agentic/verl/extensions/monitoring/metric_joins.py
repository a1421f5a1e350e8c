"""Patches verl: the metrics of this package are joined over the updates of a step by their descriptions.

Wraps `MetricsAggregator.add_step_metrics`, `get_aggregated_metrics` and `reset`. verl joins the metrics of a step with
several updates (`separate_async`) by words in their names: a share called `episode/stop/max_tokens` becomes a maximum,
and `episode/calls/summarise` a sum.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.v1.utils import MetricsAggregator

from verl_agentic.base.metric import Metric, find_metric, join_updates
from verl_agentic.credit.policy_loss import load_policy_loss, policy_loss_names
from verl_agentic.verl.patching import wrap

_MAKERS = (
    "verl_agentic.episode.records.episode",
    "verl_agentic.credit.batch_metrics.token_means",
    "verl_agentic.credit.batch_metrics.batch_health",
    "verl_agentic.methods.prompt_information",
    "verl_agentic.verl.extensions.monitoring.health.batch_audit",
    "verl_agentic.methods.cost_limits",
    "verl_agentic.credit.estimate",
    "verl_agentic.credit.losses.ppo",
    *(load_policy_loss(name).function.__module__ for name in policy_loss_names()),
    "verl_agentic.sampling.gating.gate_stats",
    "verl_agentic.sampling.prompt_sampler",
    "verl_agentic.observe.live.time_ledger",
    "verl_agentic.observe.health.monitor",
    "verl_agentic.graders.judge.drift",
)
"""Modules that describe the metrics that they make."""


def _collect_metrics() -> tuple[Metric, ...]:
    modules = map(importlib.import_module, _MAKERS)
    return tuple(metric for module in modules for metric in getattr(module, "METRICS", ()))


METRICS = (
    *_collect_metrics(),
    Metric(name="actor/lr_scale", unit="factor", per="update", rows="the learning rate", join="last"),
    Metric(name="critic/returns_outside_bins", unit="share", per="token, mean of micro-batches", rows="sampled tokens"),
)
"""Descriptions of all metrics of this package; the first one that matches a name counts."""


@wrap(MetricsAggregator, "add_step_metrics")
def _add_update(add: Any, self: Any, metrics: Mapping[str, Any], sample_count: int = 0) -> None:
    our_metrics = {
        name: value for name, value in metrics.items() if _is_number(value) and find_metric(name, METRICS) is not None
    }
    vars(self).setdefault("agentic_updates", []).append((our_metrics, sample_count))
    add(self, {name: value for name, value in metrics.items() if name not in our_metrics}, sample_count)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) or (isinstance(value, torch.Tensor) and value.numel() == 1)


@wrap(MetricsAggregator, "get_aggregated_metrics")
def _join_metrics(join: Any, self: Any) -> dict[str, Any]:
    updates = [(our_metrics, count) for our_metrics, count in vars(self).get("agentic_updates", []) if our_metrics]
    return join(self) | join_updates(*map(list, zip(*updates, strict=True)), table=METRICS) if updates else join(self)


@wrap(MetricsAggregator, "reset")
def _reset_updates(reset: Any, self: Any) -> None:
    reset(self)
    vars(self).pop("agentic_updates", None)
