"""Trajectories with their outcome: data for implicit reward models.

A row is `{"prompt", "tools", "messages", "outcome"}`: as one side of a pair (`data.datasets.preference_pairs`), with
an outcome between 0 (failure) and 1 (success).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from verl_agentic.agent_loops.codec.codec import Codec, Schema
from verl_agentic.data.datasets.preference_pairs import encode_answer, written_messages
from verl_agentic.data.stored_samples import Split, StoredSample
from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Sample
from verl_agentic.trajectory import Trajectory
from verl_agentic.types import Message

_KEYS = {"prompt", "messages", "outcome"}


def outcome_rows(
    stored: Sequence[StoredSample],
    *,
    tools_of: Callable[[Sample], Sequence[Schema]] = lambda sample: (),
    splits: Collection[Split] = ("train",),
) -> list[dict[str, Any]]:
    """Returns a row for every trajectory whose raw outcome (`acc`) is known; those without a turn are left out.

    Args:
        stored: trajectories of a run (`sample_log.read_samples`).
        tools_of: the tools of a trajectory, which the run does not store.
        splits: splits to use; validation only if named.
    """
    return [
        {
            "prompt": [message.to_dict() for message in one.sample.prompt],
            "tools": [dict(schema) for schema in tools_of(one.sample)],
            "messages": written_messages(one.sample),
            "outcome": one.score["acc"],
        }
        for one in stored
        if one.split in splits and one.score and "acc" in one.score and one.sample.turns
    ]


async def encode_outcome_row(row: Mapping[str, Any], *, codec: Codec, tokenizer: Any) -> tuple[Trajectory, float]:
    """Returns a training row with the mask of RL, and its outcome.

    Args:
        row: see the module.
        codec: the protocol.
        tokenizer: the one that the codec is made of.

    Raises:
        DataError: a part is missing or malformed.
    """
    if missing := sorted(_KEYS - set(row)):
        raise DataError(f"a row lacks {missing}, got the keys {sorted(row)}; it has prompt, messages and outcome")
    outcome = row["outcome"]
    if not isinstance(outcome, int | float) or not 0 <= outcome <= 1:
        raise DataError(f"an outcome lies between 0 and 1, got {outcome!r}; scale it")
    prompt = [Message.from_dict(message) for message in row["prompt"]]
    tools = [dict(schema) for schema in row.get("tools") or ()]
    encoded = await encode_answer(prompt, row["messages"], tools=tools, codec=codec, tokenizer=tokenizer)
    return encoded, float(outcome)
