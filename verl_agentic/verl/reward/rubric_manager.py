"""The reward manager `rubric`: `reward.reward_manager.name=rubric`, with the rubric in `reward.rubric`.

It scores batches that verl gives to its reward workers. The worker of an agent loop scores its own rows
(`reward.verl_scores`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.compute_score import refuse_unknown_turns
from verl_agentic.rewards.response_samples import Task, sample_of_tokens, to_messages
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import to_result
from verl_agentic.verl.reward.reward_features import count_scorer_processes


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
        self._scorer = Scorer(Rubric.from_config(reward), workers=count_scorer_processes(reward.get("num_workers")))
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Returns the score of one episode; passes a failure that must stop the run to the trainer."""
        sample = await self.loop.run_in_executor(None, _sample_of, data[-1:], self.tokenizer)
        score, _ = await self._scorer.begin_for_verl(sample)
        result = to_result(score)
        return {"reward_score": result["score"], "reward_extra_info": result}


def _sample_of(data: Any, tokenizer: Any) -> Sample:
    """Returns the sample of a row. Raises DataError for several turns without a mask."""
    columns = {name: column[0] for name, column in data.non_tensor_batch.items()}
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
