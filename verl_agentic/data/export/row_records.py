"""Records of single training rows: for SFT, continual pretraining and outcome models, or as they were logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.data.export.logged_sessions import LoggedSession, SessionLog
from verl_agentic.data.export.shapes import NAMED, PER_TOKEN, ROW_IDS

_PART = "reward/"


def reward_parts(sessions: Sequence[LoggedSession]) -> list[str]:
    """Returns the names of all logged parts of the reward."""
    return sorted({name for session in sessions for name in session.rows[-1]["numbers"] if name.startswith(_PART)})


def row_records(
    log: SessionLog, sessions: Sequence[LoggedSession], *, shape: str, parts: Sequence[str], left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yields a record for each training row.

    Args:
        log: of the sessions.
        sessions: chosen ones.
        shape: `rows`, `sft`, `cpt` or `outcomes`.
        parts: columns of `rows` with the parts of the reward.
        left_out: counts rows by reason: with a secret, without a token of the policy, without an outcome.
    """
    rows = [row for session in sessions for row in session.rows]
    for row, tokens in zip(rows, log.tokens(rows), strict=True):
        if tokens is None:
            left_out["with a secret"] += 1
        elif shape != "cpt" and 1 not in tokens["response_mask"]:
            left_out["without a trained token"] += 1
        elif shape == "outcomes" and row["acc"] is None:
            left_out["without acc"] += 1
        else:
            yield {**_select_columns(row, tokens, shape, parts), **{name: row[name] for name in NAMED}}


def _select_columns(
    row: Mapping[str, Any], tokens: Mapping[str, Any], shape: str, parts: Sequence[str]
) -> dict[str, Any]:
    if shape in ("sft", "cpt"):
        ids, mask = tokens["prompt_ids"] + tokens["response_ids"], tokens["response_mask"]
        return {
            "input_ids": ids,
            "loss_mask": [0] * (len(ids) - len(mask)) + mask if shape == "sft" else [1] * len(ids),
        }
    columns = {name: tokens[name] for name in ROW_IDS}
    if shape == "outcomes":
        return {**columns, "turn_ids": tokens["turn_ids"], "outcome": row["acc"]}
    return {
        **columns,
        **{name: tokens[name] for name in PER_TOKEN},
        **{part: row["numbers"].get(part) for part in parts},
    }
