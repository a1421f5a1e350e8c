"""The score of a sample: the total, and every part, raw and weighted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from verl_agentic.rewards.component import Graded
from verl_agentic.rewards.rubric import Rubric, Term

Verdicts = Mapping[str, Graded | None]
"""Term -> its verdict; None if a gate or the row's data source excludes it."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of one sample."""

    total: float
    """Sum of all weighted parts, including turn rewards."""
    acc: float
    """Whether the task is solved, from 0 to 1: the mean of the outcomes' `solved`; dynamic sampling filters on it."""
    turn_rewards: Mapping[int, float] = field(default_factory=dict)
    """Turn index -> the turn's share of the total; the rest is on the last token."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Every part under the same keys for every sample: `reward/<name>` raw, `weighted/<name>`, `abstained/<name>`."""
    solved: Mapping[str, float] = field(default_factory=dict)
    """Outcome term -> whether it says that the task is solved, from 0 to 1; those that apply to the sample."""
    void: str | None = None
    """Reason why the sample is void, or None."""

    @property
    def last(self) -> float:
        """The reward on the last token: the total without turn rewards."""
        return self.total - sum(self.turn_rewards.values())


def combine(rubric: Rubric, verdicts: Verdicts, *, is_pending: bool = False) -> Score:
    """Returns the score of a sample from its verdicts; `is_pending`: more come later, so the outcome may be missing."""
    used = {name: graded for name, graded in verdicts.items() if graded is not None and graded.value is not None}
    numbers: dict[str, float] = {}
    turn_rewards: dict[int, float] = {}
    total = 0.0
    for term in rubric.terms:
        graded = used.get(term.name)
        raw = graded.value if graded is not None and graded.value is not None else 0.0
        weighted = term.weigh(raw) if graded is not None else 0.0
        total += weighted
        numbers |= _collect_term_numbers(term, verdicts.get(term.name), raw, weighted)
        for turn, share in (graded.turns if graded is not None else {}).items():
            scale = weighted / raw if raw else term.weight
            turn_rewards[turn] = turn_rewards.get(turn, 0.0) + scale * share
    solved = {t.name: t.component.solved_share(used[t.name]) for t in rubric.outcomes if t.name in used}
    acc = _compute_acc(rubric, solved)
    if acc is None and not is_pending:
        return void(rubric, "no outcome: every component that could tell has abstained", verdicts)
    return Score(
        total=total,
        acc=acc or 0.0,
        turn_rewards=turn_rewards,
        solved=solved,
        numbers={"acc": acc or 0.0, "score": total, **numbers, **_VALID},
    )


What = Literal["abstained", "failed", "masked", "stop"]
_VALID = {f"scoring/{status}": 0.0 for status in get_args(What)}


def void(rubric: Rubric, reason: str, verdicts: Verdicts | None = None, *, what: What = "abstained") -> Score:
    """Returns the score of a void sample.

    Args:
        reason: text for people.
        verdicts: known verdicts, for the metrics.
        what: reason for the metrics; `stop` ends the run.
    """
    numbers: dict[str, float] = {"acc": 0.0, "score": 0.0}
    for term in rubric.terms:
        graded = (verdicts or {}).get(term.name)
        numbers |= _collect_term_numbers(term, graded, (graded.value if graded is not None else None) or 0.0, 0.0)
    return Score(total=0.0, acc=0.0, numbers={**numbers, **_VALID, f"scoring/{what}": 1.0}, void=reason)


def _collect_term_numbers(term: Term, graded: Graded | None, raw: float, weighted: float) -> dict[str, float]:
    info = graded.info if graded is not None else {}
    solved = 0.0 if graded is None or graded.value is None else term.component.solved_share(graded)
    return {
        **({f"solved/{term.name}": solved} if term.is_held_out else {}),
        f"reward/{term.name}": raw,
        f"weighted/{term.name}": weighted,
        f"abstained/{term.name}": float(graded is not None and graded.value is None),
        **{f"{term.name}/{name}": float(info.get(name, 0.0)) for name in term.component.type.info},
    }


def _compute_acc(rubric: Rubric, solved: Mapping[str, float]) -> float | None:
    terms = [term for term in rubric.outcomes if term.name in solved]
    weight = sum(abs(term.weight) for term in terms)
    if not weight:
        return None
    return sum(abs(term.weight) * solved[term.name] for term in terms) / weight
