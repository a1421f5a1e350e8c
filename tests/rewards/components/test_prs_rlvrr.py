"""Rewards in stages and of parts: prs and rlvrr."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import ConfigError, DataError, SandboxUnavailableError
from verl_agentic.graders.answers.reference_chain import ReferenceChain, content_score
from verl_agentic.graders.components.prs import answer_bleu, prs_reward
from verl_agentic.rewards.component import ABSTAIN, Graded, load_component
from verl_agentic.rewards.sample import Sample


def staged(subject: Sample, **options: Any) -> Graded:
    component = load_component("prs").make(options)
    return component.checked(component(subject))


@pytest.mark.parametrize(
    ("is_readable", "is_in_form", "quality", "value"),
    [  # vectors.json, V-PRS
        (False, False, 1.0, 0.0),
        (True, False, 1.0, 0.1),
        (True, True, 0.0, 0.2),
        (True, True, 0.5, 0.6),
        (True, True, 1.0, 1.0),
        (False, True, 1.0, 0.0),
    ],
)
def test_a_stage_counts_behind_all_before_it(is_readable: bool, is_in_form: bool, quality: float, value: float) -> None:
    assert prs_reward(quality, is_readable=is_readable, is_in_form=is_in_form) == pytest.approx(value)


@pytest.mark.parametrize(
    ("turns", "answer", "value"),
    [
        ([turn("", call(error_kind="malformed_json")), "x"], "Paris", 0.0),
        ([turn("", call(error_kind="wrong_arguments")), "x"], "Paris", 0.1),
        ([turn("", call())], "", 0.1),
        ([turn("", call()), "x"], "Rome", 0.2),
        ([turn("", call()), "x"], "Paris.", 1.0),
        (["x"], "<think>Rome</think>paris", 1.0),
        (["x"], "the city Paris", 0.2 + 0.8 / 3),
        ([], "", 0.0),
        ([""], "", 0.0),
    ],
    ids=["unreadable", "not-carried-out", "no-answer", "wrong", "right", "no-call", "near", "no-turn", "silence"],
)
def test_prs_reads_its_stages_from_the_episode(turns: list[Any], answer: str, value: float) -> None:
    assert staged(sample(turns, final_answer=answer, ground_truth="Paris")).value == pytest.approx(value)


def test_the_best_golden_answer_counts() -> None:
    assert answer_bleu("New York!", ("NYC", "new york")) == 1.0


def test_a_judge_of_long_answers_can_take_the_third_stage() -> None:
    subject = sample("an essay")
    assert staged(subject, quality=0.0).value == pytest.approx(0.2)
    assert load_component("prs").make({})(subject) == ABSTAIN
    assert load_component("prs").make({"quality": 0.0}).high == pytest.approx(0.2)
    with pytest.raises(ConfigError, match="at least 0"):
        load_component("prs").make({"form": -0.1})


def chain(*keywords: str, reference: str = "alpha beta gamma", **fields: Any) -> dict[str, Any]:
    return {"reference": reference, "key_points": [[list(keywords or ("alpha", "beta", "gamma"))]], **fields}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Beta, alpha: gamma", 0.666667),  # vectors.json, V-RLVRR
        ("alpha beta gamma", 1.0),
        ("", 0.0),
        ("alphabeta gammas", 0.0),
        ("alpha alpha beta gamma gamma gamma", 0.5),  # 3 in order, of 6
    ],
)
def test_content_is_the_share_of_keywords_in_order(answer: str, score: float) -> None:
    assert content_score(answer, ReferenceChain.of(chain())) == pytest.approx(score, abs=1e-6)


def test_the_best_set_of_a_point_counts_and_points_are_averaged() -> None:
    row = {"reference": "alpha beta gamma", "key_points": [[["alpha"], ["beta", "gamma"]], [["delta"]]]}
    assert content_score("gamma alpha", ReferenceChain.of(row)) == pytest.approx(0.5)


@pytest.mark.slow
def test_a_list_of_keywords_without_end_is_no_content_and_costs_no_time() -> None:
    started = time.process_time()
    assert content_score("alpha beta gamma " * 500_000, ReferenceChain.of(chain())) == 0.0
    assert time.process_time() - started < 20.0


STYLE = [
    {"code": "def check(text):\n    return text.endswith('.')", "weight": 0.3},
    {"code": "import re\ndef helper(t):\n    return len(t) < 100\n", "weight": 0.2},
    {"code": "def check(text):\n    raise ValueError", "weight": 0.1},
    {"code": "def (", "weight": 0.1},
    {"code": "def check(text):\n    return 'z' in text", "weight": 0.3},
]


async def graded(subject: Sample) -> Graded:
    component = load_component("rlvrr").make({})
    try:
        return component.checked(await component(subject))
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))


async def test_rlvrr_is_content_and_the_weights_of_the_checks_that_pass() -> None:
    # vectors.json, V-RLVRR: .666667 + .3 + .2
    subject = sample("<think>zzz</think>beta alpha gamma.", ground_truth=json.dumps(chain(style=STYLE)))
    found = await graded(subject)
    assert found.value == pytest.approx(1.166667, abs=1e-6)
    assert found.info == {"content": pytest.approx(2 / 3), "style": pytest.approx(0.5)}


@pytest.mark.slow
async def test_checks_run_in_a_sandbox_and_one_without_end_takes_those_behind_it_along() -> None:
    import os

    style = [
        {"code": "import os\ndef check(text):\n    return os.getpid() == int(text)", "weight": 0.5},
        {"code": "def check(text):\n    return True", "weight": 0.2},
        {"code": "def check(text):\n    while True: pass", "weight": 0.1},
        {"code": "def check(text):\n    return True", "weight": 0.2},
    ]
    found = await graded(sample(str(os.getpid()), ground_truth=chain(style=style)))
    assert found.info["style"] == pytest.approx(0.2)


async def test_a_label_of_rlvrrs_data_is_read() -> None:
    style = {"key_points": [{"verification_code": STYLE[0]["code"], "weight": 0.3, "description": "ends"}]}
    label = "[[[SPLIT]]]".join(["alpha beta gamma", "[[['alpha', 'beta', 'gamma']]]", str(style)])
    assert (await graded(sample("alpha beta gamma.", ground_truth=label))).value == pytest.approx(1.3)


@pytest.mark.parametrize(
    "ground_truth",
    ["text", "a[[[SPLIT]]]b(", {}, chain() | {"key_points": []}, chain("alpha", ""), 7,
     chain(style=[{"code": "x", "weight": 0.8}] * 2), chain(style=[{"code": "x", "weight": -1}])],
    ids=["text", "label", "empty", "no-points", "empty-keyword", "number", "too-heavy", "negative"],
)  # fmt: skip
async def test_a_ground_truth_of_another_form_is_refused(ground_truth: Any) -> None:
    with pytest.raises(DataError):
        await load_component("rlvrr").make({})(sample("x", ground_truth=ground_truth))


async def test_a_row_without_ground_truth_has_no_score() -> None:
    assert await load_component("rlvrr").make({})(sample("x")) == ABSTAIN
