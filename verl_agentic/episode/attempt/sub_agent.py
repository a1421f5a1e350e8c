"""Sub-agents that an environment starts: attempts of their own, whose turns are rows of the episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verl_agentic.base.env import EnvRow, ToolEnv
from verl_agentic.base.errors import EnvError
from verl_agentic.base.tools.delegate import SUB_AGENT, NoAnswerError
from verl_agentic.base.tools.tool import Tool
from verl_agentic.base.types import VOID_REASONS, Message
from verl_agentic.episode.attempt.attempt import Attempt
from verl_agentic.episode.attempt.exploration import Exploration
from verl_agentic.episode.attempt.stopped import WITHOUT_ANSWER
from verl_agentic.episode.trace import timeline


async def run_sub_agent(
    parent: Attempt,
    prompt: Sequence[Message],
    *,
    tools: Sequence[Tool],
    max_turns: int,
    max_calls: int | None = None,
    is_trained: bool = True,
    agent: str = SUB_AGENT,
) -> str:
    """Runs a sub-agent to its end; see `base.tools.delegate.SubAgentRunner`."""
    parent.info["sub_agents"] += 1
    limits = parent.setup.limits
    limits = replace(limits, max_turns=max_turns, max_calls_per_turn=max_calls or limits.max_calls_per_turn)
    if limits.max_episode_tokens is not None:
        limits = replace(limits, max_episode_tokens=max(1, limits.max_episode_tokens - parent.num_sampled))
    row = EnvRow(prompt=tuple(prompt))
    helper = Attempt(
        setup=replace(parent.setup, limits=limits, exploration=Exploration(), instruction="", constraint=""),
        row=row,
        request_id=f"{parent.request_id}-sub{int(parent.info['sub_agents'])}",
        agent=agent,
        label=timeline.SUB_AGENT,
    )
    try:
        stop = await helper.run(ToolEnv(row, tools))
    finally:
        parent.num_sampled += helper.num_sampled
    if stop in VOID_REASONS:
        raise EnvError(f"a sub-agent could not be played to its end, got {stop.value}: {helper.error}")
    if is_trained:
        parent.side_rows += helper.finish(is_void=False, filler_id=0)
    for name, count in helper.info.items():
        parent.info[name] += count
    answer = helper.transcript(stop).final_answer
    if stop in WITHOUT_ANSWER or not answer.strip():
        raise NoAnswerError(f"{WITHOUT_ANSWER.get(stop, 'it said nothing')}; ask for less, or ask again")
    return answer
