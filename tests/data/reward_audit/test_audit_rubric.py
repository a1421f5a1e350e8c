"""The audit finds what is wrong with a rubric, says nothing of one that is right, and its figures are those of a hand
calculation."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from samples import call, sample, turn  # pyright: ignore[reportMissingImports]

from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.graders.reward_audit.audit_rubric import RewardAudit, Thresholds, audit
from verl_agentic.graders.reward_audit.unit_scores import ScoreUnit, scoring_here, unit_scores
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.rewards.rubric import Rubric

FILE = Path(__file__).parents[1] / "audited_components.py"
PEOPLE = ("Borib", "Defot", "Lufus", "Razub")


def use(function: str, **options: Any) -> dict[str, Any]:
    return {"use": f"{FILE}:{function}", **options}


def played(answer: str, truth: str, *, group: str, session: int, words: int = 5, **fields: Any) -> StoredSample:
    looked_up = turn("look", call(query="x"), observations=["nothing of interest"], num_tokens=words - 1)
    subject = sample(
        [looked_up, turn(answer, num_tokens=1)],
        ground_truth=truth,
        prompt=f"Who taught {group}?",
        id=f"{group}/{session}",
        **fields,
    )
    return StoredSample(group=group, session=session, step=1, split="train", sample=subject)


def run_of(*answers: tuple[str, str, str, str], words: int = 5, **fields: Any) -> list[list[StoredSample]]:
    """Returns a run of four groups; by default every group has two right answers and two wrong ones."""
    answers = answers or tuple((name, name, "?", "?") for name in PEOPLE)
    return [
        [played(a, name, group=f"g{name}", session=i, words=words, **fields) for i, a in enumerate(given)]
        for name, given in zip(PEOPLE, answers, strict=True)
    ]


async def look(*entries: dict[str, Any], groups: Any = None, **thresholds: Any) -> RewardAudit:
    rubric = Rubric.from_mapping({"components": list(entries)})
    return await audit(rubric, groups or run_of(), thresholds=Thresholds(**thresholds))


def problems(found: RewardAudit) -> set[tuple[str, str]]:
    return {(problem.evidence["component"], problem.check) for problem in found.problems}


async def test_a_rubric_that_is_right_has_no_problems() -> None:
    found = await look({"use": "exact_match"})
    assert found.is_fine and not found.problems
    assert (found.num_samples, found.num_groups, found.num_compared, found.num_void) == (16, 4, 4, 0)
    assert found.outcome_share == 1.0 and found.outcome_variance_share == pytest.approx(1.0)
    (term,) = found.terms
    assert (term.repeats.checks, term.repeats.unstable, term.repeats.failed) == (16, 0, 0)
    assert term.repeats.median_s is not None and term.repeats.p95_s is not None
    assert 0 < term.repeats.median_s <= term.repeats.p95_s < 1.0
    assert (term.unearned.silent, term.unearned.echo, term.unearned.num_planted) == (0.0, 0.0, 16)
    # Of each of the 4 rows: 1 right answer and 2 rewritings; empty, other, negated and truncated (no digits).
    assert term.gold.by_kind == {
        "gold": (4, 0), "rewritten": (8, 0), "empty": (4, 0), "other": (4, 0), "negated": (4, 0), "truncated": (4, 0),
    }  # fmt: skip
    assert (term.gold.num_right, term.gold.num_wrong, term.gold.form, term.gold.family) == (12, 16, "plain", "qa")
    json.dumps(found.to_dict())


@pytest.mark.parametrize("leak", ["reads_tools", "reads_results"])
async def test_an_answer_that_stands_only_in_tool_output_is_a_leak(leak: str) -> None:
    # No stored tool said the answer: the audit plants it.
    found = await look(use(leak))
    assert (leak, "unearned") in problems(found)
    assert found.terms[0].unearned.silent == 1.0 and "gBorib/0" in found.terms[0].unearned.examples[0]


async def test_paying_for_the_prompt_given_back_is_a_leak_and_for_wrong_answers_too() -> None:
    found = await look(use("pays_for_words"))
    assert {("pays_for_words", "unearned"), ("pays_for_words", "false_positives")} <= problems(found)
    assert found.terms[0].unearned.echo == 1.0 and found.terms[0].unearned.silent == 0.0
    tolerant = await look(use("pays_for_words"), max_unearned=1.0, max_false_positives=1.0)
    assert ("pays_for_words", "unearned") not in problems(tolerant), "a threshold that nothing passes"


async def test_answers_that_begin_right_are_taken_for_right() -> None:
    found = await look(use("begins_right"), max_false_negatives=1.0)
    assert problems(found) == {("begins_right", "false_positives")}
    gold = found.terms[0].gold
    assert gold.by_kind["truncated"] == (4, 4) and gold.false_positives == 4 and gold.num_wrong == 16
    assert any("truncated 'Bor' for 'Borib' scores 1" in line for line in gold.examples)


async def test_an_unrelated_answer_must_earn_nothing_and_one_that_shares_words_may_earn_some() -> None:
    found = await look(use("consoles"))
    # Another row's answer earns 0.4; half of the answer or its negation less than the right one.
    assert problems(found) == {("consoles", "false_positives")}
    assert {kind for kind, (_, wrong) in found.terms[0].gold.by_kind.items() if wrong} == {"other"}
    assert (await look(use("consoles"), max_unearned=0.4)).is_fine
    assert (await look({"use": "f1"})).is_fine, "`not Borib` shares a word with `Borib`"


async def test_a_verifier_that_takes_no_right_answer_is_found_and_a_strict_one_is_not_blamed() -> None:
    found = await look(use("never_right"))
    assert {("never_right", "false_negatives"), ("never_right", "dead")} == problems(found)
    assert (found.terms[0].gold.false_negatives, found.terms[0].gold.num_right) == (4, 4)
    strict = await look(use("strict"))
    assert strict.is_fine and strict.terms[0].gold.family == "", "it has never promised to take other spellings"


@pytest.mark.slow
async def test_math_is_asked_for_other_forms_of_a_number_in_its_own_box() -> None:
    groups = [
        [played(rf"\boxed{{{truth + wrong}}}", str(truth), group=f"g{truth}", session=wrong) for wrong in (0, 1)]
        for truth in (408, 56, 72)
    ]
    found = await look({"use": "math"}, groups=groups)
    assert found.is_fine, found.problems
    gold = found.terms[0].gold
    # 408.0 and 816/2; 508, -408 and 40; other rows' and none.
    assert (gold.form, gold.family, gold.by_kind["rewritten"], gold.by_kind["digits"]) == (
        "boxed",
        "math",
        (6, 0),
        (3, 0),
    )


async def test_chance_is_found() -> None:
    found = await look(use("strict"), use("coin", weight=0.2))
    assert ("coin", "unstable") in problems(found)
    coin = next(term for term in found.terms if term.name == "coin")
    assert coin.repeats.unstable > 0 and coin.repeats.failed == 0 and coin.unearned.skipped == "only outcomes are"


async def test_a_component_that_never_differs_is_dead_and_one_may_be_allowed() -> None:
    found = await look(use("strict"), use("always", weight=0.2))
    assert problems(found) == {("always", "dead")}
    assert next(term for term in found.terms if term.name == "always").variance_share == pytest.approx(0.0)
    assert (await look(use("strict"), use("always", weight=0.2), max_dead=1)).is_fine


@pytest.mark.parametrize("kind", ["shaping", "outcome"])
async def test_a_held_out_grader_is_not_dead_and_decides_nothing(kind: str) -> None:
    grader = use("strict", name="holdout", weight=0, kind=kind)
    found = await look({"use": "exact_match"}, grader)
    assert found.is_fine and found.outcome_variance_share == pytest.approx(1.0)
    (held,) = [term for term in found.terms if term.is_held_out]
    assert held.name == "holdout" and not held.is_dead and held.variance_share == 0.0


async def test_shaping_that_decides_is_dominant_though_the_outcome_could_weigh_more() -> None:
    # One right answer in 16: three groups are decided by length alone. In the group with the right one, which is short:
    # rewards 1.4, 0.4, 0, 0, centred 0.95, -0.05, -0.45, -0.45, outcome centred 0.75, -0.25 (3 times), short centred
    # 0.2, 0.2, -0.2, -0.2. Outcome's covariance 0.75 * 0.95 + 0.25 * 0.95 = 0.95, short's 0.2 * (0.9 + 0.9) = 0.36.
    # Other groups: short's 4 * 0.2 ** 2 = 0.16 each. Sum 0.95 + 0.36 + 3 * 0.16 = 1.79.
    groups = []
    for name in PEOPLE:
        right = name if name == "Borib" else "?"
        given = [(right, 2), ("?", 2), ("?", 5), ("?", 5)]
        groups.append([played(a, name, group=f"g{name}", session=i, words=w) for i, (a, w) in enumerate(given)])
    found = await look(use("strict"), use("short", weight=0.4), groups=groups)
    assert found.outcome_variance_share == pytest.approx(0.95 / 1.79)
    assert found.is_fine and found.outcome_share == pytest.approx(1 / 1.4)
    found = await look(use("strict"), use("short", weight=0.4), groups=groups, max_share=0.4, min_outcome_share=0.6)
    assert problems(found) == {("short", "dominant"), ("", "outcome_share")}
    assert "has 46.9% of the variance" in next(p.found for p in found.problems if p.check == "dominant")
    # Without the right answer nothing else decides.
    found = await look(use("strict"), use("short", weight=0.4), groups=groups[1:])
    assert problems(found) == {("short", "dominant"), ("", "outcome_share"), ("strict", "dead")}


@pytest.mark.slow
async def test_a_component_that_fails_is_a_problem_and_no_zero(caplog: pytest.LogCaptureFixture) -> None:
    found = await look(use("strict"), use("broken", weight=0.2))
    assert problems(found) == {("broken", "failed")}, "not dead as well: it has said nothing"
    assert found.num_void == 16 and found.outcome_variance_share is None
    assert "KeyError: 'score'" in next(t for t in found.terms if t.name == "broken").repeats.examples[0]
    assert "could not be scored" not in caplog.text


async def test_what_the_environment_judged_is_not_asked_about_other_episodes() -> None:
    groups = [[played("x", name, group=name, session=i, outcome=float(i)) for i in (0, 1)] for name in PEOPLE]
    found = await look({"use": "env"}, groups=groups)
    assert found.is_fine and found.terms[0].unearned.skipped.startswith("the environment's score cannot be repeated")
    assert found.terms[0].gold.skipped == found.terms[0].unearned.skipped


async def test_in_a_group_one_member_is_put_to_the_test() -> None:
    found = await look(use("longest"), groups=run_of(*[("a longer one", "b", "?", "?")] * 4))
    assert problems(found) == {("longest", "unearned")} and found.terms[0].gold.skipped == "it scores whole groups"
    # Silence is never the longest, the prompt is.
    assert (found.terms[0].unearned.silent, found.terms[0].unearned.echo) == (0.0, 1.0)


async def test_slow_checks_are_told(tmp_path: Path) -> None:
    found = await look(use("strict"), max_p95_s=1e-9)
    assert problems(found) == {("strict", "slow")}


async def audit_with(scoring: Any, *, settings: str = "", journal: Path | None = None) -> dict[str, Any]:
    """Returns the results without times."""
    async with unit_scores(scoring, jobs=1, journal=journal, settings=[settings]) as score:
        found = (await audit(EXACT, run_of(), score=score)).to_dict()
    for term in found["terms"]:
        del term["repeats"]["median_s"], term["repeats"]["p95_s"]
    return found


EXACT = Rubric.from_mapping({"components": [{"use": "exact_match"}]})


@contextlib.asynccontextmanager
async def scoring(error: Exception, *, fails_at: int, asked: list[int]) -> AsyncIterator[ScoreUnit]:
    """Yields scores; one call raises."""
    async with scoring_here(lambda: EXACT) as score:

        async def one(job: Any) -> Any:
            asked.append(len(asked))
            if len(asked) == fails_at:
                raise error
            return await score(job)

        yield one


async def test_a_repeated_audit_scores_what_its_journal_lacks(tmp_path: Path) -> None:
    asked: list[int] = []
    whole = await audit_with(scoring(OSError(), fails_at=0, asked=asked))
    total, journal = len(asked), tmp_path / "verdicts.jsonl"
    asked.clear()
    with pytest.raises(OSError, match="the driver died"):
        await audit_with(scoring(OSError("the driver died"), fails_at=total // 2, asked=asked), journal=journal)
    assert await audit_with(scoring(OSError(), fails_at=0, asked=asked), journal=journal) == whole
    assert len(asked) == total + 1 == len(journal.read_text().splitlines()) + 1
    with pytest.raises(ConfigError, match="holds another"):
        await audit_with(scoring_here(lambda: EXACT), settings="another rubric", journal=journal)


async def test_a_sample_whose_workers_died_has_failed_and_is_scored_again(tmp_path: Path) -> None:
    lost, journal = EnvError("the job ended 3 workers"), tmp_path / "verdicts.jsonl"
    found = await audit_with(scoring(lost, fails_at=5, asked=[]), journal=journal)
    (term,) = found["terms"]
    assert term["repeats"]["failed"] == 1 and "the job ended 3 workers" in term["repeats"]["examples"][0]
    assert (await audit_with(scoring(lost, fails_at=0, asked=[]), journal=journal))["ok"]
