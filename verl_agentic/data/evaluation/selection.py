"""The choice of one episode per task in an evaluation with several, by the environment's `select`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from verl_agentic.data.evaluation.evaluation_run import EvaluationAttempt, figure, is_success
from verl_agentic.data.stored_samples import STORED_SAMPLE
from verl_agentic.env import EnvFactory
from verl_agentic.errors import ConfigError
from verl_agentic.types import StopReason

SELECTED = "selected.jsonl"
"""File with one line per task: `task`, `task_id`, the `sample` that was chosen or null, `outcome`, `candidates`."""


async def select_episodes(
    plan: Sequence[EvaluationAttempt],
    records: Sequence[Mapping[str, Any]],
    *,
    make_env: EnvFactory,
    out: Path,
    max_concurrent: int,
) -> dict[str, Any]:
    """Writes the file of choices, and returns the success of the chosen episodes for the summary.

    The environment sees the final answers and no scores. A cut episode has an empty answer. A task without a choice
    counts as a failure, and void episodes are no candidates.

    Args:
        plan: the attempts.
        records: of the attempts, in their order.
        make_env: makes the environment of a row; it has the method `select`.
        out: folder of the evaluation.
        max_concurrent: maximum number of tasks at one time.

    Raises:
        ConfigError: the environment cannot select.
    """
    tasks: dict[str, list[tuple[EvaluationAttempt, Mapping[str, Any]]]] = {}
    for attempt, record in zip(plan, records, strict=True):
        if not record["void"]:
            tasks.setdefault(attempt.task, []).append((attempt, record))
    slots = asyncio.Semaphore(max_concurrent)

    async def choose(group: list[tuple[EvaluationAttempt, Mapping[str, Any]]]) -> dict[str, Any]:
        async with slots:
            chosen = await _select(make_env, group)
        first = group[0][0]
        return {
            "task": first.task,
            "task_id": first.row.extra.get("task_id"),
            "sample": None if chosen is None else chosen["sample"],
            "outcome": 0.0 if chosen is None else chosen["outcome"],
            "success": chosen is not None and is_success(chosen),
            "candidates": len(group),
        }

    lines = await asyncio.gather(*(choose(group) for group in tasks.values()))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (out / SELECTED).write_text(text, encoding="utf-8")
    return figure([[float(line["success"])] for line in lines]) if lines else {}


async def _select(
    make_env: EnvFactory, group: Sequence[tuple[EvaluationAttempt, Mapping[str, Any]]]
) -> Mapping[str, Any] | None:
    env = cast("Any", make_env(group[0][0].row))
    try:
        if not hasattr(env, "select"):
            raise ConfigError(f"--select needs an environment with select(answers), got {type(env).__name__}; add it")
        index = await env.select([_answer(record[STORED_SAMPLE]["sample"]) for _, record in group])
        return None if index is None else group[index][1]
    finally:
        await env.close()


def _answer(sample: Mapping[str, Any]) -> str:
    return sample["final_answer"] if sample["stop_reason"] == StopReason.ANSWERED.value else ""
