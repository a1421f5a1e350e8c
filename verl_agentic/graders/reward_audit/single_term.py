"""One term of a rubric on its own: its verdicts on samples, and their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_agentic.graders.reward_audit.unit_scores import ScoredUnit, ScoreUnits
from verl_agentic.rewards.rubric import Term
from verl_agentic.rewards.sample import Sample

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

    def __init__(self, term: Term, score: ScoreUnits) -> None:
        self.term = term
        self.is_group = term.component.type.scope == "group"
        self._score = score

    def units(self, groups: Sequence[Sequence[Sample]]) -> list[Unit]:
        """Returns the units of all samples to which the term applies."""
        sources = self.term.data_sources
        chosen = [[s for s in group if not sources or s.data_source in sources] for group in groups]
        if self.is_group:
            return [group for group in chosen if group]
        return [[sample] for group in chosen for sample in group]

    async def timed(self, unit: Unit) -> tuple[list[TermResult], float]:
        """Returns the verdicts on a unit, and their time in seconds."""
        (scored,) = await self._score(self.term.name, [unit])
        return self._read_results(scored), scored["elapsed_s"]

    async def judge(self, units: Sequence[Unit]) -> list[list[TermResult]]:
        """Returns the verdicts on all units, computed in parallel."""
        return [self._read_results(scored) for scored in await self._score(self.term.name, units)]

    def _read_results(self, scored: ScoredUnit) -> list[TermResult]:
        raw, void = f"reward/{self.term.name}", "scoring/failed"
        return [
            TermResult(failure=reason)
            if numbers[void]
            else TermResult(value=None if reason is not None else numbers[raw])
            for numbers, reason in zip(scored["numbers"], scored["void"], strict=True)
        ]

    def earned(self, verdict: TermResult) -> float:
        """Returns a verdict scaled from its range to 0 to 1; 0 without a verdict."""
        low, high = self.term.component.low, self.term.component.high
        return 0.0 if verdict.value is None or high <= low else (verdict.value - low) / (high - low)
