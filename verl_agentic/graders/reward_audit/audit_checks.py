"""The checks of one term: speed, repeatability, unearned scores, right and wrong answers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from verl_agentic.graders.answers.gold_answers import FAMILIES, Family, gold_of, rewritings, wrong_answers
from verl_agentic.graders.reward_audit.counterfactuals import ALL_FORMS, PLAIN, Form, answered, echo, silent
from verl_agentic.graders.reward_audit.reward_statistics import percentile
from verl_agentic.graders.reward_audit.single_term import Bench, Unit
from verl_agentic.rewards.sample import Sample

RUNS = 5
_TIMED, _TRIED, _EXAMPLES = 64, 16, 3
_ACCEPTED = 0.9
"""Minimum share of the range for a right answer; the rest may depend on the form."""
_FAMILY_ACCEPTS = 0.5
"""A component is for maths (or questions) if it accepts this share of such rewritings."""


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The results of five runs over the same samples."""

    checks: int
    """Number of checked samples."""
    failed: int
    unstable: int
    """Number of samples on which two runs differ."""
    median_s: float | None
    """Seconds per check: of one sample, or of one group."""
    p95_s: float | None
    examples: tuple[str, ...] = ()
    """Examples of failures and of different verdicts."""


@dataclass(frozen=True, kw_only=True)
class UnearnedReward:
    """Scores of a policy that did no work."""

    skipped: str = ""
    """Why it was not looked at."""
    silent: float = 0.0
    """Highest score of silence after tool output with the answer, as a share of the range."""
    echo: float = 0.0
    """Highest score of an echo of the prompt."""
    num_planted: int = 0
    """Number of samples whose tool output contained the right answer."""
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GoldCheck:
    """The verdicts of a term on right and wrong answers."""

    skipped: str = ""
    """Why it was not looked at."""
    form: str = ""
    """The form of the answers."""
    family: str = ""
    """Kind of rewritings that must be accepted: `math`, `qa`, or empty."""
    num_right: int = 0
    false_negatives: int = 0
    num_wrong: int = 0
    false_positives: int = 0
    by_kind: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """`gold`, `rewritten` and kinds of wrong answers -> number of tests, and of wrong verdicts."""
    examples: tuple[str, ...] = ()


async def look_at_repeats(bench: Bench, units: Sequence[Unit]) -> Repeats:
    """Returns the repeatability and speed of a term on unchanged samples."""
    if not units:
        return Repeats(checks=0, failed=0, unstable=0, median_s=None, p95_s=None)
    first = [await bench.timed(unit) for unit in units[:_TIMED]]
    seconds = [elapsed_s for _, elapsed_s in first]
    runs = [[*(verdicts for verdicts, _ in first), *await bench.judge(units[_TIMED:])]]
    runs += [await bench.judge(units) for _ in range(RUNS - 1)]
    examples: list[str] = []
    failed = unstable = 0
    for place, unit in enumerate(units):
        for index, sample in enumerate(unit):
            verdicts = [run[place][index] for run in runs]
            failure = next((v.failure for v in verdicts if v.failure), None)
            failed += failure is not None
            is_unstable = not all(verdict.is_like(verdicts[0]) for verdict in verdicts)
            unstable += is_unstable
            if failure is not None:
                examples.append(f"{sample.id}: {failure}")
            elif is_unstable:
                examples.append(f"{sample.id}: {[verdict.value for verdict in verdicts]}")
    return Repeats(
        checks=sum(map(len, units)),
        failed=failed,
        unstable=unstable,
        median_s=percentile(seconds, 0.5),
        p95_s=percentile(seconds, 0.95),
        examples=tuple(examples[:_EXAMPLES]),
    )


async def needs_env(bench: Bench, units: Sequence[Unit]) -> bool:
    """Returns whether a term uses the environment's score, which cannot be repeated for other episodes."""
    tried = [unit for unit in units if any(sample.env is not None for sample in unit)][:_TRIED]
    bare = [[replace(sample, env=None) for sample in unit] for unit in tried]
    pairs = zip(await bench.judge(tried), await bench.judge(bare), strict=True)
    return any(not a.is_like(b) for with_env, without in pairs for a, b in zip(with_env, without, strict=True))


async def look_for_unearned(bench: Bench, units: Sequence[Unit], *, form: Form, max_unearned: float) -> UnearnedReward:
    """Returns the scores of silence and of an echo; in a group, of one member.

    Args:
        bench: the term.
        units: of the term.
        form: of accepted answers; the prompt is also echoed unchanged.
        max_unearned: maximum score.
    """
    gold = [gold_of(unit[0].ground_truth) for unit in units]
    silence = [[silent(unit[0], right), *unit[1:]] for unit, right in zip(units, gold, strict=True)]
    echoes = [[[echo(unit[0], answer_form), *unit[1:]] for unit in units] for answer_form in (PLAIN, form)]
    earned = [
        [bench.earned(verdicts[0]) for verdicts in await bench.judge(episodes)] for episodes in (silence, *echoes)
    ]
    earned = [earned[0], [max(pair) for pair in zip(*earned[1:], strict=True)]]
    examples = [
        f"{unit[0].id}: {label} scores {value:.3g}"
        for label, values in zip(("tool output alone", "an echo of the prompt"), earned, strict=True)
        for unit, value in zip(units, values, strict=True)
        if value > max_unearned + 1e-9
    ]
    return UnearnedReward(
        silent=max(earned[0], default=0.0),
        echo=max(earned[1], default=0.0),
        num_planted=sum(map(bool, gold)),
        examples=tuple(examples[:_EXAMPLES]),
    )


async def form_of(bench: Bench, samples: Sequence[Sample]) -> Form:
    """Returns the form in which right answers score best; plain if there are none."""
    rows = _with_gold(samples)[:_TRIED]
    earned = [sum(await _score_answers(bench, _pick_first_answers(rows), form)) for form in ALL_FORMS]
    return ALL_FORMS[max(range(len(earned)), key=lambda index: earned[index])]


async def look_at_gold(bench: Bench, samples: Sequence[Sample], *, form: Form, max_unearned: float) -> GoldCheck:
    """Returns the verdicts of a term on right answers, rewritten right answers, and wrong answers.

    Args:
        bench: the term.
        samples: one of each row.
        form: of the answers.
        max_unearned: maximum score of an unrelated answer.
    """
    rows = _with_gold(samples)
    if not rows:
        return GoldCheck(skipped="no row has a right answer that is a text or a number")
    tally = _Tally(bench, form)
    family: Family | None = FAMILIES.get(bench.term.component.type.name) or await _family_of(bench, rows[:_TRIED], form)
    await tally.accept("gold", [(sample, answer) for sample, gold in rows for answer in gold])
    if family is not None:
        rewritten = [(sample, text) for sample, gold in rows for text in rewritings(gold[0], family)]
        await tally.accept("rewritten", rewritten)
    answers = sorted({answer for _, gold in rows for answer in gold})
    random.Random(0).shuffle(answers)
    best = await tally.earned(_pick_first_answers(rows))
    wrong = [
        (row, sample, wrong_answer)
        for row, (sample, gold) in enumerate(rows)
        for wrong_answer in wrong_answers(gold, answers)
    ]
    values = await tally.earned([(sample, wrong_answer.text) for _, sample, wrong_answer in wrong])
    for (row, sample, wrong_answer), value in zip(wrong, values, strict=True):
        # F1 gives partial credit for shared words.
        is_accepted = value >= max(best[row], _ACCEPTED) - 1e-9 if wrong_answer.is_near else value > max_unearned + 1e-9
        tally.count(wrong_answer.kind, sample, wrong_answer.text, value, is_misjudged=is_accepted)
    return tally.result(family)


class _Tally:
    """Counts of verdicts on right and wrong answers."""

    def __init__(self, bench: Bench, form: Form) -> None:
        self._bench, self._form = bench, form
        self._by_kind: dict[str, list[int]] = {}
        self._examples: list[str] = []

    async def earned(self, answers: Sequence[tuple[Sample, str]]) -> list[float]:
        return await _score_answers(self._bench, answers, self._form)

    async def accept(self, kind: str, answers: Sequence[tuple[Sample, str]]) -> None:
        for (sample, text), value in zip(answers, await self.earned(answers), strict=True):
            self.count(kind, sample, text, value, is_misjudged=value < _ACCEPTED)

    def count(self, kind: str, sample: Sample, text: str, value: float, *, is_misjudged: bool) -> None:
        counts = self._by_kind.setdefault(kind, [0, 0])
        counts[0] += 1
        counts[1] += is_misjudged
        if is_misjudged and counts[1] <= _EXAMPLES:
            truth = str(sample.ground_truth)[:60]
            self._examples.append(f"{sample.id}: {kind} {text[:60]!r} for {truth!r} scores {value:.3g}")

    def result(self, family: Family | None) -> GoldCheck:
        right = [self._by_kind.get(kind, [0, 0]) for kind in ("gold", "rewritten")]
        wrong = [counts for kind, counts in self._by_kind.items() if kind not in ("gold", "rewritten")]
        return GoldCheck(
            form=self._form.title,
            family=family or "",
            num_right=sum(tried for tried, _ in right),
            false_negatives=sum(misjudged for _, misjudged in right),
            num_wrong=sum(tried for tried, _ in wrong),
            false_positives=sum(misjudged for _, misjudged in wrong),
            by_kind={kind: (tried, misjudged) for kind, (tried, misjudged) in self._by_kind.items()},
            examples=tuple(self._examples),
        )


async def _family_of(bench: Bench, rows: Sequence[tuple[Sample, tuple[str, ...]]], form: Form) -> Family | None:
    for family in ("qa", "math"):
        family = cast("Family", family)
        answers = [(sample, text) for sample, gold in rows for text in rewritings(gold[0], family)]
        accepted = [value >= _ACCEPTED for value in await _score_answers(bench, answers, form)]
        if sum(accepted) >= _FAMILY_ACCEPTS * len(accepted):
            return family
    return None


async def _score_answers(bench: Bench, answers: Sequence[tuple[Sample, str]], form: Form) -> list[float]:
    units = [[answered(sample, text, form)] for sample, text in answers]
    return [bench.earned(verdict) for (verdict,) in await bench.judge(units)]


def _with_gold(samples: Sequence[Sample]) -> list[tuple[Sample, tuple[str, ...]]]:
    return [(sample, gold) for sample in samples if (gold := gold_of(sample.ground_truth))]


def _pick_first_answers(rows: Sequence[tuple[Sample, tuple[str, ...]]]) -> list[tuple[Sample, str]]:
    return [(sample, gold[0]) for sample, gold in rows]
