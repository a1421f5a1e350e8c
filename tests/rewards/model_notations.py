r"""Notations of models and public data sets: GSM8K, MATH, AIME, AMC, Numina, DeepScaleR, Chinese exams.

A kind has a value, wrong values of the same kind, and notations: templates with `<name>` for a part of the value. Every
notation is filled with the right and with wrong values, so each verdict is known by construction.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, gcd
from typing import Any

from math_pairs import Pair

Values = dict[str, Any]
Draw = Callable[[random.Random], tuple[Values, list[Values]]]


@dataclass(frozen=True)
class Kind:
    """Draws the parts of a right value and of wrong ones; `truths` are the notations of ground truths."""

    draw: Draw
    truths: tuple[str, ...]


KINDS: dict[str, Kind] = {}
_FRAMES = (
    "Adding both gives the result. The answer is $\\boxed{ANSWER}$.",
    "**Answer:** \\(\\boxed{ANSWER}\\)",
    "First \\boxed{-999} looks right, but it does not fit the condition.\n\n\\[\n\\boxed{ANSWER}\n\\]",
    "Thus we get\n$$\n\\boxed {ANSWER}\n$$",
    "Therefore the final answer is \\fbox{$ANSWER$}.",
    "So \\boxed{ANSWER}, as claimed.",
)


def fill(template: str, values: Values) -> str:
    """Returns a template with the parts of a value in it."""
    return re.sub(r"<(\w+)>", lambda name: str(values[name[1]]), template)


def model_pairs(notations: dict[str, tuple[str, ...]], *, rounds: int, seed: int = 0) -> list[Pair]:
    """Returns responses: each notation with a right and with a wrong value, `rounds` times with other values."""
    pairs: list[Pair] = []
    for index in range(rounds):
        rng = random.Random(f"{seed}/{index}")
        for name, templates in notations.items():
            for template in templates:
                right, wrongs = KINDS[name].draw(rng)
                truth = fill(rng.choice(KINDS[name].truths), right)
                for values, is_right in ((right, True), (rng.choice(wrongs), False)):
                    response = rng.choice(_FRAMES).replace("ANSWER", fill(template, values))
                    pairs.append(Pair(name, response, truth, is_right, is_response=True))
    return pairs


def kind(*truths: str) -> Callable[[Draw], Draw]:
    def register(draw: Draw) -> Draw:
        KINDS[draw.__name__.strip("_")] = Kind(draw, truths)
        return draw

    return register


def lines(text: str) -> tuple[str, ...]:
    """Returns the lines of a table of notations."""
    return tuple(line for line in text.strip("\n").split("\n") if line)


def _integer_parts(n: int) -> Values:
    return {"n": n, "c": f"{n:,}"}


@kind("<n>", "<c>")
def _integer(rng: random.Random) -> tuple[Values, list[Values]]:
    n = rng.randint(12, 99_999)
    return _integer_parts(n), [_integer_parts(m) for m in (n + 1, n - 1, 2 * n, 10 * n)]


@kind("<n>")
def _foreign_money(rng: random.Random) -> tuple[Values, list[Values]]:
    return _integer(rng)


@kind("<n>", r"\$<n>", r"\$<c>")
def _dollars(rng: random.Random) -> tuple[Values, list[Values]]:
    return _integer(rng)


def _fraction_parts(a: int, b: int) -> Values:
    return {"a": a, "b": b, "a2": 2 * a, "b2": 2 * b, "dec": f"{a / b:.4f}"}


@kind(r"\frac{<a>}{<b>}", "<a>/<b>", r"\dfrac{<a>}{<b>}")
def _fraction(rng: random.Random) -> tuple[Values, list[Values]]:
    b = rng.choice((7, 9, 11, 13, 17, 23))
    a = rng.choice([n for n in range(2, 60) if gcd(n, b) == 1])
    return _fraction_parts(a, b), [_fraction_parts(*pair) for pair in ((a + 1, b), (a, b + 1), (2 * a, b), (b, a))]


@kind(r"\frac{<a>}{<b>}", r"\frac<a><b>", "<a>/<b>")
def _digit_fraction(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.choice(((2, 3), (3, 4), (5, 6), (7, 8), (4, 5), (9, 7)))
    return _fraction_parts(a, b), [_fraction_parts(*pair) for pair in ((a - 1, b), (a, b - 1), (b, a))]


@kind(r"-\frac{<a>}{<b>}", "-<a>/<b>")
def _negative_fraction(rng: random.Random) -> tuple[Values, list[Values]]:
    return _fraction(rng)


@kind(r"<w>\frac{<a>}{<b>}", r"\frac{<t>}{<b>}", "<w> <a>/<b>")
def _mixed(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.choice(((2, 3), (3, 4), (5, 6), (7, 8), (4, 5)))
    w = rng.randint(2, 40)
    return (
        {"w": w, "a": a, "b": b, "t": w * b + a},
        [{"w": v, "a": c, "b": b, "t": v * b + c} for v, c in ((w + 1, a), (w, a - 1), (10 * w, a))],
    )


@kind("<p>", r"<p>\%", "0.<pp>")
def _percent(rng: random.Random) -> tuple[Values, list[Values]]:
    p = rng.randint(12, 97)
    return {"p": p, "pp": f"{p:02}"}, [{"p": q, "pp": f"{q:02}"} for q in (p + 1, p - 1)]


_UNITS = (("cm", "centimeters"), ("m", "meters"), ("km", "kilometers"), ("mm", "millimeters"))


@kind(r"<n>\text{ <u>}^<k>", r"<n> <u>^<k>", r"<n>\ \mathrm{<u>}^{<k>}")
def _area(rng: random.Random) -> tuple[Values, list[Values]]:
    n, k, (unit, word) = rng.randint(12, 98), rng.choice((2, 3)), rng.choice(_UNITS)
    names = {2: ("square", "sq.", "²"), 3: ("cubic", "cu.", "³")}

    def parts(n: int, k: int) -> Values:
        full, short, raised = names[k]
        return {"n": n, "u": unit, "k": k, "full": full, "short": short, "raised": raised, "word": word}

    return parts(n, k), [parts(n + 1, k), parts(n, 5 - k), parts(2 * n, k)]


@kind(r"<n>\text{ m/s}", "<n> m/s", "<n>")
def _speed(rng: random.Random) -> tuple[Values, list[Values]]:
    return _integer(rng)


@kind(r"<n>\text{ hours}", "<n> hours", "<n>")
def _hours(rng: random.Random) -> tuple[Values, list[Values]]:
    return _integer(rng)


@kind(r"<n>^\circ", r"<n>^{\circ}", "<n>", r"<n>\text{ degrees}")
def _angle(rng: random.Random) -> tuple[Values, list[Values]]:
    n = rng.randint(11, 179)
    return {"n": n}, [{"n": n + 1}, {"n": 180 - n if n != 90 else 91}, {"n": 2 * n}]


def _surd_parts(a: int, b: int) -> Values:
    return {"a": a, "b": b, "abb": a * a * b, "dec": f"{a * b**0.5:.3f}"}


@kind(r"<a>\sqrt{<b>}", r"\sqrt{<abb>}", r"<a>\sqrt<b>")
def _surd(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.randint(2, 60), rng.choice((2, 3, 5, 6, 7))
    return _surd_parts(a, b), [_surd_parts(*pair) for pair in ((a + 1, b), (a, b + 1 if b != 3 else 7), (2 * a, b))]


def _root_parts(p: int, q: int, r: int) -> Values:
    one, two = rf"\frac{{{p}+\sqrt{{{q}}}}}{{{r}}}", rf"\frac{{{p}-\sqrt{{{q}}}}}{{{r}}}"
    return {"p": p, "q": q, "r": r, "p2": 2 * p, "q4": 4 * q, "r2": 2 * r, "one": one, "two": two}


@kind(r"\frac{<p>\pm\sqrt{<q>}}{<r>}", "<one>, <two>", r"\left\{<one>, <two>\right\}")
def _roots(rng: random.Random) -> tuple[Values, list[Values]]:
    p, q, r = rng.randint(2, 19), rng.choice((2, 3, 5, 7, 13, 17, 29)), rng.randint(3, 9)
    return _root_parts(p, q, r), [_root_parts(*t) for t in ((p + 1, q, r), (p, q + 4, r), (p, q, r + 1), (-p, q, r))]


@kind(r"\frac{<a>\pi}{<b>}", r"\frac{<a>}{<b>}\pi", r"<a>\pi/<b>")
def _pi_fraction(rng: random.Random) -> tuple[Values, list[Values]]:
    return _fraction(rng)


@kind(r"<n>\pi")
def _pi_multiple(rng: random.Random) -> tuple[Values, list[Values]]:
    r = rng.randint(2, 40)
    return {"n": r * r, "r": r}, [{"n": s * s, "r": s} for s in (r + 1, 2 * r)]


@kind(r"<a>\ln <b>", r"<a>\ln(<b>)")
def _logarithm(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.randint(2, 9), rng.choice((2, 3, 5, 7))
    return (
        {"a": a, "b": b, "pow": b**a},
        [{"a": c, "b": d, "pow": d**c} for c, d in ((a + 1, b), (2 * a, b), (a, b + 4))],
    )


@kind(r"<a>e^{<b>}", r"<a>e^<b>")
def _exponential(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    return {"a": a, "b": b}, [{"a": a + 1, "b": b}, {"a": a, "b": b + 1}, {"a": 2 * a, "b": b}]


@kind("<a>+<b>i", "<a> + <b>i")
def _complex(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.sample(range(2, 30), 2)
    return {"a": a, "b": b}, [{"a": a + 1, "b": b}, {"a": a, "b": 2 * b}, {"a": b, "b": a}, {"a": -a, "b": b}]


def _power_parts(b: int, k: int, d: int) -> Values:
    return {"b": b, "k": k, "k1": k - 1, "d": d, "value": b**k - d}


@kind("<b>^{<k>}-<d>", "<b>^{<k>} - <d>", r"<b>^{<k>}-<d>")
def _large_power(rng: random.Random) -> tuple[Values, list[Values]]:
    b, k, d = rng.choice((2, 3, 5, 7)), rng.randint(50, 450), rng.randint(2, 9)
    return _power_parts(b, k, d), [_power_parts(b, k, e) for e in (d - 1, d + 1)] + [_power_parts(b, k + 1, d)]


@kind(r"\binom{<n>}{<k>}", r"\binom{<n>}{<k>}", "<value>", r"\frac{<n>!}{<k>!<m>!}")
def _binomial(rng: random.Random) -> tuple[Values, list[Values]]:
    n = rng.randint(9, 60)
    k = rng.randint(2, n // 2 - 1)
    return (
        {"n": n, "k": k, "m": n - k, "value": comb(n, k)},
        [{"n": m, "k": j, "m": m - j, "value": comb(m, j)} for m, j in ((n + 1, k), (n, k + 1))],
    )


@kind("<n>!+<d>", "<value>")
def _factorial(rng: random.Random) -> tuple[Values, list[Values]]:
    n, d = rng.randint(5, 150), rng.randint(2, 9)
    return (
        {"n": n, "d": d, "value": factorial(n) + d},
        [{"n": m, "d": e, "value": factorial(m) + e} for m, e in ((n, d + 1), (n, d - 1), (n + 1, d))],
    )


@kind("<a>x^2+<b>x+<c>", "<a>x^{2}+<b>x+<c>")
def _polynomial(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b, c = rng.sample(range(2, 20), 3)
    return {"a": a, "b": b, "c": c}, [{"a": a, "b": b + 1, "c": c}, {"a": c, "b": b, "c": a}]


@kind("(x-<a>)(x+<b>)", r"\left(x-<a>\right)\left(x+<b>\right)", "x^2+<s>x-<p>")
def _factored(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = sorted(rng.sample(range(2, 30), 2))
    b += 1
    return (
        {"a": a, "b": b, "s": b - a, "p": a * b},
        [{"a": c, "b": d, "s": d - c, "p": c * d} for c, d in ((b, a), (a, b + 1))],
    )


@kind("y=<m>x+<c>", "y = <m>x + <c>", "y=<c>+<m>x")
def _line(rng: random.Random) -> tuple[Values, list[Values]]:
    m, c = rng.sample(range(2, 20), 2)
    return (
        {"m": m, "c": c, "m2": 2 * m, "c2": 2 * c},
        [{"m": n, "c": d, "m2": 2 * n, "c2": 2 * d} for n, d in ((m + 1, c), (m, c + 1), (c, m))],
    )


@kind("(<a>,<b>)", r"\left(<a>, <b>\right)")
def _point(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.sample(range(-30, 30), 2)
    return {"a": a, "b": b}, [{"a": b, "b": a}, {"a": a + 1, "b": b}, {"a": a, "b": b - 1}]


@kind("(<a>,<b>),(<c>,<d>)", r"\{(<a>,<b>),(<c>,<d>)\}")
def _points(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b, c, d = rng.sample(range(-30, 30), 4)
    return (
        {"a": a, "b": b, "c": c, "d": d},
        [{"a": b, "b": a, "c": c, "d": d}, {"a": a, "b": d, "c": c, "d": b}, {"a": a, "b": b, "c": c, "d": d + 1}],
    )


def _pair_parts(a: int, b: int) -> Values:
    return {"a": a, "b": b}


@kind("<a>,<b>", "<a>, <b>", r"\{<a>,<b>\}", r"<a>\text{ and }<b>", r"x=<a>\text{ or }x=<b>")
def _two_numbers(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = sorted(rng.sample(range(-40, 40), 2))
    return _pair_parts(a, b), [_pair_parts(a, b + 1), _pair_parts(a - 1, b), _pair_parts(a, 99)]


@kind("[<a>,<b>]", r"\left[<a>, <b>\right]", r"<a>\le x\le <b>", r"<a> \leq x \leq <b>")
def _closed_interval(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = sorted(rng.sample(range(-40, 40), 2))
    return _pair_parts(a, b), [_pair_parts(a, b + 1), _pair_parts(a - 1, b)]


@kind("[<a>,<b>)", r"<a>\le x<<b>", r"\left[<a>,<b>\right)")
def _half_open_interval(rng: random.Random) -> tuple[Values, list[Values]]:
    return _closed_interval(rng)


@kind(r"(<a>,\infty)", "x><a>", r"(<a>, +\infty)")
def _ray(rng: random.Random) -> tuple[Values, list[Values]]:
    a = rng.randint(-40, 40)
    return {"a": a}, [{"a": a + 1}, {"a": a - 1}]


@kind(r"(-\infty,<a>)\cup(<b>,\infty)", r"(-\infty, <a>) \cup (<b>, +\infty)", r"x<<a>\text{ or }x><b>")
def _outer_union(rng: random.Random) -> tuple[Values, list[Values]]:
    return _closed_interval(rng)


def _matrix_parts(a: int, b: int, c: int, d: int) -> Values:
    return {"a": a, "b": b, "c": c, "d": d}


@kind(r"\begin{pmatrix}<a>&<b>\\<c>&<d>\end{pmatrix}", r"\begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}")
def _matrix(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b, c, d = rng.sample(range(-20, 30), 4)
    return _matrix_parts(a, b, c, d), [_matrix_parts(*v) for v in ((a, c, b, d), (a, b, c, d + 1), (-a - 1, b, c, d))]


@kind(r"x\equiv <a>\pmod{<m>}", r"x \equiv <a> \pmod{<m>}")
def _congruence(rng: random.Random) -> tuple[Values, list[Values]]:
    m = rng.randint(6, 40)
    a = rng.randint(1, m - 2)
    return {"a": a, "m": m}, [{"a": a + 1, "m": m}, {"a": a, "m": m + 1}]


@kind("<l>", r"\text{<l>}", "(<l>)")
def _letter_truth(rng: random.Random) -> tuple[Values, list[Values]]:
    letter, wrong = rng.sample("ABCDE", 2)
    n = rng.randint(12, 99)
    return {"l": letter, "n": n}, [{"l": wrong, "n": n}]


@kind("<n>", "<n>", r"<n>\text{ cm}")
def _value_truth(rng: random.Random) -> tuple[Values, list[Values]]:
    letter, n = rng.choice("ABCDE"), rng.randint(12, 99)
    return {"l": letter, "n": n}, [{"l": letter, "n": n + 1}, {"l": letter, "n": 2 * n}]


_WORD_PAIRS = (("Yes", "No"), ("even", "odd"), ("Monday", "Friday"), ("parabola", "ellipse"), ("Evelyn", "Angela"))


@kind("<w>", r"\text{<w>}", r"\text{<w>}")
def _word(rng: random.Random) -> tuple[Values, list[Values]]:
    right, wrong = rng.choice(_WORD_PAIRS)
    return {"w": right}, [{"w": wrong}]


@kind("<h>:<m>", r"<h>:<m>\text{ PM}")
def _clock(rng: random.Random) -> tuple[Values, list[Values]]:
    h, m = rng.randint(1, 12), rng.randint(10, 58)
    return {"h": h, "m": m}, [{"h": h, "m": m + 1}, {"h": h % 12 + 1, "m": m}]


@kind("<a>:<b>", "<a> : <b>")
def _ratio(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.choice(((2, 3), (3, 5), (7, 4), (9, 2), (5, 8)))
    return _pair_parts(a, b), [_pair_parts(b, a), _pair_parts(a + 10, b)]


@kind("<d>_<b>", "<d>_{<b>}")
def _base_number(rng: random.Random) -> tuple[Values, list[Values]]:
    b = rng.randint(5, 8)
    names = {5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}

    def parts(d: int, b: int) -> Values:
        return {"d": d, "b": b, "name": names[b]}

    d = int("".join(str(rng.randint(1, 4)) for _ in range(4)))
    return parts(d, b), [parts(d + 10, b), parts(d, b + 1)]


@kind(r"<m>\times10^{<k>}", r"<m> \times 10^{<k>}", "<plain>")
def _scientific(rng: random.Random) -> tuple[Values, list[Values]]:
    def parts(m: int, k: int) -> Values:
        raised = str(k).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return {"m": f"{m / 100:.2f}", "mm": f"{m / 10:.1f}", "k": k, "k1": k - 1, "raised": raised,
                "plain": m * 10 ** (k - 2)}  # fmt: skip

    m, k = rng.randint(101, 989), rng.randint(4, 30)
    return parts(m, k), [parts(m + 1, k), parts(m, k + 1)]


@kind("<m>e-<k>", "<m>E-<k>")
def _e_notation_truth(rng: random.Random) -> tuple[Values, list[Values]]:
    def parts(m: int, k: int) -> Values:
        return {"m": m, "k": f"{k:02}", "p": k, "p1": k - 2, "low": 10**k, "m2": 2 * m, "low2": 2 * 10**k,
                "plain": f"{Fraction(m, 10**k).numerator / Fraction(m, 10**k).denominator:.{k}f}"}  # fmt: skip

    m, k = rng.choice((1, 3, 5, 7, 9)), rng.randint(5, 12)
    return parts(m, k), [parts(m + 1, k), parts(m, k + 1)]


@kind("<n>000000", r"<n>\text{ million}")
def _million(rng: random.Random) -> tuple[Values, list[Values]]:
    n = rng.randint(2, 90)
    return {"n": n}, [{"n": n + 1}, {"n": 2 * n}]


@kind("<n>")
def _not_million(rng: random.Random) -> tuple[Values, list[Values]]:
    n = rng.randint(2, 90)
    return {"n": f"{n}"}, [{"n": f"{n} million"}, {"n": rf"{n}\text{{ thousand}}"}, {"n": rf"\${n}\text{{ billion}}"}]


@kind(r"\frac{<a>a+<b>b}{c}", r"\frac{<b>b+<a>a}{c}")
def _letters_fraction(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.sample(range(2, 20), 2)
    return _pair_parts(a, b), [_pair_parts(b, a), _pair_parts(a, b + 1)]


@kind(r"<a>\sin^2 x", r"<a>\sin^{2} x")
def _sine(rng: random.Random) -> tuple[Values, list[Values]]:
    a = rng.randint(2, 20)
    return {"a": a, "a2": 2 * a}, [{"a": a + 1, "a2": 2 * a + 2}, {"a": 2 * a, "a2": 4 * a}]


@kind("<a>n-<b>", "a_n=<a>n-<b>", "a_n = <a>n - <b>")
def _sequence(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.sample(range(2, 20), 2)
    return _pair_parts(a, b), [_pair_parts(b, a), _pair_parts(a, b + 1)]


@kind(r"\frac{\pi}{<a>}+2k\pi, k\in\mathbb{Z}", r"x=\frac{\pi}{<a>}+2k\pi\ (k\in\mathbb{Z})")
def _periodic(rng: random.Random) -> tuple[Values, list[Values]]:
    a = rng.randint(3, 12)
    return {"a": a}, [{"a": a + 1}, {"a": 2 * a}]


@kind(r"f(x)=\begin{cases}<a>x & x<0\\ <b>x & x\ge 0\end{cases}")
def _cases(rng: random.Random) -> tuple[Values, list[Values]]:
    a, b = rng.sample(range(2, 20), 2)
    return _pair_parts(a, b), [_pair_parts(b, a), _pair_parts(a, b + 1)]


@kind("<one><two>", "<one>, <two>")
def _statements(rng: random.Random) -> tuple[Values, list[Values]]:
    one, two, three = sorted(rng.sample("①②③④⑤", 3))
    return {"one": one, "two": two}, [{"one": one, "two": three}, {"one": two, "two": three}]


@kind("<x>")
def _rounded(rng: random.Random) -> tuple[Values, list[Values]]:
    x = rng.randint(101, 9999)
    return {"x": f"{x / 100:.2f}"}, [{"x": f"{(x + 1) / 100:.2f}"}, {"x": f"{2 * x / 100:.2f}"}]


STYLES: dict[str, tuple[str, ...]] = {
    "integer": lines(r"""
<n>
<c>
<n>.
x = <n>
N=<n>
\text{<n>}
\textbf{<n>}
<n>\text{ ways}
\text{Answer: }<n>
\text{The answer is } <n>
\text{Total: }<n>
\therefore <n>
<n>\checkmark
\#\text{ways}=<n>
<n>.0
0<n>
<n>\text{ apples}
"""),
    "dollars": lines(r"""
\$<n>
\$<n>.00
$<c>
<n>\text{ dollars}
US\$<c>
USD <c>
\text{\$}<c>
<c> USD
"""),
    "foreign_money": ("₹<c>", "Rs. <c>", "<c> €", "€<c>", r"<n>\text{ euros}"),
    "fraction": lines(r"""
\frac{<a>}{<b>}
\dfrac{<a>}{<b>}
<a>/<b>
\nicefrac{<a>}{<b>}
\sfrac{<a>}{<b>}
{<a>\over<b>}
x=\frac{<a>}{<b>}
Rational(<a>, <b>)
\frac{<a2>}{<b2>}
"""),
    "digit_fraction": (r"\frac<a><b>", r"\dfrac<a><b>", r"\frac <a><b>", r"\frac{<a>}<b>"),
    "negative_fraction": lines(r"""
-\frac{<a>}{<b>}
\frac{-<a>}{<b>}
−<a>/<b>
\text{-}\frac{<a>}{<b>}
-<a>/<b>
"""),
    "mixed": lines(r"""
<w>\frac{<a>}{<b>}
<w> <a>/<b>
\frac{<t>}{<b>}
<w>\dfrac{<a>}{<b>}
"""),
    "percent": (r"<p>\%", "<p>%", r"<p>\text{ percent}"),
    "area": lines(r"""
<n>\text{ <u>}^<k>
<n>\ \mathrm{<u>}^<k>
<n>\,\text{<u>}^{<k>}
<n> <u>^<k>
<n>\,{\rm <u>}^<k>
<n>\operatorname{<u>}^<k>
<n>\mbox{ <u>}^<k>
<n>\text{ <full> <word>}
<n>\text{ <u>^<k>}
"""),
    "speed": lines(r"""
<n>\text{ m/s}
<n>\,\mathrm{m\,s^{-1}}
<n>\,\frac{\text{m}}{\text{s}}
<n> m/s
<n>\text{ meters per second}
"""),
    "hours": (r"<n>\text{ hours}", "<n> hours", r"\text{<n> hours}", r"<n>\text{ h}"),
    "angle": lines(r"""
<n>^\circ
<n>^{\circ}
<n>°
<n>^o
<n>^{\text{o}}
<n>\mathrm{^\circ}
<n>\text{ degrees}
"""),
    "surd": lines(r"""
<a>\sqrt{<b>}
<a>\sqrt <b>
<a>√<b>
<a>*sqrt(<b>)
<a>\cdot\sqrt{<b>}
\sqrt{<abb>}
\sqrt{<b>}\cdot<a>
"""),
    "roots": lines(r"""
\frac{<p>\pm\sqrt{<q>}}{<r>}
x=\frac{<p>\pm\sqrt{<q>}}{<r>}
<one>, <two>
<one>\text{ and }<two>
\frac{<p2>\pm\sqrt{<q4>}}{<r2>}
<two>} and \boxed{<one>
"""),
    "pi_fraction": lines(r"""
\frac{<a>\pi}{<b>}
<a>*pi/<b>
<a>pi/<b>
\frac{<a>}{<b>}\pi
<a>π/<b>
"""),
    "pi_multiple": (r"<n>\pi", "<n> pi", "<n>*pi", r"\pi(<r>)^2", r"<n>\pi\text{ cm}^2"),
    "logarithm": lines(r"""
<a>\ln <b>
<a>\ln(<b>)
<a> ln <b>
<a>\mathrm{ln}\,<b>
<a>\operatorname{ln} <b>
<a>\text{ln } <b>
<a>*log(<b>)
"""),
    "exponential": lines(r"""
<a>e^{<b>}
<a>\mathrm{e}^{<b>}
<a>\text{e}^{<b>}
<a>*exp(<b>)
<a>\exp(<b>)
<a>\cdot e^{<b>}
"""),
    "complex": ("<a>+<b>i", r"<a>+<b>\mathrm{i}", "<a>+<b>*I", "<b>i+<a>", "<a> + <b>i"),
    "large_power": ("<b>^{<k>}-<d>", "<b>**<k> - <d>", "<b>^<k> - <d>", "-<d>+<b>^{<k>}"),
    "binomial": lines(r"""
\binom{<n>}{<k>}
{<n>\choose<k>}
\dbinom{<n>}{<k>}
\frac{<n>!}{<k>!<m>!}
\frac{<n>!}{<k>!\cdot <m>!}
<value>
"""),
    "factorial": ("<n>!+<d>", "<n>! + <d>", "<d>+<n>!", "factorial(<n>) + <d>"),
    "polynomial": lines(r"""
<a>x^2+<b>x+<c>
<a>*x**2 + <b>*x + <c>
f(x)=<a>x^2+<b>x+<c>
<c>+<b>x+<a>x^2
<a> x^{2}+<b> x+<c>
"""),
    "factored": ("(x-<a>)(x+<b>)", "x^2+<s>x-<p>", "(x+<b>)(x-<a>)", "(x - <a>)*(x + <b>)"),
    "line": ("y=<m>x+<c>", "y = <c> + <m>x", "y-<m>x=<c>", "<m>x-y+<c>=0", "y = <m>*x + <c>"),
    "point": ("(<a>,<b>)", r"(<a>,\ <b>)", "P(<a>,<b>)", r"\left(<a>,<b>\right)", "(x,y)=(<a>,<b>)"),
    "points": ("(<a>,<b>),(<c>,<d>)", r"(<c>,<d>)\text{ and }(<a>,<b>)", "[(<a>, <b>), (<c>, <d>)]"),
    "two_numbers": lines(r"""
<a>, <b>
<b>, <a>
<a>\text{ and }<b>
\{<a>,<b>\}
\lbrace <a>,<b>\rbrace
x=<a>\lor x=<b>
x=<a> \vee x=<b>
<a>\text{, }<b>
<a>、<b>
x=<a> or x=<b>
<a>}, \boxed{<b>
<b>} and \boxed{<a>
{<a>, <b>}
"""),
    "closed_interval": lines(r"""
[<a>,<b>]
<a>\le x\le <b>
x\ge<a>\text{ and }x\le<b>
[<a>;<b>]
\{x: <a>\le x\le <b>\}
x\in[<a>,<b>]
Interval(<a>, <b>)
"""),
    "half_open_interval": ("[<a>,<b>)", r"<a>\le x<<b>", r"x\in[<a>,<b>)", "Interval.Ropen(<a>, <b>)"),
    "ray": (r"(<a>,\infty)", "x><a>", r"(<a>,+\infty)", "<a><x", "(<a>, oo)", "Interval.open(<a>, oo)"),
    "outer_union": lines(r"""
(-\infty,<a>)\cup(<b>,\infty)
x<<a>\text{ or }x><b>
x < <a> or x > <b>
(-\infty,<a>)\bigcup(<b>,\infty)
(-oo, <a>) U (<b>, oo)
Union(Interval.open(-oo, <a>), Interval.open(<b>, oo))
"""),
    "matrix": lines(r"""
\begin{pmatrix}<a>&<b>\\<c>&<d>\end{pmatrix}
\begin{bmatrix}<a>&<b>\\<c>&<d>\end{bmatrix}
\begin{pmatrix}<a>&<b>\\[4pt]<c>&<d>\end{pmatrix}
\begin{pmatrix}<a>&<b>\\[0.3em]<c>&<d>\end{pmatrix}
\begin{pmatrix}<a>&<b>\\*<c>&<d>\end{pmatrix}
\begin{pmatrix}<a>&<b>\cr <c>&<d>\end{pmatrix}
\left(\begin{smallmatrix}<a>&<b>\\<c>&<d>\end{smallmatrix}\right)
Matrix([[<a>, <b>], [<c>, <d>]])
"""),
    "congruence": lines(r"""
x\equiv <a>\pmod{<m>}
x\equiv<a>\bmod <m>
x\equiv <a>\ (\mathrm{mod}\ <m>)
x \equiv <a> (\text{mod } <m>)
"""),
    "letter_truth": lines(r"""
<l>
(<l>)
\text{(<l>)}
<l>)
<l>. <n>
(<l>) <n>
\textbf{(<l>)}\ <n>
\text{(<l>) }<n>
\mathrm{(<l>)}\ <n>
\textbf{<l>. }<n>
\text{<l>. twelve}
\text{Option <l>}
"""),
    "value_truth": lines(r"""
\textbf{(<l>)}\ <n>
\textbf{(<l>) }<n>
\text{(<l>) }<n>
(<l>)\ <n>
\mathrm{(<l>)}\ <n>
\textbf{<l>. }<n>
"""),
    "word": ("<w>", r"\text{<w>}", r"\textbf{<w>}", "<w>!", "``<w>''", r"\mathrm{<w>}"),
    "clock": ("<h>:<m>", "<h>{:}<m>", r"<h>:<m>\text{ PM}"),
    "ratio": ("<a>:<b>", "<a> : <b>", r"<a>{:}<b>"),
    "base_number": ("<d>_<b>", "<d>_{<b>}", r"<d>_{\text{<name>}}"),
    "scientific": lines(r"""
<m>\times10^{<k>}
<m> \times 10^{<k>}
<m>\times\mathrm{10}^{<k>}
<m>e<k>
<m>\cdot 10^{<k>}
<plain>
"""),
    "e_notation_truth": lines(r"""
\frac{<m>}{10^<p>}} or rather \boxed{\frac{<m>}{10^{<p>}}
\frac{<m>}{10^{<p>}}
<m>\cdot 10^{-2}\cdot10^{-<p1>}
<m>\times10^{-<p>}
<plain>
\frac{<m2>}{2\cdot10^{<p>}}
"""),
    "million": (r"<n>\text{ million}", "<n> million", "<n>,000,000", r"\$<n>\text{ million}"),
    "not_million": ("<n>", "<n>.0"),
    "letters_fraction": (r"\frac{<a>a+<b>b}{c}", "(<a>a+<b>b)/c", "(<a>*a + <b>*b)/c"),
    "sine": (r"<a>\sin^2 x", r"<a>\sin x\cdot\sin x", r"<a>(\sin x)^2", "<a>*sin(x)**2", r"<a>-<a>\cos^2 x"),
    "sequence": ("<a>n-<b>", "a_n=<a>n-<b>", "<a>*n - <b>"),
    "periodic": (r"\frac{\pi}{<a>}+2k\pi, k\in\mathbb{Z}", r"x=2k\pi+\frac{\pi}{<a>}, k \in \mathbb{Z}"),
    "cases": lines(r"""
f(x)=\begin{cases}<a>x & x<0\\ <b>x & x\ge 0\end{cases}
\begin{cases}<a>x & x<0\\[4pt] <b>x & x\ge 0\end{cases}
\begin{cases}<a>x,& x<0\\<b>x,& x\geq0\end{cases}
"""),
    "statements": ("<one><two>", "<one>、<two>", "<one>,<two>"),
    "rounded": ("<x>", "<x>0", r"\approx <x>"),
}
