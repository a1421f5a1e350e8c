"""A trainer that ends at a budget of sampled tokens, so that methods can be compared at equal cost.

verl loads this module in every process, ahead of its plugins (`VERL_USE_EXTERNAL_MODULES`): nothing of verl may be
imported at its top. Every token that the policy sampled counts, whatever became of its episode: trained on, dropped by
a gate, left over, or void.
"""

from __future__ import annotations

import functools
import importlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import open_dict

from verl_agentic.verl.import_hooks import when_imported

_SAMPLED = "model"


class TokenMeter:
    """Counts what a replay buffer has seen of the policy."""

    def __init__(self, buffer: Any) -> None:
        """Wraps the ways in which groups leave the buffer."""
        self.tokens = 0
        self.groups = 0
        self.step: dict[str, float] = {}
        self._counted: set[str] = set()
        sample, clear_groups = buffer.sample, buffer._clear_groups

        @functools.wraps(sample)
        def sample_and_count(global_steps: int, partition_id: str, batch_size: int) -> Any:
            batch, metrics = sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
            if partition_id != "val":
                self._look_at(self._count(batch.keys, partition_id))
            return batch, metrics

        @functools.wraps(clear_groups)
        def count_and_clear(partition_id: str, uids: set[str]) -> None:
            if partition_id != "val":
                self._count([k for k in buffer.partitions[partition_id] if _group(k) in uids], partition_id)
            clear_groups(partition_id, uids)

        buffer.sample, buffer._clear_groups = sample_and_count, count_and_clear

    def _count(self, keys: Iterable[str], partition_id: str) -> dict[str, list[Mapping[str, Any]]]:
        """Counts rows that have not been counted; returns what those of each group carry."""
        import transfer_queue as tq

        new = [key for key in keys if _group(key) not in self._counted]
        if not new:
            return {}
        fetched = tq.kv_batch_get(keys=new, partition_id=partition_id, select_fields=["extra_fields"])
        groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        carried: list[Any] = list(fetched["extra_fields"])
        for key, extra in zip(new, carried, strict=True):
            groups[_group(key)].append(getattr(extra, "data", extra))
        self._counted |= groups.keys()
        self.groups += len(groups)
        self.tokens += sum(sampled_tokens(extra) for extras in groups.values() for extra in extras)
        return groups

    def _look_at(self, groups: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """Notes what the groups that are trained on say."""
        numbers = [[extra["reward_extra_info"] for extra in extras] for extras in groups.values()]
        outcomes = [{row["acc"] for row in rows if not row["void"]} for rows in numbers]
        self.step = {
            "benchmark/zero_signal_share": sum(len(found) < 2 for found in outcomes) / max(len(outcomes), 1),
            "benchmark/void_share": _mean([row["void"] for rows in numbers for row in rows]),
        }

    def metrics(self) -> dict[str, float]:
        """Returns the totals so far, and shares of the last batch."""
        return {"benchmark/tokens": float(self.tokens), "benchmark/groups": float(self.groups), **self.step}


def sampled_tokens(extra: Mapping[str, Any]) -> int:
    """Returns the tokens of a row that the policy sampled; the mask of a void row would say none.

    A branch copies the tokens of its sibling up to the branch point: they were sampled once.
    """
    numbers = extra["reward_extra_info"]
    copied = int(numbers.get("shared_tokens", 0) / numbers.get("rows", 1))
    return sum(end - start for start, end, kind, _ in extra["segments"] if kind == _SAMPLED) - copied


def _group(key: str) -> str:
    return key.split("_")[0]


def _mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


def _register() -> None:
    importlib.import_module("verl_agentic.verl.trainer.trainers")
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, register_trainer

    class BudgetTrainer(TRAINER_REGISTRY["agentic_sync"]):
        """`agentic_sync`, which saves and ends after the step that comes nearest to `+benchmark.max_tokens`."""

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self._tokens = TokenMeter(self.replay_buffer)

        def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
            before = self._tokens.tokens
            batch = super().step(metrics, timing_raw)
            metrics.update(self._tokens.metrics())
            tokens = self._tokens.tokens
            # Ending at the first step beyond it would favour methods that play more in a step.
            if tokens + (tokens - before) / 2 >= int(self.config.benchmark.max_tokens):
                self.total_training_steps = self.global_steps
                with open_dict(self.config):
                    self.config.trainer.save_freq = 1
            return batch

    register_trainer("credit_benchmark")(BudgetTrainer)


when_imported("verl.trainer.ppo.v1", _register)
