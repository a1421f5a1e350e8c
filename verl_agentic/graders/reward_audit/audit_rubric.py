"""The audit of a rubric on stored trajectories: statistics of every term, and exceeded thresholds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.finding import Finding
from verl_agentic.graders.reward_audit.audit_checks import (
    GoldCheck,
    Repeats,
    UnearnedReward,
    form_of,
    look_at_gold,
    look_at_repeats,
    look_for_unearned,
    needs_env,
)
from verl_agentic.graders.reward_audit.counterfactuals import PLAIN
from verl_agentic.graders.reward_audit.reward_statistics import is_constant, variance_shares
from verl_agentic.graders.reward_audit.single_term import Bench, Unit
from verl_agentic.graders.reward_audit.unit_scores import ALL_TERMS, ScoreUnits, scoring_here, unit_scores
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.rewards.component import Kind
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample

_JUDGED_BY_ENV = "the environment's score cannot be repeated: see `verl-agentic env validate`"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Thresholds of the audit; shares are from 0 to 1."""

    max_unearned: float = 0.0
    """Maximum score, as a share of an outcome's range, of silence, an echo of the prompt, or an unrelated or empty
    answer."""
    max_false_positives: float = 0.0
    """Maximum share of accepted wrong answers."""
    max_false_negatives: float = 0.05
    """Maximum share of rejected right answers, rewritten ones included."""
    max_unstable: float = 0.0
    """Maximum share of samples on which five runs differ."""
    max_failed: float = 0.0
    """Maximum share of samples on which a component fails."""
    max_dead: int = 0
    """Maximum number of components that never differ inside a group."""
    max_share: float = 0.5
    """Maximum share of the reward's variance inside groups of one shaping component."""
    min_outcome_share: float = 0.5
    """Minimum share of that variance of the outcome."""
    max_p95_s: float = 10.0
    """Maximum 95th percentile of the seconds per check."""


@dataclass(frozen=True, kw_only=True)
class TermAudit:
    """The results for one term."""

    name: str
    kind: Kind
    repeats: Repeats
    unearned: UnearnedReward
    gold: GoldCheck
    variance_share: float | None
    """Share of the reward's variance inside groups; None without variance."""
    is_dead: bool
    is_held_out: bool
    """Whether its weight is 0: then it has no share of the variance."""


@dataclass(frozen=True, kw_only=True)
class RewardAudit:
    """The results for a rubric."""

    num_samples: int
    num_groups: int
    num_compared: int
    """Number of groups of at least two samples, which have a variance."""
    num_void: int
    """Number of samples that the rubric could not score."""
    outcome_share: float
    """Maximum weight of the outcome."""
    outcome_variance_share: float | None
    """The outcome's share of the reward's variance inside groups."""
    terms: tuple[TermAudit, ...]
    problems: tuple[Finding, ...]
    """Exceeded thresholds: `unearned`, `false_positives`, `false_negatives`, `unstable`, `failed`, `dead`,
    `dominant`, `outcome_share` or `slow`. The evidence names the component."""

    @property
    def is_fine(self) -> bool:
        """Returns whether no threshold is passed."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON values."""
        problems = [{"component": p.evidence["component"], "what": p.check, "message": p.found} for p in self.problems]
        return {"ok": self.is_fine, **dataclasses.asdict(self), "problems": problems}


async def audit(
    rubric: Rubric,
    groups: Sequence[Sequence[StoredSample]],
    *,
    thresholds: Thresholds | None = None,
    score: ScoreUnits | None = None,
    on_look: Callable[[str], None] = lambda _: None,
) -> RewardAudit:
    """Returns the audit of a rubric on stored trajectories.

    Args:
        groups: the trajectories; at least one.
        thresholds: limits of the results.
        score: scores samples by the terms of the rubric, here or elsewhere; default: in this process.
        on_look: called with the name of every term before its checks.
    """
    if score is None:
        async with unit_scores(scoring_here(lambda: rubric)) as score:
            return await audit(rubric, groups, thresholds=thresholds, score=score, on_look=on_look)
    thresholds = thresholds or Thresholds()
    samples = [[stored.sample for stored in group] for group in groups]
    scores = await score(ALL_TERMS, samples)
    valid = [
        [n for n, void in zip(scored["numbers"], scored["void"], strict=True) if void is None] for scored in scores
    ]
    names = [term.name for term in rubric.terms]
    parts = [[{name: numbers[f"weighted/{name}"] for name in names} for numbers in group] for group in valid]
    shares = variance_shares(parts)
    terms = []
    for term in rubric.terms:
        on_look(term.name)
        weighted = [[part[term.name] for part in group] for group in parts]
        share = None if shares is None else shares.get(term.name, 0.0)
        is_dead = not term.is_held_out and is_constant(weighted)
        terms.append(await _audit_term(Bench(term, score), samples, thresholds, share, is_dead=is_dead))
    outcomes = {term.name for term in rubric.outcomes}
    of_outcome = None if shares is None else sum(share for name, share in shares.items() if name in outcomes)
    return RewardAudit(
        num_samples=sum(map(len, samples)),
        num_groups=len(samples),
        num_compared=sum(len(group) > 1 for group in valid),
        num_void=sum(void is not None for scored in scores for void in scored["void"]),
        outcome_share=rubric.outcome_share,
        outcome_variance_share=of_outcome,
        terms=tuple(terms),
        problems=tuple(_iter_problems(terms, of_outcome, thresholds)),
    )


async def _audit_term(
    bench: Bench, groups: Sequence[Sequence[Sample]], thresholds: Thresholds, share: float | None, *, is_dead: bool
) -> TermAudit:
    term, units = bench.term, bench.units(groups)
    repeats = await look_at_repeats(bench, units)
    reason = "" if term.kind == "outcome" else "only outcomes are"
    if not reason and await needs_env(bench, units):
        reason = _JUDGED_BY_ENV
    unearned, gold = UnearnedReward(skipped=reason), GoldCheck(skipped=reason)
    if not reason:
        unearned, gold = await _try_other_episodes(bench, units, max_unearned=thresholds.max_unearned)
    return TermAudit(
        name=term.name,
        kind=term.kind,
        repeats=repeats,
        unearned=unearned,
        gold=gold,
        variance_share=share,
        is_dead=is_dead,
        is_held_out=term.is_held_out,
    )


async def _try_other_episodes(
    bench: Bench, units: Sequence[Unit], *, max_unearned: float
) -> tuple[UnearnedReward, GoldCheck]:
    if bench.is_group:
        skipped = GoldCheck(skipped="it scores whole groups")
        return await look_for_unearned(bench, units, form=PLAIN, max_unearned=max_unearned), skipped
    rows = list({repr((sample.prompt, sample.ground_truth)): sample for (sample,) in units}.values())
    form = await form_of(bench, rows)
    unearned = await look_for_unearned(bench, units, form=form, max_unearned=max_unearned)
    return unearned, await look_at_gold(bench, rows, form=form, max_unearned=max_unearned)


def _iter_problems(terms: Sequence[TermAudit], of_outcome: float | None, limits: Thresholds) -> Iterator[Finding]:
    for term in terms:
        for check, message, examples in _problems_of(term, limits):
            yield _make_finding(check, f"{term.name}: {message}", component=term.name, look_at=examples)
    dead = [term.name for term in terms if term.is_dead]
    if len(dead) > limits.max_dead:
        for name in dead:
            yield _make_finding("dead", f"{name}: never differs inside a group", component=name)
    if of_outcome is not None and of_outcome < limits.min_outcome_share - 1e-9:
        message = f"the outcome has {of_outcome:.1%} of the variance inside groups, less than "
        yield _make_finding("outcome_share", f"{message}{limits.min_outcome_share:.1%}")


def _make_finding(check: str, message: str, *, component: str = "", look_at: tuple[str, ...] = ()) -> Finding:
    evidence = {"component": component}
    return Finding(check=check, status="fail", found=message, evidence=evidence, look_at=look_at)


def _problems_of(term: TermAudit, limits: Thresholds) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Returns name, message and examples of every exceeded threshold."""
    repeats, unearned, gold = term.repeats, term.unearned, term.gold
    for name, earned in (("silence beside tool output", unearned.silent), ("the prompt, given back,", unearned.echo)):
        if earned > limits.max_unearned + 1e-9:
            yield "unearned", f"{name} gets up to {earned:.3g} of the range", unearned.examples
    if gold.false_positives > limits.max_false_positives * gold.num_wrong:
        message = f"{gold.false_positives} of {gold.num_wrong} wrong answers are accepted"
        yield "false_positives", message, gold.examples
    if gold.false_negatives > limits.max_false_negatives * gold.num_right:
        message = f"{gold.false_negatives} of {gold.num_right} right answers are rejected"
        yield "false_negatives", message, gold.examples
    if repeats.unstable > limits.max_unstable * repeats.checks:
        message = f"gives different verdicts on {repeats.unstable} of {repeats.checks} samples in 5 runs"
        yield "unstable", message, repeats.examples
    if repeats.failed > limits.max_failed * repeats.checks:
        yield "failed", f"fails on {repeats.failed} of {repeats.checks} samples", repeats.examples
    if repeats.p95_s is not None and repeats.p95_s > limits.max_p95_s:
        yield "slow", f"5 % of the checks take longer than {repeats.p95_s:.3g} s", ()
    if term.kind == "shaping" and (term.variance_share or 0.0) > limits.max_share:
        yield "dominant", f"has {term.variance_share:.1%} of the variance inside groups and is not the outcome", ()
