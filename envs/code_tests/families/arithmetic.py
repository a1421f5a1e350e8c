"""Whole numbers."""

from __future__ import annotations

import math
import random
from typing import Any

from .base import Family, Parameters, by_size

_MODES = {
    "either": "divisible by {A} or by {B} (or by both)",
    "one": "divisible by exactly one of {A} and {B}",
    "neither": "divisible neither by {A} nor by {B}",
}


def _up_to(rng: random.Random, size: int, highest: tuple[int, ...]) -> int:
    return rng.randint(1, by_size(size, highest))


def _draw_residue(rng: random.Random) -> dict[str, Any]:
    modulus = rng.randint(3, 30)
    return {"M": modulus, "R": rng.choice([r for r in range(1, modulus) if math.gcd(r, modulus) == 1])}


def _draw_range(rng: random.Random, p: Parameters, size: int) -> str:
    low = _up_to(rng, size, (10, 60, 400, 2000))
    return f"{low} {low + _up_to(rng, size, (20, 100, 500, 3000))}"


def _recurrence_text(p: Parameters) -> str:
    return (
        f"A sequence begins with f(0) = {p['F0']} and f(1) = {p['F1']}; from then on "
        f"f(n) = ({p['A']} * f(n-1) + {p['B']} * f(n-2)) mod {p['M']}. Read q, and then q lines with one n each "
        "(0 <= n <= 100000). Print f(n) for each, one per line."
    )


FAMILIES = (
    Family(
        name="multiples",
        draw=lambda r: {"A": (a := r.randint(2, 15)), "B": a + r.randint(1, 15), "MODE": r.choice(sorted(_MODES))},
        statement=lambda p: (
            f"Read a number N. Print the sum of all whole numbers from 1 to N that are {_MODES[p['MODE']].format(**p)}."
        ),
        body="""
            def fits(n):
                a, b = n % A == 0, n % B == 0
                return a or b if MODE == "either" else a != b if MODE == "one" else not (a or b)

            print(sum(n for n in range(1, int(input()) + 1) if fits(n)))
        """,
        inputs=lambda rng, p, size: str(_up_to(rng, size, (12, 60, 1000, 20_000))),
    ),
    Family(
        name="digit_root",
        draw=lambda r: {"BASE": r.randint(3, 16), "K": r.randint(1, 9), "C": r.randint(0, 9)},
        statement=lambda p: (
            f"For a number n >= 0 take {p['K']} * n + {p['C']}, written in base {p['BASE']}. Replace it by the sum of "
            "its digits in that base, again and again, until it has one digit. Return a list with that digit and with "
            "the number of replacements that were made."
        ),
        fn_name="digit_root",
        body="""
            def digit_root(n):
                value, steps = K * n + C, 0
                while value >= BASE:
                    total = 0
                    while value:
                        value, digit = divmod(value, BASE)
                        total += digit
                    value, steps = total, steps + 1
                return [value, steps]
        """,
        inputs=lambda rng, p, size: [rng.randint(0, by_size(size, (3, 50, 5000, 10**12)))],
    ),
    Family(
        name="recurrence",
        draw=lambda r: {
            "F0": r.randint(0, 9),
            "F1": r.randint(0, 9) + 1,
            "A": r.randint(1, 9),
            "B": r.randint(1, 9),
            "M": r.randint(50, 5000),
        },
        statement=_recurrence_text,
        body="""
            queries = [int(input()) for _ in range(int(input()))]
            f = [F0 % M, F1 % M]
            while len(f) <= max(queries):
                f.append((A * f[-1] + B * f[-2]) % M)
            for n in queries:
                print(f[n])
        """,
        inputs=lambda rng, p, size: "\n".join(
            map(str, [size + 1, *(rng.randint(0, by_size(size, (5, 40, 900, 20_000))) for _ in range(size + 1))])
        ),
    ),
    Family(
        name="prime_class",
        draw=_draw_residue,
        statement=lambda p: (
            "Read two numbers lo and hi in one line. Print how many primes p with lo <= p <= hi leave the remainder "
            f"{p['R']} when divided by {p['M']}, and then, in the same line, the largest of them, or -1 if there is "
            "none."
        ),
        body="""
            lo, hi = map(int, input().split())
            sieve = [False, False] + [True] * (hi - 1)
            for i in range(2, int(hi**0.5) + 1):
                if sieve[i]:
                    sieve[i * i :: i] = [False] * len(sieve[i * i :: i])
            found = [p for p in range(max(lo, 2), hi + 1) if sieve[p] and p % M == R]
            print(len(found), found[-1] if found else -1)
        """,
        inputs=_draw_range,
    ),
)
