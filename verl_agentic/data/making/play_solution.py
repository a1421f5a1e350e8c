"""Runs a solution in an environment, without tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_agentic.base.env import Env, Transcript
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.types import Action, Message, StopReason
from verl_agentic.episode.codec.codec import Schema


async def play_solution(
    env: Env, solution: Callable[[Sequence[Message]], Message]
) -> tuple[list[Message], list[Schema], float]:
    """Returns the conversation, the schemas of the tools, and the outcome; closes the environment.

    Args:
        env: not started yet.
        solution: the conversation so far -> the next message; one without calls ends the episode.
    """
    try:
        messages, actions = list(await env.start()), []
        tools = list_schemas(env.tools)
        while True:
            turn = solution(messages)
            messages.append(turn)
            actions.append(
                Action(turn=len(actions), text=turn.content, content=turn.content, tool_calls=turn.tool_calls)
            )
            observation = await env.step(actions[-1])
            messages += observation.messages
            if not turn.tool_calls:
                break
        transcript = Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=StopReason.ANSWERED)
        return messages, tools, (await env.score(transcript)).outcome
    finally:
        await env.close()
