"""The section and adapters of rubrics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.sections import has, plain, section

if TYPE_CHECKING:
    from verl_agentic.rewards.rubric import Rubric


@section("reward.rubric", of="reward")
def rubric(reward: Any) -> Rubric | None:
    """Returns the rubric of the section `reward`; None where another reward manager scores."""
    from verl_agentic.rewards.rubric import Rubric

    manager = reward.get("reward_manager") or {}
    return Rubric.from_config(plain(reward)) if manager.get("name") == "rubric" else None


def count_scorer_processes(num_workers: Any) -> int:
    """Returns the number of processes for components, for each of several workers of verl."""
    share = (os.cpu_count() or 1) // int(num_workers or 1)
    return min(8, max(1, share))


VERLS_WORKERS = 8
"""verl's default of `reward.num_workers`."""


def has_rubric(config: Any) -> bool:
    """Tells whether a rubric scores the episodes of a run."""
    return has(config, "reward.reward_manager.name", "rubric")


def choose_manager(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the reward manager of a rubric. Raises ConfigError if another one is configured."""
    if not has(config, "reward.rubric") or has_rubric(config):
        return
    manager = OmegaConf.select(config, "reward.reward_manager")
    function = OmegaConf.select(config, "reward.custom_reward_function.path")
    if manager.get("name") != "naive" or manager.get("source", "register") != "register" or function is not None:
        raise ConfigError(
            f"reward.rubric is scored by reward.reward_manager.name=rubric, got {manager.get('name')!r} with "
            f"custom_reward_function.path={function!r}; remove one of them"
        )
    yield "reward.reward_manager.name", "rubric", "reward.rubric"


def choose_workers(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields one reward worker of verl: a rubric scores in the event loops, and verl's workers would be idle.

    One, because verl sends rows of an agent loop with an own class of outputs to its workers.
    """
    if has(config, "reward.rubric") and has(config, "reward.num_workers", VERLS_WORKERS):
        yield "reward.num_workers", 1, "reward.rubric"


FEATURES = Features(
    places={"rubric": "reward.rubric"},
    choices=(choose_manager, choose_workers),
    adapters=(
        Adapter(
            module="reward.rubric_manager",
            needs="verl.experimental.reward_loop.reward_manager",
            gives="reward manager rubric",
            chosen_by="agentic.rubric",
            demanded_by=has_rubric,
        ),
        Adapter(
            module="reward.verl_scores",
            needs="verl.experimental.agent_loop",
            gives="rubrics and reward functions for rows of other agent loops",
            chosen_by="reward.reward_manager.name=rubric, or reward.custom_reward_function.path="
            "pkg://verl_agentic.rewards.*",
            demanded_by=lambda config: has_rubric(config) or has(config, "reward.custom_reward_function.path"),
            behind=("rollout.agent_loop", "extensions.monitoring.episode_waits"),  # it makes rows of the agent loop
        ),
        Adapter(
            module="reward.group_rewards",
            needs="verl.trainer.ppo.v1.replay_buffer",
            gives="reward components that see whole groups",
            chosen_by="agentic.rubric",
            demanded_by=has_rubric,
        ),
    ),
)
