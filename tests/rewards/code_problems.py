"""Small problems: how they are read and solved, how they are solved wrongly, and what is expected, found another way."""

# ruff: noqa: E501 - a program in one line is easier to read than one in several texts
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem whose programs read lines and print `result`."""

    name: str
    params: str
    """Names that `read` binds, separated by commas."""
    read: str
    """Statements; `LINE()` stands for the next line of the input."""
    body: str
    """Statements that bind `result`, a text or a number."""
    bugs: Sequence[str]
    """Bodies that are wrong for one of the inputs."""
    inputs: Sequence[str]
    reference: Callable[[list[str]], Any]
    """Lines of an input -> expected output."""
    imports: str = ""

    @property
    def tests(self) -> dict[str, list[str]]:
        """The ground truth of a row."""
        return {
            "inputs": [f"{given}\n" for given in self.inputs],
            "outputs": [f"{self.reference(given.splitlines())}\n" for given in self.inputs],
        }


def _ints(line: str) -> list[int]:
    return [int(word) for word in line.split()]


def _list(line: str) -> str:
    return f"{len(line.split())}\n{line}"


def _grid_steps(lines: list[str]) -> int:
    """Relaxes all cells until nothing changes."""
    rows = lines[1:]
    steps = {(0, 0): 0}
    for _ in range(len(rows) * len(rows[0])):
        for r, c in product(range(len(rows)), range(len(rows[0]))):
            near = [steps[p] for p in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)) if p in steps]
            if rows[r][c] == "." and near:
                steps[r, c] = min(steps.get((r, c), 10**9), min(near) + 1)
    return steps.get((len(rows) - 1, len(rows[0]) - 1), -1)


def _longest_rising(lines: list[str]) -> int:
    xs = _ints(lines[1])
    return max(
        size
        for size in range(1, len(xs) + 1)
        if any(all(a < b for a, b in pairwise(c)) for c in combinations(xs, size))
    )


def _knapsack(lines: list[str]) -> int:
    capacity = _ints(lines[0])[1]
    items = [_ints(line) for line in lines[1:]]
    chosen = [c for k in range(len(items) + 1) for c in combinations(items, k) if sum(w for w, _ in c) <= capacity]
    return max(sum(v for _, v in c) for c in chosen)


def _edits(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(_edits(a[1:], b) + 1, _edits(a, b[1:]) + 1, _edits(a[1:], b[1:]) + (a[0] != b[0]))


def _is_balanced(text: str) -> bool:
    while text != (shorter := text.replace("()", "").replace("[]", "").replace("{}", "")):
        text = shorter
    return not text


def _digits(lines: list[str]) -> str:
    n, base = _ints(lines[0])
    width = next(w for w in range(1, 80) if base**w > n)
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[n // base ** (width - 1 - i) % base] for i in range(width))


def _runs(text: str) -> str:
    cuts = [0, *(i for i in range(1, len(text)) if text[i] != text[i - 1]), len(text)]
    return "".join(f"{text[a]}{b - a}" for a, b in pairwise(cuts))


def _tally(lines: list[str]) -> str:
    words = lines[1].split()
    return "\n".join(f"{w} {words.count(w)}" for w in sorted(set(words), key=lambda w: (-words.count(w), w)))


def _power(base: int, exponent: int, modulus: int) -> int:
    return base**exponent % modulus


def _has_leap_day(year: int) -> bool:
    return (date(year, 3, 1) - date(year, 2, 28)).days == 2


PROBLEMS = [
    Problem(
        name="sum_of_two",
        params="a, b",
        read="a, b = map(int, LINE().split())",
        body="result = a + b",
        bugs=["result = a - b", "result = abs(a) + abs(b)", "result = (a + b) % 2**31", "result = float(a + b) + 0.5"],
        inputs=["1 2", "-5 3", "100 -1", "99999999999999999999 1"],
        reference=lambda lines: sum(_ints(lines[0])),
    ),
    Problem(
        name="power",
        params="a, b, m",
        read="a, b, m = map(int, LINE().split())",
        body="result = pow(a, b, m)",
        bugs=["result = pow(a, b % 1000, m)", "result = pow(a, b - 1, m)", "import math\nresult = math.pow(a, 2) % m"],
        inputs=["2 10 1000", "3 100003 1000000007", "10 18 97", "7 1 5"],
        reference=lambda lines: _power(*_ints(lines[0])),
    ),
    Problem(
        name="inverse",
        params="a, m",
        read="a = int(LINE())\nm = int(LINE())",
        body="result = pow(a, -1, m)",
        bugs=["result = pow(a, m - 2, m)", "result = 1 / a % m", "result = -a % m"],
        inputs=["3\n7", "3\n10", "7\n1000", "2\n9"],
        reference=lambda lines: next(x for x in range(int(lines[1])) if int(lines[0]) * x % int(lines[1]) == 1),
    ),
    Problem(
        name="total",
        params="n, xs",
        read="n = int(LINE())\nxs = list(map(int, LINE().split()))",
        body="result = 0\nfor x in xs:\n    result += x",
        bugs=[
            "result = sum(xs[:-1])",
            "result = sum(set(xs))",
            "result = sum(map(abs, xs))",
            "result = sum(xs) / 1 + 1e-3",
        ],
        inputs=[_list("1 2 3"), _list("-1 -1 5"), _list("0"), _list("1000000007 999999937 123456789012345678")],
        reference=lambda lines: sum(_ints(lines[1])),
    ),
    Problem(
        name="best_range",
        params="n, xs",
        read="n = int(LINE())\nxs = [int(x) for x in LINE().split()]",
        body="result = here = xs[0]\nfor x in xs[1:]:\n    here = max(here + x, x)\n    result = max(result, here)",
        bugs=[
            "result = here = 0\nfor x in xs:\n    here = max(here + x, 0)\n    result = max(result, here)",
            "result = sum(x for x in xs if x > 0)",
            "result = max(xs)",
            "result = max(sum(xs[i:j]) for i in range(n) for j in range(i + 1, n))if n > 1 else xs[0]",
        ],
        inputs=[_list("1 -2 3 4 -1 2"), _list("-3 -1 -2"), _list("5"), _list("1 2 3"), _list("2 -1 2 -9 4")],
        reference=lambda lines: max(
            sum(_ints(lines[1])[i:j]) for i, j in combinations(range(len(lines[1].split()) + 1), 2)
        ),
    ),
    Problem(
        name="primes",
        params="n",
        read="n = int(LINE())",
        body="sieve = bytearray([1]) * (n + 1)\nsieve[:2] = b'\\0\\0'\n"
        "for p in range(2, int(n ** 0.5) + 1):\n    if sieve[p]:\n"
        "        sieve[p * p :: p] = bytes(len(range(p * p, n + 1, p)))\nresult = sum(sieve)",
        bugs=[
            "result = sum(all(p % d for d in range(2, int(p**0.5))) for p in range(2, n + 1))",
            "result = sum(all(p % d for d in range(2, p)) for p in range(1, n + 1))",
            "result = sum(all(p % d for d in range(2, p)) for p in range(2, n))",
        ],
        inputs=["10", "2", "100", "997", "1"],
        reference=lambda lines: sum(
            1 for p in range(2, int(lines[0]) + 1) if not any(p % d == 0 for d in range(2, math.isqrt(p) + 1))
        ),
    ),
    Problem(
        name="reversed_words",
        params="text",
        read="text = LINE().strip()",
        body="result = ' '.join(reversed(text.split()))",
        bugs=[
            "result = text[::-1]",
            "result = ' '.join(w[::-1] for w in text.split())",
            "result = ' '.join(sorted(text.split()))",
        ],
        inputs=["the cat sat", "one", "b a c d", "Ünïcode wörds 日本 語"],
        reference=lambda lines: " ".join(lines[0].split()[::-1]),
    ),
    Problem(
        name="palindrome",
        params="text",
        read="text = LINE().strip()",
        body="letters = [c.lower() for c in text if c.isalnum()]\nresult = 'YES' if letters == letters[::-1] else 'NO'",
        bugs=[
            "result = 'YES' if text == text[::-1] else 'NO'",
            "result = 'Yes' if text.lower() == text.lower()[::-1] else 'No'",
            "result = text.replace(' ', '') == text.replace(' ', '')[::-1]",
            "result = 'YES'",
        ],
        inputs=["abba", "A man a plan", "Never odd or even", "ab"],
        reference=lambda lines: (lambda s: "YES" if all(s[i] == s[-1 - i] for i in range(len(s))) else "NO")(
            lines[0].lower().replace(" ", "")
        ),
    ),
    Problem(
        name="tally",
        params="n, words",
        read="n = int(LINE())\nwords = LINE().split()",
        imports="from collections import Counter",
        body="rows = sorted(Counter(words).items(), key=lambda kv: (-kv[1], kv[0]))\n"
        "result = '\\n'.join(f'{word} {count}' for word, count in rows)",
        bugs=[
            "result = '\\n'.join(f'{w} {c}' for w, c in sorted(Counter(words).items()))",
            "result = '\\n'.join(f'{w} {c}' for w, c in Counter(words).most_common())",
            "result = ' '.join(f'{w} {c}' for w, c in sorted(Counter(words).items(), key=lambda kv: (-kv[1], kv[0])))",
            "result = '\\n'.join(f'{c} {w}' for w, c in Counter(words).most_common())",
        ],
        inputs=[_list("b a b"), _list("z y x"), _list("one two two three three three"), _list("q")],
        reference=_tally,
    ),
    Problem(
        name="mean",
        params="n, xs",
        read="n = int(LINE())\nxs = list(map(float, LINE().split()))",
        body="result = sum(xs) / n",
        bugs=[
            "result = sum(xs) // n",
            "result = round(sum(xs) / n, 2)",
            "result = sorted(xs)[n // 2]",
            "result = sum(xs) / n + 1e-4",
        ],
        inputs=[_list("1 2"), _list("0.1 0.2 0.7 0.3"), _list("1 1 2"), _list("1e3 2.5e-3 7")],
        reference=lambda lines: f"{float(sum(map(Fraction, lines[1].split())) / len(lines[1].split())):.10f}",
    ),
    Problem(
        name="distance",
        params="x, y, u, v",
        read="x, y = map(float, LINE().split())\nu, v = map(float, LINE().split())",
        imports="import math",
        body="result = f'{math.hypot(x - u, y - v):.9f}'",
        bugs=[
            "result = abs(x - u) + abs(y - v)",
            "result = int(math.hypot(x - u, y - v))",
            "result = (x - u) ** 2 + (y - v) ** 2",
        ],
        inputs=["0 0\n3 4", "1 1\n2 2", "-1.5 2\n3.25 -7", "0 0\n0 0"],
        reference=lambda lines: repr(
            math.dist([float(w) for w in lines[0].split()], [float(w) for w in lines[1].split()])
        ),
    ),
    Problem(
        name="rising",
        params="n, xs",
        read="n = int(LINE())\nxs = tuple(map(int, LINE().split()))",
        imports="from bisect import bisect_left, bisect_right",
        body="tails = []\nfor x in xs:\n    at = bisect_left(tails, x)\n    tails[at : at + 1] = [x]\nresult = len(tails)",
        bugs=[
            "tails = []\nfor x in xs:\n    at = bisect_right(tails, x)\n    tails[at : at + 1] = [x]\nresult = len(tails)",
            "result = len(set(xs))",
            "result = 1 + sum(a < b for a, b in zip(xs, xs[1:]))",
        ],
        inputs=[_list("3 1 2 5 4"), _list("2 2 2"), _list("5 4 3"), _list("1 9 2 8 3 7 4"), _list("1 2 1 2 3")],
        reference=_longest_rising,
    ),
    Problem(
        name="maze",
        params="h, w, rows",
        read="h, w = map(int, LINE().split())\nrows = [LINE().strip() for _ in range(h)]",
        imports="from collections import deque",
        body="seen = {(0, 0): 0}\nqueue = deque(seen)\nwhile queue:\n    r, c = queue.popleft()\n"
        "    for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):\n        p, q = r + dr, c + dc\n"
        "        if 0 <= p < h and 0 <= q < w and rows[p][q] == '.' and (p, q) not in seen:\n"
        "            seen[p, q] = seen[r, c] + 1\n            queue.append((p, q))\nresult = seen.get((h - 1, w - 1), -1)",
        bugs=[
            "result = h + w - 2",
            "seen = {(0, 0): 0}\nstack = [(0, 0)]\nwhile stack:\n    r, c = stack.pop()\n"
            "    for dr, dc in ((1, 0), (0, 1), (-1, 0), (0, -1)):\n        p, q = r + dr, c + dc\n"
            "        if -1 <= p < h and -1 <= q < w and rows[p][q] == '.' and (p % h, q % w) not in seen:\n"
            "            seen[p % h, q % w] = seen[r, c] + 1\n            stack.append((p % h, q % w))\n"
            "result = seen.get((h - 1, w - 1), 0)",
        ],
        inputs=["2 2\n..\n..", "3 3\n.#.\n.#.\n.#.", "3 4\n...#\n.#..\n....", "4 3\n.#.\n.#.\n.#.\n...", "1 1\n."],
        reference=_grid_steps,
    ),
    Problem(
        name="knapsack",
        params="n, capacity, items",
        read="n, capacity = map(int, LINE().split())\nitems = [tuple(map(int, LINE().split())) for _ in range(n)]",
        body="best = [0] * (capacity + 1)\nfor weight, value in items:\n"
        "    for room in range(capacity, weight - 1, -1):\n        best[room] = max(best[room], best[room - weight] + value)\n"
        "result = best[capacity]",
        bugs=[
            "best = [0] * (capacity + 1)\nfor weight, value in items:\n    for room in range(weight, capacity + 1):\n"
            "        best[room] = max(best[room], best[room - weight] + value)\nresult = best[capacity]",
            "result = 0\nfor weight, value in sorted(items, key=lambda i: -i[1] / i[0]):\n"
            "    if weight <= capacity:\n        capacity -= weight\n        result += value",
            "result = sum(value for weight, value in items)",
        ],
        inputs=["3 5\n2 3\n3 4\n4 6", "1 9\n3 5", "3 10\n6 13\n5 10\n5 10", "2 1\n2 2\n3 3"],
        reference=_knapsack,
    ),
    Problem(
        name="edits",
        params="a, b",
        read="a = LINE().strip()\nb = LINE().strip()",
        body="row = list(range(len(b) + 1))\nfor i, x in enumerate(a, 1):\n    last, row[0] = row[0], i\n"
        "    for j, y in enumerate(b, 1):\n        last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))\n"
        "result = row[-1]",
        bugs=[
            "result = sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))",
            "result = abs(len(a) - len(b))",
            "result = len(set(a) ^ set(b))",
        ],
        inputs=["kitten\nsitting", "abc\nbca", "a\na", "flaw\nlawn"],
        reference=lambda lines: _edits(lines[0], lines[1]),
    ),
    Problem(
        name="brackets",
        params="text",
        read="text = LINE().strip()",
        body="stack, result = [], 'yes'\nfor c in text:\n    if c in '([{':\n        stack.append(')]}'['([{'.index(c)])\n"
        "    elif not stack or stack.pop() != c:\n        result = 'no'\n        break\n"
        "if stack and result == 'yes':\n    result = 'no'",
        bugs=[
            "result = 'yes' if all(text.count(a) == text.count(b) for a, b in ('()', '[]', '{}')) else 'no'",
            "result = 'yes' if len(text) % 2 == 0 else 'no'",
            "result = 'yes' if text == text[::-1].translate(str.maketrans('()[]{}', ')(][}{')) else 'no'",
        ],
        inputs=["([]{})", "([)]", "((", ")(", "()[]", "[[[]]]"],
        reference=lambda lines: "yes" if _is_balanced(lines[0]) else "no",
    ),
    Problem(
        name="fibonacci",
        params="n",
        read="n = int(LINE())",
        body="a, b = 0, 1\nfor _ in range(n):\n    a, b = b, (a + b) % 1_000_000_007\nresult = a",
        bugs=[
            "a, b = 0, 1\nfor _ in range(n):\n    a, b = b, a + b\nresult = a",
            "a, b = 1, 1\nfor _ in range(n):\n    a, b = b, (a + b) % 1_000_000_007\nresult = a",
            "result = round(((1 + 5**0.5) / 2) ** min(n, 1000) / 5**0.5) % 1_000_000_007",
        ],
        inputs=["0", "1", "10", "90", "500"],
        reference=lambda lines: (
            sum(math.comb(int(lines[0]) - 1 - k, k) for k in range(int(lines[0])) if int(lines[0]) - 1 - k >= 0)
            % (10**9 + 7)
        ),
    ),
    Problem(
        name="base",
        params="n, base",
        read="n, base = map(int, LINE().split())",
        body="digits = '0123456789abcdefghijklmnopqrstuvwxyz'\nresult = ''\nwhile n or not result:\n"
        "    n, digit = divmod(n, base)\n    result = digits[digit] + result",
        bugs=[
            "result = ''\nwhile n:\n    n, digit = divmod(n, base)\n    result = '0123456789abcdefghijklmnopqrstuvwxyz'[digit] + result",
            "result = ''\nwhile n or not result:\n    n, digit = divmod(n, base)\n    result += '0123456789abcdefghijklmnopqrstuvwxyz'[digit]",
            "result = ''\nwhile n or not result:\n    n, digit = divmod(n, base)\n    result = str(digit) + result",
            "result = f'{n:0{base}b}'",
        ],
        inputs=["10 2", "0 7", "255 16", "123456789012345678901234567890 36"],
        reference=_digits,
    ),
    Problem(
        name="runs",
        params="text",
        read="text = LINE().strip()",
        imports="from itertools import groupby",
        body="result = ''.join(f'{c}{len(list(run))}' for c, run in groupby(text))",
        bugs=[
            "result, count = '', 1\nfor a, b in zip(text, text[1:]):\n    if a == b:\n        count += 1\n    else:\n"
            "        result += f'{a}{count}'\n        count = 1",
            "result = ''.join(f'{c}{text.count(c)}' for c in dict.fromkeys(text))",
            "result = ''.join(c + (str(n) if (n := len(list(run))) > 1 else '') for c, run in groupby(text))",
        ],
        inputs=["aaabbc", "abab", "z", "aaaaaaaaaaaab"],
        reference=lambda lines: _runs(lines[0]),
    ),
    Problem(
        name="leap_years",
        params="t, years",
        read="t = int(LINE())\nyears = [int(LINE()) for _ in range(t)]",
        body="result = '\\n'.join('leap' if y % 4 == 0 and (y % 100 or y % 400 == 0) else 'common' for y in years)",
        bugs=[
            "result = '\\n'.join('leap' if y % 4 == 0 else 'common' for y in years)",
            "result = '\\n'.join('leap' if y % 4 == 0 and y % 100 else 'common' for y in years)",
            "result = 'leap' if years[0] % 4 == 0 else 'common'",
            "result = '\\n'.join('leap' if y % 4 == 0 and (y % 100 or y % 400 == 0) else 'common' for y in years[:3])",
        ],
        inputs=["3\n1999\n2000\n1900", "1\n2024", "4\n1600\n1700\n2023\n2028"],
        reference=lambda lines: "\n".join("leap" if _has_leap_day(int(year)) else "common" for year in lines[1:]),
    ),
    Problem(
        name="transposed",
        params="h, w, rows",
        read="h, w = map(int, LINE().split())\nrows = [LINE().split() for _ in range(h)]",
        body="result = '\\n'.join(' '.join(column) for column in zip(*rows))",
        bugs=[
            "result = '\\n'.join(' '.join(row) for row in rows)",
            "result = '\\n'.join(' '.join(column[::-1]) for column in zip(*rows))",
            "result = '\\n'.join(''.join(column) for column in zip(*rows))",
            "result = ' '.join(' '.join(column) for column in zip(*rows))",
        ],
        inputs=["2 3\n1 2 3\n4 5 6", "1 4\n1 2 3 4", "3 1\n7\n8\n9", "2 2\n-1 05\n10 0"],
        reference=lambda lines: "\n".join(
            " ".join(line.split()[c] for line in lines[1:]) for c in range(int(lines[0].split()[1]))
        ),
    ),
    Problem(
        name="factorial",
        params="n",
        read="n = int(LINE())",
        imports="import math",
        body="result = 1\nfor k in range(2, n + 1):\n    result *= k",
        bugs=[
            "result = round(math.exp(math.lgamma(n + 1)))",
            "result = math.prod(range(1, n))",
            "result = int(math.gamma(min(n, 170) + 1))",
        ],
        inputs=["0", "5", "30", "400"],
        reference=lambda lines: math.factorial(int(lines[0])),
    ),
    Problem(
        name="orders",
        params="text",
        read="text = LINE().strip()",
        imports="import itertools",
        body="result = '\\n'.join(sorted(set(map(''.join, itertools.permutations(text)))))",
        bugs=[
            "result = '\\n'.join(sorted(map(''.join, itertools.permutations(text))))",
            "result = '\\n'.join(set(map(''.join, itertools.permutations(text))) if len(text) > 9 else [text])",
            "result = '\\n'.join(sorted(set(map(''.join, itertools.permutations(text))), reverse=True))",
        ],
        inputs=["abc", "aab", "z", "yx"],
        reference=lambda lines: "\n".join(
            w
            for w in map("".join, product(sorted(set(lines[0])), repeat=len(lines[0])))
            if w in {"".join(p) for p in permutations(lines[0])}
        ),
    ),
    Problem(
        name="pairs",
        params="n, goal, xs",
        read="n, goal = map(int, LINE().split())\nxs = list(map(int, LINE().split()))",
        body="seen, result = {}, 0\nfor x in xs:\n    result += seen.get(goal - x, 0)\n    seen[x] = seen.get(x, 0) + 1",
        bugs=[
            "result = sum(goal - x in xs for x in xs) // 2",
            "result = sum(x + y == goal for x in xs for y in xs)",
            "result = len({(min(x, goal - x)) for x in xs if goal - x in xs})",
        ],
        inputs=["4 6\n1 5 3 3", "3 4\n2 2 2", "2 10\n5 5", "5 0\n-1 1 -2 2 0", "1 6\n3"],
        reference=lambda lines: sum(a + b == _ints(lines[0])[1] for a, b in combinations(_ints(lines[1]), 2)),
    ),
]
