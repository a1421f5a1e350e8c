"""New tasks that a model writes from a failed one, as WebRL does.

A new task has the environment and the columns of the failed one, and no ground truth. So it needs a reward that judges
the episode, such as the component `orm`.

Paper: https://arxiv.org/abs/2411.02337
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl_agentic.base.text.tags import blocks
from verl_agentic.data.prepare import to_records
from verl_agentic.log.files.rows import row_of_columns

_SHOWN_CHARS = 2_000
_WHERE = "a task to mutate"


def mutation_request(record: Mapping[str, Any], *, count: int) -> str:
    """Returns the request to a model for `count` new tasks. Raises DataError if the record is no row."""
    task = row_of_columns(record, _WHERE).prompt[-1].content[:_SHOWN_CHARS]
    return (
        f"An agent failed this task:\n\n{task}\n\nWrite {count} new tasks for the same environment that train the same "
        "skills. Each must be possible where this one is, and a little easier or harder. None may be the same task in "
        "other words. Write each between <task> and </task>, as one complete message to the agent."
    )


def mutated_rows(record: Mapping[str, Any], reply: str, *, count: int) -> list[dict[str, Any]]:
    """Returns a row for each new task in a reply, at most `count`, with the columns of the failed task.

    Their `extra_info` has `mutated_from`, the id of the failed task. Raises DataError if the record is no row.
    """
    row = row_of_columns(record, _WHERE)
    texts = [text for text in dict.fromkeys(map(str.strip, blocks(reply, "task"))) if text]
    new = []
    for text in texts[:count]:
        if text == row.prompt[-1].content.strip():
            continue
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        extra = {**row.extra, "task_id": f"mutated-{digest}", "mutated_from": str(row.extra.get("task_id", ""))}
        prompt = (*row.prompt[:-1], replace(row.prompt[-1], content=text))
        new.append(replace(row, prompt=prompt, ground_truth=None, extra=extra))
    records = to_records(new, split="train", agent_name=str(record.get("agent_name", "")))
    return [{key: new_record.get(key) for key in record} for new_record in records]


def is_row(row: Mapping[str, Any]) -> bool:
    """Returns whether a line of the file is a row: a `check` of `agentic.curriculum.task_set` for tasks without truth.

    Raises DataError for a malformed row.
    """
    return bool(row_of_columns(row, "a proposal").prompt[-1].content.strip())
