"""Texts with a structure."""

from __future__ import annotations

import random
from typing import Any

from .base import Family, Parameters, by_size, words

_KINDS = ("paid", "open", "void")
_NAMES = ("ada", "bob", "cy", "dee", "eve")
_KEEP = {"first": "the first", "last": "the last", "sum": "the sum of all of its"}


def _draw_bookings(rng: random.Random, p: Parameters, size: int) -> str:
    count = by_size(size, (1, 5, 12, 30))
    lines = [
        p["SEP"].join((rng.choice(_NAMES), str(rng.randint(0, 60)), rng.choice((p["KIND"], *_KINDS))))
        for _ in range(count)
    ]
    return "\n".join([str(count), *lines])


def _bookings_text(p: Parameters) -> str:
    return (
        f"Read n, and then n lines of the form name{p['SEP']}amount{p['SEP']}kind, where amount is a whole number. Of "
        f"the lines whose kind is {p['KIND']} and whose amount is at least {p['MIN']}, add up the amounts of each "
        "name. Print one line `name total` for each such name, the largest total first, of equal totals the name that "
        f"comes first in the alphabet first, and at most {p['TOP']} lines. Print EMPTY when there is no such line."
    )


def _sum_text(rng: random.Random, size: int, operators: str) -> str:
    count = by_size(size, (2, 4, 7, 14))
    return "".join(f"{rng.randint(0, 20)}{rng.choice(operators)}" for _ in range(count)) + str(rng.randint(0, 20))


def _calculator_text(p: Parameters) -> str:
    names = {"+": "addition", "-": "subtraction", "*": "multiplication", "^": "the larger of the two"}
    order = ", then ".join(f"all {op!r} ({names[op]})" for op in p["ORDER"])
    return (
        "Evaluate an expression of whole numbers and operators without spaces or brackets. The operators have an "
        f"unusual order: first {order}. Operators of one kind are carried out from left to right. Return the result "
        f"modulo {p['M']} (a number from 0 to {p['M'] - 1})."
    )


def _draw_query(rng: random.Random, p: Parameters, size: int) -> list[Any]:
    keys = words(rng, by_size(size, (1, 4, 8, 15)), letters="abc", longest=2)
    return [p["SEP"].join(k if rng.random() < 0.2 else f"{k}={rng.randint(0, 99)}" for k in keys)]


def _query_text(p: Parameters) -> str:
    return (
        f"A text lists settings, divided by {p['SEP']!r}, each `key=number` or only `key`, which means the number "
        f"{p['DEFAULT']}. When a key comes more than once, {_KEEP[p['KEEP']]} numbers counts. Return a list of "
        f"[key, number] of all keys whose number is not below {p['MIN']}, in "
        f"{'reversed ' if p['BACKWARDS'] else ''}alphabetical order of the keys."
    )


def _draw_order(rng: random.Random) -> str:
    return "".join(rng.sample("+-*^", rng.randint(3, 4)))


FAMILIES = (
    Family(
        name="bookings",
        draw=lambda r: {
            "SEP": r.choice((",", ";", "|")),
            "KIND": r.choice(_KINDS),
            "MIN": r.randint(0, 20),
            "TOP": r.randint(2, 5),
        },
        statement=_bookings_text,
        body="""
            totals = {}
            for _ in range(int(input())):
                name, amount, kind = input().split(SEP)
                if kind == KIND and int(amount) >= MIN:
                    totals[name] = totals.get(name, 0) + int(amount)
            for name in sorted(totals, key=lambda n: (-totals[n], n))[:TOP]:
                print(name, totals[name])
            if not totals:
                print("EMPTY")
        """,
        inputs=_draw_bookings,
    ),
    Family(
        name="calculator",
        draw=lambda r: {"ORDER": _draw_order(r), "M": r.randint(50, 500)},
        statement=_calculator_text,
        fn_name="evaluate",
        body="""
            import re

            RULES = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "^": max}

            def evaluate(expression):
                numbers = [int(n) for n in re.findall(r"[0-9]+", expression)]
                operators = re.findall(r"[^0-9]", expression)
                for wanted in ORDER:
                    i = 0
                    while i < len(operators):
                        if operators[i] == wanted:
                            numbers[i : i + 2] = [RULES[wanted](numbers[i], numbers[i + 1])]
                            del operators[i]
                        else:
                            i += 1
                return numbers[0] % M
        """,
        inputs=lambda rng, p, size: [_sum_text(rng, size, p["ORDER"])],
    ),
    Family(
        name="settings",
        draw=lambda r: {
            "SEP": r.choice(("&", ";", ", ")),
            "DEFAULT": r.randint(0, 9),
            "KEEP": r.choice(sorted(_KEEP)),
            "MIN": r.randint(0, 9),
            "BACKWARDS": r.random() < 0.5,
        },
        statement=_query_text,
        fn_name="settings",
        body="""
            def settings(text):
                found = {}
                for item in text.split(SEP):
                    key, _, number = item.partition("=")
                    found.setdefault(key, []).append(int(number) if number else DEFAULT)
                pick = {"first": lambda v: v[0], "last": lambda v: v[-1], "sum": sum}[KEEP]
                return [[k, pick(found[k])] for k in sorted(found, reverse=BACKWARDS) if pick(found[k]) >= MIN]
        """,
        inputs=_draw_query,
    ),
)
