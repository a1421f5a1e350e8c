"""Checks of what policies, environments and scorers hand to the loop: what it cannot use is their failure."""

from __future__ import annotations

import math
from dataclasses import replace

from verl_agentic.agent_loops.policies.policy import Completion
from verl_agentic.errors import EnvError, PolicyError, ScoringError
from verl_agentic.types import VOID_REASONS, Action, Message, Observation, Reward, ToolCall


def check_completion(completion: Completion, *, max_tokens: int) -> None:
    """Does nothing for a turn that can be trained on.

    Raises:
        PolicyError: it is empty or too long, or its log-probs are not one per token.
    """
    length = len(completion.token_ids)
    if not 0 < length <= max_tokens:
        raise PolicyError(f"a turn must have 1 to {max_tokens} tokens, got {length}; mend the policy's server")
    if completion.log_probs is not None and len(completion.log_probs) != length:
        raise PolicyError(
            f"a turn must have one log-prob per token, got {len(completion.log_probs)} for {length} tokens; "
            "mend the policy's server"
        )


def check_observation(observation: Observation) -> None:
    """Does nothing for an observation that says how the episode goes on.

    Raises:
        EnvError: it is none, says nothing, or holds something else than numbers and text.
    """
    if not isinstance(observation, Observation):
        raise EnvError(f"a step must return an Observation, got {observation!r}; mend the environment")
    if observation.stop is None and not observation.messages:
        raise EnvError("the environment gave neither messages nor a stop reason; its step must return one of them")
    if observation.stop in VOID_REASONS:
        raise EnvError(f"the environment ended the episode, got {observation.stop!r}; let it raise an EnvError instead")
    for name, number in {"reward": observation.reward, **observation.info}.items():
        if not isinstance(number, (int, float)) or not math.isfinite(number):
            raise EnvError(f"{name!r} of an observation must be a finite number, got {number!r}; mend the environment")
    check_messages(observation.messages)


def check_messages(messages: tuple[Message, ...]) -> None:
    """Does nothing for messages with text.

    Raises:
        EnvError: something else is among them.
    """
    for message in messages:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise EnvError(f"an environment speaks in messages with text, got {message!r}; mend the environment")


def check_reward(reward: Reward) -> Reward:
    """Returns the reward.

    Raises:
        ScoringError: it is none.
    """
    if not isinstance(reward, Reward):
        raise ScoringError(f"a scorer must return a Reward, got {reward!r}; mend it")
    return reward


def limit_calls(action: Action, limit: int) -> Action:
    """Returns the turn with the calls beyond the limit marked as errors, which are answered like all others."""
    if len(action.tool_calls) <= limit:
        return action
    error = (
        f"at most {limit} call{'s' * (limit > 1)} may stand in one turn; this one was not carried out, "
        "write it again in the next turn"
    )
    calls = tuple(
        call if index < limit else ToolCall(call.name, call.arguments, call.call_id, error, "too_many")
        for index, call in enumerate(action.tool_calls)
    )
    return replace(action, tool_calls=calls)
