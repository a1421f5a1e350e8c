"""The evaluation of a policy: several episodes per row, their log, and a summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_agentic.base.env import Env, EnvFactory, EnvRow
from verl_agentic.base.errors import EnvError
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.circuit_breaker import CircuitBreaker, agent_error
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_each import run_each
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.evaluation_log import EpisodeRows, EvaluationLog, make_log_rows
from verl_agentic.evaluate.journal import fingerprint
from verl_agentic.evaluate.policies.chat_messages import IdSource
from verl_agentic.graders.models.client import Price
from verl_agentic.observe.success_over_attempts import clustered_mean, pass_at_k, pass_hat_k, success_interval

_FULL = 1.0 - 1e-9  # minimum outcome of a success


@dataclass(frozen=True, kw_only=True)
class PolicyBackend:
    """The policy of an episode, with its settings."""

    setup: EpisodeSetup
    usage: Mapping[str, int]
    """Tokens as the server counts them; grows during the episode."""
    id_source: Callable[[], IdSource] = lambda: "exact"
    """Returns the source of the ids of the record, after the episode."""
    finish: Callable[[Episode], None] = lambda episode: None
    """Called with the finished episode."""


@dataclass(frozen=True, kw_only=True)
class EvaluationAttempt:
    """One episode of a row."""

    index: int
    """Number of the row."""
    row: EnvRow
    task: str
    """A unique name of the row, independent of the order of rows."""
    sample: int
    number: int
    """Number of the attempt."""
    lost: str = ""
    """Why the episode cannot run; it is void."""

    @property
    def key(self) -> tuple[str, int]:
        """The `uid` and `session` of its rows in the log."""
        return self.task, self.sample


RunAttempt = Callable[[EvaluationAttempt], Awaitable[EpisodeRows]]
"""Runs an attempt and returns its rows for the log."""
_USAGE = "usage/"
"""Begins the names of the tokens as the server counts them, among the numbers of an episode."""


def attempts(rows: Sequence[EnvRow], samples: int) -> list[EvaluationAttempt]:
    """Returns all attempts: first the first attempt of every row."""
    counts: Counter[str] = Counter()
    tasks = []
    for row in rows:
        name = fingerprint(row)
        counts[name] += 1
        tasks.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return [
        EvaluationAttempt(index=index, row=row, task=tasks[index], sample=sample, number=sample * len(rows) + index)
        for sample in range(samples)
        for index, row in enumerate(rows)
    ]


async def evaluate(
    plan: Sequence[EvaluationAttempt],
    *,
    run_attempt: RunAttempt,
    log: EvaluationLog,
    max_concurrent: int,
    breaker: CircuitBreaker,
    on_episode: Callable[[EpisodeRows], None] = lambda rows: None,
) -> list[EpisodeRows]:
    """Runs the attempts that the log lacks, and void ones again; returns the rows of all attempts.

    Args:
        run_attempt: runs an attempt, here or elsewhere; see `attempt_runner`. An EnvError of it makes the episode void.
        log: of the evaluation.
        max_concurrent: maximum number of parallel episodes.
        breaker: stops the evaluation when too many episodes are void.
        on_episode: called with the rows of every episode, existing ones included.

    Raises:
        ConfigError, DataError: no retry can help. InfrastructureError: too many episodes are void.
    """
    pending: list[EvaluationAttempt] = []
    for attempt in plan:
        old_rows = log.episodes.get(attempt.key)
        if old_rows is None or old_rows[-1]["is_void"]:
            pending.append(attempt)
        else:
            on_episode(old_rows)

    async def run_pending(attempt: EvaluationAttempt) -> None:
        try:
            rows = await run_attempt(attempt)
        except EnvError as error:
            rows = await run_attempt(replace(attempt, lost=str(error)))
        log.append(rows)
        on_episode(rows)
        last = rows[-1]
        failure = agent_error(last["stop_reason"], last["error"] or None)
        breaker.record(_void_reason(last) if last["is_void"] else None, agent_error=failure)
        breaker.check()

    await run_each(pending, run_pending, max_concurrent=max_concurrent)
    return [log.episodes[attempt.key] for attempt in plan]


def attempt_runner(make_env: EnvFactory, backend_for: Callable[[EvaluationAttempt], PolicyBackend]) -> RunAttempt:
    """Returns the function that runs an attempt in this process.

    Args:
        make_env: makes the environment of a row.
        backend_for: the backend of an attempt.
    """

    async def run(attempt: EvaluationAttempt) -> EpisodeRows:
        def fail(row: EnvRow) -> Env:
            raise EnvError(attempt.lost)

        started = time.monotonic()
        backend = backend_for(attempt)
        episode = await run_episode(
            attempt.row,
            make_env=fail if attempt.lost else make_env,
            setup=backend.setup,
            request_id=f"{attempt.index}-{attempt.sample}",
        )
        backend.finish(episode)
        return make_log_rows(
            episode,
            attempt.row,
            columns={
                "uid": attempt.task,
                "session": attempt.sample,
                "task_id": f"row {attempt.index}",
                "id_source": backend.id_source(),
            },
            tokenizer=backend.setup.tokenizer,
            numbers={
                "wall_s": round(time.monotonic() - started, 3),
                **{f"{_USAGE}{name}": float(count) for name, count in backend.usage.items()},
            },
        )

    return run


def is_success(row: Mapping[str, Any]) -> bool:
    """Returns whether an episode that is not void has the full outcome."""
    return row["acc"] >= _FULL


def _void_reason(row: Mapping[str, Any]) -> str:
    return row["error"] or row["stop_reason"]


def _usage_of(row: Mapping[str, Any]) -> Counter[str]:
    numbers = row["numbers"].items()
    return Counter({name.removeprefix(_USAGE): int(count) for name, count in numbers if name.startswith(_USAGE)})


def summarise(rows: Sequence[Mapping[str, Any]], *, price: Price | None = None) -> dict[str, Any]:
    """Returns the statistics of an evaluation as plain JSON values.

    Void episodes are counted, and left out of all other numbers but `usage` and `cost`. pass@k and pass^k are means
    over the tasks with at least k valid episodes; `tasks_at_k` is their number.

    Args:
        rows: the last row of each episode.
        price: of the model's tokens; None leaves out `cost`.
    """
    counted = [row for row in rows if not row["is_void"]]
    void = Counter(_void_reason(row) for row in rows if row["is_void"])
    summary: dict[str, Any] = {
        "episodes": len(rows),
        "void": len(rows) - len(counted),
        "void_errors": dict(void.most_common(5)),
        "stop_reasons": dict(Counter(row["stop_reason"] for row in rows).most_common()),
        "token_ids": sorted({row["id_source"] for row in rows}),
        "usage": dict(sum(map(_usage_of, rows), Counter())),
    }
    if price is not None:
        summary["cost"] = _sum_costs(rows, price)
    if not counted:
        return summary
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    for row in counted:
        tasks.setdefault(row["uid"], []).append(row)
    successes = [[float(is_success(r)) for r in group] for group in tasks.values()]
    outcomes = [[float(r["acc"]) for r in group] for group in tasks.values()]
    counts = {
        name: [[float(r["numbers"][name]) for r in group] for group in tasks.values()]
        for name in ("num_turns", "model_tokens", "response_tokens", "tool_calls", "tool_errors")
    }
    return {
        "tasks": len(tasks),
        "success": figure(successes),
        "outcome": figure(outcomes),
        **{name: figure(groups, is_share=False) for name, groups in counts.items()},
        **_summarise_at_k(successes),
        **summary,
    }


def _sum_costs(rows: Sequence[Mapping[str, Any]], price: Price) -> dict[str, float | None]:
    """Returns the cost of all requests: in total, of a mean episode, and of a solved one; None if none is solved."""
    total = sum(price.of(usage["prompt_tokens"], usage["completion_tokens"]) for usage in map(_usage_of, rows))
    solved = sum(not row["is_void"] and is_success(row) for row in rows)
    per_episode = total / len(rows) if rows else None
    return {"total": total, "per_episode": per_episode, "per_solved": total / solved if solved else None}


def figure(groups: Sequence[Sequence[float]], *, is_share: bool = True) -> dict[str, Any]:
    """Returns the mean over groups with its standard error.

    Args:
        groups: the values of each task.
        is_share: the mean is a share, which also has a 95 % interval if all values are 0 or 1. Counts have none.
    """
    mean = clustered_mean(groups)
    is_proportion = is_share and all(value in (0.0, 1.0) for group in groups for value in group)
    interval = {"ci95": list(success_interval(groups))} if is_proportion else {}
    return {"mean": mean.value, "stderr": mean.stderr, **interval}


def _summarise_at_k(successes: Sequence[Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Returns pass@k and pass^k with 95 % intervals for k = 1, 2, 4, ... and for the highest number of attempts.

    Estimates of a task between 0 and 1 vary less than outcomes, so the interval of as many outcomes is conservative.
    """
    counts = [(len(group), int(sum(group))) for group in successes]
    max_attempts = max(n for n, _ in counts)
    ks = sorted({2**power for power in range(max_attempts.bit_length()) if 2**power <= max_attempts} | {max_attempts})
    figures: dict[str, dict[str, Any]] = {"tasks_at_k": {}}
    for name, estimate in (("pass_at_k", pass_at_k), ("pass_hat_k", pass_hat_k)):
        means, intervals = figures.setdefault(name, {}), figures.setdefault(f"{name}_ci95", {})
        for k in ks:
            values = [[estimate(n, c, k)] for n, c in counts if n >= k]
            figures["tasks_at_k"][str(k)] = len(values)
            means[str(k)] = sum(value for (value,) in values) / len(values)
            intervals[str(k)] = list(success_interval(successes if k == 1 else values))
    return figures
