"""Patches verl: entropy and KL of a batch are reported in nats per sampled token.

Wraps `PPOTrainer._compute_advantage`, which gets the metrics `batch/entropy` and `batch/ref_kl`, and
`trainer_base.apply_kl_penalty`: rows without sampled tokens (void rows, padding) do not count in
`actor/reward_kl_penalty` and in the adaptive coefficient. verl counts them as rows with a KL of 0.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import transfer_queue as tq
from omegaconf import OmegaConf
from torch.nn.utils.rnn import pad_sequence
from verl.trainer.ppo.v1 import trainer_base

from verl_agentic.credit.batch_metrics.token_means import token_means
from verl_agentic.verl.log_and_continue import log_and_continue
from verl_agentic.verl.patching import wrap

_COLUMNS = {"entropy_BT": "entropy", "log_prob_BT": "old_log_probs", "ref_log_prob_BT": "ref_log_prob"}
_KL = "actor/reward_kl_penalty"


@wrap(trainer_base.PPOTrainer, "_compute_advantage")
def _report_token_means(compute: Any, self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
    with log_and_continue("entropy and KL per token"):  # before verl, which may take tokens out of the mask
        metrics.update(_token_means(self.config, batch))
    return compute(self, batch, metrics)


def _token_means(config: Any, batch: Any) -> dict[str, float]:
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
    columns = dict(_COLUMNS)
    if OmegaConf.select(config, "algorithm.implicit_reward") is not None:
        del columns["ref_log_prob_BT"]  # the reward model is in the place of the reference
    fields = ["response_mask", *columns.values()]
    fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
    padded = {name: pad_sequence(list(fetched[name].unbind()), batch_first=True) for name in fields if name in fetched}
    mask_BT = padded["response_mask"].bool()
    return dict(token_means(mask_BT, **{ours: padded[name] for ours, name in columns.items() if name in padded}))


@wrap(trainer_base, "apply_kl_penalty")
def _penalise_sampled_rows(apply: Any, data: Any, kl_ctrl: Any, *args: Any, **kwargs: Any) -> Any:
    mask_BT = data.batch["response_mask"].bool()
    num_rows = int(mask_BT.any(dim=-1).sum())
    fixed = SimpleNamespace(value=kl_ctrl.value, update=lambda **_: None)
    data, metrics = apply(data, fixed, *args, **kwargs)
    if num_rows:
        metrics[_KL] *= len(mask_BT) / num_rows
        kl_ctrl.update(current_kl=metrics[_KL], n_steps=num_rows)
    return data, metrics
