"""Runs many rows through the episode loop: for evaluation, and for demonstrations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from verl_agentic.base.env import EnvFactory, EnvRow
from verl_agentic.base.types import Message
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import Codec, render_next_action
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_each import run_each
from verl_agentic.episode.run_episode import run_episode

AMPLE_LIMITS = EpisodeLimits(
    max_response_tokens=2_000_000, max_context_tokens=4_000_000, max_turns=4096, max_calls_per_turn=4096, max_retries=0
)
"""Limits for repeating a conversation that had its own budgets."""
Turn = Message | str
"""A turn of a script: a message, which the protocol writes, or a text, which is used unchanged."""
Script = Callable[[Sequence[Message]], Turn | Awaitable[Turn]]
"""The next turn, as a function of the conversation so far."""


def scripted(script: Script, *, codec: Codec, tokenizer: Any, limits: EpisodeLimits) -> EpisodeSetup:
    """Returns the setting of an episode whose policy is a script.

    Args:
        script: returns the turns.
        codec: the protocol.
        tokenizer: the one that the codec is made of.
        limits: budgets and deadlines.
    """

    async def write(messages: Sequence[Message]) -> str:
        turn = script(messages)
        reply = await turn if inspect.isawaitable(turn) else turn
        return render_next_action(codec, reply, before=messages) if isinstance(reply, Message) else reply

    policy = ScriptedPolicy(
        write,
        encode=functools.partial(tokenizer.encode, add_special_tokens=False),
        end_ids=[tokenizer.eos_token_id],
        stop_texts=codec.stop_texts,
    )
    return EpisodeSetup(policy=policy, codec=codec, tokenizer=tokenizer, limits=limits)


async def run_episodes(
    rows: Sequence[EnvRow],
    *,
    make_env: EnvFactory,
    setup_for: Callable[[int, EnvRow], EpisodeSetup],
    max_concurrent: int = 64,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> list[Episode]:
    """Runs one episode per row and returns them in the order of the rows.

    Args:
        make_env: makes the environment of a row.
        setup_for: index and row -> policy, codec and budgets of the episode.
        max_concurrent: maximum number of parallel episodes.
        on_episode: called as each episode ends, in the order they end.
    """

    async def run_row(job: tuple[int, EnvRow]) -> Episode:
        index, row = job
        setup = setup_for(index, row)
        episode = await run_episode(row, make_env=make_env, setup=setup, request_id=f"row{index}")
        on_episode(episode)
        return episode

    return await run_each(list(enumerate(rows)), run_row, max_concurrent=max_concurrent)
