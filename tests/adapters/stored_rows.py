"""Training rows in a stand-in of TransferQueue, as agent loops store them, and verl's batch of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from queues import Queue
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto

from verl_agentic.rewards.verl_result import PLACE

PROMPT = [1, 2]


class StoredRows(Queue):
    """Rows in the order in which they were put."""

    def put_row(
        self,
        key: str,
        rewards: Sequence[float],
        *,
        mask: Sequence[int] | None = None,
        place: str | None = "last",
        info: dict[str, Any] | None = None,
        tag: dict[str, Any] | None = None,
        **columns: Any,
    ) -> None:
        """Puts a row in; without a place, one of an agent loop that is not ours."""
        extra: dict[str, Any] = {"reward_extra_info": info or {}}
        if place is not None:
            extra |= {PLACE: place, "steps": []}
        mask = [1] * len(rewards) if mask is None else mask
        self.tags["train"][key] = {"status": "success", "seq_len": len(PROMPT) + len(mask), **(tag or {})}
        self.rows[key] = {
            "uid": key.rsplit("_", 2)[0],
            "extra_fields": extra,
            "data_source": "tasks",
            "rm_scores": torch.tensor(rewards, dtype=torch.float32),
            "response_mask": torch.tensor(mask),
            "prompts": torch.tensor(PROMPT),
            "responses": torch.arange(len(mask)) + 10,
            **columns,
        }

    def kv_batch_put(self, *, keys: Sequence[str], partition_id: str, **stored: Any) -> Any:
        super().kv_batch_put(keys=keys, partition_id=partition_id, **stored)
        return self.meta(keys)

    def meta(self, keys: Sequence[str] | None = None, **extra_info: Any) -> KVBatchMeta:
        """Returns verl's name for rows; of all there are, without keys."""
        keys = list(self.rows if keys is None else keys)
        tags = [dict(self.tags["train"][key]) for key in keys]
        return KVBatchMeta(
            keys=keys, tags=tags, partition_id="train", fields=sorted(self.rows[keys[0]]), extra_info=extra_info
        )


def algorithm(**more: Any) -> DictConfig:
    """Returns the section `algorithm` of verl's config, as far as it says something about advantages."""
    values = {"adv_estimator": "grpo", "gamma": 1.0, "lam": 0.95, "norm_adv_by_std_in_grpo": False, **more}
    return OmegaConf.create({"use_kl_in_reward": False, "use_pf_ppo": False, "pf_ppo": {}, **values})


def to_data(keys: Sequence[str], rewards: Any, mask: Any, **columns: torch.Tensor) -> DataProto:
    """Returns what verl's trainer holds of rows when it asks for advantages."""
    tensors = {
        "token_level_rewards": torch.as_tensor(rewards, dtype=torch.float32),
        "response_mask": torch.as_tensor(mask),
        **columns,
    }
    uids = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
    return DataProto(batch=TensorDict(tensors, batch_size=len(keys)), non_tensor_batch={"uid": uids})
