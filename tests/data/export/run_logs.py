"""Records of a run's log, made from turns of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PROMPT = [1, 2, 3]
Turn = tuple[Sequence[int], Sequence[int]]
"""Sampled ids, and the ids of the observation after them."""


def log_row(
    session: int,
    turns: Sequence[Turn],
    *,
    acc: float | None = 1.0,
    uid: str = "g",
    index: int = 0,
    place: str = "last",
    prompt_ids: Sequence[int] = PROMPT,
    **columns: Any,
) -> dict[str, Any]:
    """Returns the record of a training row whose policy wrote `turns`."""
    ids: list[int] = []
    mask: list[int] = []
    turn_ids: list[int] = []
    segments: list[dict[str, Any]] = []
    for turn, spans in enumerate(turns):
        for kind, span in zip(("model", "tool"), spans, strict=True):
            if span:
                segments.append({"start": len(ids), "end": len(ids) + len(span), "kind": kind, "turn": turn})
                ids += span
                mask += [int(kind == "model")] * len(span)
                turn_ids += [turn] * len(span)
    return {
        "uid": uid,
        "session": session,
        "index": index,
        "step": 1,
        "split": "train",
        "place": place,
        "role": "policy",
        "loop": "env_agent",
        "env": "math",
        "task_id": f"task {uid}",
        "stop_reason": "answered",
        "acc": acc,
        "reward": acc,
        "num_model_tokens": sum(mask),
        "num_response_tokens": len(ids),
        "prompt_ids": list(prompt_ids),
        "response_ids": ids,
        "response_mask": mask,
        "turn_ids": turn_ids,
        "rollout_log_probs": [-0.5 * bit for bit in mask],
        "token_rewards": [0.0] * len(ids),
        "segments": segments,
        **columns,
    }
