"""Texts."""

from __future__ import annotations

import random
from typing import Any

from .base import Family, Parameters, by_size, words

_KEPT = {
    "vowels": "Vowels (aeiou, also capital) stay as they are.",
    "none": "",
    "capitals": "Capitals stay as they are.",
}


def _mixed_line(rng: random.Random, size: int) -> str:
    letters = "abcdexyzABXYZ"
    return " ".join(words(rng, by_size(size, (1, 3, 6, 12)), letters=letters)) + rng.choice(("", "!", "?", " 42"))


def _draw_runs(rng: random.Random, size: int) -> str:
    return "".join(rng.choice("abc") * rng.randint(1, 9) for _ in range(by_size(size, (1, 3, 6, 12))))


def _caesar_text(p: Parameters) -> str:
    swap = " At last, swap capitals and small letters of the whole line." if p["SWAP"] else ""
    return (
        f"Read one line and print it encoded. Every English letter moves {p['SHIFT']} places forward in the alphabet, "
        f"from z on to a; capitals remain capitals. Everything else stays. {_KEPT[p['KEEP']]}{swap}"
    )


def _runs_text(p: Parameters) -> str:
    order = "the letter and then the count" if p["LETTER_FIRST"] else "the count and then the letter"
    return (
        "Compress a text of small letters run by run. A run is a maximal stretch of one letter; one that is longer "
        f"than {p['CAP']} is first cut into pieces of {p['CAP']}, the last piece being the rest. A piece of at least "
        f"{p['MIN']} letters is written as {order}, with {p['SEP']!r} between the two; a shorter one is written as it "
        "is. The pieces are joined without anything between them."
    )


def _palindromes_text(p: Parameters) -> str:
    subject = (
        "different texts among the palindromes" if p["DISTINCT"] else "palindromes, each place counted on its own,"
    )
    case = " Capitals and small letters count as the same." if p["IGNORE_CASE"] else ""
    return (
        f"Count the {subject} that stand in a text as substrings of {p['LOW']} to {p['HIGH']} letters.{case} A "
        "palindrome reads the same from both ends."
    )


def _sorting_text(p: Parameters) -> str:
    key = {"length": "their length", "last": "their last letter", "reversed": "their letters read backwards"}[p["KEY"]]
    order = "falling" if p["FALLING"] else "rising"
    return (
        f"Read a line of words, divided by single spaces. Keep those of at least {p['MIN']} letters and sort them by "
        f"{key}, {order}; words that are equal in that keep the order they have in the line. Print the first "
        f"{p['COUNT']} of them (or all, when there are fewer) in one line, joined by {p['SEP']!r}. Print NONE when "
        "none is left."
    )


def _palindrome_input(rng: random.Random, p: Parameters, size: int) -> list[Any]:
    half = "".join(rng.choices("abAB" if p["IGNORE_CASE"] else "abc", k=by_size(size, (1, 4, 8, 12))))
    return [half + half[::-1] + rng.choice(("", "a", "ba"))]


FAMILIES = (
    Family(
        name="caesar",
        draw=lambda r: {"SHIFT": r.randint(1, 25), "KEEP": r.choice(sorted(_KEPT)), "SWAP": r.random() < 0.5},
        statement=_caesar_text,
        body="""
            def moved(c):
                base = "A" if c.isupper() else "a"
                kept = (KEEP == "vowels" and c in "aeiouAEIOU") or (KEEP == "capitals" and c.isupper())
                if not c.isalpha() or kept:
                    return c
                return chr((ord(c) - ord(base) + SHIFT) % 26 + ord(base))

            line = "".join(map(moved, input()))
            print(line.swapcase() if SWAP else line)
        """,
        inputs=lambda rng, p, size: _mixed_line(rng, size),
    ),
    Family(
        name="run_lengths",
        draw=lambda r: {
            "MIN": r.randint(2, 5),
            "CAP": r.randint(5, 9),
            "LETTER_FIRST": r.random() < 0.5,
            "SEP": r.choice(("", "*", ":", "x")),
        },
        statement=_runs_text,
        fn_name="compress",
        body="""
            def compress(text):
                pieces, i = [], 0
                while i < len(text):
                    n = 1
                    while n < CAP and text[i : i + n + 1] == text[i] * (n + 1):
                        n += 1
                    if n < MIN:
                        pieces.append(text[i] * n)
                    else:
                        pieces.append(f"{text[i]}{SEP}{n}" if LETTER_FIRST else f"{n}{SEP}{text[i]}")
                    i += n
                return "".join(pieces)
        """,
        inputs=lambda rng, p, size: [_draw_runs(rng, size)],
    ),
    Family(
        name="palindromes",
        draw=lambda r: {
            "LOW": (low := r.randint(1, 5)),
            "HIGH": low + r.randint(1, 12),
            "DISTINCT": r.random() < 0.5,
            "IGNORE_CASE": r.random() < 0.5,
        },
        statement=_palindromes_text,
        fn_name="count_palindromes",
        body="""
            def count_palindromes(text):
                if IGNORE_CASE:
                    text = text.lower()
                found = []
                for i in range(len(text)):
                    for n in range(LOW, min(HIGH, len(text) - i) + 1):
                        part = text[i : i + n]
                        if part == part[::-1]:
                            found.append(part)
                return len(set(found)) if DISTINCT else len(found)
        """,
        inputs=_palindrome_input,
    ),
    Family(
        name="word_sort",
        draw=lambda r: {
            "MIN": r.randint(2, 5),
            "KEY": r.choice(("length", "last", "reversed")),
            "FALLING": r.random() < 0.5,
            "COUNT": r.randint(3, 7),
            "SEP": r.choice((" ", ",", "-")),
        },
        statement=_sorting_text,
        body="""
            keys = {"length": len, "last": lambda w: w[-1], "reversed": lambda w: w[::-1]}
            words = [w for w in input().split() if len(w) >= MIN]
            words.sort(key=keys[KEY], reverse=FALLING)
            print(SEP.join(words[:COUNT]) or "NONE")
        """,
        inputs=lambda rng, p, size: " ".join(words(rng, by_size(size, (1, 5, 9, 20)), longest=7)),
    ),
)
