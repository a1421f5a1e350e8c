"""Checks of the outputs of policies, environments and scorers; an invalid output is their failure."""

from __future__ import annotations

import math
from dataclasses import replace

from verl_agentic.base.errors import EnvError, PolicyError, ScoringError
from verl_agentic.base.types import VOID_REASONS, Action, Message, Observation, Reward, ToolCall
from verl_agentic.episode.policies.policy import Completion


def check_completion(completion: Completion, *, max_tokens: int) -> None:
    """Checks a turn. Raises PolicyError if it is empty or too long, or its log-probs are not one per token."""
    length = len(completion.token_ids)
    if not 0 < length <= max_tokens:
        raise PolicyError(f"a turn must have 1 to {max_tokens} tokens, got {length}; fix the policy's server")
    if completion.log_probs is not None and len(completion.log_probs) != length:
        raise PolicyError(
            f"a turn must have one log-prob per token, got {len(completion.log_probs)} for {length} tokens; "
            "fix the policy's server"
        )


def check_observation(observation: Observation) -> None:
    """Raises EnvError unless it is a valid Observation: not empty, with numbers and text only."""
    if not isinstance(observation, Observation):
        raise EnvError(f"a step must return an Observation, got {observation!r}; fix the environment")
    if observation.stop is None and not observation.messages and observation.new_row is None:
        raise EnvError("the environment gave neither messages nor a stop reason; its step must return one of them")
    if observation.stop in VOID_REASONS:
        raise EnvError(f"the environment ended the episode, got {observation.stop!r}; let it raise an EnvError instead")
    for name, number in {"reward": observation.reward, **observation.info}.items():
        if not isinstance(number, (int, float)) or not math.isfinite(number):
            raise EnvError(f"{name!r} of an observation must be a finite number, got {number!r}; fix the environment")
    check_messages(observation.messages)
    if observation.new_row is not None:
        check_messages(observation.new_row.messages)


def check_messages(messages: tuple[Message, ...]) -> None:
    """Checks messages. Raises EnvError if one is not a message with text."""
    for message in messages:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise EnvError(f"an environment speaks in messages with text, got {message!r}; fix the environment")


def check_reward(reward: Reward) -> Reward:
    """Returns the reward. Raises ScoringError if it is not a Reward."""
    if not isinstance(reward, Reward):
        raise ScoringError(f"a scorer must return a Reward, got {reward!r}; fix it")
    return reward


def limit_calls(action: Action, limit: int) -> Action:
    """Marks the calls beyond the limit as errors; they are answered like all others."""
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
