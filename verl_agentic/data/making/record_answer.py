"""The answer of a record with a question, which makers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.log.files.parquet import ground_truth_of


def find_answer(record: Mapping[str, Any], where: str) -> Any:
    """Returns the column `answer`, or where it is missing or empty `reward_model.ground_truth`; None without both.

    Raises DataError if `reward_model` is malformed. 0 is an answer.
    """
    answer = record.get("answer")
    return answer if answer or answer == 0 else ground_truth_of(record.get("reward_model"), where)
