"""The math verifier: the last boxed answer, numbers in every notation, evaluation, and algebra that never ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import held_out_notations
import model_notations
import numpy as np
import psutil
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from math_pairs import make_pairs, spellings, truths

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.base.text.boxes import answer_in_boxes, last_boxed
from verl_agentic.graders.maths.boxed_math import MAX_ANSWER_CHARS, expression_of, judge, math_answer, truth_problem
from verl_agentic.graders.maths.forms.math_comparison import are_equal as are_equal_structures
from verl_agentic.graders.maths.forms.math_expressions import read_expression
from verl_agentic.graders.maths.forms.math_notation import depth, tidy
from verl_agentic.graders.maths.forms.math_numbers import are_equal, read_number
from verl_agentic.graders.maths.forms.math_structures import read_structure
from verl_agentic.graders.maths.forms.math_values import NoValueError, number_of
from verl_agentic.graders.maths.math_verifiers import VERIFIERS

_NUMBERS = st.recursive(
    st.integers(1, 60).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, inner, st.sampled_from(("{0}+{1}", "({0})({1})", r"\frac{{{0}}}{{{1}}}", r"({0})\cdot({1})"))),
        st.tuples(inner, st.integers(2, 400), st.sampled_from(("({0})^{{{1}}}", r"\sqrt{{{0}}}+{1}^{{90}}"))),
        st.tuples(st.integers(20, 200), st.integers(2, 9), st.sampled_from((r"\binom{{{0}}}{{{1}}}", "{0}!"))),
        st.tuples(
            inner,
            st.integers(1, 60),
            st.sampled_from((r"\sqrt{{{0}}}+{1}", r"\ln({0})+{1}", r"{0}\pi", "({0})e^{{{1}}}")),
        ),
    ).map(lambda drawn: drawn[2].format(*drawn[:2])),
    max_leaves=4,
)
"""Expressions of numbers, many of them with hundreds of digits."""


@given(_NUMBERS, st.sampled_from(("{}+1", "{}-1", "2({})", "{}+\\frac{{1}}{{10^{{60}}}}")))
def test_an_expression_is_itself_and_never_its_neighbour_or_double(text: str, other: str) -> None:
    def verdict(answer: str) -> bool:
        return are_equal_structures(read_structure(tidy(answer)), read_structure(tidy(text)))

    assert not verdict(other.format(text))
    try:
        number_of(read_expression(tidy(text)))
    except NoValueError:
        assume(False)  # what is too large to evaluate is undecided, which is not equal
    assert verdict(f"0+{text}")


ENDLESS = r"\sum_{n=1}^{1000000000} n^n"
"""Passes all looks that come before algebra."""


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{7} and \boxed{8", "7"),
        (r"42", None),
        (r"The roots are \boxed{1} and \boxed{-2}.", "1, -2"),
        (r"$x=\boxed{3}$, $y=\boxed{4}$", "x= 3, y= 4"),
        ("\\boxed{3}\n\\boxed{5}", "3, 5"),
        (r"\boxed{3} is too small, so \boxed{5}", "5"),
        (r"\boxed{5}, \boxed{5}", "5"),
        (r"\fbox{42}", "42"),
        (r"\framebox{42}", "42"),
        ("\\boxed\n{42}", "42"),
        (r"$\boxed 42$ apples", "42"),
        (r"\boxed-7.", "-7"),
        (r"$\boxed\frac12$", r"\frac12"),
        (r"\boxed{\left\{ \begin{array}{l} 1 \end{array} \right.}", r"\left\{ \begin{array}{l} 1 \end{array} \right."),
        (r"write it in a \boxed environment", None),
        (r"\boxed{", None),
    ],
)
def test_the_last_row_of_complete_boxes_counts(text: str, boxed: str | None) -> None:
    assert answer_in_boxes(text) == boxed
    assert (last_boxed(text) or "") in (boxed or "")


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        (r"\boxed{3108}", "3108", 1.0),
        (r"\boxed{x+1}", "1+x", 1.0),
        (r"\boxed{3107}", "3108", 0.0),
        (r"\boxed{3108} or \boxed{5}", "3108", 0.0),
        (r"\boxed{5} or \boxed{3108}", "3108", 0.0),
        (r"\boxed{-2}, \boxed{1}", "1,-2", 1.0),
        (r"\boxed{\textbf{(C)}\ 12}", "C", 1.0),
        (r"\boxed{\textbf{(C)}\ 12}", "12", 1.0),
        (r"\boxed{\textbf{(C)}\ 12}", "D", 0.0),
        (r"\boxed{\int_0^1 x dx}", "0.5", 1.0),
        (r"\boxed{204}", "#### 204", 1.0),
        (r"\boxed{204}", "The answer is 204.", 1.0),
        ("3108", "3108", 0.0),
        (r"\boxed{}", "3108", 0.0),
        (r"\boxed{" + "1" * (MAX_ANSWER_CHARS + 1) + "}", "1", 0.0),
    ],
)
async def test_equivalent_answers_score_1_and_others_0(answer: str, truth: str, score: float) -> None:
    assert await math_answer(answer, truth) == score


async def test_every_pair_of_the_corpus_gets_its_known_verdict() -> None:
    pairs = make_pairs(rounds=1)
    assert len(pairs) >= 1_000
    verdicts = await asyncio.gather(
        *(judge(p.answer, expression_of(p.truth), timeout_s=30, must_be_evaluated=p.must_be_evaluated) for p in pairs)
    )
    assert [p for p, verdict in zip(pairs, verdicts, strict=True) if verdict.is_right != p.is_right] == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(("styles", "max_missed"), [(model_notations.STYLES, 0), (held_out_notations.STYLES, 7)])
async def test_notations_of_models_are_read_and_no_wrong_value_passes(styles: Any, max_missed: int) -> None:
    pairs = model_notations.model_pairs(styles, rounds=1)
    verdicts = [await math_answer(pair.answer, pair.truth, timeout_s=30) == 1.0 for pair in pairs]
    assert [pair for pair, is_paid in zip(pairs, verdicts, strict=True) if is_paid and not pair.is_right] == []
    missed = [pair for pair, is_paid in zip(pairs, verdicts, strict=True) if pair.is_right and not is_paid]
    assert len(missed) <= max_missed, missed


@given(st.integers(1_000, 10**12), st.sampled_from((1, -1)), st.integers(1, 10**6))
def test_a_number_is_itself_in_every_notation_and_no_other_number(size: int, sign: int, apart: int) -> None:
    n = sign * size
    for truth in (n, str(n), Decimal(n), f"{n:,}", np.int64(n), float(n)):
        wanted = read_number(tidy(expression_of(truth)))
        assert wanted is not None and wanted.value == n
        for text in spellings(n):
            if "=" not in text:
                found = read_number(tidy(text))
                assert found is not None and are_equal(found, wanted) and are_equal(wanted, found), (text, truth)
                assert found.is_evaluated, text
        for other in (n + apart, -n):
            found = read_number(tidy(spellings(other)[apart % 3]))
            assert found is not None and not are_equal(found, wanted) and not are_equal(wanted, found)


@given(st.floats(allow_nan=False, allow_subnormal=False, min_value=-1e300, max_value=1e300))
def test_a_float_is_met_by_its_value_however_it_is_written(value: float) -> None:
    wanted = read_number(tidy(expression_of(value)))
    assert wanted is not None and wanted.value == Fraction(repr(value))
    # Above 2^53 the 17th digit of a double is another whole number than its shortest form.
    digits = f"{value:.17e}" if abs(value) < 2**53 else repr(value)
    for text in (repr(value), digits, repr(value).upper(), str(Decimal(repr(value)))):
        found = read_number(tidy(text))
        assert found is not None and are_equal(found, wanted) and are_equal(wanted, found), text
    opposite = read_number(tidy(repr(-value)))
    assert opposite is not None and are_equal(opposite, wanted) is (value == 0)


@pytest.mark.parametrize("value", [1e-05, 1e16, -2.5e-07, 3.0, -0.0, 1.2345678901234567e25, 0.1 + 0.2])
async def test_floats_of_json_and_parquet_are_right_when_the_answer_is(value: float) -> None:
    for truth in (value, np.float64(value), np.array(value), str(value), f"{value:E}", Decimal(repr(value))):
        exact = format(Decimal(str(truth).replace("E", "e")), "f")
        assert await math_answer(rf"\boxed{{{exact}}}", truth) == 1.0
        assert await math_answer(rf"\boxed{{{Fraction(exact) * 2 + 1}}}", truth) == 0.0


@pytest.mark.parametrize("truth", truths(8_163))
async def test_a_truth_may_have_any_type_of_number(truth: Any) -> None:
    right = "163" if isinstance(truth, np.float32) else "8163"
    assert await math_answer(rf"\boxed{{{right}}}", truth, must_be_evaluated=True) == 1.0
    assert await math_answer(rf"\boxed{{-{right}}}", truth) == 0.0


@pytest.mark.parametrize(
    "truth", [None, True, np.bool_(True), "", " ", [], [1], float("nan"), {"target": 1}, np.array([1, 2]), b"1"]
)
async def test_a_truth_that_is_no_expression_is_refused(truth: Any) -> None:
    with pytest.raises(DataError, match="ground_truth"):
        await math_answer(r"\boxed{1}", truth)


_LEAF = st.integers(1, 40).map(lambda n: (str(n), Fraction(n)))
_PRODUCTS = (
    "{0}*{1}",
    r"{0}\times {1}",
    r"{0}\times\,{1}",
    "{0} × {1}",
    "{0}·{1}",
    r"{0}\cdot{1}",
    "({0})({1})",
    r"{0}⋅{1}",
)


@st.composite
def _calculations(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Draws a calculation that is not carried out, and its value."""
    (left, a), (right, b) = draw(_LEAF), draw(_LEAF)
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return draw(st.sampled_from(_PRODUCTS)).format(left, right), a * b
    if kind == 1:
        return f"{left}{draw(st.sampled_from(('+', ' + ')))}{right}", a + b
    if kind == 2:
        return f"{left}{draw(st.sampled_from(('-', ' - ', '−')))}{right}", a - b
    if kind == 3:
        return f"{left}/(1/{right})", a * b
    if kind == 4:
        return draw(st.sampled_from((r"\frac{{{0}}}{{{1}}}", "{0}/{1}", "{0} / {1}"))).format(a * b, b), a
    if kind == 5:
        return rf"\sqrt{{{a * a}}}", a
    return f"{left}^{{2}}", a * a


@given(_calculations())
def test_no_calculation_of_numbers_passes_where_it_must_be_evaluated(drawn: tuple[str, Fraction]) -> None:
    text, value = drawn
    # No request reaches a process: without a timeout to give it, this would fail.
    verdict = asyncio.run(judge(text, str(value), timeout_s=0, must_be_evaluated=True))
    assert not verdict.is_right and verdict.is_judged


@given(st.text(max_size=40) | st.text(alphabet=r"\{}()[]^_0123456789.,/*+-=%$ efracsqtimx", max_size=40))
def test_no_text_breaks_the_readers_and_each_is_itself(text: str) -> None:
    tidied = tidy(text)
    assert tidy(tidied) == tidied or len(tidied) <= len(text) * 8 + 16
    assert depth(text) >= 0
    number = read_number(tidied)
    assert number is None or are_equal(number, number)


async def test_an_answer_that_algebra_cannot_finish_is_wrong_and_not_tried_again() -> None:
    verdict = await judge(ENDLESS, "42", timeout_s=30)
    assert (verdict.is_right, verdict.is_judged) == (False, False)
    assert (tidy(ENDLESS), "42", False) in VERIFIERS._endless
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    assert await judge(ENDLESS, "42", timeout_s=30) == verdict
    assert {child.pid for child in psutil.Process().children(recursive=True)} == before
    assert await math_answer(r"\boxed{x+3}", "3+x") == 1.0


@pytest.mark.parametrize(
    "bomb",
    [
        "10000000!", "((10!)!)!", "(10^7)!", "9^{9^{9}}", "9^9^9^9", "9**9**9", r"9^{9^{9^{9}}} + \sin(7^{7^{7}})",
        r"\binom{10^8}{5\cdot 10^7}", r"\dbinom{100000000}{50000000}", "(" * 250, "(1+" * 80 + "1" + ")" * 80,
        "{" * 200,
        r"\sqrt{" * 60 + "2" + "}" * 60, r"\{10000000!,1\}", "x=9^{9^{9}}", "1e999999999", "[9^{9^9},1]",
    ],
)  # fmt: skip
async def test_what_nobody_can_write_out_is_judged_without_algebra(bomb: str) -> None:
    for truth in ("42", "x+1"):
        verdict = await judge(bomb, truth, timeout_s=30)
        assert (verdict.is_right, verdict.is_judged) == (False, True)


async def test_an_answer_that_is_the_truth_itself_needs_no_algebra() -> None:
    for truth in ("10000000!", "9^{9^{9}}", ENDLESS, r"\binom{10^8}{5\cdot 10^7}"):
        assert (await judge(f" ${truth}$ ", truth, timeout_s=0)).is_right
        assert (await judge(truth, truth, timeout_s=0, must_be_evaluated=True)).is_right


async def test_42_in_any_number_of_brackets_is_42() -> None:
    assert (await judge("(" * 200 + "42" + ")" * 200, "42", timeout_s=0)).is_right


@pytest.mark.slow
async def test_a_verdict_that_never_comes_does_not_hold_the_event_loop() -> None:
    endless = [asyncio.create_task(judge(f"{ENDLESS}+{n}", "42", timeout_s=30)) for n in range(4)]
    assert await math_answer(r"\boxed{42}", "42") == 1.0
    turns = 0
    while not all(task.done() for task in endless):
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20 and not any(task.result().is_judged for task in endless)


async def test_a_ground_truth_that_no_answer_can_meet_is_an_error() -> None:
    for truth in (
        "see the figure",
        "Proof below",
        "1" * 513,
        r"\text{ }",
        "the sum of all the numbers is equal to one hundred",
    ):
        assert truth_problem(truth), truth
        with pytest.raises(ScoringError, match="ground truth"):
            await judge("3+x", truth, timeout_s=30)
    for truth in ("204", "no real solutions", r"\text{Evelyn}", "x^2", 1e-5, r"\text{June 20}", r"\frac{a}{b}", "A"):
        assert truth_problem(truth) == ""
        assert (await judge(expression_of(truth), expression_of(truth), timeout_s=30)).is_right


async def test_a_ground_truth_that_cannot_be_read_or_finished_is_an_error_and_not_a_0() -> None:
    with pytest.raises(ScoringError, match="ground truth"):
        await judge("3+x", r"\text{ }", timeout_s=30)
    with pytest.raises(ScoringError, match="ground truth"):
        await judge("3+x", "(" * 250, timeout_s=30)


@pytest.mark.slow
async def test_verifiers_that_somebody_killed_are_started_again_and_leave_no_open_pipe() -> None:
    await math_answer(r"\boxed{x}", "y")
    me = psutil.Process()
    gc.collect()
    open_files = me.num_fds()
    [server] = [p for p in me.children() if "verl_agentic.graders.maths.math_worker" in p.cmdline()]
    for child in server.children():
        child.kill()
    assert await math_answer(r"\boxed{3+x}", "x+3") == 1.0
    server.kill()
    server.wait()
    while me.num_fds() >= open_files:  # until the thread that reads its replies has seen its end
        await asyncio.sleep(0.01)
    assert await math_answer(r"\boxed{y+3}", "3+y") == 1.0
    assert me.num_fds() <= open_files


_PARENT = """
import json, subprocess, sys, time
# Processor time has no limit here, so that nothing but the parent's end can end what hangs.
worker = "import verl_agentic.graders.maths.math_worker as w; w.CPU_S = 1e6; w.main()"
process = subprocess.Popen([sys.executable, "-c", worker, "2"], stdin=subprocess.PIPE)
request = {"id": 0, "answer": sys.argv[1], "truth": "42", "must_be_evaluated": False, "timeout_s": 1e6}
process.stdin.write(json.dumps(request).encode() + b"\\n")
process.stdin.flush()
time.sleep(1e6)
"""


@pytest.mark.slow
def test_verifiers_end_with_their_parent_though_algebra_hangs_in_one() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, ENDLESS])
    try:
        family: list[psutil.Process] = []
        while len(family) < 2 or family[-1].cpu_times().user < 1.0:
            assert parent.poll() is None
            time.sleep(0.02)
            family = psutil.Process(parent.pid).children(recursive=True)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
