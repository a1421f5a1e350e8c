"""A trainer that takes the next estimator, then the next policy loss, every two steps: all of them in one run.

verl loads this module in every process, ahead of its plugins: nothing of verl may be imported at its top.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from typing import Any

from omegaconf import open_dict

from verl_agentic.adapters.hooks import when_imported
from verl_agentic.algorithms.advantage import advantage_names
from verl_agentic.algorithms.policy_loss import policy_loss_names
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample

STEPS_EACH = 2
VERLS = (
    *("gae", "gdpo", "gpg", "grpo", "grpo_passk", "grpo_vectorized", "opo", "optimal_token_baseline"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo", "rloo_vectorized"),
    "tir_optimal_token_baseline",
)
PLAN = [("estimator", name) for name in sorted({*VERLS, *advantage_names()})]
PLAN += [("loss", name) for name in policy_loss_names()]
_OPTIONS = {"safe_gdpo": {"keys": ["acc", "num_turns"]}}


@component(kind="outcome", inline=True)
def coin(sample: Sample) -> float:
    """Returns 0 or 1, by what was written: even a random model earns something now and then."""
    return float(zlib.crc32("".join(turn.text for turn in sample.turns).encode()) % 2)


def _register() -> None:
    importlib.import_module("verl_agentic.adapters.trainers")
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, register_trainer
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils import losses

    class CyclingTrainer(TRAINER_REGISTRY["agentic_sync"]):
        def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
            kind, name = PLAN[(self.global_steps - 1) // STEPS_EACH]
            actor = self.config.actor_rollout_ref.actor
            with open_dict(self.config):
                self.config.algorithm.adv_estimator = name if kind == "estimator" else "grpo"
                self.config.algorithm.credit = {"options": _OPTIONS.get(name, {})}
            if kind == "loss":
                actor.policy_loss.loss_mode = name
                loss = functools.partial(losses.ppo_loss, config=omega_conf_to_dataclass(actor))
                self.actor_rollout_wg.set_loss_fn(loss)
            return super().step(metrics, timing_raw)

    register_trainer("agentic_cycling")(CyclingTrainer)


when_imported("verl.trainer.ppo.v1", _register)
