"""Dynamic programming."""

from __future__ import annotations

import random

from .base import Family, Parameters, by_size, numbers, words


def _coins_text(p: Parameters) -> str:
    coins = ", ".join(map(str, p["COINS"]))
    result = (
        "the smallest number of coins that make the amount, or -1 when it cannot be made"
        if p["FEWEST"]
        else f"in how many ways the amount can be made (the order of the coins does not matter), modulo {p['M']}"
    )
    return f"There are coins of {coins}, each as often as needed. For an amount >= 0 return {result}."


def _draw_grid(rng: random.Random, size: int) -> str:
    rows, columns = (rng.randint(2, by_size(size, (3, 5, 8, 14))) for _ in range(2))
    cells = [[rng.choices(".#", weights=(5, 1))[0] for _ in range(columns)] for _ in range(rows)]
    cells[0][0] = cells[-1][-1] = "."
    return "\n".join([f"{rows} {columns}", *map("".join, cells)])


def _grid_text(p: Parameters) -> str:
    moves = ["one cell to the right", f"{p['DOWN']} cell{'s' if p['DOWN'] > 1 else ''} down"]
    if p["DIAGONAL"]:
        moves.append("one cell diagonally (right and down)")
    return (
        "Read the numbers of rows and columns in one line, and then the rows of a grid of `.` (free) and `#` "
        f"(blocked). A step goes {', '.join(moves[:-1])} or {moves[-1]}; it must end on a free cell inside the grid. "
        f"Print in how many ways one can get from the top left to the bottom right cell, modulo {p['M']}."
    )


def _distance_text(p: Parameters) -> str:
    swap = f", and exchanging two neighbouring letters costs {p['SWAP']}" if p["SWAP"] else ""
    return (
        f"Changing text a into text b step by step: inserting a letter costs {p['INSERT']}, deleting one costs "
        f"{p['DELETE']}, replacing one costs {p['REPLACE']}{swap}. No letter may be touched twice. Return the lowest "
        "cost."
    )


def _subsequence_text(p: Parameters) -> str:
    measure = "length" if p["LENGTH"] else "sum"
    return (
        "Choose numbers from a list, keeping their order, so that each chosen number is larger than the chosen one "
        f"before it by at least {p['LOW']} and at most {p['HIGH']}. Return the largest {measure} that such a choice "
        "of at least one number can have."
    )


FAMILIES = (
    Family(
        name="coins",
        draw=lambda r: {
            "COINS": sorted(r.sample(range(1, 20), r.randint(3, 5))),
            "FEWEST": r.random() < 0.5,
            "M": r.choice((97, 1009, 10**9 + 7)),
        },
        statement=_coins_text,
        fn_name="make_change",
        body="""
            def make_change(amount):
                if FEWEST:
                    best = [0] + [None] * amount
                    for a in range(1, amount + 1):
                        before = [best[a - c] for c in COINS if c <= a and best[a - c] is not None]
                        best[a] = min(before) + 1 if before else None
                    return -1 if best[amount] is None else best[amount]
                ways = [1] + [0] * amount
                for c in COINS:
                    for a in range(c, amount + 1):
                        ways[a] += ways[a - c]
                return ways[amount] % M
        """,
        inputs=lambda rng, p, size: [rng.randint(0, by_size(size, (12, 40, 90, 300)))],
    ),
    Family(
        name="grid_paths",
        draw=lambda r: {"DOWN": r.randint(1, 2), "DIAGONAL": r.random() < 0.7, "M": r.randint(50, 1000)},
        statement=_grid_text,
        body="""
            rows, columns = map(int, input().split())
            grid = [input() for _ in range(rows)]
            ways = [[0] * columns for _ in range(rows)]
            ways[0][0] = 1
            for i in range(rows):
                for j in range(columns):
                    if grid[i][j] == "#" or (i, j) == (0, 0):
                        continue
                    if j:
                        ways[i][j] += ways[i][j - 1]
                    if i >= DOWN:
                        ways[i][j] += ways[i - DOWN][j]
                    if DIAGONAL and i and j:
                        ways[i][j] += ways[i - 1][j - 1]
            print(ways[-1][-1] % M)
        """,
        inputs=lambda rng, p, size: _draw_grid(rng, size),
    ),
    Family(
        name="edit_distance",
        draw=lambda r: {
            "INSERT": r.randint(1, 6),
            "DELETE": r.randint(1, 6),
            "REPLACE": r.randint(1, 9),
            "SWAP": r.choice((0, 1, 2)),
        },
        statement=_distance_text,
        fn_name="distance",
        body="""
            def distance(a, b):
                best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
                for i in range(len(a) + 1):
                    for j in range(len(b) + 1):
                        if i == 0 or j == 0:
                            best[i][j] = i * DELETE + j * INSERT
                            continue
                        options = [
                            best[i - 1][j] + DELETE,
                            best[i][j - 1] + INSERT,
                            best[i - 1][j - 1] + (0 if a[i - 1] == b[j - 1] else REPLACE),
                        ]
                        if SWAP and i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                            options.append(best[i - 2][j - 2] + SWAP)
                        best[i][j] = min(options)
                return best[-1][-1]
        """,
        inputs=lambda rng, p, size: words(rng, 2, letters="abc", longest=by_size(size, (2, 5, 9, 16))),
    ),
    Family(
        name="climbing_subsequence",
        draw=lambda r: {"LOW": (low := r.randint(1, 6)), "HIGH": low + r.randint(1, 14), "LENGTH": r.random() < 0.5},
        statement=_subsequence_text,
        fn_name="longest_climb",
        body="""
            def longest_climb(xs):
                best = []
                for i, x in enumerate(xs):
                    before = [best[j] for j in range(i) if LOW <= x - xs[j] <= HIGH]
                    best.append((1 if LENGTH else x) + max([0] + before))
                return max(best)
        """,
        inputs=lambda rng, p, size: [numbers(rng, by_size(size, (1, 6, 14, 40)), 0, 50)],
    ),
)
