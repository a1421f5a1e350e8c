"""The math component: the last boxed answer, equivalence, and a verifier that cannot hang the run."""

from __future__ import annotations

import gc
import time

import psutil
import pytest

from verl_agentic.errors import ScoringError
from verl_agentic.rewards.math import MAX_ANSWER_CHARS, is_unevaluated, last_boxed, math_answer


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{7} and \boxed{8", "7"),
        (r"42", None),
        (r"\boxed{", None),
    ],
)
def test_the_last_complete_box_counts(text: str, boxed: str | None) -> None:
    assert last_boxed(text) == boxed


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        (r"\boxed{3108}", "3108", 1.0),
        (r"\boxed{3,108}", "3108", 1.0),
        (r"\boxed{0.5}", r"\frac{1}{2}", 1.0),
        (r"\boxed{x+1}", "1+x", 1.0),
        (r"\boxed{3107}", "3108", 0.0),
        (r"\boxed{3108} or \boxed{5}", "3108", 0.0),
        ("3108", "3108", 0.0),
        (r"\boxed{}", "3108", 0.0),
        (r"\boxed{" + "1" * (MAX_ANSWER_CHARS + 1) + "}", "1", 0.0),
    ],
)
async def test_equivalent_answers_score_1_and_others_0(answer: str, truth: str, score: float) -> None:
    assert await math_answer(answer, truth) == score


async def test_an_answer_that_algebra_cannot_finish_is_an_error_at_the_deadline_and_the_next_one_is_judged() -> None:
    await math_answer(r"\boxed{1}", "1")
    started = time.monotonic()
    with pytest.raises(ScoringError, match=r"no verdict within 0\.5 s"):
        await math_answer(r"\boxed{9^{9^{9^{9}}} + \sin(7^{7^{7}})}", "3", timeout_s=0.5)
    assert time.monotonic() - started < 5
    assert await math_answer(r"\boxed{3}", "3") == 1.0


async def test_a_ground_truth_that_cannot_be_read_is_an_error_and_not_a_0() -> None:
    with pytest.raises(ScoringError, match="ground truth"):
        await math_answer(r"\boxed{3}", "")


async def test_a_verifier_that_somebody_killed_is_started_again_and_leaves_no_open_pipe() -> None:
    await math_answer(r"\boxed{1}", "1")
    me = psutil.Process()
    gc.collect()
    open_files = me.num_fds()
    [verifier] = [p for p in me.children() if "verl_agentic.rewards.math_worker" in p.cmdline()]
    verifier.kill()
    verifier.wait()
    assert await math_answer(r"\boxed{3}", "3") == 1.0
    assert me.num_fds() == open_files


@pytest.mark.parametrize(
    ("boxed", "unevaluated"),
    [
        ("12*34", True),
        (r"12 \times 34", True),
        (r"(1+2) \cdot (3)", True),
        ("1 + 2", True),
        ("408", False),
        ("-408", False),
        (r"\frac{1}{2}", False),
        ("2^{10}", False),
        ("x+1", False),
        ("3,108", False),
    ],
)
def test_sums_and_products_of_numbers_are_not_evaluated(boxed: str, unevaluated: bool) -> None:
    assert is_unevaluated(boxed) is unevaluated
