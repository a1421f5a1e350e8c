"""Properties of the math verifier: what no notation may change, and what never counts as an answer."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.text.boxes import answer_in_boxes
from verl_agentic.graders.maths.boxed_math import judge
from verl_agentic.graders.maths.forms.math_notation import tidy
from verl_agentic.graders.maths.math_judge import judge as judge_tidy

_SMALL = st.integers(1, 30)
_NO_UNITS = """
    about aka also and below between but cubed dozen doubled factorial false for halves hopefully hundred
    hundredths hundreds if incorrect infinity inverse less maybe million minus more negative neither not or
    otherwise plus reciprocal root score squared tenths than thirds times to unless was when wrong 万
""".split()  # noqa: SIM905
_NUMBERS = ("5", r"\sqrt{2}", r"\frac{\pi}{3}")


def _is_right(answer: str, truth: str, *, must_be_evaluated: bool = False) -> bool:
    return judge_tidy(tidy(answer), tidy(truth), must_be_evaluated=must_be_evaluated)


async def _is_paid(answer: str, truth: str) -> bool:
    return (await judge(answer, truth, timeout_s=30)).is_right


@pytest.mark.sample(2)
@pytest.mark.parametrize("truth", ["y = 2x+1", "x^2+y^2=25", "x+y=3, x-y=1", "x<y", "x^2 > 4", "f(x)=x+1", "0=x-y"])
def test_an_infinite_or_undefined_side_meets_no_equation_and_no_inequality(truth: str) -> None:
    nothings = (r"\infty", r"\infty-\infty", r"0\cdot\infty", r"\frac{1}{0}", r"\frac{0}{0}", "nan", "y-y")
    for nothing, sign in itertools.product(nothings, ("=", "<", ">")):
        for left in ("y", "x", "x+y", "x^2+y^2", "f(x)", "0", f"{nothing}+y"):
            assert not _is_right(f"{left}{sign}{nothing}", truth), (left, sign, nothing)
            assert not _is_right(f"{left}{sign}{nothing}, x=1", truth)


@pytest.mark.parametrize("number", _NUMBERS)
@pytest.mark.parametrize("word", _NO_UNITS)
async def test_a_word_that_changes_a_number_is_no_unit(number: str, word: str) -> None:
    for answer in (rf"{number}\text{{ {word}}}", rf"{number}\text{{ ({word} 6)}}", f"{number} {word} 6"):
        assert not await _is_paid(answer, number), answer
    assert await _is_paid(rf"{number}\text{{ apples}}", number)


@given(st.integers(2, 99), st.permutations("abc"), st.permutations("xyz"))
def test_letters_after_a_number_are_variables_in_any_order(n: int, one: list[str], other: list[str]) -> None:
    for letters, truth in ((one, "abc"), (other, "xyz")):
        assert _is_right(f"{n}{''.join(letters)}", f"{n}{truth}")
        for wrong in (str(n), f"{n}{truth}d", f"{n}{truth[:2]}", f"{n + 1}{truth}", f"{n}uvw", f"{n} uvw"):
            assert not _is_right(wrong, f"{n}{truth}") and not _is_right(f"{n}{truth}", wrong), wrong


@given(st.lists(_SMALL, min_size=3, max_size=4), st.sampled_from((" ", ":")), st.data())
def test_numbers_do_not_merge_over_separators(numbers: list[int], separator: str, data: st.DataObject) -> None:
    truth = separator.join(map(str, numbers))
    place = data.draw(st.integers(1, len(numbers) - 1))
    merged = [*numbers[: place - 1], f"{numbers[place - 1]}{numbers[place]}", *numbers[place + 1 :]]
    assert _is_right(truth, truth)
    assert not _is_right(separator.join(map(str, merged)), truth)


@given(st.lists(_SMALL, min_size=2, max_size=4), st.integers(2, 9), st.data())
def test_ratios_may_be_extended_but_not_changed(numbers: list[int], factor: int, data: st.DataObject) -> None:
    truth = " : ".join(map(str, numbers))  # 1:10 without spaces is a time
    assert _is_right(":".join(str(n * factor) for n in numbers), truth)
    place = data.draw(st.integers(0, len(numbers) - 1))
    wrong = [n * factor + (index == place) for index, n in enumerate(numbers)]
    assert not _is_right(":".join(map(str, wrong)), truth)
    if len(numbers) == 2:
        assert _is_right(rf"\frac{{{numbers[0]}}}{{{numbers[1]}}}", truth)
        assert not _is_right(rf"\frac{{{numbers[0] + 1}}}{{{numbers[1]}}}", truth)


@given(st.integers(0, 23), st.integers(0, 59), st.integers(1, 23))
def test_clock_times_of_12_and_24_hours_agree(hour: int, minute: int, apart: int) -> None:
    def twelve(hour: int) -> str:
        return f"{hour % 12 or 12}:{minute:02} {'PM' if hour >= 12 else 'AM'}"

    for truth in (twelve(hour), f"{hour:02}:{minute:02}"):
        assert _is_right(twelve(hour), truth) and _is_right(f"{hour}:{minute:02}", truth)
        assert not _is_right(twelve((hour + apart) % 24), truth) or (apart == 12 and not truth.endswith("M"))
        assert not _is_right(f"{hour}:{(minute + apart) % 60:02}", truth)


@given(st.integers(1, 999), st.sampled_from((3, 7, 9, 11, 13, 27, 37, 41, 99, 101)))
def test_a_period_that_is_written_twice_repeats(above: int, below: int) -> None:
    value = Fraction(above, below)
    truth = f"{above}/{below}"
    if value.denominator == 1:
        return
    digits = str(above * 10**60 // below).zfill(61)
    shown = f"{digits[:-60]}.{digits[-60:][:18]}"
    for dots in ("...", r"\ldots", "…"):
        assert _is_right(shown + dots, truth)
        assert not _is_right(shown + dots, f"{above + 1}/{below}")
        assert not _is_right(shown[:-16], truth) and not _is_right(shown[:-16] + dots, truth)


@given(st.integers(2, 10**9).filter(lambda n: math.isqrt(n) ** 2 != n), _SMALL)
def test_a_double_is_the_surd_that_it_was_computed_from_and_no_other(n: int, apart: int) -> None:
    for text in (repr(math.sqrt(n)), f"{math.sqrt(n):.15e}", f"{n}**0.5", rf"{n}^{{1/2}}", f"{n} ** 0.50"):
        assert _is_right(text, rf"\sqrt{{{n}}}"), text
        assert not _is_right(text, rf"\sqrt{{{n + apart}}}"), text
    assert not _is_right(f"{math.sqrt(n):.5f}", rf"\sqrt{{{n}}}")


@given(st.integers(-50, 50), st.integers(2, 30), st.integers(-5, 5), _SMALL)
def test_residues_are_equal_modulo_the_modulus(residue: int, modulus: int, times: int, apart: int) -> None:
    truth = rf"x \equiv {residue} \pmod{{{modulus}}}"
    assert _is_right(rf"{residue + times * modulus} \pmod{{{modulus}}}", truth)
    assert not _is_right(rf"x \equiv {residue} \pmod{{{modulus + apart}}}", truth)
    assert _is_right(rf"x \equiv {residue + apart} \pmod{{{modulus}}}", truth) is (apart % modulus == 0)


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=4, unique=True), st.data())
def test_vectors_are_tuples_rows_and_columns_in_order(numbers: list[int], data: st.DataObject) -> None:
    def spellings(parts: list[int]) -> list[str]:
        texts = list(map(str, parts))
        row, column = "&".join(texts), r"\\".join(texts)
        return [
            f"({','.join(texts)})",
            *(rf"\begin{{{kind}}}{body}\end{{{kind}}}" for kind in ("pmatrix", "bmatrix") for body in (row, column)),
        ]

    as_tuple, *matrices = spellings(numbers)
    others = data.draw(st.permutations(numbers).filter(lambda drawn: drawn != numbers))
    for matrix, wrong in zip(matrices, spellings(others)[1:], strict=True):
        assert _is_right(matrix, as_tuple) and _is_right(as_tuple, matrix)
        assert not _is_right(wrong, as_tuple) and not _is_right(as_tuple, wrong)
    assert not _is_right(matrices[0], matrices[1])
    grid = r"\begin{{{0}}}1&2\\3&{1}\end{{{0}}}"
    assert not _is_right(grid.format("vmatrix", numbers[0]), grid.format("pmatrix", numbers[0]))


@given(st.integers(-20, 20), _SMALL, st.sampled_from("(["), st.sampled_from(")]"))
def test_a_line_without_an_interval_is_two_rays(low: int, width: int, opening: str, closing: str) -> None:
    high = low + width
    outer = {"(": "]", "[": ")"}[opening], {")": "[", "]": "("}[closing]
    truth = rf"(-\infty,{low}{outer[0]}\cup{outer[1]}{high},\infty)"
    assert _is_right(rf"\mathbb{{R}}\setminus{opening}{low},{high}{closing}", truth)
    for wrong in (f"{opening}{low},{high + 1}{closing}", f"({low},{high}]", f"[{low},{high})", f"\\{{{low},{high}\\}}"):
        if wrong != f"{opening}{low},{high}{closing}":
            assert not _is_right(rf"\mathbb{{R}}\setminus{wrong}", truth), wrong
    holes = rf"(-\infty,{low})\cup({low},{high})\cup({high},\infty)"
    for answer in (rf"x\neq {low}, {high}", rf"\mathbb{{R}} - \{{{high}, {low}\}}"):
        assert _is_right(answer, holes) and not _is_right(answer, truth)


@pytest.mark.parametrize("name", ["n", "m", "t"])
def test_the_name_of_a_whole_number_does_not_matter_where_it_is_declared(name: str) -> None:
    for family in (r"\frac{{\pi}}{{4}}+2{}\pi", "{}\\pi", "3{}+1"):
        truth = rf"{family.format('k')}, k\in\mathbb{{Z}}"
        assert _is_right(rf"{family.format(name)}, {name}\in\mathbb{{Z}}", truth)
        assert _is_right(rf"x={family.format(name)}\ ({name}\in Z)", truth)
        assert not _is_right(family.format(name), truth)
        assert not _is_right(rf"{family.format('2' + name)}, {name}\in\mathbb{{Z}}", truth)


@given(st.sets(st.sampled_from("ABCDEFGH"), min_size=2), st.sampled_from((", ", " and ", "", "、", ",", " ")))
def test_several_choices_are_a_set_of_letters(letters: set[str], separator: str) -> None:
    truth = "".join(sorted(letters))
    answer = separator.join(sorted(letters, reverse=True))
    others = [separator.join(letters ^ {other}) for other in "ABCDEFGH"]
    assert asyncio.run(_is_paid(answer, truth))
    assert not any(asyncio.run(_is_paid(other, truth)) for other in others if other)


def test_equations_in_a_brace_are_a_list() -> None:
    braces = r"\begin{cases}x=1\\y=2\end{cases}", r"\left\{\begin{array}{l}x=1,\\y=2.\end{array}\right."
    for brace in map(tidy, braces):
        for same in ("(1,2)", "x=1, y=2", "y=2, x=1"):
            assert _is_right(brace, same) and _is_right(same, brace)
        for wrong in ("(2,1)", "x=1", "x=1, y=3", r"\begin{cases}x=2\\y=1\end{cases}"):
            assert not _is_right(wrong, brace)


@pytest.mark.parametrize("degrees", [30, 45, 60, 90, 120])
def test_degrees_are_radians(degrees: int) -> None:
    truth = rf"\frac{{{degrees}\pi}}{{180}}"
    assert _is_right(rf"{degrees}^\circ", truth) and _is_right(truth, f"{degrees}°")
    assert not _is_right(rf"{degrees + 1}^\circ", truth) and not _is_right(str(degrees), truth)


@pytest.mark.slow
def test_an_integral_is_not_evaluated() -> None:
    for answer, truth in ((r"\int_0^1\frac{2}{1+x^2}dx", r"\frac{\pi}{2}"), (r"\int (2x+2) dx", "x^2+2x")):
        assert _is_right(answer, truth) and not _is_right(answer, truth, must_be_evaluated=True)


def test_a_list_that_goes_on_is_not_its_first_items() -> None:
    for dots in ("...", "..", r"\ldots", r"\dots", "…"):
        assert not _is_right(f"3, 5, {dots}", "3, 5") and not _is_right(f"3,5{dots}", "3, 5")


@pytest.mark.slow
def test_a_row_of_boxes_is_read_in_linear_time() -> None:
    started = time.process_time()
    answer = answer_in_boxes("".join(rf"\boxed{{{n}}}, " for n in range(300_000)))
    assert answer is not None and answer.startswith("0, 1, 2") and answer.endswith("299998, 299999")
    assert time.process_time() - started < 8
