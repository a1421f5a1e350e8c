"""Scores of samples and groups for an audit: computed here or elsewhere, and kept in a journal."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

from verl_agentic.base.errors import EnvError
from verl_agentic.base.finding import log_only_from
from verl_agentic.episode.run_each import run_each
from verl_agentic.evaluate.journal import Journal, keep_settings
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.scorer import Scorer

ALL_TERMS = ""
"""Name of the whole rubric."""
_PROCESSES = 2


class ScoredUnit(TypedDict):
    """The scores of a sample or a group."""

    elapsed_s: float
    numbers: list[dict[str, float]]
    """`Score.numbers` of each sample."""
    void: list[str | None]


ScoreUnit = Callable[[tuple[str, Sequence[Sample]]], Awaitable[ScoredUnit]]
"""Scores a unit with the term of this name alone, or with `ALL_TERMS`. Terms are scored one after the other."""
ScoreUnits = Callable[[str, Sequence[Sequence[Sample]]], Awaitable[list[ScoredUnit]]]
"""Scores units with the term of this name."""


@contextlib.asynccontextmanager
async def scoring_here(read: Callable[[], Rubric]) -> AsyncIterator[ScoreUnit]:
    """Yields the function that scores a unit in this process.

    Args:
        read: returns the rubric.
    """
    rubric, lock = read(), asyncio.Lock()
    with contextlib.ExitStack() as used, log_only_from(logging.ERROR, logger=Scorer.__module__):  # failures are counted
        scorers: dict[str, Scorer] = {}

        async def score(job: tuple[str, Sequence[Sample]]) -> ScoredUnit:
            name, unit = job
            async with lock:
                if name not in scorers:
                    used.close()  # ends the processes of the last term
                    scorers.clear()
                    scorers[name] = used.enter_context(contextlib.closing(_make_scorer(rubric, name)))
                    if name != ALL_TERMS:
                        await scorers[name].score_group(unit)  # starts a process, fills caches
            started = time.perf_counter()
            scores = await scorers[name].score_group(unit)
            elapsed_s = time.perf_counter() - started
            numbers, void = (
                [dict(sample_score.numbers) for sample_score in scores],
                [sample_score.void for sample_score in scores],
            )
            return {"elapsed_s": elapsed_s, "numbers": numbers, "void": void}

        yield score


@contextlib.asynccontextmanager
async def unit_scores(
    scoring: AbstractAsyncContextManager[ScoreUnit],
    *,
    jobs: int = 8,
    journal: Path | None = None,
    settings: Sequence[object] = (),
) -> AsyncIterator[ScoreUnits]:
    """Yields the function that scores units; one of which all workers died has failed.

    Args:
        scoring: gives the function that scores a unit.
        jobs: number of units that are scored at one time.
        journal: of the scores, from which a repeated audit continues; None keeps none.
        settings: the rubric and the samples; a journal of others is refused.

    Raises:
        ConfigError: the journal has the scores of another audit. DataError: it cannot be read.
    """
    open_journal = Journal(journal) if journal is not None else None
    if open_journal is not None:
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
        keep_settings(
            open_journal.path.with_suffix(".settings.json"), {"audit": digest}, has_begun=bool(open_journal.records)
        )
    calls = count()
    try:
        async with scoring as score:

            async def score_units(name: str, units: Sequence[Sequence[Sample]]) -> list[ScoredUnit]:
                call = next(calls)  # an audit makes the same calls again

                async def score_unit(job: tuple[int, Sequence[Sample]]) -> Any:
                    place, unit = job
                    try:
                        if open_journal is None:
                            return await score((name, unit))
                        return await open_journal.kept(f"{call}/{place}", lambda: score((name, unit)))
                    except EnvError as error:
                        return _make_failed_unit(unit, str(error))

                return await run_each(list(enumerate(units)), score_unit, max_concurrent=jobs)

            yield score_units
    finally:
        if open_journal is not None:
            open_journal.close()


def _make_scorer(rubric: Rubric, name: str) -> Scorer:
    if name == ALL_TERMS:
        return Scorer(replace(rubric, on_error="void"))
    # An outcome, because a rubric needs one; only the raw value is used.
    plain = {"weight": 1.0, "cap": None, "only_if": {}, "unless": {}, "fallback_for": None, "data_sources": ()}
    alone = replace(rubric.term(name), kind="outcome", **plain)
    return Scorer(Rubric(terms=(alone,), timeout_s=rubric.timeout_s), workers=_PROCESSES)


def _make_failed_unit(unit: Sequence[Sample], reason: str) -> ScoredUnit:
    return {"elapsed_s": 0.0, "numbers": [{"scoring/failed": 1.0} for _ in unit], "void": [reason] * len(unit)}
