"""The choice of one episode per task in an evaluation with several: by the environment, a value or an outcome model."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvFactory, require_selection
from verl_agentic.base.errors import ConfigError, DataError, PolicyError, boundary
from verl_agentic.base.types import StopReason
from verl_agentic.data.stored_samples import STORED_SAMPLE
from verl_agentic.evaluate.evaluation_run import EvaluationAttempt, figure, is_success
from verl_agentic.evaluate.policies.best_of import QFunction, TokenValue

SELECTED = "selected.jsonl"
"""File with one line per task: `task`, `task_id`, the `sample` that was chosen or null, `outcome`, `candidates`."""


Group = Sequence[tuple[EvaluationAttempt, Mapping[str, Any]]]
"""The attempts at a task that are not void, with their records."""
Choose = Callable[[Group], Awaitable[Mapping[str, Any]]]
"""Returns the record of the best attempt."""


async def select_episodes(
    plan: Sequence[EvaluationAttempt],
    records: Sequence[Mapping[str, Any]],
    *,
    make_env: EnvFactory,
    out: Path,
    max_concurrent: int,
    choose: Choose | None = None,
) -> dict[str, Any]:
    """Writes the file of choices, and returns the success of the chosen episodes for the summary.

    The environment sees the final answers and no scores, an outcome model sees the tokens. A cut episode has an empty
    answer. A task without a choice counts as a failure, and void episodes are no candidates.

    Args:
        plan: the attempts.
        records: of the attempts, in their order.
        make_env: makes the environment of a row; it has the method `select`.
        out: folder of the evaluation.
        max_concurrent: maximum number of tasks at one time.
        choose: chooses in place of the environment.

    Raises:
        ConfigError: the environment cannot select.
    """
    tasks: dict[str, list[tuple[EvaluationAttempt, Mapping[str, Any]]]] = {}
    for attempt, record in zip(plan, records, strict=True):
        if not record["void"]:
            tasks.setdefault(attempt.task, []).append((attempt, record))
    slots = asyncio.Semaphore(max_concurrent)

    async def choose_from(group: Group) -> dict[str, Any]:
        async with slots:
            chosen = await (_select_record(make_env, group) if choose is None else choose(group))
        first = group[0][0]
        return {
            "task": first.task,
            "task_id": first.row.extra.get("task_id"),
            "sample": None if chosen is None else chosen["sample"],
            "outcome": 0.0 if chosen is None else chosen["outcome"],
            "success": chosen is not None and is_success(chosen),
            "candidates": len(group),
        }

    lines = await asyncio.gather(*(choose_from(group) for group in tasks.values()))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (out / SELECTED).write_text(text, encoding="utf-8")
    return figure([[float(line["success"])] for line in lines]) if lines else {}


async def _select_record(make_env: EnvFactory, group: Group) -> Mapping[str, Any] | None:
    env = make_env(group[0][0].row)
    try:
        index = await require_selection(env).select(
            [_read_answer(record[STORED_SAMPLE]["sample"]) for _, record in group]
        )
        return None if index is None else group[index][1]
    finally:
        await env.close()


def highest_log_prob(value: QFunction) -> Choose:
    """Returns what chooses the episode with the highest log-prob plus `value(prompt, answer)`; the first of equals.

    It raises ConfigError for an episode without log-probs.

    Paper: https://arxiv.org/abs/2310.03173 (B-Coder)
    Deviations: any value function. The paper's is a head whose Q begins as the log-probs of the model, so a value of 0
    chooses the candidate that the model finds most likely.
    """

    async def score(attempt: EvaluationAttempt, record: Mapping[str, Any]) -> float:
        rows = record["trajectories"]
        if any(row["log_probs"] is None for row in rows):
            raise ConfigError(
                "--rank needs the log-probs of the episodes, got none; give --tokenizer and --mode completions"
            )
        log_prob = sum(p for row in rows for p, m in zip(row["log_probs"], row["response_mask"], strict=True) if m)
        with boundary(PolicyError, "the value function of --rank"):
            estimate = value(attempt.row.prompt, _read_answer(record[STORED_SAMPLE]["sample"]))
            estimate = float(await estimate if inspect.isawaitable(estimate) else estimate)
            if not math.isfinite(estimate):
                raise ValueError(f"a value must be a finite number, got {estimate}")
        return log_prob + estimate

    return functools.partial(_choose_highest, score)


def highest_phi(phi: TokenValue) -> Choose:
    """Returns what chooses the episode whose sampled tokens have the highest sum of values; the first of equals.

    It raises DataError for an episode without exact token ids.

    Paper: https://arxiv.org/abs/2506.11425 (Agent-RLVR: an outcome model chooses the best of n)
    """

    async def score(attempt: EvaluationAttempt, record: Mapping[str, Any]) -> float:
        if record["token_ids"] != "exact":
            raise DataError(f"--phi needs exact token ids, got {record['token_ids']}; evaluate with --tokenizer")
        rows = record["trajectories"]
        return sum([await phi.of(row["prompt_ids"], row["response_ids"], row["response_mask"]) for row in rows])

    return functools.partial(_choose_highest, score)


async def _choose_highest(score: Callable[..., Awaitable[float]], group: Group) -> Mapping[str, Any]:
    scores = [await score(attempt, record) for attempt, record in group]
    return group[max(range(len(group)), key=scores.__getitem__)][1]


def _read_answer(sample: Mapping[str, Any]) -> str:
    return sample["final_answer"] if sample["stop_reason"] == StopReason.ANSWERED.value else ""
