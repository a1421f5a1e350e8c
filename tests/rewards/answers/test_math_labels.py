"""Dates, times and telephone numbers are no arithmetic; differences, fractions and ratios are."""

from __future__ import annotations

import pytest

from verl_agentic.graders.maths.boxed_math import judge

_LABELS = [
    ("2024-01-02", "2021"), ("2024-1-2", "2021"), ("2024/01/02", "1012"), ("01/02/2024", "1/4048"), ("2024-01", "2023"),
    ("555-1234", "-679"), ("800-555-1234", "-989"), ("1-800-555-1234", "-2588"),
    ("9:05", "9/5"), ("9:05", "1.8"), ("09:05", "9/5"),
    ("12:30", "2/5"), ("12:30", "0.4"), ("12:30", "6:15"), ("12:30", "12"), ("3:20", "3/20"), ("24:00", "24"),
    ("23:30", "23/30"), ("75:05", "15"), ("1:02:03", "2:4:6"), ("1:02:03", "1-02-03"),
    ("1/2/2024", "1/4048"), ("2024-01-02", "2024-01-02 BC"),
]  # fmt: skip
_ARITHMETIC = [
    ("10-3", "7"),
    ("100-37", "63"),
    ("3:4", "0.75"),
    ("16:9", "16/9"),
    ("1/2/3", "1/6"),
    ("2:3", "4:6"),
    ("3:75", "1/25"),
    ("25:10", "5/2"),
    ("12 : 30", "2/5"),
    ("12:30:6", "2:5:1"),
]


@pytest.mark.parametrize(("truth", "answer"), _LABELS)
async def test_a_label_is_never_calculated(truth: str, answer: str) -> None:
    for pair in ((answer, truth), (rf"\frac{{{answer}}}{{1}}", truth)):
        assert not (await judge(*pair, timeout_s=30.0)).is_right
    assert (await judge(truth, truth, timeout_s=30.0)).is_right


@pytest.mark.parametrize(("truth", "answer"), [("9/5", "9:05"), ("2021", "2024-01-02"), ("-679", "555-1234")])
async def test_a_label_is_no_number(truth: str, answer: str) -> None:
    assert not (await judge(answer, truth, timeout_s=30.0)).is_right


@pytest.mark.parametrize(("truth", "answer"), _ARITHMETIC)
async def test_differences_and_ratios_are_calculated(truth: str, answer: str) -> None:
    assert (await judge(answer, truth, timeout_s=30.0)).is_right


@pytest.mark.parametrize(
    ("truth", "answer"), [("2024-01-02", "2024-1-2"), ("2024-01-02", "2024/01/02"), ("09:05", "9:05"),
                       ("12:30", "12 : 30"), ("12:30", "12 to 30"), ("12:30", "12:30 p.m."), ("3:20", "03:20"),
                       ("9:05", "9:05 p.m."), ("1:02:03", "1:2:3"), ("09:05 a.m.", "9:05")]
)  # fmt: skip
async def test_a_label_may_be_written_with_fewer_zeros_or_other_separators(truth: str, answer: str) -> None:
    assert (await judge(answer, truth, timeout_s=30.0)).is_right
    assert not (await judge(answer, truth.replace("0", "4"), timeout_s=30.0)).is_right
