"""Trajectories with their outcome: data for implicit reward models.

A row is `{"prompt", "tools", "messages", "outcome"}`: as one side of a pair (`data.datasets.preference_pairs`), with
an outcome between 0 (failure) and 1 (success). A row of ids has `prompt_ids`, `response_ids` and `response_mask` in
place of messages. `verl-agentic data export --as outcomes` and `--as steps` write such rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Message
from verl_agentic.data.datasets.id_rows import trajectory_of_ids
from verl_agentic.data.datasets.preference_pairs import encode_answer
from verl_agentic.episode.codec.codec import Codec

_KEYS = {"prompt", "messages", "outcome"}


async def encode_outcome_row(row: Mapping[str, Any], *, codec: Codec, tokenizer: Any) -> tuple[Trajectory, float]:
    """Returns a training row with the mask of RL, and its outcome.

    Args:
        row: see the module.
        codec: the protocol.
        tokenizer: the one that the codec is made of.

    Raises:
        DataError: a part is missing or malformed.
    """
    is_ids = "prompt_ids" in row
    needed = {"prompt_ids", "outcome"} if is_ids else _KEYS
    if missing := sorted(needed - set(row)):
        raise DataError(f"a row lacks {missing}, got the keys {sorted(row)}; it has prompt, messages and outcome")
    outcome = row["outcome"]
    if not isinstance(outcome, int | float) or not 0 <= outcome <= 1:
        raise DataError(f"an outcome lies between 0 and 1, got {outcome!r}; scale it")
    if is_ids:
        trajectory = trajectory_of_ids(row, ids="response_ids", mask="response_mask", vocab_size=len(tokenizer))
        return trajectory, float(outcome)
    prompt = [Message.from_dict(message) for message in row["prompt"]]
    tools = [dict(schema) for schema in row.get("tools") or ()]
    encoded = await encode_answer(prompt, row["messages"], tools=tools, codec=codec, tokenizer=tokenizer)
    return encoded, float(outcome)
