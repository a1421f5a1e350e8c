"""Scores samples by a rubric: components run concurrently, each with a deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence, Set
from typing import Any

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import AgenticError, ScoringError, boundary, is_by_policy
from verl_agentic.rewards.component import ABSTAIN, Graded
from verl_agentic.rewards.rubric import Rubric, Term
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.score import Score, Verdicts, combine, void
from verl_agentic.rewards.turns import is_overlong
from verl_agentic.rewards.worker_pool import Workers

logger = logging.getLogger(__name__)
_LONGEST_S = 3600.0  # of a component that bounds itself


class Scorer:
    """Scores samples concurrently; used from one event loop at a time."""

    def __init__(self, rubric: Rubric, *, workers: int | None = None, max_concurrent: int = 256) -> None:
        """Starts nothing yet.

        Args:
            workers: processes for components that could hang; by default one per core, at most 8.
            max_concurrent: maximum number of samples or groups scored at once; deadlines start after the wait.
        """
        self.rubric = rubric
        self._slots = asyncio.Semaphore(max_concurrent)
        self._workers = Workers(workers)

    def close(self) -> None:
        self._workers.close()

    async def score(self, sample: Sample) -> Score:
        """Returns the score of a sample without group terms. Raises ScoringError if one fails with `on_error: stop`."""
        async with self._slots:
            (score,) = await self._score_samples([sample], is_group=False)
        return score

    async def score_group(self, samples: Sequence[Sample]) -> list[Score]:
        """Returns the scores of all samples of one group, in order. Raises ScoringError, see `score`."""
        async with self._slots:
            return await self._score_samples(samples, is_group=True)

    async def begin(self, sample: Sample) -> tuple[Score, Verdicts]:
        """Returns a first score of a sample, and verdicts for `finish`. Raises ScoringError as `score`."""
        verdicts: list[dict[str, Graded | None]] = [{}]
        async with self._slots:
            (score,) = await self._score_samples(
                [sample], is_group=False, verdicts=verdicts, later=self.rubric.group_terms
            )
        return score, verdicts[0]

    async def begin_for_verl(self, sample: Sample) -> tuple[Score, Verdicts]:
        """Returns `begin`. A failure with `on_error: stop` becomes a void score at which the trainer stops.

        verl drops an episode whose scoring raises, and the run would go on.
        """
        try:
            return await self.begin(sample)
        except ScoringError as cause:
            return void(self.rubric, str(cause), what="stop"), {}

    async def finish(self, samples: Sequence[Sample], verdicts: Sequence[Verdicts]) -> list[Score]:
        """Returns the scores of a complete group, with the verdicts of `begin`. Raises ScoringError as `score`."""
        async with self._slots:
            return await self._score_samples(
                samples, is_group=True, verdicts=[dict(sample_verdicts) for sample_verdicts in verdicts]
            )

    async def _score_samples(
        self,
        samples: Sequence[Sample],
        *,
        is_group: bool,
        verdicts: list[dict[str, Graded | None]] | None = None,
        later: Set[str] = frozenset(),
    ) -> list[Score]:
        """Returns the scores; adds missing verdicts to `verdicts`, except `later` ones."""
        verdicts = [{} for _ in samples] if verdicts is None else verdicts
        failures: list[str | None] = [self._get_mask_reason(sample) for sample in samples]
        masked = [failure is not None for failure in failures]
        for level in _order_in_rounds(self.rubric):
            terms = [
                t
                for t in level
                if t.name not in later and not all(t.name in sample_verdicts for sample_verdicts in verdicts)
            ]
            jobs = [self._grade_term(term, samples, verdicts, failures, is_group=is_group) for term in terms]
            for term, term_verdicts in zip(terms, await asyncio.gather(*jobs), strict=True):
                for index, graded in enumerate(term_verdicts):
                    verdicts[index][term.name] = graded
        return [
            combine(self.rubric, sample_verdicts, is_pending=bool(later))
            if failure is None
            else void(self.rubric, failure, sample_verdicts, what="masked" if is_masked else "failed")
            for sample_verdicts, failure, is_masked in zip(verdicts, failures, masked, strict=True)
        ]

    def _get_mask_reason(self, sample: Sample) -> str | None:
        limit = self.rubric.mask_overlong
        if limit is not None and is_overlong(sample, max_tokens=limit):
            return f"overlong: {sample.num_model_tokens} model tokens, ended by {sample.stop_reason.value}"
        if sample.stop_reason.value in self.rubric.mask_stops:
            return f"ended by {sample.stop_reason.value}, which mask_stops names"
        return None

    async def _grade_term(
        self,
        term: Term,
        samples: Sequence[Sample],
        verdicts: Sequence[dict[str, Graded | None]],
        failures: list[str | None],
        *,
        is_group: bool,
    ) -> list[Graded | None]:
        """Returns a term's verdict on every sample; None if it does not apply."""
        chosen = [
            index
            for index, sample in enumerate(samples)
            if failures[index] is None and _is_applicable(term, sample, verdicts[index])
        ]
        term_verdicts: list[Graded | None] = [None] * len(samples)
        if term.component.type.scope == "group":
            subjects = [[samples[i] for i in chosen]] if chosen and is_group else []
            results = [await self._run_guarded(term, group, len(group)) for group in subjects]
            graded = results[0] if results else [ABSTAIN] * len(chosen)
        else:
            graded = [
                only_verdict
                for (only_verdict,) in await asyncio.gather(*(self._run_guarded(term, samples[i], 1) for i in chosen))
            ]
        for index, verdict in zip(chosen, graded, strict=True):
            if isinstance(verdict, str) and term.is_held_out:
                logger.warning(
                    "the held-out grader %r has failed on sample %r: %s", term.name, samples[index].id, verdict
                )
                term_verdicts[index] = ABSTAIN
            elif isinstance(verdict, str):
                failures[index] = self._report_failure(samples[index], verdict)
            else:
                term_verdicts[index] = verdict
        return term_verdicts

    def _report_failure(self, sample: Sample, reason: str) -> str:
        message = f"sample {sample.id!r} could not be scored: {reason}"
        if self.rubric.on_error == "stop":
            raise ScoringError(f"{message}; fix the component, or set on_error: void")
        logger.warning("%s; it is left out of the training", message)
        return message

    async def _run_guarded(self, term: Term, subject: Any, count: int) -> list[Graded | str]:
        """Returns `count` verdicts, or the reason of a failure."""
        try:
            with boundary(ScoringError, f"component {term.name!r}"):
                verdict = await self._run_component(term, subject)
                verdicts = list(verdict) if term.component.type.scope == "group" else [verdict]
                if len(verdicts) != count:
                    raise ValueError(f"{len(verdicts)} verdicts for {count} samples")
                return [term.component.checked(raw_verdict) for raw_verdict in verdicts]
        except AgenticError as cause:
            if term.component.type.scope == "sample" and isinstance(cause, ScoringError) and is_by_policy(cause):
                logger.warning("component %r counts %s as a failure of the policy", term.name, cause)
                return [Graded(value=term.component.low, solved=0.0)]
            return [str(cause)] * count

    async def _run_component(self, term: Term, subject: Any) -> Any:
        component = term.component
        timeout_s = term.timeout_s or (_LONGEST_S if component.type.has_own_deadline else self.rubric.timeout_s)
        if component.type.is_async:
            try:
                return await within(component(subject), timeout_s, what=f"component {term.name!r}")
            except OverrunError as cause:
                raise ScoringError(str(cause)) from cause
        if component.type.is_inline:
            return component(subject)
        future = self._workers.submit(term.use, component.options, subject, timeout_s=timeout_s)
        return await asyncio.wrap_future(future)


def _order_in_rounds(rubric: Rubric) -> list[list[Term]]:
    """Returns the terms in rounds; each needs only those of earlier rounds."""
    rounds: dict[str, int] = {}
    for term in rubric.terms:
        rounds[term.name] = 1 + max((rounds[name] for name in term.needs), default=-1)
    return [[t for t in rubric.terms if rounds[t.name] == r] for r in range(1 + max(rounds.values()))]


def _is_applicable(term: Term, sample: Sample, verdicts: dict[str, Graded | None]) -> bool:
    if term.data_sources and sample.data_source not in term.data_sources:
        return False
    if term.fallback_for is not None:
        first = verdicts[term.fallback_for]
        return first is not None and first.value is None
    if any(_get_value(verdicts[name]) >= value for name, value in term.unless.items()):
        return False
    return all(_get_value(verdicts[name]) >= minimum for name, minimum in term.only_if.items())


def _get_value(graded: Graded | None) -> float:
    return float("-inf") if graded is None or graded.value is None else graded.value
