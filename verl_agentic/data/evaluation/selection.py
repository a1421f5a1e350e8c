"""The choice of one episode per task in an evaluation with several, by the environment's `select` or by a value."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from verl_agentic.agent_loops.policies.best_of import QFunction
from verl_agentic.data.evaluation.evaluation_run import EvaluationAttempt, figure, is_success
from verl_agentic.data.stored_samples import STORED_SAMPLE
from verl_agentic.env import EnvFactory
from verl_agentic.errors import ConfigError, PolicyError, boundary
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
    value: QFunction | None = None,
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
        value: chooses in place of the environment: the episode with the highest log-prob plus `value(prompt, answer)`.

    Raises:
        ConfigError: the environment cannot select, or an episode has no log-probs for `value`.

    Paper: https://arxiv.org/abs/2310.03173 (with `value`; B-Coder)
    Deviations: any value function. The paper's is a head whose Q begins as the log-probs of the model, so a value of 0
    chooses the candidate that the model finds most likely.
    """
    tasks: dict[str, list[tuple[EvaluationAttempt, Mapping[str, Any]]]] = {}
    for attempt, record in zip(plan, records, strict=True):
        if not record["void"]:
            tasks.setdefault(attempt.task, []).append((attempt, record))
    slots = asyncio.Semaphore(max_concurrent)

    async def choose(group: list[tuple[EvaluationAttempt, Mapping[str, Any]]]) -> dict[str, Any]:
        async with slots:
            chosen = await (_select(make_env, group) if value is None else _rank(value, group))
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


async def _rank(value: QFunction, group: Sequence[tuple[EvaluationAttempt, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Returns the record with the highest log-prob plus value; the first of equals."""
    scores = []
    for attempt, record in group:
        rows = record["trajectories"]
        if any(row["log_probs"] is None for row in rows):
            raise ConfigError(
                "--rank needs the log-probs of the episodes, got none; give --tokenizer and --mode completions"
            )
        log_prob = sum(p for row in rows for p, m in zip(row["log_probs"], row["response_mask"], strict=True) if m)
        with boundary(PolicyError, "the value function of --rank"):
            given = value(attempt.row.prompt, _answer(record[STORED_SAMPLE]["sample"]))
            given = float(await given if inspect.isawaitable(given) else given)
            if not math.isfinite(given):
                raise ValueError(f"a value must be a finite number, got {given}")
        scores.append(log_prob + given)
    return group[max(range(len(group)), key=scores.__getitem__)][1]


def _answer(sample: Mapping[str, Any]) -> str:
    return sample["final_answer"] if sample["stop_reason"] == StopReason.ANSWERED.value else ""
