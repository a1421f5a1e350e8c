"""Checks of rows before any episode: not JSON, repeated, shared by both splits, answer shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from verl_agentic.base.env import EnvRow

_MIN_ANSWER_CHARS = 3


def is_json(value: Any) -> bool:
    """Returns whether a value survives a round trip through JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError):
        return False


def making_problems(make_rows: Callable[..., list[EnvRow]], count: int) -> list[str]:
    """Returns the faults of the rows that an environment makes, `count` of each split."""
    rows_by_split = {split: make_rows(split=split, count=count, seed=0) for split in ("train", "test")}
    problems = []
    for split, rows in rows_by_split.items():
        if len(rows) != count:
            problems.append(f"make_rows was asked for {count} {split} rows and made {len(rows)}")
        if make_rows(split=split, count=count, seed=0) != rows:
            problems.append(f"make_rows gave different {split} rows for the same arguments")
        if len({task_of(row) for row in rows}) != len(rows):
            problems.append(f"make_rows gave the same {split} task twice")
        if any(not row.extra.get("task_id") for row in rows):
            problems.append(f"{split} rows must have extra['task_id']")
    if {task_of(row) for row in rows_by_split["train"]} & {task_of(row) for row in rows_by_split["test"]}:
        problems.append("train and test share tasks")
    return problems


def task_of(row: EnvRow) -> str:
    """Returns the task of a row as text: prompt, ground truth and extra, without its ids."""
    extra = {key: value for key, value in row.extra.items() if key not in ("task_id", "index", "split")}
    return json.dumps([[m.to_dict() for m in row.prompt], row.ground_truth, extra], sort_keys=True, default=str)


def answers_of(ground_truth: Any) -> tuple[list[str], str]:
    """Returns the texts that would reveal the answer, or the reason why there are none."""
    values = ground_truth if isinstance(ground_truth, (list, tuple)) else [ground_truth]
    if any(isinstance(value, bool) or not isinstance(value, (str, int, float)) for value in values):
        return [], "the ground truth is neither text nor number"
    answers = [text for text in (str(value).strip() for value in values) if len(text) >= _MIN_ANSWER_CHARS]
    return answers, "" if answers else f"the ground truth is shorter than {_MIN_ANSWER_CHARS} characters"


def appears_in(answer: str, text: str) -> bool:
    """Returns whether a text contains the answer as separate words, in any case."""
    return re.search(rf"(?<!\w){re.escape(answer.casefold())}(?!\w)", text.casefold()) is not None
