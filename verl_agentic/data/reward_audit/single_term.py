"""One term of a rubric on its own: its verdicts on samples, and their time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from verl_agentic.rewards.rubric import Rubric, Term
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.scorer import Scorer

_AT_ONCE = 8
_WORKERS = 2

Unit = Sequence[Sample]
"""The input of one call: a sample, or a group for a term with group scope."""


@dataclass(frozen=True, kw_only=True)
class TermResult:
    """The verdict of a term on one sample."""

    value: float | None = None
    """Raw; None if it abstained or failed."""
    failure: str | None = None

    def is_like(self, other: TermResult) -> bool:
        """Returns whether two verdicts are equal; all failures are equal."""
        if self.value is None or other.value is None:
            return (self.value, self.failure is None) == (other.value, other.failure is None)
        return abs(self.value - other.value) <= 1e-9


class Bench:
    """A term without its weight, gates and fallbacks."""

    def __init__(self, term: Term, *, timeout_s: float) -> None:
        self.term = term
        self.is_group = term.component.type.scope == "group"
        # An outcome, because a rubric needs one; only the raw value is used.
        alone = replace(
            term, kind="outcome", weight=1.0, cap=None, only_if={}, unless={}, fallback_for=None, data_sources=()
        )
        self._scorer = Scorer(Rubric(terms=(alone,), timeout_s=timeout_s), workers=_WORKERS)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def close(self) -> None:
        """Ends its processes."""
        self._scorer.close()

    def units(self, groups: Sequence[Sequence[Sample]]) -> list[Unit]:
        """Returns the units of all samples to which the term applies."""
        sources = self.term.data_sources
        chosen = [[s for s in group if not sources or s.data_source in sources] for group in groups]
        if self.is_group:
            return [group for group in chosen if group]
        return [[sample] for group in chosen for sample in group]

    async def timed(self, unit: Unit) -> tuple[list[TermResult], float]:
        """Returns the verdicts on a unit, and their time in seconds."""
        started = time.perf_counter()
        if self.is_group:
            scores = await self._scorer.score_group(unit)
        else:
            scores = [await self._scorer.score(sample) for sample in unit]
        elapsed_s = time.perf_counter() - started
        raw, void = f"reward/{self.term.name}", "scoring/failed"
        return [
            TermResult(failure=score.void)
            if score.numbers[void]
            else TermResult(value=None if score.void is not None else score.numbers[raw])
            for score in scores
        ], elapsed_s

    async def judge(self, units: Sequence[Unit]) -> list[list[TermResult]]:
        """Returns the verdicts on all units, computed in parallel."""

        async def one(unit: Unit) -> list[TermResult]:
            async with self._slots:
                return (await self.timed(unit))[0]

        return list(await asyncio.gather(*(one(unit) for unit in units)))

    def earned(self, verdict: TermResult) -> float:
        """Returns a verdict scaled from its range to 0 to 1; 0 without a verdict."""
        low, high = self.term.component.low, self.term.component.high
        return 0.0 if verdict.value is None or high <= low else (verdict.value - low) / (high - low)
