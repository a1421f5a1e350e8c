"""One trajectory as plain JSON for the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_agentic.observe.viewer.group_view import finite
from verl_agentic.observe.viewer.token_texts import token_texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_META = (
    "split", "step", "uid", "session", "index", "place", "role", "loop", "env", "task_id", "data_source", "time",
    "seed", "temperature", "weights_min", "weights_max", "stop_reason", "is_void", "error", "reward", "acc",
    "num_turns", "num_calls", "num_call_errors", "num_model_tokens", "num_response_tokens", "hacking", "breach",
    "trained_step", "paid", "mean_advantage", "num_trained_tokens",
)  # fmt: skip
_COLUMNS = {
    "log_prob": "rollout_log_probs",
    "trainer_log_prob": "old_log_probs",
    "advantage": "advantages",
    "entropy": "entropies",
    "value": "values",
    "return": "returns",
    "reward": "token_rewards",
}
"""Name on the page -> column of the log, a number per response token."""
_DIGITS = 4


def detail(record: Mapping[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Returns the page's data of a record of the log.

    `tokens.columns` holds a list per token, or one number if all tokens have the same. Unknown columns are left out.
    `gap` is the log-prob of rollout minus that of the trainer, at tokens with mask 1.
    """
    prompt_ids, ids = record["prompt_ids"] or [], record["response_ids"] or []
    mask = record["response_mask"] or []
    env_score, details = _split_details(record["env_score"])
    return {
        "traceback": record["traceback"] or "",
        "meta": {name: finite(record.get(name)) for name in _META},
        "numbers": _round_numbers(record["numbers"]),
        "score": None if record["score"] is None else _round_numbers(record["score"]),
        "env_score": _indent_json(env_score),
        "details": details,
        "ground_truth": _indent_json(record["ground_truth"]),
        "extra": _indent_json(record["extra"]),
        "final_answer": record["final_answer"] or "",
        "prompt": record["prompt"] or [],
        "turns": [_describe_turn(turn) for turn in record["turns"] or ()],
        "spans": [{name: _round_number(value) for name, value in span.items()} for span in record["spans"] or ()],
        "segments": record["segments"] or [],
        "prompt_tokens": len(prompt_ids),
        "prompt_text": _join_texts(token_texts(tokenizer, prompt_ids), prompt_ids),
        "tokens": {
            "ids": ids,
            "texts": token_texts(tokenizer, ids, before=prompt_ids) if tokenizer else None,
            "mask": mask,
            "turn_ids": record["turn_ids"] or [],
            "columns": _make_columns(record, mask),
        },
    }


def _describe_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    calls = [{name: _round_number(value) for name, value in call.items()} for call in turn["calls"] or ()]
    return {**{name: _round_number(value) for name, value in turn.items()}, "calls": calls}


def _make_columns(record: Mapping[str, Any], mask: Sequence[int]) -> dict[str, Any]:
    columns = {name: record.get(column) for name, column in _COLUMNS.items()}
    rollout, trainer = columns["log_prob"], columns["trainer_log_prob"]
    if rollout and trainer and len(rollout) == len(trainer) == len(mask):
        difference = np.asarray(rollout, np.float64) - np.asarray(trainer, np.float64)
        columns["gap"] = np.where(np.asarray(mask) == 1, difference, np.nan).tolist()
    return {name: _compact_values(values) for name, values in columns.items() if values}


def _compact_values(values: Sequence[float]) -> list[float | None] | float | None:
    shorts = [_round_number(value) for value in values]
    return shorts[0] if len(set(shorts)) == 1 else shorts


def _round_number(value: Any) -> Any:
    """Returns a number with few digits; None if it is not finite."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None


def _round_numbers(pairs: Any) -> dict[str, Any]:
    return {name: _round_number(value) for name, value in dict(pairs or ()).items()}


def _indent_json(text: str | None) -> Any:
    """Returns JSON text with indentation; other text unchanged."""
    if not text:
        return ""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _split_details(text: str | None) -> tuple[str | None, Any]:
    """Returns the environment's score without its details, and the details (`Reward.details`); None without any."""
    try:
        score = json.loads(text or "null")
    except ValueError:
        return text, None
    if not isinstance(score, dict) or not isinstance(score.get("details"), dict):
        return text, None
    return json.dumps({name: value for name, value in score.items() if name != "details"}), score["details"]


def _join_texts(texts: Sequence[str | None], ids: Sequence[int]) -> str:
    return "".join(f"[{number}]" if text is None else text for text, number in zip(texts, ids, strict=True))
