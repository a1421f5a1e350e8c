"""The ways in which people write a program that reads lines and prints a result."""

# ruff: noqa: E501 - a program in one line is easier to read than one in several texts
from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

from code_problems import Problem

Style = Callable[[Problem], str]
STYLES: dict[str, Style] = {}


def _from(template: str, *, line: str = "input()") -> Style:
    """Returns a style: a program in which READ, BODY, IMPORTS and PARAMS stand for the problem's."""
    template = dedent(template).strip("\n") + "\n"

    def write(problem: Problem) -> str:
        parts = {
            "IMPORTS": problem.imports,
            "READ": problem.read.replace("LINE()", line),
            "BODY": problem.body,
            "PARAMS": problem.params,
        }
        lines = []
        for one in template.split("\n"):
            key = one.strip()
            if key in parts:
                lines.append(indent(parts[key], one[: len(one) - len(one.lstrip())]))
            else:
                lines.append(one.replace("PARAMS", problem.params).replace("NAME", problem.name))
        return "\n".join(lines)

    return write


_SOLVE = """
IMPORTS
def solve(PARAMS):
    BODY
    return result
"""
_MAIN = """
def main():
    READ
    print(solve(PARAMS))
"""


def _with_main(call: str, *, head: str = "import sys", line: str = "input()") -> Style:
    return _from(f"{head}\n{_SOLVE}\n{_MAIN}\n{call}", line=line)


def _with_script(tail: str, *, head: str = "import sys", line: str = "input()") -> Style:
    """Returns a style that computes at the top level and then does something else than to print."""
    return _from(f"{head}\nIMPORTS\nREAD\nBODY\n{tail}", line=line)


_READERS = {
    "sys_readline": ("import sys", "sys.stdin.readline()"),
    "stdin_readline": ("from sys import stdin", "stdin.readline()"),
    "input_is_readline": ("import sys\ninput = sys.stdin.readline", "input()"),
    "input_is_lambda": ("import sys\ninput = lambda: sys.stdin.readline().rstrip('\\r\\n')", "input()"),
    "buffer_readline": ("import sys", "sys.stdin.buffer.readline().decode()"),
    "read_and_split": ("import sys\nlines = iter(sys.stdin.read().split('\\n'))", "next(lines)"),
    "open_0": ("lines = open(0).read().splitlines()[::-1]", "lines.pop()"),
    "open_dev_stdin": ("lines = iter(open('/dev/stdin').readlines())", "next(lines)"),
    "for_line_in_stdin": ("import sys\nlines = [line for line in sys.stdin]\nlines.reverse()", "lines.pop()"),
    "os_read": ("import os, io\nstdin = io.BytesIO(os.read(0, os.fstat(0).st_size + 1))", "stdin.readline().decode()"),
    "stdin_replaced": (
        "import sys, io, os\nsys.stdin = io.TextIOWrapper(io.BytesIO(os.read(0, os.fstat(0).st_size)))",
        "input()",
    ),
    "fileinput_module": ("import fileinput\nsource = fileinput.input()", "next(source)"),
    "mmap_of_stdin": ("import mmap\ndata = mmap.mmap(0, 0, access=mmap.ACCESS_READ)", "data.readline().decode()"),
    "until_eof": (
        "lines = []\ntry:\n    while True:\n        lines.append(input())\nexcept EOFError:\n    pass\nlines = iter(lines)",
        "next(lines)",
    ),
    "input_file_if_there": (
        "import sys, os\nif os.path.exists('input.txt'):\n    sys.stdin = open('input.txt')\n"
        "if not os.environ.get('ONLINE_JUDGE', True):\n    sys.stdout = open('output.txt', 'w')",
        "input()",
    ),
    "try_to_open_input_file": (
        "import sys\ntry:\n    sys.stdin = open('input.txt', 'r')\n    sys.stdout = open('output.txt', 'w')\nexcept:\n    pass",
        "sys.stdin.readline()",
    ),
    "walrus_and_iter": ("import sys\nit = iter(sys.stdin.readline, '')", "next(it)"),
}
for _name, (_head, _line) in _READERS.items():
    STYLES[f"reads_{_name}"] = _with_script("print(result)", head=_head, line=_line)

_WRITERS = {
    "sys_write": "sys.stdout.write(str(result))",
    "buffer_write": "sys.stdout.buffer.write(str(result).encode())",
    "os_write": "import os\nos.write(1, f'{result}\\n'.encode())",
    "flush": "print(result, flush=True)",
    "line_by_line": "for line in str(result).split('\\n'):\n    print(line)",
    "unpacked": "print(*str(result).split('\\n'), sep='\\n')",
    "blank_lines": "print()\nprint(str(result).replace('\\n', ' \\n\\n'), '', '\\n')",
    "dos_line_ends": "print(str(result).replace('\\n', '\\r\\n'), end='\\r\\n')",
    "percent_s": "print('%s' % (result,))",
    "open_1": "with open(1, 'w') as out:\n    out.write(str(result) + '\\n')",
    "dup_of_stdout": "import os\nwith os.fdopen(os.dup(1), 'w') as out:\n    print(result, file=out)",
    "original_stdout": "sys.__stdout__.write(f'{result}\\n')",
    "own_buffer": "import io\nbuffer = io.StringIO()\nprint(result, file=buffer)\nsys.stdout.write(buffer.getvalue())",
    "redirected": (
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as text:\n    print(result)\n"
        "print(text.getvalue(), end='')"
    ),
    "own_stdout_class": (
        "class Out:\n    def __init__(self, to):\n        self.to, self.parts = to, []\n    def write(self, s):\n"
        "        self.parts.append(s)\n        return len(s)\n    def flush(self):\n        self.to.write(''.join(self.parts))\n"
        "        self.parts.clear()\n        self.to.flush()\nsys.stdout = Out(sys.stdout)\nprint(result)"
    ),
    "own_stdout_del": (
        "class Out:\n    parts = []\n    def write(self, s):\n        self.parts.append(s)\n    def flush(self):\n        pass\n"
        "    def __del__(self):\n        sys.__stdout__.write(''.join(self.parts))\n        sys.__stdout__.flush()\n"
        "sys.stdout = Out()\nprint(result)"
    ),
    "big_buffered_stdout": (
        "sys.stdout = open(sys.stdout.fileno(), 'w', buffering=1 << 20, encoding='utf-8', closefd=False)\nprint(result)"
    ),
    "reconfigured": "sys.stdout.reconfigure(line_buffering=False, write_through=False)\nprint(result)",
    "detached": "import io\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint(result)",
    "print_replaced": (
        "import builtins\nparts = []\nbuiltins.print = lambda *a: parts.append(' '.join(map(str, a)))\nprint(result)\n"
        "sys.stdout.write('\\n'.join(parts))"
    ),
    "noise_on_stderr": (
        "import warnings, logging\nprint('debug', result, file=sys.stderr)\nwarnings.warn('slow')\nlogging.warning('x')\nprint(result)"
    ),
}
for _name, _tail in _WRITERS.items():
    STYLES[f"writes_{_name}"] = _with_script(_tail)

_ENDINGS = {
    "exit": "print(result)\nexit()",
    "quit_0": "print(result)\nquit(0)",
    "sys_exit": "print(result)\nsys.exit()",
    "raise_system_exit": "print(result)\nraise SystemExit",
    "os_exit": "import os\nprint(result, flush=True)\nos._exit(0)",
    "atexit": "import atexit\natexit.register(lambda: print(result))",
    "atexit_buffer": (
        "import atexit, io\nbuffer = io.StringIO()\nsys.stdout = buffer\n"
        "@atexit.register\ndef write():\n    sys.__stdout__.write(buffer.getvalue())\nprint(result)"
    ),
    "finalize": "import weakref\nclass Box: pass\nbox = Box()\nweakref.finalize(box, print, result)",
    "del": "class Last:\n    def __del__(self):\n        print(result_text)\nresult_text = str(result)\nlast = Last()",
    "finally": "try:\n    exit()\nfinally:\n    print(result)",
    "exit_stack": "import contextlib\nwith contextlib.ExitStack() as stack:\n    stack.callback(print, result)\n    exit(0)",
    "thread_left_running": (
        "import threading, time\ndef late():\n    time.sleep(0.02)\n    print(result)\nthreading.Thread(target=late).start()"
    ),
    "timer": "import threading\nthreading.Timer(0.01, print, [result]).start()",
    "daemon_beside": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint(result)",
    "threads_pool": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n    print(pool.submit(str, result).result())"
    ),
    "excepthook": (
        "def hook(kind, value, trace):\n    print(value)\n    sys.stdout.flush()\n    import os\n    os._exit(0)\n"
        "sys.excepthook = hook\nraise ValueError(result)"
    ),
    "signal_alarm": "import signal\nsignal.signal(signal.SIGALRM, lambda *_: exit(1))\nsignal.alarm(30)\nprint(result)",
    "timed": "import time\nstart = time.perf_counter()\nprint(result)\nprint(time.perf_counter() - start, file=sys.stderr)",
}
for _name, _tail in _ENDINGS.items():
    STYLES[f"ends_by_{_name}"] = _with_script(_tail)

_GUARD = "if __name__ == '__main__':\n    "
_MAINS = {
    "main": ("import sys", "main()"),
    "guarded": ("import sys", f"{_GUARD}main()"),
    "double_quotes_guard": ("import sys", 'if __name__=="__main__":main()'),
    "sys_exit_main": ("import sys", f"{_GUARD}sys.exit(main())"),
    "recursion_limit": ("import sys\nsys.setrecursionlimit(10**6)", "main()"),
    "recursion_thread": (
        "import sys, threading\nsys.setrecursionlimit(10**7)\nthreading.stack_size(1 << 27)",
        "thread = threading.Thread(target=main)\nthread.start()\nthread.join()",
    ),
    "stack_of_512_mb": (
        "import sys\nimport threading\nsys.setrecursionlimit(2**20)\nthreading.stack_size(512 * 1024 * 1024)",
        f"{_GUARD}t = threading.Thread(target=main)\n    t.start()",
    ),
    "resource_stack": (
        "import resource, sys\ntry:\n    resource.setrlimit(resource.RLIMIT_STACK, (2**28, -1))\nexcept (ValueError, OSError):\n"
        "    pass\nsys.setrecursionlimit(10**5)",
        "main()",
    ),
    "no_gc": ("import gc\ngc.disable()", "main()"),
    "future_annotations": ("from __future__ import annotations\nimport sys", "main()"),
    "shebang_and_cookie": ("#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n# résumé: 解", "main()"),
    "long_docstring": ('"""\nProblem: NAME\n\n    $ python solution.py < in\n"""\n__author__ = "me"', "main()"),
    "asyncio": ("import asyncio", "async def run():\n    await asyncio.sleep(0)\n    main()\nasyncio.run(run())"),
    "star_imports": (
        "from math import *\nfrom collections import *\nfrom itertools import *\nfrom heapq import *",
        "main()",
    ),
    "usual_imports": (
        "import sys, os, io, math, random, string, re, time, copy, operator, functools, itertools, collections, heapq, bisect\n"
        "from collections import defaultdict, deque, Counter, OrderedDict\nfrom functools import lru_cache, reduce, cmp_to_key\n"
        "MOD = 10**9 + 7\nINF = float('inf')",
        "main()",
    ),
    "seeded_random": ("import random, time\nrandom.seed(time.time_ns())\nSALT = random.getrandbits(60)", "main()"),
    "one_case": ("T = 1", "for _ in range(T):\n    main()"),
    "version_check": ("import sys\nif sys.version_info < (3, 5):\n    sys.exit('old')", "main()"),
    "own_file": (
        "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\nassert open(__file__).read()",
        "main()",
    ),
    "argv": ("import sys\nassert len(sys.argv) == 1 and sys.argv[0]", "main()"),
    "profiled": ("import cProfile, pstats, io", "profile = cProfile.Profile()\nprofile.runcall(main)"),
    "exec_of_text": ("code = 'pass'", "exec(compile('main()', '<text>', 'exec'))"),
    "globals_call": ("import types", "globals()['main']()"),
    "main_module": ("import sys", "import __main__\n__main__.main()"),
}
for _name, (_head, _call) in _MAINS.items():
    STYLES[_name] = _with_main(_call, head=_head)

STYLES["class_with_methods"] = _from(
    f"""
import sys
{_SOLVE}
class Solver:
    __slots__ = ("answer",)
    def __init__(self):
        READ
        self.answer = solve(PARAMS)
    def show(self):
        sys.stdout.write(f"{{self.answer}}\\n")
Solver().show()
"""
)
STYLES["static_method"] = _from(
    """
IMPORTS
class Task(object):
    @staticmethod
    def solve(PARAMS):
        BODY
        return result
    @classmethod
    def run(cls):
        READ
        print(cls.solve(PARAMS))
Task.run()
"""
)
STYLES["generators"] = _from(
    f"""
{_SOLVE}
def answers():
    READ
    yield from str(solve(PARAMS)).split("\\n")
print(*answers(), sep="\\n")
"""
)
STYLES["lambda_and_map"] = _from(f"{_SOLVE}\nREAD\n(lambda *a: print(solve(*a)))(PARAMS)")
STYLES["decorated"] = _from(
    f"""
import functools
def timed(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs)
    return inner
@timed
{_SOLVE.replace("IMPORTS", "").strip()}
IMPORTS
READ
print(solve(PARAMS))
"""
)
STYLES["dataclass_and_match"] = _from(
    f"""
from dataclasses import dataclass
@dataclass
class Answer:
    value: object
{_SOLVE}
READ
match Answer(solve(PARAMS)):
    case Answer(value=found):
        print(found)
"""
)
STYLES["typed"] = _from(
    f"""
from typing import Any, Dict, List, Optional, Tuple
{_SOLVE}
def run(args: Optional[List[Any]] = None) -> Dict[str, Any]:
    READ
    return {{"answer": solve(PARAMS)}}
print(run()["answer"])
"""
)
STYLES["globals"] = _from(
    f"{_SOLVE}\nresult = None\ndef run():\n    global result\n    READ\n    result = solve(PARAMS)\nrun()\nprint(result)"
)
STYLES["tabs"] = lambda problem: STYLES["main"](problem).replace("    ", "\t")
STYLES["trampoline"] = _from(
    f"""
from types import GeneratorType
def bootstrap(f, stack=[]):
    def wrapped(*args):
        if stack:
            return f(*args)
        to = f(*args)
        while True:
            if type(to) is GeneratorType:
                stack.append(to)
                to = next(to)
            else:
                stack.pop()
                if not stack:
                    return to
                to = stack[-1].send(to)
    return wrapped
@bootstrap
def depth(n):
    if n == 0:
        yield 0
    yield (yield depth(n - 1)) + 1
assert depth(5000) == 5000
{_SOLVE}
READ
print(solve(PARAMS))
"""
)
STYLES["deep_recursion"] = _from(
    f"""
import sys, threading
from functools import lru_cache
sys.setrecursionlimit(1 << 20)
threading.stack_size(1 << 28)
@lru_cache(maxsize=None)
def depth(n):
    return 0 if n == 0 else depth(n - 1) + 1
{_SOLVE}
def main():
    assert depth(30000) == 30000
    READ
    print(solve(PARAMS))
threading.Thread(target=main).start()
"""
)
STYLES["fast_io_class"] = _from(
    f"""
import os, sys
from io import BytesIO, IOBase
class Channel(IOBase):
    def __init__(self, file):
        self.number = file.fileno()
        self.store = BytesIO()
        self.writable = "r" not in file.mode
        self.write = self.store.write if self.writable else None
    def read(self):
        while chunk := os.read(self.number, 8192):
            self.store.write(chunk)
        self.store.seek(0)
        return self.store.read()
    def flush(self):
        if self.writable:
            os.write(self.number, self.store.getvalue())
            self.store.truncate(0), self.store.seek(0)
class Text(IOBase):
    def __init__(self, file):
        self.buffer = Channel(file)
        self.flush = self.buffer.flush
        self.write = lambda s: self.buffer.write(s.encode())
sys.stdout = Text(sys.stdout)
lines = iter(Channel(sys.stdin).read().decode().split("\\n"))
{_SOLVE}
READ
print(solve(PARAMS))
""",
    line="next(lines)",
)
STYLES["child_process"] = _from(
    f"""
import os
{_SOLVE}
READ
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, str(solve(PARAMS)).encode())
    os._exit(0)
os.close(writer)
os.wait()
print(os.read(reader, 65536).decode())
"""
)
