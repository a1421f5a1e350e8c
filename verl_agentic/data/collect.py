"""Plays many rows through the episode loop: evaluation, and demonstrations for SFT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from verl_agentic.agent_loops.codec import Codec
from verl_agentic.agent_loops.env_loop import run_episode
from verl_agentic.agent_loops.episode import Episode
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.agent_loops.policy import Policy
from verl_agentic.env import EnvFactory, EnvRow


async def play_rows(
    rows: Sequence[EnvRow],
    *,
    make_env: EnvFactory,
    policy_for: Callable[[int, EnvRow], Policy],
    codec: Codec,
    limits: EpisodeLimits,
    filler_id: int,
    max_concurrent: int = 64,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> list[Episode]:
    """Plays one episode per row and returns them in the order of the rows.

    Args:
        rows: what is played.
        make_env: makes the environment of a row.
        policy_for: index and row -> the policy that plays it.
        codec: how messages become tokens and back.
        limits: budgets and deadlines of every episode.
        filler_id: the token of a void row that has no other.
        max_concurrent: most episodes under way at once.
        on_episode: called as each episode ends, in the order they end.
    """
    slots = asyncio.Semaphore(max_concurrent)

    async def play(index: int, row: EnvRow) -> Episode:
        async with slots:
            episode = await run_episode(
                row,
                make_env=make_env,
                policy=policy_for(index, row),
                codec=codec,
                limits=limits,
                request_id=f"row{index}",
                filler_id=filler_id,
            )
        on_episode(episode)
        return episode

    tasks = [asyncio.ensure_future(play(index, row)) for index, row in enumerate(rows)]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
