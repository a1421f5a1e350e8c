"""Retrieval: what naming files and lines is worth, by the numbers of the paper and by hand."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from samples import sample

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.components.retrieval import f_beta, parse_answer, retrieval
from verl_agentic.rewards.component import ABSTAIN

TRUTH = {"src/a.py": [[1, 60]], "src/b.py": [[11, 50]]}  # 100 lines


def value(answer: str, ground_truth: Any = TRUTH, **options: Any) -> Any:
    return retrieval.make(options)(sample(answer, ground_truth=ground_truth))


def test_f_beta_gives_the_vectors() -> None:
    # vectors.json, V-SWEGREP
    assert f_beta(2, 1, 0, beta=0.5) == pytest.approx(0.714286, abs=1e-6)
    assert f_beta(40, 10, 60, beta=0.5) == pytest.approx(0.666667, abs=1e-6)
    assert f_beta(2, 1, 0, beta=1) == pytest.approx(0.8)
    assert f_beta(40, 10, 60, beta=1) == pytest.approx(0.533333, abs=1e-6)
    assert f_beta(0, 0, 5, beta=0.5) == f_beta(0, 5, 0, beta=0.5) == 0.0


def test_the_value_is_the_mean_of_files_and_lines() -> None:
    # Files: both and one too many; lines: 40 right (21-60 of a), 10 wrong (in c), 60 missing. V-SWEGREP: 0.690476.
    graded = value("src/a.py:21-60\nsrc/b.py\nsrc/c.py:1-10")
    assert graded.value == pytest.approx(0.690476, abs=1e-6)
    assert graded.info == {"file_f": pytest.approx(5 / 7), "line_f": pytest.approx(2 / 3)}


def test_the_right_answer_is_worth_one() -> None:
    assert value("src/a.py:1-60\nsrc/b.py:11-50").value == 1.0
    assert value('<think>src/z.py:1-9</think>\n- `./src/a.py:1-60`\n* "src/b.py:L11-L50",').value == 1.0
    assert value("src/a.py:1-60\nsrc/b.py:11-50", json.dumps(TRUTH)).value == 1.0


@pytest.mark.parametrize(
    "form", ["1. {}", "(2) {}", "3) `{}`", "{} (main loop)", "- `{}` - the cause", "{} # here", "* {} \u2014 it"]
)
def test_numbers_of_a_list_and_comments_do_not_hide_a_path(form: str) -> None:
    for lines in (":1-60", ":L1-L60", "#L1-L60"):
        assert value(f"{form.format('src/a.py' + lines)}\n{form.format('src/b.py:11-50')}").value == 1.0


def test_a_line_named_twice_counts_once() -> None:
    twice = "src/a.py:1-40\nsrc/a.py:20-60\nsrc/a.py:7\nsrc/b.py:11-50\nsrc/b.py:11-50"
    assert value(twice).value == 1.0


def test_naming_everything_is_worth_little_and_takes_no_memory() -> None:
    graded = value("src/a.py:1-999999999\nsrc/b.py:1-999999999")
    assert graded.info["file_f"] == 1.0 and graded.info["line_f"] < 1e-6
    spam = "\n".join(f"src/{n}.py:1-9" for n in range(20_000))
    assert value(spam + "\nsrc/a.py:1-60\nsrc/b.py:11-50").value < 0.01


def test_files_without_lines_find_files_only() -> None:
    assert value("src/a.py\nsrc/b.py").value == 0.5
    assert value("src/a.py:1-10", {"src/a.py": []}).value == 1.0


@pytest.mark.parametrize("answer", ["", "I found nothing.", "src/z.py:1-60", "src/a.py 1-60", ":1-5", "a" * 2_000])
def test_an_answer_that_names_nothing_right_is_worth_nothing(answer: str) -> None:
    assert value(answer).value == 0.0


def test_ranges_are_read_with_both_ends() -> None:
    text = "a.py:3-3\nb/c:7\nd.py:9-2\ne.py:0-4\nC:/f.py:1-2\nno file here\nword"
    assert parse_answer(text) == {"a.py": [(3, 3)], "b/c": [(7, 7)], "d.py": [], "e.py": [], "C:/f.py": [(1, 2)]}
    assert parse_answer("a.py:1-2\na.py:3-4\na.py:9-9") == {"a.py": [(1, 4), (9, 9)]}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "lines",
    [[":" * 10**7], ["a:1-" * 2_500_000], itertools.repeat("a.py:1", 1_500_000), map("a.py:{}".format, range(800_000))],
    ids=["colons", "line", "lines", "numbers"],
)
def test_ten_megabytes_are_read_soon(lines: Iterable[str]) -> None:
    text = "\n".join(lines)
    started = time.process_time()
    assert 0.0 <= value(text).value < 0.6
    assert time.process_time() - started < 15.0


def test_rows_without_ground_truth_abstain_and_wrong_ones_are_errors() -> None:
    assert value("src/a.py", None) is ABSTAIN
    for wrong in ({}, {"a.py": [[0, 3]]}, {"a.py": [[5, 3]]}, {"a.py": [3]}, ["a.py"], "a.py"):
        with pytest.raises(DataError):
            value("src/a.py", wrong)


def test_beta_must_be_positive() -> None:
    with pytest.raises(ConfigError):
        retrieval.make({"beta": 0})
    recall = value("src/a.py:1-60\nsrc/b.py:11-50\nsrc/c.py:1-900", beta=2.0)
    assert recall.value > value("src/a.py:1-60\nsrc/b.py:11-50\nsrc/c.py:1-900").value
