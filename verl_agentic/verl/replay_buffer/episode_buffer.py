"""Patches verl: its replay buffers poll more often, order the rows by group, and report episode metrics.

Wraps `ReplayBuffer.__init__`, and `sample` of `ReplayBuffer` and `ReplayBufferAsync`; adds
`ReplayBuffer.watch_episodes`.

`trainer.v1.sampler.sampler_kwargs.poll_interval_s` sets the wait (verl: 2 s).

The rows of a group follow each other in a batch. On one data-parallel rank, an update has whole groups. On several,
verl balances lengths over the ranks first, so an update has nearly whole groups.

The metrics `episode/*` are means over a batch's episodes of the numbers of `env_agent`: outcome, tool use, stop
reasons, timings. Outcome and rewards are means over episodes that are not void. External episodes
(`agentic.external_sessions`) only count in their share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from verl.trainer.ppo.v1 import replay_buffer

from verl_agentic.base.errors import ScoringError
from verl_agentic.base.metric import NUM_EPISODES, CountedMean
from verl_agentic.episode.circuit_breaker import CircuitBreaker, agent_error
from verl_agentic.episode.trace.call_statistics import tool_metrics
from verl_agentic.rewards.verl_result import is_result
from verl_agentic.verl.batches.row_store import extras_of, last_rows, split_key
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import add, wrap
from verl_agentic.verl.replay_buffer.buffer_features import poll_interval_s


@wrap(replay_buffer.ReplayBuffer, "__init__")
def _set_poll_interval(initialize: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    initialize(self, *args, **kwargs)
    if (seconds := poll_interval_s(self.sampler_kwargs)) is not None:
        self.poll_interval = seconds


@wrap(replay_buffer.ReplayBuffer, "sample")
@wrap(replay_buffer.ReplayBufferAsync, "sample")
def _sample_with_numbers(
    sample: Any, self: Any, global_steps: int, partition_id: str, batch_size: int
) -> tuple[Any, dict[str, Any]]:
    batch, metrics = sample(self, global_steps, partition_id, batch_size)
    if partition_id != "val":
        # verl keeps the order in which sessions ended: one update would have short rows, the next one long rows.
        batch.reorder(sorted(range(len(batch.keys)), key=lambda place: split_key(batch.keys[place])))
        episodes = _fetch_episodes(batch.keys, partition_id)
        metrics = {**metrics, **mean_numbers(list(episodes.values()))}
        state = state_of(self)
        step, of_step = state.last_rows or (None, {})
        # A step may have several batches.
        state.last_rows = (global_steps, {**(of_step if step == global_steps else {}), **episodes})
        _watch_episodes(self, list(episodes.values()))
    return batch, metrics


def _fetch_episodes(keys: list[str], partition_id: str) -> dict[str, dict[str, Any]]:
    """Returns key -> `extra_fields` of the last row of every episode."""
    return extras_of(list(last_rows(keys).values()), partition_id=partition_id)


def mean_numbers(episodes: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the means of the numbers of episodes, as metrics. Void episodes have no outcome and no reward."""
    values: dict[str, list[float]] = defaultdict(list)
    policy_episodes = [extra for extra in episodes if not (extra.get("reward_extra_info") or {}).get("external")]
    values["external"] += [1.0] * (len(episodes) - len(policy_episodes))
    for extra in policy_episodes:
        numbers = extra.get("reward_extra_info") or {}
        parts = {f"reward/{name}": value for name, value in (extra.get("reward_parts") or {}).items()}
        for name, value in {**numbers, **parts}.items():
            if isinstance(value, Real) and not (numbers.get("void") and is_result(name)):
                values[name].append(float(value))
    means = {name: CountedMean(sum(of) / len(of), count=len(of)) for name, of in values.items() if of}
    tools = tool_metrics([extra.get("tool_counts") or {} for extra in policy_episodes])
    metrics = {f"episode/{name}": value for name, value in {**means, **tools}.items()}
    return {NUM_EPISODES: float(len(policy_episodes)), **metrics} if metrics else {}


def _watch_episodes(self: Any, episodes: Sequence[Mapping[str, Any]]) -> None:
    """Raises if a run should stop."""
    _stop_when_asked(episodes)
    _break_circuit(state_of(self).breaker, episodes)


def _stop_when_asked(episodes: Sequence[Mapping[str, Any]]) -> None:
    for extra in episodes:
        if (extra.get("reward_extra_info") or {}).get("scoring/stop"):
            raise ScoringError(extra.get("error") or "a component of the rubric failed")


def _break_circuit(breaker: CircuitBreaker | None, episodes: Sequence[Mapping[str, Any]]) -> None:
    if breaker is None:
        return
    for extra in episodes:
        numbers = extra.get("reward_extra_info") or {}
        if "void" in numbers:
            is_failure = numbers["void"] > 0 and not any(numbers.get(f"scoring/{w}") for w in ("masked", "abstained"))
            failure = agent_error(extra["stop_reason"], extra.get("error"))
            breaker.record((extra.get("error") or extra["stop_reason"]) if is_failure else None, agent_error=failure)
    breaker.check()


# For buffers that drop episodes before they are sampled.
add(replay_buffer.ReplayBuffer, "watch_episodes", _watch_episodes)
