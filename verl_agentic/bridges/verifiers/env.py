"""The environment `verifiers`: an episode of verifiers is an agent behind the gateway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import DataError, EnvError
from verl_agentic.base.settings import check_options
from verl_agentic.base.types import Reward
from verl_agentic.bridges.foreign_episode import RewardConfig, RewardOf, RewardTrack
from verl_agentic.bridges.verifiers.served import key_of, library, serving

if TYPE_CHECKING:
    from verl_agentic.bridges.harness.agent import PolicyEndpoint
    from verl_agentic.bridges.harness.env import HarnessEnv

_NO_KEY = "VERL_AGENTIC_NO_KEY"  # an environment variable that is not set: the address of the gateway has the key
_INFRASTRUCTURE = frozenset({"SandboxError", "ToolsetError", "InterceptionError", "TunnelError"})
_SHOWN_CHARS = 500


class EpisodeFailedError(Exception):
    """The policy may have caused an error that verifiers recorded."""


def make_env(
    row: EnvRow,
    *,
    taskset: str = "",
    env: Mapping[str, Any] | None = None,
    reward_of: RewardOf = "sum",
    full_reward: float | None = None,
    partial_weight: float = 0.0,
    harness: Mapping[str, Any] | None = None,
) -> HarnessEnv:
    """Returns the environment of one episode.

    Args:
        row: a row of `make_rows`.
        taskset: id of an installed taskset. Empty: that of `env`, or the example.
        env: the configuration `env` of verifiers, such as `{"agent": {"max_turns": 8}}`. Roles without a runtime run as
            local processes.
        reward_of: how the rewards of several agents become one. Agents that verifiers does not train do not count.
        full_reward: the reward of a complete success. None: the sum of the weights of the taskset's rewards.
        partial_weight: shaping of an episode without complete success: this times its share of `full_reward`.
        harness: options of the environment `harness`, such as `{"ignore": ["temperature"]}`.

    Raises:
        ConfigError: an option has a wrong value.
        DataError: the row's ground truth is no task.
        MissingDependencyError: an extra is not installed.
    """
    from verl_agentic.bridges.harness import make_env as make_harness_env

    if not isinstance(row.ground_truth, Mapping):
        raise DataError(f"the ground truth of a row must be its task, got {row.ground_truth!r}; use make_rows")
    config = RewardConfig(reward_of=reward_of, full_reward=full_reward or 1.0, partial_weight=partial_weight)
    key, data = key_of(taskset, env), row.ground_truth
    library()

    async def play(_: EnvRow, endpoint: PolicyEndpoint) -> list[_Played]:
        return await _play_episode(key, data, endpoint)

    def score(_: EnvRow, played: list[_Played], __: Transcript) -> Reward:
        return _reward_of(played, config, is_full_given=full_reward is not None)

    options = check_options(make_harness_env, harness or {}, what="harness")
    return make_harness_env(row, **{**options, "agent": play, "score": score})


@dataclass(frozen=True, kw_only=True)
class _Played:
    """One agent of an episode."""

    reward: float
    full_reward: float
    details: Mapping[str, float]


async def _play_episode(key: str, data: Mapping[str, Any], endpoint: PolicyEndpoint) -> list[_Played]:
    """Plays an episode of verifiers.

    Raises:
        EnvError: infrastructure failed.
        EpisodeFailedError: anything else failed.
    """
    vf = library()
    async with serving(key) as env:
        task_type = env.taskset.task_type()
        task = task_type(task_type.data_type().model_validate(data), env.config.taskset.task)
        client = vf.EvalClientConfig(base_url=endpoint.base_url, api_key_var=_NO_KEY)
        episode = await env.run_episode(task, vf.ModelContext(client=client, model=endpoint.model))
    if not episode.ok:
        _raise_failure([*episode.errors, *(error for trace in episode.traces for error in trace.errors)])
    return [_read_trace(trace) for trace in episode.traces if trace.agent.trainable]


def _raise_failure(errors: list[Any]) -> None:
    excerpt = "; ".join(f"{error.type}: {error.message}" for error in errors)[:_SHOWN_CHARS]
    is_infra = any(
        error.type in _INFRASTRUCTURE or (error.type == "ProviderError" and (error.status_code or 0) >= 500)
        for error in errors
    )
    raise (EnvError if is_infra else EpisodeFailedError)(
        f"the episode of verifiers failed, got {excerpt or 'no reason'}"
    )


def _read_trace(trace: Any) -> _Played:
    rewards = {name: reward for name, reward in trace.rewards.items() if reward is not None}
    numbers = {**{name: reward.score for name, reward in rewards.items()}, **trace.metrics}
    return _Played(
        reward=trace.reward,
        full_reward=sum(max(reward.weight, 0.0) for reward in rewards.values()),
        details={name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)},
    )


def _reward_of(played: list[_Played], config: RewardConfig, *, is_full_given: bool) -> Reward:
    if not is_full_given:
        of_all = {"sum": sum, "last": lambda full: full[-1], "max": max}[config.reward_of]
        full = of_all([agent.full_reward for agent in played]) if played else 0.0
        config = replace(config, full_reward=full or 1.0)
    track = RewardTrack(config)
    for agent in played:
        track.add(agent.reward)
    reward = track.reward()
    return replace(reward, info={**reward.info, **{k: v for agent in played for k, v in agent.details.items()}})
