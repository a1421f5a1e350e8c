"""A trainer that takes the next estimator and the next policy loss in every step: all of them in one run.

verl loads this module in every process, ahead of its plugins: nothing of verl may be imported at its top.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any

from omegaconf import open_dict

from verl_agentic.credit.advantage import advantage, advantage_names
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.policy_loss import policy_loss_names
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.verl.import_hooks import when_imported

VERLS = (
    *("gae", "gdpo", "gpg", "grpo", "grpo_passk", "grpo_vectorized", "opo", "optimal_token_baseline"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo", "rloo_vectorized"),
    "tir_optimal_token_baseline",
)
IMPLICIT = "cycling:as_they_are"
"""The estimator of the step with implicit rewards."""
_ESTIMATORS = [*sorted({*VERLS, *advantage_names()}), IMPLICIT]
# The teacher of `sdpo` lags behind the actor from its second step on.
_LOSSES = [name for loss in policy_loss_names() for name in ([loss, loss] if loss == "sdpo" else [loss])]
PLAN = [(estimator or "grpo", loss or "vanilla") for estimator, loss in itertools.zip_longest(_ESTIMATORS, _LOSSES)]
"""Estimator and policy loss of each step."""
_SCORES = (0.25, 1.0, 0.0, 0.5)
_OPTIONS = {"safe_gdpo": {"keys": ["acc", "num_turns"]}}


@component(kind="outcome", inline=True)
def places(sample: Sample) -> float:
    """Returns what a session of a group gets, whatever it wrote: one is best, one fails, no two are alike."""
    return _SCORES[int(sample.id.rpartition("/")[2]) % len(_SCORES)]


@advantage()
def as_they_are(batch: CreditBatch) -> Advantages:
    """Returns the rewards themselves, and tells their sum."""
    given = batch.rewards_BT
    return Advantages(advantages_BT=given, returns_BT=given, metrics={"rewards_seen": float(given.sum())})


def _register() -> None:
    importlib.import_module("verl_agentic.verl.trainer.trainers")
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, register_trainer
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils import losses

    from verl_agentic.verl.extensions.methods.trainer import prompt_effect, self_teacher

    own_gap: list[float] = []
    teacher_gap: list[float] = []
    log_probs_of, compute_columns = prompt_effect.log_probs_of, self_teacher.compute_columns

    def compared(trainer: Any, batch: Any, rows: Any, *, keys: Any, beside: Any) -> Any:
        """Notes how far a text under its own prompt is from what the trainer computed of the batch."""
        found = log_probs_of(trainer, batch, rows, keys=keys, beside=beside)
        sampled = tq.kv_batch_get(
            keys=[batch.keys[place] for place in beside],
            partition_id=batch.partition_id,
            select_fields=["prompts", "old_log_probs"],
        )
        columns = (rows, found.unbind(), sampled["prompts"].unbind(), sampled["old_log_probs"].unbind())
        gaps = [
            float((computed - old[: len(computed)]).abs().max())
            for row, computed, prompt, old in zip(*columns, strict=True)
            if row["prompts"].tolist() == prompt.tolist()
        ]
        own_gap.append(max(gaps))
        return found

    def taught(trainer: Any, batch: Any, rows: Any, *, asks: Any, answers: Any, **given: Any) -> Any:
        """Notes how far what the teacher says is from what the actor would."""
        found = compute_columns(trainer, batch, rows, asks=asks, answers=answers, **given)
        actors = log_probs_of(trainer, batch, rows, **given)
        teacher_gap.append(float((found["log_probs"].values() - actors.values()).abs().max()))
        return found

    class CyclingTrainer(TRAINER_REGISTRY["agentic_sync"]):
        def __init__(self, config: Any) -> None:
            # Not where this module is only imported, as in the process of the tests.
            prompt_effect.log_probs_of, self_teacher.compute_columns = compared, taught
            super().__init__(config)

        def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
            estimator, loss = PLAN[self.global_steps - 1]
            actor = self.config.actor_rollout_ref.actor
            if not hasattr(self, "implicit_reward"):
                self.implicit_reward = self.config.algorithm.implicit_reward
            with open_dict(self.config):
                self.config.algorithm.adv_estimator = estimator
                self.config.algorithm.implicit_reward = self.implicit_reward if estimator == IMPLICIT else None
                self.config.algorithm.credit = {"options": _OPTIONS.get(estimator, {})}
                self.config.algorithm.self_teacher = {"tau": 0.1} if loss == "sdpo" else None
                # The second step of `sdpo`, whose teacher lags behind, diverges over the most likely tokens.
                is_second = loss == "sdpo" and PLAN[self.global_steps - 2][1] == "sdpo"
                actor.policy_loss.options = {"alpha": 0.5, "top_tokens": 8} if is_second else {}
            actor.policy_loss.loss_mode = loss
            loss_function = functools.partial(losses.ppo_loss, config=omega_conf_to_dataclass(actor))
            self.actor_rollout_wg.set_loss_fn(loss_function)
            return super().step(metrics, timing_raw)

        def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
            fields = ["old_log_probs", "ref_log_prob", "rm_scores", "response_mask"]
            fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
            old, ref, scores, mask = (fetched[name].values().double() for name in fields)
            log_ratio, count = float(((ref - old) * mask).sum()), float(mask.sum())
            metrics |= {"test/log_ratio_sum": log_ratio, "test/log_ratio_mean": log_ratio / count}
            metrics["test/score_sum"] = float(scores.sum())
            batch = super()._compute_advantage(batch, metrics)
            metrics["test/own_log_prob_gap"] = own_gap[-1] if own_gap else -1.0
            metrics["test/teacher_gap"] = teacher_gap[-1] if teacher_gap else -1.0
            return batch

    register_trainer("agentic_cycling")(CyclingTrainer)


when_imported("verl.trainer.ppo.v1", _register)
