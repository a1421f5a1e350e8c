"""The section `reward.rubric`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_agentic.adapters.features import Adapter, Features
from verl_agentic.adapters.sections import has, plain, section

if TYPE_CHECKING:
    from verl_agentic.rewards.rubric import Rubric


@section("reward.rubric", of="reward")
def rubric(reward: Any) -> Rubric | None:
    """Returns the rubric of the section `reward`; None where another reward manager scores."""
    from verl_agentic.rewards.rubric import Rubric

    manager = reward.get("reward_manager") or {}
    return Rubric.from_config(plain(reward)) if manager.get("name") == "rubric" else None


def has_rubric(config: Any) -> bool:
    """Tells whether a rubric scores the episodes of a run."""
    return has(config, "reward.reward_manager.name", "rubric")


FEATURES = Features(
    adapters=(
        Adapter(
            module="reward.rubric_manager",
            needs="verl.experimental.reward_loop.reward_manager",
            gives="reward manager rubric",
            chosen_by="reward.reward_manager.name=rubric, reward.rubric",
            demanded_by=has_rubric,
        ),
        Adapter(
            module="reward.verl_scores",
            needs="verl.experimental.agent_loop",
            gives="rubrics and reward functions for rows of other agent loops",
            chosen_by="reward.reward_manager.name=rubric, or reward.custom_reward_function.path="
            "pkg://verl_agentic.rewards.*",
            behind=("rollout.agent_loop", "monitoring.episode_waits"),  # it makes rows of the agent loop
        ),
        Adapter(
            module="reward.group_rewards",
            needs="verl.trainer.ppo.v1.replay_buffer",
            gives="reward components that see whole groups",
            chosen_by="reward.rubric",
            demanded_by=has_rubric,
        ),
    ),
)
