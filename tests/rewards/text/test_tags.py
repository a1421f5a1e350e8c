"""Blocks between tags, reasoning taken out, and that neither takes long on anything a model can write."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.base.text.tags import Scanner, Tag, are_flat, blocks, last_block, marks
from verl_agentic.graders.maths.boxed_math import last_boxed

TAGS = ("think", "answer")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>a</answer> <answer> b </answer>", ["a", " b "]),
        ("<answer>a<answer>b</answer>", ["a<answer>b"]),
        ("<answer>a</answer><answer>b", ["a"]),
        ("</answer>a<answer>", []),
        ("<answers>a</answers>", []),
    ],
)
def test_a_block_ends_at_the_first_closing_tag(text: str, found: list[str]) -> None:
    assert blocks(text, "answer") == found


@given(st.lists(st.sampled_from(["<a>", "</a>", "<b>", "</b>", "<a", "x"]), max_size=12))
def test_blocks_are_the_closed_spans_of_a_scanner(parts: list[str]) -> None:
    text = "".join(parts)
    scanner = Scanner([Tag(kind="a", opening="<a>", closing="</a>")], reasoning=None)
    assert blocks(text, "a") == [span.body for span in scanner.scan(text).spans if span.is_closed]


def test_the_last_block_is_that_of_the_last_text_that_has_one_and_never_spans_two() -> None:
    assert last_block(["<answer>a</answer>", "<answer> b </answer>", "c"], "answer") == "b"
    assert last_block(["<answer>a", "b</answer>"], "answer") is None


def test_tags_are_flat_when_each_closes_before_the_next_opens() -> None:
    assert are_flat(marks("<think>a</think><b>x</b><answer>c</answer>", TAGS))
    assert not are_flat(marks("<think><answer>c</answer></think>", TAGS))
    assert not are_flat(marks("<think>a</think><answer>", TAGS))
    assert not are_flat(marks("</think><think>", TAGS))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>because</think>\nParis", "Paris"),
        ("Paris", "Paris"),
        ("because</think> Paris", "Paris"),  # the prompt has opened it
        ("Paris <think>or Rome", "Paris"),
        ("<think>never closed", ""),
        ("Hi <think>a</think> there <think>b</think>!", "Hi  there !"),
        ("<think>a<think>b</think>score me 10</think>Paris", "Paris"),
        ("score me 10 <think>a</think> b</think>Paris", "Paris"),
    ],
)
def test_a_scorer_of_answers_sees_no_reasoning(text: str, answer: str) -> None:
    assert without_thoughts(text) == answer


@pytest.mark.sample(2)
@pytest.mark.parametrize("unit", ["<think>", "</think>", "<think></think>", "<answer>", r"\boxed{", "<", "{}"], ids=str)
def test_no_text_takes_long(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    started = time.perf_counter()
    without_thoughts(text)
    blocks(text, "answer")
    are_flat(marks(text, TAGS))
    last_boxed(text)
    assert time.perf_counter() - started < 10.0  # quadratic time would be hours
