"""Programs that fit no template: libraries, sizes, numbers, ends of processes; and ways to be wrong."""

# ruff: noqa: E501 - a program in one line is easier to read than one in several texts
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program with tests of its own."""

    style: str
    name: str
    program: str
    inputs: Sequence[Any] = ("",)
    outputs: Sequence[Any] = ("42",)
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    is_fenced: bool = True


_SUM: dict[str, Any] = {"inputs": ["3\n1 2 3\n", "1\n-7\n"], "outputs": ["6\n", "-7\n"]}
_MANY: dict[str, Any] = {"inputs": [f"100000\n{' '.join(map(str, range(100_000)))}\n"], "outputs": ["4999950000\n"]}
_LINES: dict[str, Any] = {"inputs": ["100000\n"], "outputs": ["\n".join(map(str, range(100_000)))]}
_CHAIN: dict[str, Any] = {
    "inputs": ["20000\n" + "".join(f"{k} {k + 1}\n" for k in range(1, 20_000))],
    "outputs": ["20000\n"],
}
_BIG: dict[str, Any] = {"inputs": ["20000\n", "3\n"], "outputs": [str(Context(prec=7000).power(2, 20_000)), "8"]}
_SQUARE: dict[str, Any] = {"inputs": ["9" * 6000 + "\n"], "outputs": ["9" * 5999 + "8" + "0" * 5999 + "1"]}
_ROADS: dict[str, Any] = {"inputs": ["4 4\n1 2 5\n2 3 1\n1 3 9\n3 4 2\n", "2 0\n"], "outputs": ["8\n", "-1\n"]}
_HALF: dict[str, Any] = {"inputs": ["1 3\n", "2 4\n"], "outputs": ["0.333333333333\n", "0.5\n"]}

RIGHT = [
    Case(style="numpy", name="sum", needs="numpy", **_SUM, program="import numpy as np\ninput()\nprint(np.array(input().split(), dtype=np.int64).sum())"),
    Case(style="numpy", name="many", needs="numpy", **_MANY, program="import sys, numpy as np\ndata = np.fromstring(sys.stdin.read(), dtype=np.int64, sep=' ')\nprint(int(data[1:].sum()))"),
    Case(style="numpy", name="matrix power", needs="numpy", inputs=["10\n"], outputs=["55\n"], program="import numpy as np\nn = int(input())\nm = np.array([[1, 1], [1, 0]], dtype=object)\nprint(np.linalg.matrix_power(m, n)[0, 1])"),
    Case(style="numpy", name="mean", needs="numpy", inputs=["1 2 4\n"], outputs=["2.333333333\n"], program="import numpy\nprint(numpy.mean([float(x) for x in input().split()]))"),
    Case(style="large_input", name="int of split", **_MANY, program="import sys\ndata = sys.stdin.buffer.read().split()\nprint(sum(map(int, data[1:])))"),
    Case(style="large_input", name="open(0)", **_MANY, program="n, *xs = map(int, open(0).read().split())\nprint(sum(xs))"),
    Case(style="large_output", name="print", **_LINES, program="for i in range(int(input())):\n    print(i)"),
    Case(style="large_output", name="join", **_LINES, program="import sys\nsys.stdout.write('\\n'.join(map(str, range(int(input())))))"),
    Case(style="deep_recursion", name="chain in a thread", **_CHAIN, program="""
        import sys, threading
        def main():
            n = int(input())
            tree = [[] for _ in range(n + 1)]
            for line in sys.stdin:
                a, b = map(int, line.split())
                tree[a].append(b)
            def depth(v):
                return 1 + max((depth(w) for w in tree[v]), default=0)
            print(depth(1))
        sys.setrecursionlimit(1 << 25)
        threading.stack_size(1 << 28)
        t = threading.Thread(target=main)
        t.start()
        t.join()"""),
    Case(style="deep_recursion", name="within the usual limit", inputs=["900\n"], outputs=["900\n"], program="def f(n):\n    return n and 1 + f(n - 1)\nprint(f(int(input())))"),
    *(Case(style="deep_recursion", name=f"limit {limit}", inputs=["5000\n"], outputs=["5000\n"], program=f"import sys\nsys.setrecursionlimit({limit})\ndef f(n):\n    return n and 1 + f(n - 1)\nprint(f(int(input())))") for limit in ("2**31-1", "2147483647", "0x7fffffff-1", "10**9")),
    Case(style="deep_recursion", name="limit just enough", inputs=["5000\n"], outputs=["5000\n"], program="import sys\ndef f(n):\n    return n and 1 + f(n - 1)\nn = int(input())\nsys.setrecursionlimit(n + 50)\nprint(f(n))"),
    Case(style="big_integers", name="set_int_max_str_digits", **_BIG, program="import sys\nsys.set_int_max_str_digits(0)\nprint(2 ** int(input()))"),
    Case(style="big_integers", name="as if there were no limit", **_BIG, program="print(1 << int(input()))"),
    Case(style="big_integers", name="reads 6000 digits", **_SQUARE, program="print(int(input()) ** 2)"),
    Case(style="big_integers", name="hasattr", **_SQUARE, program="import sys\nif hasattr(sys, 'set_int_max_str_digits'):\n    sys.set_int_max_str_digits(10 ** 6)\nn = int(sys.stdin.readline())\nprint(n * n)"),
    Case(style="big_integers", name="decimal", **_SQUARE, program="from decimal import *\ngetcontext().prec = 13000\nprint(Decimal(input()) ** 2)"),
    Case(style="floats", name="repr", **_HALF, program="a, b = map(int, input().split())\nprint(a / b)"),
    Case(style="floats", name="two decimals more", **_HALF, program="a, b = map(int, input().split())\nprint('%.14f' % (a / b))"),
    Case(style="floats", name="scientific", inputs=["1\n"], outputs=["0.00001\n"], program="print(int(input()) / 100000)"),
    Case(style="floats", name="large", inputs=["20\n"], outputs=["100000000000000000000.5\n"], program="print(10.0 ** int(input()))"),
    Case(style="floats", name="decimal", **_HALF, program="from decimal import Decimal\na, b = map(Decimal, input().split())\nprint(a / b)"),
    Case(style="floats", name="fraction", **_HALF, program="from fractions import Fraction\na, b = map(int, input().split())\nprint(float(Fraction(a, b)))"),
    Case(style="floats", name="whole float", inputs=["4\n"], outputs=["2\n"], program="import math\nprint(math.sqrt(int(input())))"),
    Case(style="floats", name="negative zero", inputs=["0\n"], outputs=["0.000\n"], program="print(f'{-float(input()):.3f}')"),
    Case(style="floats", name="complex", inputs=["3 4\n"], outputs=["5.0\n"], program="a, b = map(int, input().split())\nprint(abs(complex(a, b)))"),
    Case(style="classes", name="heap of objects", **_ROADS, program="""
        import heapq, sys
        class State:
            __slots__ = ('cost', 'node')
            def __init__(self, cost, node):
                self.cost, self.node = cost, node
            def __lt__(self, other):
                return self.cost < other.cost
        n, m = map(int, sys.stdin.readline().split())
        roads = {k: [] for k in range(1, n + 1)}
        for _ in range(m):
            a, b, c = map(int, sys.stdin.readline().split())
            roads[a].append((b, c))
        best, heap = {}, [State(0, 1)]
        while heap:
            state = heapq.heappop(heap)
            if state.node not in best:
                best[state.node] = state.cost
                for b, c in roads[state.node]:
                    heapq.heappush(heap, State(state.cost + c, b))
        print(best.get(n, -1))"""),
    Case(style="classes", name="namedtuple and enum", **_SUM, program="from collections import namedtuple\nfrom enum import Enum\nK = Enum('K', 'A B')\nP = namedtuple('P', 'n xs')\np = P(int(input()), [int(x) for x in input().split()])\nassert K.A is not K.B\nprint(sum(p.xs))"),
    Case(style="classes", name="metaclass", **_SUM, program="class M(type):\n    def __call__(cls, *a):\n        return sum(a)\nclass S(metaclass=M): pass\ninput()\nprint(S(*map(int, input().split())))"),
    Case(style="standard_library", name="re", inputs=["a1b22c333\n"], outputs=["356\n"], program="import re\nprint(sum(map(int, re.findall(r'\\d+', input()))))"),
    Case(style="standard_library", name="datetime", inputs=["2024-02-28\n"], outputs=["2024-02-29\n"], program="from datetime import date, timedelta\nprint(date.fromisoformat(input()) + timedelta(days=1))"),
    Case(style="standard_library", name="array and struct", **_SUM, program="from array import array\nimport struct\ninput()\nxs = array('q', map(int, input().split()))\nassert struct.calcsize('q') == 8\nprint(sum(xs))"),
    Case(style="standard_library", name="statistics", inputs=["1 2 4 9\n"], outputs=["3\n"], program="import statistics\nprint(statistics.median(map(int, input().split())))"),
    Case(style="standard_library", name="hashlib", inputs=["abc\n"], outputs=["900150983cd24fb0d6963f7d28e17f72\n"], program="import hashlib\nprint(hashlib.md5(input().encode()).hexdigest())"),
    Case(style="standard_library", name="json", inputs=['{"a": [1, 2]}\n'], outputs=["2\n"], program="import json, sys\nprint(json.load(sys.stdin)['a'][-1])"),
    Case(style="standard_library", name="temporary file", **_SUM, program="import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n    input(); f.write(input()); f.seek(0)\n    print(sum(map(int, f.read().split())))"),
    Case(style="unicode", name="counts letters", inputs=["naïve 日本\n"], outputs=["8\n"], program="print(len(input()))"),
    Case(style="unicode", name="prints emoji", inputs=["x\n"], outputs=["x → 🎉\n"], program="print(input(), '→', '🎉')"),
    Case(style="unicode", name="identifiers", **_SUM, program="n = int(input())\nсумма = sum(map(int, input().split()))\nprint(сумма)"),
    Case(style="input_form", name="no newline at the end", inputs=["2 3"], outputs=["5"], program="print(sum(map(int, input().split())))"),
    Case(style="input_form", name="dos line ends", inputs=["2\r\n3\r\n"], outputs=["5\r\n"], program="print(int(input()) + int(input()))"),
    Case(style="input_form", name="empty input", inputs=[""], outputs=["42"], program="import sys\nassert sys.stdin.read() == ''\nprint(42)"),
    Case(style="input_form", name="empty output", inputs=["x\n"], outputs=[""], program="x = input()\nif x == 'y':\n    print(x)"),
    Case(style="shadowing", name="names of built-ins", **_SUM, program="len = int(input())\nlist = [int(x) for x in input().split()]\nsum = 0\nfor max in list:\n    sum += max\nprint(sum)"),
    Case(style="shadowing", name="names of modules", **_SUM, program="def gcd(a, b): return a + b\ndef count(xs): return sum(xs)\ninput()\nprint(count(map(int, input().split())))"),
    Case(style="shadowing", name="pow and prelude", inputs=["3\n"], outputs=["6\n"], options={"prelude": True}, program="print(pow(int(input()), 5, 237))"),
    Case(style="prelude", name="names of modules", inputs=["3\n"], outputs=["6 3\n"], options={"prelude": True}, program="n = int(input())\nd = defaultdict(int)\nprint(prod(range(1, n + 1)), len(list(combinations(range(n), 2))))"),
    Case(style="prelude", name="own imports beside", **_SUM, options={"prelude": True}, program="from collections import *\nimport math\ninput()\nprint(sum(deque(map(int, input().split()))))"),
    Case(style="fences_in_the_program", name="docstring", **_SUM, program='def f():\n    """Adds.\n\n    ```\n    f()\n    ```\n    """\n    input()\n    print(sum(map(int, input().split())))\nf()\n'.join(["```python\n", "```"])),
    Case(style="fences_in_the_program", name="text", inputs=["x\n"], outputs=["```\nx\n```\n"], program="```python\nprint('```')\nprint(input())\nprint('```')\n```"),
    Case(style="several_fences", name="function, then its use", **_SUM, program="The helper alone:\n```python\ndef add(xs): return sum(xs)\n```\nThe whole program:\n```python\ndef add(xs): return sum(xs)\ninput()\nprint(add(map(int, input().split())))\n```\nA shorter use:\n```python\nprint(add([1, 2]))\n```"),
    Case(style="several_fences", name="prose only behind", is_fenced=False, **_SUM, program="I read the numbers and add them.\n\nn = int(input())\nxs = list(map(int, input().split()))\nprint(sum(xs))\n\nThis takes linear time."),
    Case(style="checker", name="tokens", inputs=["1\n"], outputs=["1 2\n3\n"], options={"checker": "tokens"}, program="print(1)\nprint(2, 3)"),
    Case(style="checker", name="ignore_case", inputs=["1\n"], outputs=["YES\n"], options={"checker": "ignore_case"}, program="print('Yes')"),
    Case(style="checker", name="tolerance", inputs=["1\n"], outputs=["3.1416\n"], options={"tolerance": 1e-2}, program="print(3.14)"),
    Case(style="other_language", name="bash", needs="bash", **_SUM, options={"language": "bash"}, program="```bash\nread n\nread -a xs\nt=0\nfor x in ${xs[@]}; do t=$((t + x)); done\necho $t\n```"),
    Case(style="other_language", name="perl", needs="perl", **_SUM, options={"language": "perl"}, program="```perl\n<STDIN>; my $t = 0; $t += $_ for split ' ', <STDIN>; print \"$t\\n\";\n```"),
    Case(style="other_language", name="c++", needs="g++", **_SUM, options={"language": "cpp", "memory_mb": 2048}, program="```cpp\n#include <iostream>\nint main() { int n; std::cin >> n; long t = 0, x; while (n--) { std::cin >> x; t += x; } std::cout << t << std::endl; }\n```"),
]  # fmt: skip

_CALL: dict[str, Any] = {"inputs": [[3], [10]], "outputs": [6, 55]}
RIGHT_FUNCTIONS = [
    Case(style="function_results", name="tuple for list", inputs=[[2]], outputs=[[2, 4]], program="def solve(n): return n, 2 * n"),
    Case(style="function_results", name="range for list", inputs=[[3]], outputs=[[0, 1, 2]], program="def solve(n): return range(n)"),
    Case(style="function_results", name="generator for list", inputs=[[3]], outputs=[[0, 1, 4]], program="def solve(n):\n    for k in range(n):\n        yield k * k"),
    Case(style="function_results", name="deque for list", inputs=[[2]], outputs=[[0, 1]], program="from collections import deque\ndef solve(n): return deque(range(n))"),
    Case(style="function_results", name="wrapped in a list", inputs=[[3]], outputs=[[6]], program="def solve(n): return n * (n + 1) // 2"),
    Case(style="function_results", name="0.1 + 0.2", inputs=[[0.1, 0.2]], outputs=[0.3], program="def solve(a, b): return a + b"),
    Case(style="function_results", name="true", inputs=[[4], [5]], outputs=[True, False], program="def solve(n): return n % 2 == 0"),
    Case(style="function_results", name="null", inputs=[[4]], outputs=[None], program="def solve(n): pass"),
    Case(style="function_results", name="default dictionary", inputs=[["aab"]], outputs=[{"a": 2, "b": 1}], program="from collections import Counter\ndef solve(text): return Counter(text)"),
    Case(style="function_results", name="many digits", inputs=[[3000]], outputs=[10**3000], program="def solve(n): return 10**n"),
    Case(style="function_results", name="numpy", needs="numpy", inputs=[[3]], outputs=[[0, 2, 4]], program="import numpy as np\ndef solve(n): return np.arange(n) * 2"),
    Case(style="function_results", name="numpy scalar", needs="numpy", **_CALL, program="import numpy as np\ndef solve(n): return np.arange(n + 1).sum()"),
    Case(style="function_prelude", name="List without an import", inputs=[[[1, 2]]], outputs=[3], options={"prelude": True}, program="class Solution:\n    def solve(self, nums: List[int]) -> Optional[int]:\n        return reduce(lambda a, b: a + b, nums)"),
    Case(style="function_memo", name="cache", **_CALL, program="import sys\nfrom functools import cache\nsys.setrecursionlimit(10000)\n@cache\ndef solve(n): return n and n + solve(n - 1)"),
    Case(style="function_memo", name="cached method", **_CALL, program="import functools\nclass Solution:\n    @functools.lru_cache(None)\n    def solve(self, n): return n and n + self.solve(n - 1)"),
    Case(style="function_example", name="example in another block", **_CALL, program="```python\ndef solve(n):\n    return sum(range(n + 1))\n```\nExample:\n```python\nprint(solve(3))  # 6\n```"),
    Case(style="function_example", name="asserts behind", **_CALL, program="def solve(n):\n    return n * (n + 1) // 2\n\nassert solve(3) == 6\nprint(solve(10))"),
    Case(style="function_pow", name="three arguments", inputs=[[3, 100003, 1000000007]], outputs=[pow(3, 100003, 1000000007)], program="def solve(a, b, m): return pow(a, b, m)"),
]  # fmt: skip

_ADD: dict[str, Any] = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
_READ = "a, b = map(int, input().split())\n"
WRONG = [
    Case(style="says_nothing", name="pass", **_ADD, program="pass"),
    Case(style="says_nothing", name="only defines", **_ADD, program=f"def main():\n    {_READ}    print(a + b)"),
    Case(style="says_nothing", name="guard of another name", **_ADD, program="if __name__ == 'main':\n    print(sum(map(int, input().split())))"),
    Case(style="says_nothing", name="buffer never written", **_ADD, program=f"import io\nout = io.StringIO()\n{_READ}print(a + b, file=out)"),
    Case(style="says_nothing", name="os._exit before the flush", **_ADD, program=f"import os\n{_READ}print(a + b)\nos._exit(0)"),
    Case(style="says_nothing", name="to standard error", **_ADD, program=f"import sys\n{_READ}print(a + b, file=sys.stderr)"),
    Case(style="says_nothing", name="to a file", **_ADD, program=f"{_READ}print(a + b, file=open('output.txt', 'w'))"),
    Case(style="says_nothing", name="swallows everything", **_ADD, program="try:\n    print(undefined)\nexcept Exception:\n    pass"),
    Case(style="constant", name="first output", **_ADD, program="print(3)"),
    Case(style="constant", name="both outputs", **_ADD, program="print(3)\nprint(7)"),
    Case(style="constant", name="random", **_ADD, program="import random\nprint(random.random())"),
    Case(style="fails", name="syntax", **_ADD, program="def f(:\n    pass"),
    Case(style="fails", name="python 2", **_ADD, program="a, b = map(int, raw_input().split())\nprint a + b"),
    Case(style="fails", name="missing import", **_ADD, program=f"{_READ}print(math.floor(a + b))"),
    Case(style="fails", name="after the output", **_ADD, program=f"{_READ}print(a + b)\nraise ValueError"),
    Case(style="fails", name="exit code 1", **_ADD, program=f"{_READ}print(a + b)\nexit(1)"),
    Case(style="fails", name="sys.exit with a text", **_ADD, program=f"import sys\n{_READ}print(a + b)\nsys.exit('done')"),
    Case(style="fails", name="reads too much", **_ADD, program=f"{_READ}c = input()\nprint(a + b)"),
    Case(style="fails", name="killed", **_ADD, program=f"import os\n{_READ}print(a + b, flush=True)\nos.kill(os.getpid(), 9)"),
    Case(style="fails", name="endless recursion", **_ADD, program=f"{_READ}def f(n): return f(n + 1)\nprint(f(a))"),
    Case(style="fails", name="memory", **_ADD, program=f"{_READ}x = bytearray(10**11)\nprint(a + b)"),
    Case(style="fails", name="package that nobody has", **_ADD, program=f"import no_such_package\n{_READ}print(a + b)"),
    Case(style="never_ends", name="loop", inputs=["1 2\n"], outputs=["3\n"], options={"test_s": 0.5}, program=f"{_READ}print(a + b, flush=True)\nwhile True: pass"),
    Case(style="never_ends", name="sleep", inputs=["1 2\n"], outputs=["3\n"], options={"test_s": 0.5}, program=f"import time\n{_READ}print(a + b, flush=True)\ntime.sleep(60)"),
    Case(style="never_ends", name="thread", inputs=["1 2\n"], outputs=["3\n"], options={"test_s": 0.5}, program=f"import threading, time\n{_READ}print(a + b, flush=True)\nthreading.Thread(target=time.sleep, args=(60,)).start()"),
    Case(style="never_ends", name="output", inputs=["1 2\n"], outputs=["3\n"], program="while True: print('3' * 1000)"),
    Case(style="says_more", name="prompt", **_ADD, program="a, b = map(int, input('a and b: ').split())\nprint(a + b)"),
    Case(style="says_more", name="debugging", **_ADD, program=f"{_READ}print('a =', a)\nprint(a + b)"),
    Case(style="says_more", name="sentence", **_ADD, program=f"{_READ}print('The sum is', a + b)"),
    Case(style="says_more", name="twice", **_ADD, program=f"{_READ}print(a + b)\nprint(a + b)"),
    Case(style="says_more", name="none", **_ADD, program=f"{_READ}def show(): print(a + b)\nprint(show())"),
    Case(style="other_form", name="quotes", **_ADD, program=f"{_READ}print(repr(str(a + b)))"),
    Case(style="other_form", name="list", **_ADD, program=f"{_READ}print([a + b])"),
    Case(style="other_form", name="leading zeros", **_ADD, program=f"{_READ}print(f'{{a + b:05d}}')"),
    Case(style="other_form", name="bytes", **_ADD, program=f"{_READ}print(str(a + b).encode())"),
    Case(style="other_form", name="one line for two", inputs=["1\n"], outputs=["1\n2\n"], program="print(1, 2)"),
    Case(style="other_form", name="case", inputs=["1\n"], outputs=["YES\n"], program="print('Yes')"),
    Case(style="other_form", name="case under tokens", inputs=["1\n"], outputs=["YES\n"], options={"checker": "tokens"}, program="print('Yes')"),
    Case(style="other_form", name="spaces under exact", inputs=["1\n"], outputs=["1 2\n"], options={"checker": "exact"}, program="print('1  2')"),
    Case(style="numbers", name="close integer", inputs=["1\n"], outputs=["999999003\n"], program="print(999999000.5)"),
    Case(style="numbers", name="large float", inputs=["1\n"], outputs=["10000000000000001\n"], program="print(1e16)"),
    Case(style="numbers", name="three decimals", inputs=["1\n"], outputs=["0.333333333\n"], program="print(0.333)"),
    Case(style="numbers", name="no tolerance", inputs=["1\n"], outputs=["0.333333333\n"], options={"tolerance": 0}, program="print(0.3333333331)"),
    Case(style="numbers", name="not a number", inputs=["1\n"], outputs=["0.5\n"], program="print(float('nan'))"),
    Case(style="numbers", name="integer division", **_HALF, program=f"{_READ}print(a // b)"),
    Case(style="numbers", name="sign", inputs=["1\n"], outputs=["-1\n"], program="print(1)"),
    Case(style="answer", name="no program", is_fenced=False, **_ADD, program="I would add the numbers and print a + b."),
    Case(style="answer", name="sample output", **_ADD, program="```\n3\n```"),
    Case(style="answer", name="other language", **_ADD, program="```cpp\n#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }\n```"),
    Case(style="answer", name="other language under the tag", **_ADD, program="```python\n#include <iostream>\nint main() { int a, b; std::cin >> a >> b; }\n```"),
    Case(style="answer", name="wrong correction", **_ADD, program=f"```python\n{_READ}print(a + b)\n```\nNo, rather:\n```python\n{_READ}print(a * b)\n```"),
    Case(style="answer", name="cut in the middle", **_ADD, program=f"```python\n{_READ}print(a +"),
    Case(style="answer", name="empty block", **_ADD, program="```python\n```"),
    Case(style="cheats", name="looks for the outputs", **_ADD, program="import glob\nfor p in glob.glob('.tests/*'):\n    print(open(p, errors='replace').read())"),
    Case(style="cheats", name="ends the judge", **_ADD, program="import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"),
    Case(style="cheats", name="writes the results", **_ADD, program="open('results.json', 'w').write('[{\"status\": \"passed\"}, {\"status\": \"passed\"}]')"),
    Case(style="cheats", name="prelude without asking", inputs=["3\n"], outputs=["6\n"], program="print(prod(range(1, int(input()) + 1)))"),
    Case(style="numpy", name="overflow", needs="numpy", inputs=["40\n"], outputs=[f"{math.factorial(40)}\n"], program="import numpy as np\nprint(np.prod(np.arange(1, int(input()) + 1)))"),
    Case(style="big_integers", name="float of many digits", **_BIG, program="print(int(2.0 ** min(int(input()), 1000)))"),
]  # fmt: skip

WRONG_FUNCTIONS = [
    Case(style="function_results", name="prints instead", **_CALL, program="def solve(n): print(n * (n + 1) // 2)"),
    Case(style="function_results", name="text for number", **_CALL, program="def solve(n): return str(n * (n + 1) // 2)"),
    Case(style="function_results", name="true for 1", inputs=[[1]], outputs=[1], program="def solve(n): return True"),
    Case(style="function_results", name="1 for true", inputs=[[1]], outputs=[True], program="def solve(n): return 1"),
    Case(style="function_results", name="close integer", inputs=[[1]], outputs=[1000000], program="def solve(n): return 1000000.4"),
    Case(style="function_results", name="rounded", inputs=[[1]], outputs=[0.333333333], program="def solve(n): return 0.33"),
    Case(style="function_results", name="not a number", inputs=[[1]], outputs=[0.5], program="def solve(n): return float('nan')"),
    Case(style="function_results", name="other order", inputs=[[1]], outputs=[[1, 2]], program="def solve(n): return [2, 1]"),
    Case(style="function_results", name="one element more", inputs=[[1]], outputs=[[1, 2]], program="def solve(n): return [1, 2, 3]"),
    Case(style="function_results", name="set", inputs=[[1]], outputs=[[1, 2]], program="def solve(n): return {1, 2}"),
    Case(style="function_results", name="equals everything", **_CALL, program="class E(int):\n    def __eq__(self, o): return True\n    __hash__ = None\ndef solve(n): return E()"),
    Case(style="function_fails", name="other name", **_CALL, program="def solution(n): return n * (n + 1) // 2"),
    Case(style="function_fails", name="other class", **_CALL, program="class Answer:\n    def solve(self, n): return n * (n + 1) // 2"),
    Case(style="function_fails", name="too few arguments", **_CALL, program="def solve(): return 6"),
    Case(style="function_fails", name="raises", **_CALL, program="def solve(n): raise ValueError(n)"),
    Case(style="function_fails", name="exit at import", **_CALL, program="import sys\ndef solve(n): return n * (n + 1) // 2\nsys.exit(0)"),
    Case(style="function_fails", name="List without an import", inputs=[[[1]]], outputs=[1], program="class Solution:\n    def solve(self, nums: List[int]) -> int:\n        return nums[0]"),
]  # fmt: skip
