"""Rows of token ids, as `verl-agentic data export` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.trajectory import Trajectory


def trajectory_of_ids(row: Mapping[str, Any], *, ids: str, mask: str, vocab_size: int) -> Trajectory:
    """Returns `prompt_ids` and a response of a row as a training row, with one turn per run of mask 1.

    Args:
        row: of a file.
        ids: the response's column.
        mask: column with its mask.
        vocab_size: of the tokenizer of the model that is trained.

    Raises:
        DataError: see `check_ids`.
    """
    prompt_ids = row.get("prompt_ids") or []
    check_ids(row, ids=ids, mask=mask, vocab_size=vocab_size)
    check_ids({**row, mask: [1] * len(prompt_ids)}, ids="prompt_ids", mask=mask, vocab_size=vocab_size)
    trajectory, start = Trajectory(prompt_ids=list(prompt_ids)), 0
    for turn, (is_trained, run) in enumerate(groupby(row[mask])):
        end = start + len(list(run))
        if is_trained:
            trajectory.append_sampled(row[ids][start:end], None, turn=turn)
        else:
            trajectory.append_context(row[ids][start:end], turn=turn)
        start = end
    return trajectory


def check_ids(row: Mapping[str, Any], *, ids: str, mask: str, vocab_size: int) -> None:
    """Raises DataError if ids are not of the vocabulary, or the mask is not 0 and 1 of the same length with a 1."""
    token_ids, bits = row.get(ids), row.get(mask)
    if not token_ids or not bits or len(token_ids) != len(bits) or not {1} <= set(bits) <= {0, 1}:
        raise DataError(f"a row needs {ids} and a {mask} of 0 and 1 of the same length with a 1 in it, got {row}")
    if not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        raise DataError(
            f"{ids} has token ids from {min(token_ids)} to {max(token_ids)}, and the tokenizer has {vocab_size} "
            "tokens; collect the data with the tokenizer of the model that is trained"
        )
