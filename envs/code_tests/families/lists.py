"""Lists of numbers."""

from __future__ import annotations

import random
from typing import Any

from .base import Family, Parameters, by_size, numbers

_MEASURES = {"spread": "the difference of its largest and smallest number", "sum": "its sum"}
_BEST = {"max": "largest", "min": "smallest"}


def _long_enough(rng: random.Random, p: Parameters, size: int) -> list[Any]:
    return [numbers(rng, p["K"] + by_size(size, (0, 3, 12, 40)), -50, 50)]


def _windows_text(p: Parameters) -> str:
    ring = " The list is a ring: a window may run over its end and go on at its beginning." if p["RING"] else ""
    return (
        f"A window is {p['K']} neighbouring numbers of a list, which has at least {p['K']}.{ring} Windows begin at "
        f"every position that is a multiple of {p['STEP']} (counted from 0) and where a whole window fits. The value "
        f"of a window is {_MEASURES[p['MEASURE']]}. Return the {_BEST[p['BEST']]} value."
    )


def _top_text(p: Parameters) -> str:
    tie = "smaller" if p["SMALL_FIRST"] else "larger"
    return (
        f"Two numbers are alike when they leave the same remainder after division by {p['M']} (remainders are 0 to "
        f"{p['M'] - 1}). Return the remainders that occur at least {p['MIN']} times in the list, the most frequent "
        f"first, of equally frequent ones the {tie} remainder first, and of all these only the first {p['K']}."
    )


def _merge_text(p: Parameters) -> str:
    result = "their total length" if p["TOTAL"] else "them as a list of [start, end], by start"
    return (
        "The list has intervals [start, end] with start <= end. Merge two intervals when they overlap or when the gap "
        f"between the end of one and the start of the other is at most {p['GAP']}; go on until nothing can be merged. "
        f"Then drop those that are shorter than {p['MIN']} (the length is end - start) and return {result}."
    )


def _draw_intervals(rng: random.Random, p: Parameters, size: int) -> list[Any]:
    starts = numbers(rng, by_size(size, (1, 4, 8, 20)), 0, by_size(size, (9, 60, 120, 300)))
    return [[[start, start + rng.randint(0, 12)] for start in starts]]


FAMILIES = (
    Family(
        name="windows",
        draw=lambda r: {
            "K": r.randint(2, 7),
            "STEP": r.randint(1, 4),
            "RING": r.random() < 0.5,
            "MEASURE": r.choice(sorted(_MEASURES)),
            "BEST": r.choice(sorted(_BEST)),
        },
        statement=_windows_text,
        fn_name="best_window",
        body="""
            def best_window(xs):
                starts = range(0, len(xs) if RING else len(xs) - K + 1, STEP)
                windows = [(xs + xs)[i : i + K] for i in starts]
                values = [max(w) - min(w) if MEASURE == "spread" else sum(w) for w in windows]
                return max(values) if BEST == "max" else min(values)
        """,
        inputs=_long_enough,
    ),
    Family(
        name="top_remainders",
        draw=lambda r: {
            "M": r.randint(3, 12),
            "MIN": r.randint(1, 3),
            "K": r.randint(2, 6),
            "SMALL_FIRST": r.random() < 0.5,
        },
        statement=_top_text,
        fn_name="top_remainders",
        body="""
            def top_remainders(xs):
                counts = {}
                for x in xs:
                    counts[x % M] = counts.get(x % M, 0) + 1
                often = [r for r in counts if counts[r] >= MIN]
                often.sort(key=lambda r: (-counts[r], r if SMALL_FIRST else -r))
                return often[:K]
        """,
        inputs=lambda rng, p, size: [numbers(rng, by_size(size, (1, 8, 20, 60)), -40, 90)],
    ),
    Family(
        name="merge_intervals",
        draw=lambda r: {"GAP": r.randint(0, 9), "MIN": r.randint(0, 9), "TOTAL": r.random() < 0.5},
        statement=_merge_text,
        fn_name="merge",
        body="""
            def merge(intervals):
                merged = []
                for start, end in sorted(intervals):
                    if merged and start - merged[-1][1] <= GAP:
                        merged[-1][1] = max(merged[-1][1], end)
                    else:
                        merged.append([start, end])
                kept = [[start, end] for start, end in merged if end - start >= MIN]
                return sum(end - start for start, end in kept) if TOTAL else kept
        """,
        inputs=_draw_intervals,
    ),
    Family(
        name="zigzag",
        draw=lambda r: {"FLIP": r.randint(2, 6), "ADD": r.randint(1, 9), "DROP": r.randint(2, 9)},
        statement=lambda p: (
            f"Cut a list into blocks of {p['FLIP']} numbers (the last block may be shorter). Reverse every second "
            f"block, beginning with the second, and add {p['ADD']} to each of its numbers. Join the blocks again, "
            f"remove all numbers that are then divisible by {p['DROP']}, and return the list."
        ),
        fn_name="zigzag",
        body="""
            def zigzag(xs):
                result = []
                for number, i in enumerate(range(0, len(xs), FLIP)):
                    block = xs[i : i + FLIP]
                    result += [x + ADD for x in reversed(block)] if number % 2 else block
                return [x for x in result if x % DROP]
        """,
        inputs=lambda rng, p, size: [numbers(rng, by_size(size, (1, 9, 20, 50)), 0, 99)],
    ),
)
