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
from verl_agentic.evaluate.evaluation_log import EpisodeRows, has_log_probs, sampled_log_probs
from verl_agentic.evaluate.evaluation_run import EvaluationAttempt, figure, is_success
from verl_agentic.evaluate.policies.best_of import QFunction, TokenValue

SELECTED = "selected.jsonl"
"""File with one line per task: `task`, `task_id`, the `sample` that was chosen or null, `outcome`, `candidates`."""


Group = Sequence[tuple[EvaluationAttempt, EpisodeRows]]
"""The attempts at a task that are not void, with their rows."""
Choose = Callable[[Group], Awaitable[EpisodeRows]]
"""Returns the rows of the best attempt."""


async def select_episodes(
    plan: Sequence[EvaluationAttempt],
    episodes: Sequence[EpisodeRows],
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
        episodes: rows of the attempts, in their order.
        make_env: makes the environment of a row; it has the method `select`.
        out: folder of the evaluation.
        max_concurrent: maximum number of tasks at one time.
        choose: chooses in place of the environment.

    Raises:
        ConfigError: the environment cannot select.
    """
    tasks: dict[str, list[tuple[EvaluationAttempt, EpisodeRows]]] = {}
    for attempt, rows in zip(plan, episodes, strict=True):
        if not rows[-1]["is_void"]:
            tasks.setdefault(attempt.task, []).append((attempt, rows))
    slots = asyncio.Semaphore(max_concurrent)

    async def choose_from(group: Group) -> dict[str, Any]:
        async with slots:
            chosen_rows = await (_select_rows(make_env, group) if choose is None else choose(group))
        first, chosen = group[0][0], None if chosen_rows is None else chosen_rows[-1]
        return {
            "task": first.task,
            "task_id": first.row.extra.get("task_id"),
            "sample": None if chosen is None else chosen["session"],
            "outcome": 0.0 if chosen is None else chosen["acc"],
            "success": chosen is not None and is_success(chosen),
            "candidates": len(group),
        }

    lines = await asyncio.gather(*(choose_from(group) for group in tasks.values()))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (out / SELECTED).write_text(text, encoding="utf-8")
    return figure([[float(line["success"])] for line in lines]) if lines else {}


async def _select_rows(make_env: EnvFactory, group: Group) -> EpisodeRows | None:
    env = make_env(group[0][0].row)
    try:
        index = await require_selection(env).select([_read_answer(rows[-1]) for _, rows in group])
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

    async def score(attempt: EvaluationAttempt, rows: EpisodeRows) -> float:
        if not has_log_probs(rows):
            raise ConfigError(
                "--rank needs the log-probs of the episodes, got none; give --tokenizer and --mode completions"
            )
        log_prob = sum(sampled_log_probs(rows))
        with boundary(PolicyError, "the value function of --rank"):
            estimate = value(attempt.row.prompt, _read_answer(rows[-1]))
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

    async def score(attempt: EvaluationAttempt, rows: EpisodeRows) -> float:
        if (source := rows[-1]["id_source"]) != "exact":
            raise DataError(f"--phi needs exact token ids, got {source}; evaluate with --tokenizer")
        return sum([await phi.of(row["prompt_ids"], row["response_ids"], row["response_mask"]) for row in rows])

    return functools.partial(_choose_highest, score)


async def _choose_highest(score: Callable[..., Awaitable[float]], group: Group) -> EpisodeRows:
    scores = [await score(attempt, rows) for attempt, rows in group]
    return group[max(range(len(group)), key=scores.__getitem__)][1]


def _read_answer(row: Mapping[str, Any]) -> str:
    return row["final_answer"] if row["stop_reason"] == StopReason.ANSWERED.value else ""
