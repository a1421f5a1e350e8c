"""The steps of an episode as compact keys: start state and action of each turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Message, SegmentKind
from verl_agentic.episode.records.episode import Episode

_JSON = json.JSONEncoder(sort_keys=True, default=str)


def step_keys(episode: Episode) -> list[list[list[int]]]:
    """Returns for every training row its `[turn, state, action]`, one for each turn in which the policy sampled.

    State and action are 0 to 2^63 - 1; the same text has the same key in every process. Rows of sub-agents and void
    rows have no steps.

    - The action is the turn's calls, by name and arguments. Without a call, it is the marked answer or else the text.
    - The state is the environment's key (`Env.state_key`), if it has one. Otherwise it is the new text since the
      previous turn: the prompt at first, then observations, without surrounding blanks. A turn without new text starts
      from its previous turn. A summary's state is never the environment's.

    Earlier text is not part of the state, so steps of two sessions with the same last observation are equal.
    """
    steps = {turn: (state, action) for turn, state, action in _iter_steps(episode)}
    return [
        [] if index < episode.num_side_rows else [[turn, *steps[turn]] for turn in _list_turns(trajectory)]
        for index, trajectory in enumerate(episode.trajectories)
    ]


def _list_turns(trajectory: Trajectory) -> list[int]:
    """Returns the turns in which the policy sampled, in order; empty for a void row."""
    if not any(trajectory.response_mask):
        return []
    return sorted({segment.turn for segment in trajectory.segments() if segment.kind is SegmentKind.MODEL})


def _iter_steps(episode: Episode) -> Iterator[tuple[int, int, int]]:
    """Yields turn, state and action of all turns of the agent."""
    actions = {action.turn: action for action in episode.actions}
    own_trajectories = episode.trajectories[episode.num_side_rows :]
    # Turns without an action are summaries.
    turns = iter(sorted({turn for trajectory in own_trajectories for turn in _list_turns(trajectory)} | set(actions)))
    turn, last_action = next(turns, None), []
    observed = [_describe_message(message) for message in episode.messages[: episode.num_prompt_messages]]
    for message in episode.messages[episode.num_prompt_messages :]:
        action = None if turn is None else actions.get(turn)
        if turn is None or not _is_turn(message, action):
            observed.append(_describe_message(message))
            continue
        name = episode.states.get(turn)
        state = _hash_value("shown", observed or last_action) if name is None else _hash_value("named", name)
        last_action = _describe_message(message) if action is None else _describe_action(action)
        yield turn, state, _hash_value("done", last_action)
        observed, turn = [], next(turns, None)
    assert turn is None, f"turn {turn} is not in the conversation"


def _is_turn(message: Message, action: Action | None) -> bool:
    return message.role == "assistant" and (action is None or message == action.to_message())


def _describe_message(message: Message) -> list[Any]:
    return [message.role, message.name, message.content.strip()]


def _describe_action(action: Action) -> list[Any]:
    if action.tool_calls:
        return ["calls", [[call.name, dict(call.arguments), call.error_kind] for call in action.tool_calls]]
    return ["text", (action.content if action.answer is None else action.answer).strip()]


def _hash_value(kind: str, value: Any) -> int:
    """Returns a 63-bit hash of the value as canonical JSON; other types count as their text."""
    text = _JSON.encode([kind, value])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
