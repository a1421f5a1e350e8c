"""Format rewards: the forms of R1 and of points, strict and loose, and what must not earn them."""

from __future__ import annotations

import time

import pytest
from samples import call, sample, turn, value

from verl_agentic.graders.components.format_r1 import format_r1
from verl_agentic.rewards.components.format import format
from verl_agentic.rewards.sample import Call

GOOD = "<think>a</think>\n<answer>b</answer>"


# V-R1FMT: text -> the expression alone, strict.
@pytest.mark.parametrize(
    ("text", "loose", "strict"),
    [
        (GOOD, 1, 1),
        ("hi <think>a</think><answer>b</answer>", 0, 0),
        ("<think>a</think><answer>b</answer> x", 0, 0),
        ("<think>a</think>", 0, 0),
        ("<think>a</think><think>b</think><answer>c</answer>", 1, 0),
        ("<think><answer>1</answer></think><answer>2</answer>", 1, 0),
        ("<think></answer>", 0, 0),
        ("<think>a</think>b<answer>c</answer>", 0, 0),
        ("<think>a</think><answer></answer>", 0, 0),  # nothing is no answer
        ("", 0, 0),
    ],
)
def test_the_form_of_r1_is_that_of_the_vector(text: str, loose: int, strict: int) -> None:
    assert value(format_r1, sample(text), strict=False) == loose
    assert value(format_r1, sample(text)) == strict


def test_special_tokens_and_white_space_around_a_turn_are_no_fault() -> None:
    assert value(format_r1, sample(f"\n{GOOD}<|im_end|>\n<|endoftext|>")) == 1
    assert value(format_r1, sample(f"{GOOD}<|im_end|> x")) == 0


def test_reasoning_that_the_prompt_opened_counts() -> None:
    text = GOOD.removeprefix("<think>")
    assert value(format_r1, sample(text), starts_in_reasoning=True) == 1
    assert value(format_r1, sample(text)) == 0


@pytest.mark.parametrize(
    ("earlier", "strict"),
    [
        ("<think>I search</think>", 1),
        ("I search", 1),
        ("<think>a</think><think>b</think>", 0),
        ("<think>never closed", 0),
        ("<answer>too early</answer>", 0),
    ],
)
def test_strict_looks_at_the_turns_before_the_answer_too(earlier: str, strict: int) -> None:
    episode = sample([turn(earlier, call("search", q="a")), GOOD])
    assert value(format_r1, episode) == strict
    assert value(format_r1, episode, strict=False) == 1


def test_an_answer_in_a_tool_result_has_no_form() -> None:
    assert value(format_r1, sample([turn("<think>a</think>", observations=[GOOD])]), strict=False) == 0
    assert value(format, sample([turn("x", observations=[rf"{GOOD} \boxed{{1}}"])]), strict=False) == 0


def test_no_turns_have_no_form() -> None:
    assert value(format_r1, sample([])) == value(format, sample([])) == 0.0


def calls_of(valid: int, invalid: int) -> list[Call]:
    return [call("f", n=n) for n in range(valid)] + [call("f", error_kind="malformed_json")] * invalid


# V-FORMAT: text, valid and invalid calls -> the original form, ours with its cap of 0.2 on the calls.
@pytest.mark.parametrize(
    ("text", "calls", "original", "capped"),
    [
        (r"<think>x</think> \boxed{1}", (2, 0), 0.7, 0.7),
        (r"<think>x</think> \boxed{1}", (1, 2), 0.2, 0.2),
        ("no think", (0, 1), 0.0, 0.0),
        (r"<think>x</think> \boxed{1}", (8, 0), 1.0, 0.7),  # .3 + .2 + .2
    ],
)
def test_points_are_those_of_the_vector(text: str, calls: tuple[int, int], original: float, capped: float) -> None:
    episode = sample([turn(text, *calls_of(*calls))])
    assert value(format, episode, max_call_bonus=None, strict=False) == pytest.approx(original)
    assert value(format, episode) == pytest.approx(capped)


def test_spamming_calls_earns_no_more_than_two_of_them() -> None:
    assert value(format, sample([turn("", *calls_of(1000, 0))])) == pytest.approx(0.2)
    assert value(format, sample([turn("", *calls_of(2, 0))])) == pytest.approx(0.2)


def test_repeated_reasoning_earns_nothing() -> None:
    spam = "<think>a</think>" * 50 + "so"
    assert value(format, sample(spam), strict=False) == pytest.approx(0.3)
    assert value(format, sample("a</think><think>"), strict=False) == 0.0
    assert value(format, sample("a</think>"), strict=False) == 0.0
    assert value(format, sample(spam)) == 0.0
    assert value(format_r1, sample(f"{spam}<answer>b</answer>")) == 0.0


def test_a_box_counts_once_and_in_the_answer() -> None:
    assert value(format, sample(r"\boxed{1} \boxed{2}")) == pytest.approx(0.2)
    assert value(format, sample(r"<think>\boxed{1}</think>so")) == pytest.approx(0.3)
    assert value(format, sample([r"\boxed{1}", "no"])) == 0.0
    assert value(format, sample([r"\boxed{1}", "no"]), strict=False) == pytest.approx(0.2)


def test_strict_wants_calls_that_were_carried_out() -> None:
    episode = sample([turn("", call("f"), call("g", error_kind="unknown_tool"), call("h", error_kind="tool_timeout"))])
    assert value(format, episode, strict=False, max_call_bonus=None) == pytest.approx(0.3)
    assert value(format, episode) == 0.0  # .2 - .2: a tool that is too slow was still called well


@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize("piece", ["<think>", "</think>", "</think> ", "<answer>", "</think><answer>", " ", "<|a|>"])
def test_ten_megabytes_of_tags_are_judged_at_once(piece: str) -> None:
    episode = sample("<think>" + piece * (10_000_000 // len(piece)) + "</answer>", num_tokens=[1])
    started = time.process_time()
    assert value(format_r1, episode) == 0.0
    assert value(format, episode) == 0.0
    assert time.process_time() - started < 5.0
