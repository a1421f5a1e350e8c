"""The lab's figures are those of a hand calculation, and its page shows what a model wrote as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from samples import sample, turn

from verl_agentic.base.errors import DataError
from verl_agentic.graders.reward_audit.compare_page import write_lab_page
from verl_agentic.graders.reward_audit.compare_rubrics import Lab, compare
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.rewards.rubric import Rubric

FILE = Path(__file__).parents[1] / "audited_components.py"
NEW = {"components": [{"use": "exact_match"}, {"use": f"{FILE}:short", "weight": 0.4}]}
OLD = {"components": [{"use": "exact_match"}]}


def stored(group: str, session: int, answer: str, tokens: int, score: Any, *, paid: float = 0.0) -> StoredSample:
    subject = sample([turn(answer, num_tokens=tokens, reward=paid)], ground_truth="7", id=f"{group}/{session}")
    return StoredSample(group=group, session=session, step=1, split="train", sample=subject, score=score)


def run() -> list[list[StoredSample]]:
    """Two groups: one with a right answer, one without."""
    return [
        [stored("a", 0, "7", 9, {"acc": 1.0, "score": 1.0}), stored("a", 1, "8", 1, {"acc": 0.0, "score": 0.0})],
        [stored("b", 0, "8", 1, {"acc": 0.0, "score": 0.0}), stored("b", 1, "9", 9, {"acc": 0.0, "score": 0.0})],
    ]


async def lab(groups: Any = None, **options: Any) -> Lab:
    return await compare(groups or run(), new=Rubric.from_mapping(NEW), **options)


async def test_rewards_advantages_and_drops_are_those_of_a_hand_calculation() -> None:
    found = await lab(estimator="dr_grpo")
    a, b = found.groups
    # a: 1, 0 becomes 1, 0.4 (the short one); b: 0, 0 becomes 0.4, 0.
    assert (a.old_mean, a.new_mean, b.old_mean, b.new_mean) == pytest.approx((0.5, 0.7, 0.0, 0.2))
    advantages = [(s.old.advantage, s.new.advantage) for s in found.samples if s.old and s.new]
    assert [value for pair in advantages for value in pair] == pytest.approx([0.5, 0.3, -0.5, -0.3, 0, 0.2, 0, -0.2])
    # The outcome of b has no spread, whatever is shaped.
    assert [(g.is_dropped_old, g.is_dropped_new) for g in found.groups] == [(False, False), (True, True)]
    assert (a.rank_correlation, b.rank_correlation) == (pytest.approx(1.0), None)
    summary = found.summary()
    assert summary["reward"] == {"old": 0.25, "new": pytest.approx(0.45)} and summary["acc"] == {
        "old": 0.25,
        "new": 0.25,
    }
    # Ranks 3, 1, 1, 1 and 3, 1.5, 1.5, 0: covariance 3, sums of squares 3 and 4.5.
    assert summary["rank_correlation"] == pytest.approx(3 / (3 * 4.5) ** 0.5)
    assert (summary["dropped"]["old"], summary["dropped"]["only_new"], summary["changed_sign"]) == (1, [], 0)
    json.dumps(found.to_dict())


async def test_stored_scores_are_the_default_and_another_rubric_can_take_their_place() -> None:
    groups = run()
    groups[0][0] = stored("a", 0, "7", 9, None)
    with pytest.raises(DataError, match="'a/0'"):
        await lab(groups)
    by_rubric = await lab(groups, old=Rubric.from_mapping(OLD))
    assert by_rubric.to_dict() == (await lab()).to_dict()


async def test_a_shaped_failure_above_a_success_is_pushed_the_other_way() -> None:
    groups = [[stored("a", 0, "7", 9, {"acc": 0.0, "score": -1.0}), stored("a", 1, "8", 9, {"acc": 0.0, "score": 1.0})]]
    found = await lab(groups)
    assert found.summary()["changed_sign"] == 2 and found.groups[0].rank_correlation == pytest.approx(-1.0)
    assert found.summary()["dropped"]["only_old"] == [found.groups[0].name]


async def test_what_the_environment_paid_for_turns_is_in_both_and_void_samples_in_neither() -> None:
    groups = [
        [
            stored("a", 0, "7", 9, {"acc": 1.0, "score": 1.0}, paid=0.25),
            stored("a", 1, "8", 9, {"acc": 0.0, "score": 0.0}),
            stored("a", 2, "8", 9, {"acc": 0.0, "score": 0.0, "void": 1.0}),
        ]
    ]
    found = await lab(groups, estimator="dr_grpo")
    first, _, void = found.samples
    assert first.old is not None and first.new is not None and void.old is None and void.new is not None
    assert (first.old.reward, first.new.reward) == (1.25, 1.25)
    # Old: of two, mean 0.625. New: of three, mean 1.25 / 3.
    assert (first.old.advantage, first.new.advantage) == pytest.approx((0.625, 1.25 - 1.25 / 3))
    assert found.summary()["void"] == {"old": 1, "new": 0}


async def test_the_page_works_offline_and_shows_what_a_model_wrote_as_text(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
    groups = run()
    groups[0][0] = stored(evil, 0, evil, 9, {"acc": 0.0, "score": 0.0})
    path = tmp_path / "new" / "lab.html"
    write_lab_page(path, await lab(groups), title=evil)
    page = path.read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page and "<img src=x" not in page and "{{ 7 * 7 }}" in page
    assert page.count("&lt;/script&gt;&lt;script&gt;alert(1)") >= 3, "title, heading, id and answer are shown"
    assert page.count("<figure>") == 4 and "<script" not in page
    assert "Advantages (grpo): " in page
