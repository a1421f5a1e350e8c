r"""Pairs of answer and ground truth with verdicts known by construction; for tests and `benchmarks/math_verifier.py`.

Left out is what is truly ambiguous: `(1,2)` for the set of 1 and 2, `3:4` for 3/4, `0,5` for 0.5, `12,34,567`, degrees
for radians, a rounded number of fewer than 6 decimals, `42t`, `on` for a product of `n` and `o`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import comb, factorial, gcd
from typing import Any

import numpy as np

_FULL_WIDTH = str.maketrans("0123456789-.", "０１２３４５６７８９－．")
_ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
_SUPER = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class Pair:
    """An answer, what is right, and whether the answer is."""

    family: str
    answer: str
    truth: Any
    is_right: bool
    must_be_evaluated: bool = False
    is_response: bool = False
    """Whether `answer` is a whole response with a box."""


_Rows = Iterator[tuple[str, Any, bool]]
_FAMILIES: list[tuple[str, Callable[[random.Random], _Rows], bool]] = []


def family(
    *, evaluated: bool = False
) -> Callable[[Callable[[random.Random], _Rows]], Callable[[random.Random], _Rows]]:
    def register(make: Callable[[random.Random], _Rows]) -> Callable[[random.Random], _Rows]:
        _FAMILIES.append((make.__name__.strip("_"), make, evaluated))
        return make

    return register


def make_pairs(*, rounds: int = 3, seed: int = 0) -> list[Pair]:
    """Returns pairs of every family, `rounds` times with other numbers; the same arguments give the same pairs."""
    pairs: dict[tuple[Any, ...], Pair] = {}
    for name, make, evaluated in _FAMILIES:
        for index in range(rounds):
            for answer, truth, is_right in make(random.Random(f"{seed}/{name}/{index}")):
                pair = Pair(name, answer, truth, is_right, evaluated)
                pairs.setdefault((answer, type(truth), str(truth), evaluated), pair)
    return list(pairs.values())


def spellings(n: int) -> list[str]:
    """Returns an integer of at least 1000, written in many ways, each of which is the number itself."""
    plain, commas = str(n), f"{n:,}"
    sign, digits = ("-", plain[1:]) if n < 0 else ("", plain)
    mantissa = f"{digits[0]}.{digits[1:].rstrip('0') or '0'}"
    power = len(digits) - 1
    return [
        plain, commas, commas.replace(",", "{,}"), commas.replace(",", r"\,"), commas.replace(",", r"\ "),
        commas.replace(",", " "), commas.replace(",", "\u2009"), commas.replace(",", "\u00a0"), commas.replace(",",
        "_"),
        f"{plain}.0", f"{plain}.", f"{plain}.00", f" {plain} ", f"{{{plain}}}", f"({plain})",
        rf"\boxed{{{plain}}}", rf"\text{{{plain}}}", rf"\mathbf{{{plain}}}", rf"\mathrm{{{plain}}}", f"${plain}$",
        rf"\({plain}\)", rf"\[{plain}\]", rf"\left({plain}\right)", rf"\displaystyle {plain}", f"x = {plain}",
        f"n={commas}", f"**{plain}**", rf"{sign}{mantissa}\times10^{{{power}}}", rf"{sign}{mantissa} \cdot 10^{power}",
        f"{sign}{mantissa}e{power}", f"{sign}{mantissa}E+{power:02}",
        f"{sign}{mantissa}×10{str(power).translate(_SUPER)}",
        rf"{sign}{mantissa} \times 10^{power}", plain.translate(_FULL_WIDTH), plain.translate(_ARABIC),
        plain.replace("-", "\u2212"), f"0{digits}" if n > 0 else plain, f"+{plain}" if n > 0 else plain,
        f"{plain} ;", f"\\,{plain}\\,", f"{plain}\\quad", f"\u200b{plain}", rf"\boxed{{\boxed{{{plain}}}}}",
        rf"\boxed{{\text{{{plain}}}}}", f"{plain}\n", f"{plain}。",
    ]  # fmt: skip


def truths(n: int) -> list[Any]:
    """Returns a number in the forms in which tables and JSON give it."""
    return [
        n, float(n), np.int64(n), np.float64(n), np.float32(n % 1000), Decimal(n), Fraction(n), str(n), f"{n}.0",
        f"{n:,}",
        f"{n:e}".replace("e", "E"), np.array(n), Decimal(n).normalize(),
    ]  # fmt: skip


def _number(rng: random.Random) -> int:
    return rng.choice((-1, 1)) * rng.randint(1_001, 99_999_999)


@family()
def _integers(rng: random.Random) -> _Rows:
    n = _number(rng)
    for text in spellings(n):
        yield text, str(n), True
    for wrong in (n + 1, -n, n * 10, n // 10, n + 1_000_000):
        yield str(wrong), str(n), False
        yield f"{wrong:,}", n, False


@family()
def _types_of_truths(rng: random.Random) -> _Rows:
    n = abs(_number(rng)) % 9_000_000 + 1_000
    for truth in truths(n):
        value = n % 1000 if isinstance(truth, np.float32) else n
        if isinstance(truth, str) and "E" in truth and float(truth) != n:
            continue
        yield str(value), truth, True
        yield f"{value:,}", truth, True
        yield f"{value}.0", truth, True
        yield str(value + 1), truth, False
        yield str(-value), truth, False


@family()
def _small_and_large_floats(rng: random.Random) -> _Rows:
    digits, power = rng.randint(11, 99), rng.randint(5, 14)
    mantissa = f"{digits / 10:.1f}"
    for sign in ("", "-"):
        for exponent, plain in (
            (-power, f"{sign}0.{'0' * (power - 1)}{digits}"),
            (power, f"{sign}{digits}{'0' * (power - 1)}"),
        ):
            text = f"{sign}{mantissa}e{exponent:+03}"
            for truth in (float(text), text, text.upper(), Decimal(text), np.float64(text), plain):
                yield plain, truth, True
                yield text, truth, True
                yield rf"{sign}{mantissa}\times10^{{{exponent}}}", truth, True
                yield f"{sign}{mantissa}×10{str(exponent).translate(_SUPER)}", truth, True
                yield text.replace(f"e{exponent:+03}", f"e{exponent + 1:+03}"), truth, False
                yield rf"{sign}{digits / 10 + 0.1:.1f}\times10^{{{exponent}}}", truth, False
                yield "0", truth, False
                yield mantissa, truth, False
    for text, plain in (("1e-05", "0.00001"), ("1E16", "1" + "0" * 16), ("1e+16", "1" + "0" * 16)):
        for truth in (text, float(text), Decimal(text)):
            yield plain, truth, True
            yield f"10^{{{int(text[2:])}}}", truth, True
            yield "2", truth, False
    yield "0", -0.0, True
    yield "-0", 0.0, True
    yield "0.0", "-0.0", True
    yield "3", 3.0, True
    yield "0.3", 0.1 + 0.2, True
    yield r"\frac{3}{10}", 0.1 + 0.2, True
    yield "0.3000001", 0.3, False
    yield "10000000000000001", "1e16", False
    yield "10000000000000001", "10000000000000000", False


@family()
def _decimals(rng: random.Random) -> _Rows:
    value = rng.randint(101, 99_999)
    text = f"{value // 100}.{value % 100:02}"
    fraction = Fraction(value, 100)
    for answer in (
        text,
        f"{text}0",
        f"+{text}",
        f"${text}$",
        rf"\text{{{text}}}",
        f"{text}.",
        text.translate(_FULL_WIDTH),
    ):
        yield answer, text, True
    yield rf"\frac{{{value}}}{{100}}", text, True
    yield rf"\frac{{{fraction.numerator}}}{{{fraction.denominator}}}", text, True
    yield f"{value}/100", float(text), True
    for wrong in (
        f"-{text}",
        text.replace(".", ""),
        f"{value // 100 + 1}.{value % 100:02}",
        f"{text}1",
        f"{text[:-1]}",
    ):
        if Fraction(wrong) != fraction:
            yield wrong, text, False


@family()
def _fractions(rng: random.Random) -> _Rows:
    low = rng.choice((3, 7, 9, 11, 13, 17))
    top = rng.choice([n for n in range(1, 60) if gcd(n, low) == 1 and n > low])
    whole, part = divmod(top, low)
    truth = rf"\frac{{{top}}}{{{low}}}"
    right = [
        truth, f"{top}/{low}", f"{top} / {low}", rf"\dfrac{{{top}}}{{{low}}}", rf"\tfrac{{{top}}}{{{low}}}",
        rf"\frac{{{2 * top}}}{{{2 * low}}}", f"{3 * top}/{3 * low}", rf"{whole}\frac{{{part}}}{{{low}}}",
        f"{whole} {part}/{low}", rf"{whole} \tfrac{{{part}}}{{{low}}}", f"{top / low:.8f}", f"{top}⁄{low}",
        rf"\frac{{{top}}}{{{low}}}\text{{ m}}", f"{top}÷{low}", rf"{top} \div {low}",
        rf"\left(\frac{{{top}}}{{{low}}}\right)",
        rf"x = \frac{{{top}}}{{{low}}}", rf"\frac{{-{top}}}{{-{low}}}",
    ]  # fmt: skip
    for answer in right:
        yield answer, truth, True
        yield answer, Fraction(top, low), True
    for answer in (
        rf"-\frac{{{top}}}{{{low}}}", rf"\frac{{{low}}}{{{top}}}", rf"\frac{{{top + 1}}}{{{low}}}", f"{top}",
        f"{low}/{top}",
        f"{top / low:.2f}", rf"\frac{{-{top}}}{{{low}}}", f"{whole}", f"{part}/{low}", f"{top}.{low}",
        f"{whole}{part}/{low}",
    ):  # fmt: skip
        yield answer, truth, False
        yield answer, Fraction(top, low), False
    yield rf"\frac{{-{top}}}{{{low}}}", rf"-\frac{{{top}}}{{{low}}}", True
    yield rf"\frac{{{top}}}{{-{low}}}", rf"-\frac{{{top}}}{{{low}}}", True
    yield f"-{top}/{low}", rf"-\frac{{{top}}}{{{low}}}", True
    yield f"-{whole} {part}/{low}", rf"-\frac{{{top}}}{{{low}}}", True
    for half in ("½", "1/2", r"\frac12", r"\frac{1}{2}", "0.5", ".5", "0.50", r"\frac 1 2", r"50\%", "2/4", "5e-1"):
        for truth in ("0.5", 0.5, r"\frac{1}{2}", "1/2"):
            yield half, truth, True
        yield half, "-0.5", False
        yield half, "2", False
    for third in (r"0.\overline{3}", r"0.\dot{3}", "0.(3)", "0.333333", "0.33333333", "⅓", r"0.3\overline{3}"):
        yield third, r"\frac{1}{3}", True
        yield third, "0.3", False
        yield third, "3", False
    yield "0.666667", "2/3", True
    yield "0.666666", "2/3", False
    yield "1½", "1.5", True
    yield "1½", r"\frac{11}{2}", False
    yield "1 1/2", "11/2", False


@family()
def _percentages(rng: random.Random) -> _Rows:
    p = rng.randint(11, 89)
    for answer in (
        rf"{p}\%",
        f"{p}%",
        f"{p} %",
        rf"{p}\text{{ percent}}",
        f"{p} percent",
        rf"${p}\%$",
        f"{p}％",
        f"{p}.0%",
    ):
        yield answer, f"0.{p}", True
        yield answer, rf"{p}\%", True
        yield answer, rf"\frac{{{p}}}{{100}}", True
        yield answer, rf"{p + 1}\%", False
        yield answer, f"0.0{p}", False
        yield answer, f"-0.{p}", False
    yield f"0.{p}", rf"{p}\%", True
    yield f"0.0{p}", rf"{p}\%", False
    yield rf"-{p}\%", rf"{p}\%", False


@family()
def _units(rng: random.Random) -> _Rows:
    n = rng.randint(12, 98)
    for unit in ("cm", "km", "kg", "apples", "m/s", "square feet", "hours", "dollars", "people", "cm^2"):
        base = unit.removesuffix("^2")
        power = unit[len(base) :]
        yield rf"{n}\text{{ {base}}}{power}", n, True
        yield rf"{n}\ \mathrm{{{base}}}{power}", n, True
        yield f"{n} {unit}", str(n), True
        yield rf"{n}\text{{ {base}}}{power}", rf"{n}\text{{ {base}}}{power}", True
        yield f"{n}", rf"{n}\text{{ {base}}}{power}", True
        yield rf"{n + 1}\text{{ {base}}}{power}", n, False
        yield rf"-{n}\text{{ {base}}}{power}", n, False
    yield from (
        (rf"\${n}", f"{n}", True),
        (f"${n}", f"{n}", True),
        (f"{n} dollars", rf"\${n}", True),
        (rf"\${n}.00", f"{n}", True),
        (f"{n} euros", rf"\${n}", False),
        (f"€{n}", f"{n}", True),
        (f"{n}00 cents", rf"\${n}", True),
        (rf"{n}\text{{ cm}}", rf"{n}\text{{ m}}", False),
        (rf"{n}00\text{{ cm}}", rf"{n}\text{{ m}}", True),
        (rf"{n}\text{{ m}}", rf"{n}00\text{{ cm}}", True),
        (rf"{n}000 \text{{ g}}", rf"{n} \text{{ kg}}", True),
        (rf"{n}\text{{ kg}}", rf"{n}\text{{ km}}", False),
        (f"{n} minutes", f"{n} hours", False),
        (f"{60 * n} minutes", f"{n} hours", True),
        (f"{n} min", f"{60 * n} s", True),
        (f"{n} inches", f"{n} in", True),
        (f"{12 * n} inches", f"{n} feet", True),
        (f"{n} sq cm", rf"{n}\text{{ cm}}^2", True),
        (f"{n} square centimeters", f"{n} cm^2", True),
        (f"{n} cm^3", f"{n} cm^2", False),
        (f"{n} km/h", f"{n} kmph", True),
        (f"{n} km per hour", f"{n} km/h", True),
        (f"{n} m/s", f"{n} km/h", False),
        (f"{n}^{{\\text{{th}}}}", f"{n}", True),
        (f"{n} million", f"{n}000000", True),
        (f"{n} million", f"{n}000", False),
        (f"{n} thousand dollars", f"{n}000", True),
        (f"{n}^\\circ", f"{n}", True),
        (f"{n}°", rf"{n}^{{\circ}}", True),
        (f"{n} degrees", rf"{n}^\circ", True),
        (f"{n}^\\circ", f"{n + 1}", False),
        (f"{n}°C", f"{n}°F", False),
        (f"{n}^\\circ\\text{{C}}", f"{n}", True),
        (f"{n}x", f"{n}", False),
        (f"{n}i", f"{n}", False),
        (rf"{n}\pi", f"{n}", False),
        (f"{n}e", f"{n}", False),
        (f"{n}!", f"{n}", False),
        (f"{n}^2", f"{n}", False),
        (rf"{n}\sqrt{{2}}\text{{ cm}}", rf"{n}\sqrt{{2}}", True),
        (rf"{n}\sqrt{{2}}\text{{ cm}}", rf"{n}\sqrt{{2}}\text{{ m}}", False),
        (rf"{n}\pi\text{{ cm}}^2", rf"{n}\pi", True),
    )


@family(evaluated=True)
def _evaluation_demanded(rng: random.Random) -> _Rows:
    a, b = rng.randint(12, 99), rng.randint(12, 99)
    n = a * b
    for text in spellings(n + 1000):
        yield text, n + 1000, True
        yield text, str(n + 1000), True
    for answer in (
        f"{a}*{b}", rf"{a}\times{b}", rf"{a} \times {b}", rf"{a}\times\,{b}", rf"{a}\,\times\,{b}", f"{a}×{b}",
        f"{a} × {b}",
        f"{a}·{b}", f"{a}⋅{b}", rf"{a}\cdot{b}", rf"{a}\cdot {b}", f"{a}({b})", f"({a})({b})", rf"{a}\left({b}\right)",
        f"{a}/(1/{b})", rf"\frac{{{a}}}{{1/{b}}}", rf"\frac{{{a}}}{{\frac{{1}}{{{b}}}}}", f"{2 * n}-{n}",
        f"{n - 1}+1", f"{n}+0",
        f"{n}*1", f"1*{n}", f"{n}-0", rf"\frac{{{2 * n}}}{{2}}", f"{2 * n}/2", rf"\frac{{{n}}}{{1}}", f"{n}/1",
        f"{n}^1",
        rf"\sqrt{{{n * n}}}", rf"\sqrt{{{n}}}^2", rf"\sqrt[3]{{{n**3}}}", rf"\log_{{2}}(2^{{{n}}})", rf"|{n}|",
        f"|-{n}|",
        rf"\binom{{{n}}}{{1}}", rf"\sum_{{k=1}}^{{{n}}} 1", rf"\text{{{a}}}\times\text{{{b}}}", rf"{{{a}}}\cdot{{{b}}}",
        f"-(-{n})", f"--{n}", rf"\lfloor {n}.5\rfloor", f"{n}!/{n - 1}!", f"{n}*10^0", rf"{a}\ast {b}", f"{a}＊{b}",
        f"{a}✕{b}", rf"{a} \mathbin{{\times}} {b}", rf"{a}{{\times}}{b}", rf"{a}\;\cdot\;{b}",
        rf"{a}\text{{ times }}{b}",
        f"{a} x {b}", f"{a} times {b}", rf"{n} = {a}\times{b}", rf"{n}={a}*{b}", rf"\frac{{{n}0}}{{10}}", f"{n}e0*1",
        rf"\gcd({n},{n})", rf"\max({n},1)", rf"{a}^{{1}}\times {b}", rf"\frac{{{a}}}{{1}}\cdot{b}", f"0.5*{2 * n}",
        f"{n}.0*1.0", rf"{n}\cdot 1", rf"{n}\times 10^{{0}}", rf"e^{{\ln {n}}}", f"{a}⨯{b}", f"{n + 1}−1", f"0x{n:x}",
        rf"{n}\%\times100", f"{a}&{b}", rf"\int_0^{{{n}}} 1 dx", rf"\left|{n}\right|", f"{n}^{{1}}",
        rf"\prod_{{k=1}}^1 {n}",
    ):  # fmt: skip
        yield answer, n, False
    for answer in (
        rf"{a}\times{b}={n}", f"{a}*{b} = {n}", rf"{a} \cdot {b} = {n:,}", f"x = {n}", f"{n}.0", f"+{n}", f"({n})",
        rf"{n}\text{{ apples}}", f"{n} cm", rf"\${n}",
    ):  # fmt: skip
        yield answer, n, True
    for answer, truth, right in (
        (r"\frac{1}{2}", "0.5", True), ("1/2", r"\frac{1}{2}", True), ("2/4", r"\frac{1}{2}", False), ("1-1/2", "0.5",
        False),
        (r"1\frac{1}{2}", "1.5", True), ("1+1/2", "1.5", False), ("1024", "2^{10}", True), ("2^{10}", "1024", False),
        ("2^{10}", "2^{10}", True), ("120", "120", True), ("5!", "120", False), (r"\binom{10}{3}", "120", False),
        ("2x", "2x", True), (r"2\cdot x", "2x", True), (r"6x/3", "2x", False), (r"(1+1)x", "2x", False), ("1x+1x",
        "2x", True),
        (r"2\sqrt{3}", r"2\sqrt{3}", True), (r"\sqrt{4}\sqrt{3}", r"2\sqrt{3}", False), (r"x+5", "x+5", True),
        ("x+2+3", "x+5", False), (r"\{1,2\}", r"\{1,2\}", True), (r"\{2-1,2\}", r"\{1,2\}", False), ("(1+1,3)",
        "(2,3)", False),
        ("(2,3)", "(2,3)", True), (r"\frac{\pi}{2}", r"\frac{\pi}{2}", True), (r"\frac{2\pi}{4}", r"\frac{\pi}{2}",
        False),
        ("3+4i", "3+4i", True), ("1+2+4i", "3+4i", False), (r"x^2+3x", "x^2+3x", True), (r"x^{1+1}+3x", "x^2+3x",
        False),
        (r"\ln 2", r"\ln 2", True), (r"-\frac{3}{4}", "-0.75", True), (r"-\frac{6}{8}", "-0.75", False),
    ):  # fmt: skip
        yield answer, truth, right


@family()
def _unevaluated_where_it_is_allowed(rng: random.Random) -> _Rows:
    a, b = rng.randint(12, 99), rng.randint(12, 99)
    n = a * b
    for answer in (
        f"{a}*{b}", rf"{a}\times\,{b}", f"{a} × {b}", f"{a}·{b}", f"{a}({b})", f"({a})({b})", f"{2 * n}-{n}",
        f"{n - 1}+1",
        f"{a}/(1/{b})", rf"\frac{{{2 * n}}}{{2}}", rf"\sqrt{{{n * n}}}", f"{n}^1", f"|-{n}|", f"{n - 1} + 2/2",
    ):  # fmt: skip
        yield answer, n, True
        yield answer, n + 1, False
        yield answer, -n, False
    k = rng.randint(4, 9)
    for answer, value in (
        (f"{k}!", factorial(k)), (rf"\binom{{{k}}}{{2}}", comb(k, 2)), (f"2^{{{k}}}", 2**k), (f"2**{k}", 2**k),
        (f"2^{k}", 2**k), (f"{k}²", k * k), (f"√{k * k}", k), (f"√({k * k})", k), (rf"\log_2 {2**k}", k),
        (rf"\log_{{2}}({2**k})", k), (rf"\ln e^{{{k}}}", k), (rf"\sum_{{j=1}}^{{{k}}} j", k * (k + 1) // 2),
    ):  # fmt: skip
        yield answer, value, True
        yield answer, value + 1, False


@family()
def _several_answers(rng: random.Random) -> _Rows:
    n = rng.randint(12, 899)
    for answer in (
        f"{n} or {n + 1}", f"{n}, {n + 1}", f"{n};{n + 1}", rf"{n}\text{{ or }}{n + 1}", f"{n + 1} or {n}",
        f"{n} and {n + 1}",
        rf"{n}\text{{ and }}{n + 1}", rf"\pm {n}", f"±{n}", f"{n} {n + 1}", f"{n}/{n + 1}", f"x={n + 1}, x={n}",
        f"x = {n + 1} or x = {n}", rf"\{{{n},{n + 1}\}}", f"({n},{n + 1})", f"[{n}, {n + 1}]", f"{n + 1} = {n}",
        f"{n}?",
        f"not {n}", rf"\text{{not }}{n}", rf"\neq {n}", f"≠{n}", rf"x \ne {n}", f"> {n}", f"<{n}", rf"\geq {n}",
        f"≤ {n}",
        f"at least {n}", f"{n} or more", f"between {n - 1} and {n + 1}", f"{n}-{n + 1}", f"{n}–{n + 1}",
        rf"{n}\\{n + 1}",
        f"maybe {n}", f"{n} maybe", f"{n} (not {n + 1})", f"{n} is wrong", f"{n}\n{n + 1}", f"{n} | {n + 1}",
        f"{n}, probably",
        rf"\boxed{{{n}}} \boxed{{{n + 1}}}", rf"\boxed{{{n + 1}}} or \boxed{{{n}}}", f"{n}±1", rf"{n}\pm 1", "", " ",
        r"\text{}",
        r"\{\}", "()", "x", "?", "-", "...", r"\infty", f"{n} to {n + 1}", f"{n} {n}", f"{n}{n}", "i", "a",
        "the answer",
    ):  # fmt: skip
        yield answer, n, False
    low, high = sorted(rng.sample(range(1, 60), 2))
    for answer in (
        f"{low}, {high}", f"{high}, {low}", rf"\{{{low}, {high}\}}", f"{low} and {high}", rf"{low}\text{{ or }}{high}",
        rf"\left\{{{high}, {low}\right\}}", f"x={low}, x={high}", rf"x={low} \text{{ or }} x={high}",
    ):  # fmt: skip
        yield answer, rf"\{{{low}, {high}\}}", True
    for answer in (
        f"{low}",
        f"{high}",
        f"{low}, {high + 1}",
        f"{low}, {high}, {high + 1}",
        rf"\{{{low}\}}",
        f"-{low}, {high}",
    ):
        yield answer, rf"\{{{low}, {high}\}}", False
    yield f"±{n}", rf"\pm {n}", True
    yield f"-{n}, {n}", rf"\pm {n}", True
    yield f"{n}", rf"\pm {n}", False
    yield f"-{n}", rf"\pm {n}", False


@family()
def _sets_intervals_and_tuples(rng: random.Random) -> _Rows:
    a, b, c = sorted(rng.sample(range(-40, 40), 3))
    yield from (
        (f"({a},{b})", f"({a}, {b})", True),
        (f"({a},{b})", f"[{a},{b}]", False),
        (f"[{a},{b})", f"[{a},{b})", True),
        (f"[{a},{b})", f"({a},{b}]", False),
        (rf"\left[{a},{b}\right)", f"[{a},{b})", True),
        (f"[{a}, {b}]", f"[{a},{b}]", True),
        (f"({b},{a})", f"({a},{b})", False),
        (f"({a},{b},{c})", f"({a},{b},{c})", True),
        (f"({b},{a},{c})", f"({a},{b},{c})", False),
        (f"({a},{b})", f"({a},{b},{c})", False),
        (rf"\left({a},{b},{c}\right)", f"({a}, {b}, {c})", True),
        (f"({a},{b},{c + 1})", f"({a},{b},{c})", False),
        (rf"\{{{c},{b},{a}\}}", rf"\{{{a},{b},{c}\}}", True),
        (rf"\{{{a},{b}\}}", rf"\{{{a},{b},{c}\}}", False),
        (rf"({a},{b})\cup({b},{c})", rf"({b},{c})\cup({a},{b})", True),
        (rf"({a},{b})\cup({b},{c})", rf"({a},{c})", False),
        (f"({a},{b})∪({b},{c})", rf"({a},{b})\cup({b},{c})", True),
        (rf"({a},\infty)", rf"({a},\infty)", True),
        (rf"[{a},\infty)", rf"({a},\infty)", False),
        (rf"(-\infty,{a})", rf"({a},\infty)", False),
        (f"x>{a}", f"x>{a}", True),
        (f"{a}<x", f"x>{a}", True),
        (f"x<{a}", f"x>{a}", False),
        (rf"x\geq {a}", f"x>{a}", False),
        (f"x≥{a}", rf"x\geq {a}", True),
        (rf"x \ge {a}", rf"x\geq {a}", True),
        (f"{a}<x<{b}", f"{a}<x<{b}", True),
        (f"{a}<x<{c}", f"{a}<x<{b}", False),
        (rf"({a},\infty)", f"x>{a}", True),
        (f"x>{a}", rf"({a},\infty)", True),
        (rf"[{a},\infty)", f"x>{a}", False),
        (r"\emptyset", r"\varnothing", True),
        ("∅", r"\emptyset", True),
        ("no solution", r"\emptyset", True),
        (r"\{\}", r"\emptyset", True),
        (f"{a}", r"\emptyset", False),
        (r"\emptyset", f"{a}", False),
        (r"\infty", r"\infty", True),
        ("∞", r"\infty", True),
        (r"-\infty", r"\infty", False),
        ("infinity", r"\infty", True),
        (f"{a}", r"\infty", False),
        (rf"\left(\frac{{1}}{{2}},{b}\right)", f"(0.5,{b})", True),
    )


@family()
def _matrices(rng: random.Random) -> _Rows:
    a, b, c, d = rng.sample(range(-20, 20), 4)
    body = rf"{a} & {b} \\ {c} & {d}"
    truth = rf"\begin{{pmatrix}} {body} \end{{pmatrix}}"
    for answer, right in (
        (truth, True), (rf"\begin{{bmatrix}}{body}\end{{bmatrix}}", True), (truth.replace(" ", ""), True),
        (rf"\begin{{pmatrix}}{a}&{b}\\{c}&{d + 1}\end{{pmatrix}}", False), (f"{a}", False), (f"({a},{b},{c},{d})",
        False),
        (rf"\begin{{pmatrix}}{a}&{c}\\{b}&{d}\end{{pmatrix}}", False), (rf"\begin{{pmatrix}}{a}\\{b}\end{{pmatrix}}",
        False),
        (rf"\begin{{pmatrix}}{a}.0&{b}\\{c}&{d}\end{{pmatrix}}", True),
    ):  # fmt: skip
        yield answer, truth, right


@family()
def _algebra(rng: random.Random) -> _Rows:
    a, b = rng.sample(range(2, 12), 2)
    yield from (
        (f"{a}x+{b}", f"{b}+{a}x", True),
        (f"{a}x-{b}", f"{b}-{a}x", False),
        (f"{a}x", f"{a}y", False),
        (f"{a}*x", f"{a}x", True),
        (f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})", True),
        (f"(x+{b})(x+{a})", f"(x+{a})(x+{b})", True),
        (f"(x+{a})^2", f"x^2+{2 * a}x+{a * a}", True),
        (f"(x+{a})^2", f"x^2+{a * a}", False),
        (f"x^{{{a}}}", f"x^{{{b}}}", False),
        (rf"\frac{{{a}x}}{{{b}}}", rf"\frac{{{a}}}{{{b}}}x", True),
        (rf"\frac{{x}}{{{a}}}", f"{a}x", False),
        (f"y={a}x+{b}", f"y={a}x+{b}", True),
        (f"y={a}x-{b}", f"y={a}x+{b}", False),
        (f"y={b}+{a}x", f"y={a}x+{b}", True),
        (f"{a}x+{b}=0", f"{a}x=-{b}", True),
        (f"x={a}", f"{a}", True),
        (f"{a}", f"x={a}", True),
        (f"y={a}", f"x={a}", False),
        (f"x=-{a}", f"{a}", False),
        (f"{a}=x", f"{a}", True),
        (r"\sin^2 x+\cos^2 x", "1", True),
        (r"\sin x", r"\cos x", False),
        (r"\sin 2x", r"2\sin x\cos x", True),
        (f"e^{{{a}x}}", f"e^{{{b}x}}", False),
        (rf"e^{{{a}x}}", rf"\exp({a}x)", True),
        (f"n({a}n+1)", f"{a}n^2+n", True),
        (f"a^{a}b", f"ba^{a}", True),
        (f"-x+{a}", f"{a}-x", True),
        (f"|x-{a}|", f"|{a}-x|", True),
    )


@family()
def _surds_logs_complex_and_constants(rng: random.Random) -> _Rows:
    k, m = rng.choice((2, 3, 5, 7)), rng.randint(2, 9)
    yield from (
        (rf"\sqrt{{{m * m * k}}}", rf"{m}\sqrt{{{k}}}", True),
        (f"{m}√{k}", rf"{m}\sqrt{{{k}}}", True),
        (rf"-{m}\sqrt{{{k}}}", rf"{m}\sqrt{{{k}}}", False),
        (rf"{m}\sqrt{{{k + 1}}}", rf"{m}\sqrt{{{k}}}", False),
        (rf"\frac{{{m}}}{{\sqrt{{{k}}}}}", rf"\frac{{{m}\sqrt{{{k}}}}}{{{k}}}", True),
        (rf"{k}^{{1/2}}", rf"\sqrt{{{k}}}", True),
        (rf"\sqrt {k}", rf"\sqrt{{{k}}}", True),
        (rf"\sqrt{k}", rf"\sqrt{{{k}}}", True),
        (rf"1+\sqrt{{{k}}}", rf"\sqrt{{{k}}}+1", True),
        (rf"1-\sqrt{{{k}}}", rf"1+\sqrt{{{k}}}", False),
        (rf"1\pm\sqrt{{{k}}}", rf"1+\sqrt{{{k}}}", False),
        (rf"\sqrt[3]{{{k}}}", rf"\sqrt{{{k}}}", False),
        (rf"\sqrt[3]{{{m**3}}}", f"{m}", True),
        (f"{k**0.5:.6f}", rf"\sqrt{{{k}}}", True),
        (f"{k**0.5:.2f}", rf"\sqrt{{{k}}}", False),
        (rf"{m}\pi", rf"{m}π", True),
        (rf"\pi {m}", rf"{m}\pi", True),
        (rf"{m}\pi", rf"{m + 1}\pi", False),
        ("3.14", r"\pi", False),
        ("22/7", r"\pi", False),
        (rf"\frac{{\pi}}{{{m}}}", rf"\frac{{1}}{{{m}}}\pi", True),
        (r"\frac{\pi}{2}", r"\pi/2", True),
        (rf"\ln {m}", rf"\log_{{e}} {m}", True),
        (rf"\ln {m * m}", rf"2\ln {m}", True),
        (rf"\ln {m}", rf"\ln {m + 1}", False),
        (rf"\log_{{{k}}} {k**3}", "3", True),
        (rf"\log_{k} {k**3}", "3", True),
        (rf"-\ln {m}", rf"\ln\frac{{1}}{{{m}}}", True),
        (f"{m}+{k}i", f"{k}i+{m}", True),
        (f"{m}-{k}i", f"{m}+{k}i", False),
        (f"{k}+{m}i" if k != m else "1+0i", f"{m}+{k}i", False),
        (f"({m}+i)^2", f"{m * m - 1}+{2 * m}i", True),
        ("i^2", "-1", True),
        ("-i", "i", False),
        (f"{m}i", f"{m}", False),
        (r"\frac{1}{i}", "-i", True),
        (f"{m}e", rf"{m}\cdot e", True),
        ("e^2", "7.389056", True),
        ("e", "2.7", False),
        (r"\sin 30^\circ", "0.5", True),
        (r"\cos 60°", r"\frac{1}{2}", True),
        (r"\sin 30", "0.5", False),
        (r"\sqrt[3]{-8}", "-2", True),
        (r"\sqrt[3]{-8}", "2", False),
        (r"\cos\frac{2\pi}{7}+\cos\frac{4\pi}{7}+\cos\frac{6\pi}{7}", "-0.5", True),
        (r"\sin\frac{\pi}{6}", "0.5", True),
        (r"\cos\pi", "-1", True),
        (r"\tan\frac{\pi}{4}", "-1", False),
        (r"\sin 1", "0.841471", True),
        (rf"\frac{{{m}}}{{0}}", f"{m}", False),
        (r"\frac{0}{0}", "0", False),
        ("0^0", "0", False),
    )


@family()
def _texts(rng: random.Random) -> _Rows:
    days = ["Monday", "Tuesday", "Thursday", "Friday", "Sunday"]
    day, other = rng.sample(days, 2)
    letter, wrong = rng.sample("ABCDEFG", 2)
    yield from (
        (day, day, True),
        (rf"\text{{{day}}}", day, True),
        (day, rf"\text{{{day}}}", True),
        (day.lower(), day, True),
        (other, day, False),
        (rf"\text{{{other}}}", rf"\text{{{day}}}", False),
        (f"{day}.", day, True),
        (f"not {day}", day, False),
        (f"{day} or {other}", day, False),
        ("Yes", r"\text{yes}", True),
        ("No", "Yes", False),
        (r"\textbf{No}", "No", True),
        ("on", "no", False),
        ("listen", "silent", False),
        ("cat", "act", False),
        ("even", "odd", False),
        ("even", "even", True),
        ("True", "False", False),
        ("true", "True", True),
        (letter, letter, True),
        (f"({letter})", letter, True),
        (rf"\text{{({letter})}}", letter, True),
        (rf"\textbf{{{letter}}}", letter, True),
        (f"{letter}.", letter, True),
        (wrong, letter, False),
        (f"{letter} or {wrong}", letter, False),
        (f"{letter}{wrong}", letter, False),
        (rf"\mathrm{{{letter}}}", rf"\text{{{letter}}}", True),
        ("east", "west", False),
        ("", "Yes", False),
        ("42", "Yes", False),
        ("red blue", "red blue", True),
        ("blue red", "red blue", False),
        (r"\text{red blue}", "Red  Blue", True),
        ("yes", "42", False),
        ("east", "seat", False),
        (r"\text{no}", "on", False),
    )


@family()
def _near_misses(rng: random.Random) -> _Rows:
    a, b = sorted(rng.sample(range(2, 40), 2))
    for answer, truth in (
        (f"{a}, {b}", f"[{a},{b}]"), (rf"\{{{a}, {b}\}}", f"({a},{b})"), (f"[{a},{b}]", f"({a},{b})"),
        (f"({a},{b}]", f"[{a},{b}]"), (rf"x<{a}\text{{ and }}x>{b}", rf"(-\infty,{a})\cup({b},\infty)"),
        (rf"(-\infty,{a}]\cup({b},\infty)", rf"(-\infty,{a})\cup({b},\infty)"), (f"x>{a}", f"x\\ne {a}"),
        ("|x|", "x"), ("|xy|", "xy"), (r"\sqrt{x^2}", "x"), ("x", "X"), ("x_1", "x_2"), (f"{a}x", f"x^{{{a}}}"),
        (f"y={a}x+{b}", f"x={a}y+{b}"), (f"{a}x+{b}=0", f"{a}x-{b}=0"), (f"{a}x<{b}", f"{a}x>{b}"),
        (f"{b}^{{{a + 99}}}", f"{b}^{{{a + 99}}}+1"), (f"{b + 40}!-1", f"{b + 40}!"),
        (rf"\frac{{1}}{{{b}^{{90}}}}", rf"\frac{{2}}{{{b}^{{90}}}}"), (rf"\sqrt{{{a}^{{900}}+1}}", rf"{a}^{{450}}"),
        (rf"{a}\pm\sqrt{{{b}}}", rf"{a}+\sqrt{{{b}}}"), (f"{a}+{b}i", f"{a}-{b}i"), ("a_n", "a_N"),
        (rf"x\equiv {a}\pmod{{{b + 40}}}", rf"x\equiv {b}\pmod{{{b + 40}}}"), (f"{a}:{b}", f"{b}:{a}"),
        (rf"y\equiv {a}\pmod{{{b + 40}}}", rf"x\equiv {a}\pmod{{{b + 40}}}"), (f"{a}_7", f"{a}_8"), (f"{a}_7", f"{a}"),
        (rf"({a},{b}),({b},{a})", rf"({a},{b})"), (rf"{a}\vec{{a}}", rf"{a}a"), ("①②", "12"),
        (f"v1.{a}.{b}", f"v1{a}.{b}"),
        (rf"\begin{{pmatrix}}{a}&{b}\end{{pmatrix}}", rf"\begin{{pmatrix}}{a}\\{b}\end{{pmatrix}}"),
        (rf"\{{\{{{a}\}},\{{{b}\}}\}}", rf"\{{{a},{b}\}}"), (rf"{a}=x={b}", f"{b}"), (f"{a} million", f"{a}"),
        (f"1234567890123{a}.5", f"1234567890124{a}.5"), (f"e-{a}", f"1e-{a:02}"), (rf"{b}\approx {a}", f"{b + a}"),
        (f"(B) {a} or (C) {b}", f"{a}"), ("B, C", "C"), (rf"\textbf{{(B)}}\ {a}", f"{b}"), ("(B) 12", "C"),
    ):  # fmt: skip
        yield answer, truth, False


def endless_answers(count: int) -> list[tuple[str, str]]:
    """Returns wrong answers, all different, on which symbolic algebra does not come to an end, and their truths."""
    kinds: tuple[Callable[[int], str], ...] = (
        lambda n: f"{10_000_000 + n}!",
        lambda n: rf"9^{{9^{{{9 + n}}}}}",
        lambda n: rf"\binom{{10^8+{n}}}{{5\cdot 10^7}}",
        lambda n: "(" * (250 + n),
        lambda n: rf"\sum_{{k=1}}^{{{10**9 + n}}} k^k",
        lambda n: rf"\prod_{{k=1}}^{{{10**7 + n}}} (k^2+1)",
        lambda n: rf"\gcd(9^{{9^{{{9 + n}}}}},3)",
        lambda n: rf"\lfloor 10^{{10^{{{8 + n}}}}}\rfloor",
        lambda n: r"\sin(" * (30 + n % 20) + f"{n}" + ")" * (30 + n % 20),
        lambda n: rf"\int \frac{{\sin(x^5+e^x)}}{{\ln(x)+x^{{{7 + n}}}}} dx",
        lambda n: rf"\Gamma({10_000_000 + n})",
        lambda n: rf"9^{{9^{{{9 + n}}}}} \mod 10",
    )
    truths = ("42", "x+1", r"\sqrt{2}", "7")
    return [(kinds[n % len(kinds)](n), truths[n % len(truths)]) for n in range(count)]
