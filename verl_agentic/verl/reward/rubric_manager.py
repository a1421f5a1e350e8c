"""The reward manager `rubric`: `reward.reward_manager.name=rubric`, with the rubric in `reward.rubric`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.rewards.answers.response_samples import Task, sample_of_tokens, to_messages
from verl_agentic.rewards.compute_score import refuse_unknown_turns
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.score import Verdicts, void
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import PENDING, SAMPLE, to_pending, to_result


@register("rubric")
class RubricRewardManager(RewardManagerBase):
    """Scores episodes of any agent loop by the rubric of the config."""

    def __init__(
        self,
        config: DictConfig,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        """Reads `reward.rubric`: a mapping or a path. Raises ConfigError if it is missing or invalid."""
        reward: Any = OmegaConf.to_container(config.reward, resolve=True)
        _refuse_what_verl_would_use_instead(reward)
        # Each reward worker of verl has processes of its own.
        share = (os.cpu_count() or 1) // int(reward.get("num_workers") or 1)
        self._scorer = Scorer(Rubric.from_config(reward), workers=min(8, max(1, share)))
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Returns the score of one episode; passes a failure that must stop the run to the trainer."""
        sample = await self.loop.run_in_executor(None, _sample_of, data[-1:], self.tokenizer)
        verdicts: Verdicts = {}
        try:
            score, verdicts = await self._scorer.begin(sample)
        except ScoringError as cause:
            # An exception would only make verl drop the episode. The trainer stops at this marker.
            score = void(self._scorer.rubric, str(cause), what="stop")
        result = to_result(score)
        if self._scorer.rubric.group_terms and score.void is None:
            result[PENDING] = to_pending(sample.to_dict(), verdicts)
        return {"reward_score": result["score"], "reward_extra_info": result}


def _sample_of(data: Any, tokenizer: Any) -> Sample:
    """Returns the episode's record, else that of a single turn. Raises DataError for several turns without a record."""
    columns = {name: column[0] for name, column in data.non_tensor_batch.items()}
    record = (columns.get("tool_extra_fields") or {}).get(SAMPLE)
    if isinstance(record, Mapping):
        return Sample.from_dict(record)
    extra = dict(columns.get("extra_info") or {})
    length = int(data.batch["attention_mask"][0, -data.batch["responses"].shape[-1] :].sum())
    ids = data.batch["responses"][0, :length].tolist()
    if "response_mask" in data.batch.keys():  # noqa: SIM118 - a TensorDict
        mask = data.batch["response_mask"][0, :length].tolist()
    else:
        refuse_unknown_turns(columns.get("__num_turns__"))
        mask = [1] * length
    task = Task(
        id=str(columns.get("uid") or extra.get("index") or ""),
        prompt=to_messages(columns.get("raw_prompt")),
        ground_truth=(columns.get("reward_model") or {}).get("ground_truth"),
        data_source=str(columns.get("data_source") or ""),
        extra=extra,
    )
    return sample_of_tokens(ids, mask, decode=partial(tokenizer.decode, skip_special_tokens=False), task=task)


def _refuse_what_verl_would_use_instead(reward: Mapping[str, Any]) -> None:
    if (reward.get("reward_model") or {}).get("enable"):
        raise ConfigError(
            "verl scores by its reward model and asks no reward manager, got reward.reward_model.enable=true and "
            "reward_manager.name=rubric; serve the model, and use the component orm or prm with its endpoint"
        )
    path = (reward.get("custom_reward_function") or {}).get("path")
    if path is not None:
        raise ConfigError(
            f"a rubric and a reward function cannot both score, got reward.custom_reward_function.path={path!r} and "
            "reward_manager.name=rubric; make the function a component: path/file.py:function"
        )
