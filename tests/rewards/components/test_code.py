"""Components that judge programs: what each level is worth, and that no trick of a program is worth anything."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from typing import Any

import pytest
from samples import sample

from verl_agentic.base.errors import ConfigError, DataError, SandboxUnavailableError
from verl_agentic.graders.code.code_answer import CodeOptions, hardest
from verl_agentic.graders.code.run_tests import CodeTests
from verl_agentic.graders.components.code_tests import code_tests
from verl_agentic.graders.components.coderl import coderl, coderl_reward
from verl_agentic.rewards.component import ABSTAIN, load_component
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.process_pool import shared_pool

ADD = {
    "inputs": [f"{n} {n + 1}\n" for n in range(10)],
    "outputs": [f"{2 * n + 1}\n" for n in range(10)],
}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"
NEEDLE = {"inputs": ["1\n", "2\n"], "outputs": ["needle-7f3a\n", "needle-90cc\n"]}
DOUBLE = {"inputs": ["1", "4"], "outputs": ["2", "8"], "fn_name": "double"}
_PIPES = "import os\nfor fd in range(3, 20):\n    try: os.write(fd, {0})\n    except OSError: pass\n"


@functools.cache
def has_namespaces() -> bool:
    async def start() -> bool:
        try:
            await shared_pool("namespaces").run(Command(code="1"), limits=Limits())
        except SandboxUnavailableError:
            return False
        return True

    return asyncio.run(start())


def answer(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```"


def value(component: Any, code: str, tests: dict[str, Any] | None = None, **options: Any) -> Any:
    """Returns what a component says of a program, run in the real sandbox."""
    if not has_namespaces():
        pytest.skip("this machine cannot make namespaces")
    made = component.make({"sandbox": "namespaces", "test_s": 2.0, **options})
    return asyncio.run(made(sample(answer(code), ground_truth=tests or ADD)))


def test_seven_of_ten_is_seven_tenths_with_partial_credit_and_nothing_without() -> None:
    seven = f"{RIGHT}\nif a >= 7: print('more')"
    # vectors.json, V-CODE: passed 7 of 10 -> partial 0.7, DeepCoder 0, CodeRL -0.3
    assert value(code_tests, seven, partial=True) == pytest.approx(0.7)
    assert value(code_tests, seven) == 0.0
    assert value(coderl, seven) == -0.3


def test_a_right_program_is_worth_the_most() -> None:
    assert value(code_tests, RIGHT) == value(code_tests, RIGHT, partial=True) == value(coderl, RIGHT) == 1.0


@pytest.mark.parametrize(
    ("code", "level"),
    [("def f(:", -1.0), ("1 / 0", -0.6), ("while True: pass", -0.6), ("import sys; sys.exit(1)", -0.6), ("pass", -0.3)],
)
def test_coderl_has_four_levels(code: str, level: float) -> None:
    # vectors.json, V-CODE: compile -1, runtime -0.6, failed -0.3
    assert value(coderl, code, test_s=0.5) == level


def test_the_worse_level_counts() -> None:
    assert coderl_reward(["passed", "passed"]) == 1.0
    assert coderl_reward(["passed", "wrong"]) == -0.3
    assert coderl_reward(["wrong", "error"]) == coderl_reward(["passed", "timeout", "not_run"]) == -0.6
    assert coderl_reward(["compile_error", "compile_error"]) == -1.0


async def test_an_answer_without_a_program_is_worth_the_least() -> None:
    subject = sample("I would print(a + b).", ground_truth=ADD)
    assert await code_tests.make({})(subject) == 0.0
    assert await coderl.make({})(subject) == -1.0


async def test_without_ground_truth_they_abstain() -> None:
    assert await code_tests.make({})(sample(answer(RIGHT))) is ABSTAIN
    assert await coderl.make({})(sample(answer(RIGHT))) is ABSTAIN


async def test_a_ground_truth_that_is_none_is_an_error_of_the_row() -> None:
    for component in (code_tests, coderl):
        with pytest.raises(DataError, match="inputs"):
            await component.make({})(sample(answer(RIGHT), ground_truth="42"))


def test_the_ground_truth_may_be_json_text() -> None:
    assert value(code_tests, RIGHT, json.dumps(ADD)) == 1.0  # type: ignore[arg-type]


def test_the_last_block_of_the_final_answer_is_the_program() -> None:
    text = f"{answer('print(0)')}\nNo, rather:\n{answer(RIGHT)}"
    if not has_namespaces():
        pytest.skip("this machine cannot make namespaces")
    assert asyncio.run(code_tests.make({"sandbox": "namespaces"})(sample(text, ground_truth=ADD))) == 1.0
    elsewhere = sample([answer(RIGHT), "done"], ground_truth=ADD)
    assert asyncio.run(code_tests.make({"sandbox": "namespaces"})(elsewhere)) == 0.0


HACKS = {
    "sys.exit(0)": "import sys; sys.exit(0)",
    "os._exit(0)": "import os; os._exit(0)",
    "exit-at-import": "raise SystemExit",
    "monkeypatched-builtins": (
        "import builtins\nbuiltins.all = builtins.any = lambda *a: True\n"
        "builtins.map = lambda *a: [True]\nbuiltins.str = lambda *a: ''\nbuiltins.print = lambda *a, **k: None"
    ),
    "monkeypatched-asserts": (
        "import unittest, sys\nunittest.TestCase.assertEqual = lambda *a: None\nsys.excepthook = lambda *a: None\n"
        "sys.modules['unittest'] = None\nassert True"
    ),
    "patched-json": "import json\njson.dumps = lambda *a, **k: 'null'\njson.loads = lambda *a, **k: {}",
    "forged-result": _PIPES.format(
        'b\'{"status": "passed", "output": ""}\\n{"status": "ran", "verdict": "passed"}\\n\''
    ),
    "garbage-to-the-judge": _PIPES.format("b'garbage\\n'"),
    "deep-json-to-the-judge": _PIPES.format("b'[' * 200_000 + b'\\n'"),
    "results-are-a-folder": "import os; os.mkdir('results.json')",
    "results-on-a-full-disk": "import os; os.symlink('/dev/full', 'results.json')",
    "no-output-file": "import os; os.remove('.stdout')",
    "judge-stopped": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "judge-killed": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    "ten-megabytes": "import sys\nsys.stdout.write('1\\n' * 5_000_000)",
    "ten-megabytes-of-errors": "import sys\nsys.stderr.write('x' * 10_000_000)",
    "deep-recursion": "def f(): f()\nf()",
    "fork-bomb": "import os\nwhile True: os.fork()",
}


@pytest.mark.parametrize("hack", HACKS)
def test_a_trick_is_worth_nothing_and_never_an_error(hack: str) -> None:
    """An error would void the sample, which a policy that fails could wish for."""
    tests = {key: items[:2] for key, items in ADD.items()}
    assert value(code_tests, HACKS[hack], tests, partial=True, test_s=0.7) == 0.0


def test_printing_the_visible_example_fails_the_hidden_tests() -> None:
    shown = "print(1)"  # right for the first test, which the prompt may show
    assert value(code_tests, shown) == 0.0
    assert value(code_tests, shown, partial=True) == pytest.approx(0.1)  # all that partial credit gives away


def test_an_object_that_equals_everything_is_wrong() -> None:
    always = "    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
    for base in ("object", "int", "str", "list", "dict"):
        code = f"class E({base}):\n{always}    __hash__ = None\n\ndef double(x): return E()"
        assert value(code_tests, code, DOUBLE, partial=True, test_s=1.0) == 0.0
    assert value(code_tests, "def double(x): return 2 * x", DOUBLE) == 1.0


def test_a_value_too_deep_to_read_is_wrong_and_no_error() -> None:
    code = "def double(x):\n    for _ in range(100_000): x = [x]\n    return x"
    assert value(code_tests, code, DOUBLE, partial=True) == 0.0


def test_the_hidden_outputs_are_nowhere_to_be_found() -> None:
    code = """
import gc, glob, os, re, sys
found = set()
def look(text):
    found.update(re.findall(r"needle-[0-9a-f]{4}", text))
frame = sys._getframe()
while frame:
    for one in [*frame.f_locals.values(), *frame.f_globals.values()]:
        look(str(one)[:100_000])
    frame = frame.f_back
for one in gc.get_objects():
    if type(one) in (dict, list, tuple):
        for item in list(one.values() if type(one) is dict else one):
            if type(item) in (str, bytes):
                look(str(item))
for pid in [p for p in os.listdir("/proc") if p.isdigit()] + ["self"]:
    for name in ("cmdline", "environ", "maps"):
        try: look(open(f"/proc/{pid}/{name}", errors="replace").read())
        except OSError: pass
for folder in (".", "/tmp", "/home"):
    for path in glob.glob(folder + "/**", recursive=True, include_hidden=True):
        if os.path.isfile(path):
            look(open(path, errors="replace").read(1 << 20))
print(sorted(found)[0] if found else "nothing")
"""
    assert value(code_tests, code, NEEDLE, partial=True, test_s=5.0) == 0.0
    # The same program finds them in memory or in a file, if they are there.
    for plant in ("secret = [NEEDLE]", "open('x', 'w').write(NEEDLE)"):
        planted = plant.replace("NEEDLE", "'needle-' + '7f3a'") + code
        assert value(code_tests, planted, NEEDLE, partial=True, test_s=5.0) == 0.5


@pytest.mark.slow
def test_a_child_that_outlives_the_deadline_neither_wins_nor_holds_up_the_score() -> None:
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            try: open("results.json", "w").write('[{"status": "ran", "output": "1"}]')
            except OSError: pass
            print(1, flush=True)
            time.sleep(0.01)
time.sleep(60)
"""
    started = time.monotonic()
    assert value(code_tests, code, {key: items[:2] for key, items in ADD.items()}, partial=True, test_s=0.7) == 0.0
    assert time.monotonic() - started < 20.0


@pytest.mark.slow
def test_slow_programs_fail_within_the_time_of_all_tests() -> None:
    slow = f"import time; time.sleep(0.8)\n{RIGHT}"
    started = time.monotonic()
    share = value(code_tests, slow, partial=True, total_s=2.0)
    assert 0.0 < share <= 0.3  # a test takes 0.8 s: at most two of ten, or a third on a very uneven clock
    assert time.monotonic() - started < 10.0


def test_the_hardest_tests_have_the_longest_inputs_and_keep_their_order() -> None:
    tests = CodeTests(inputs=["333", "1", "4444", "22"], outputs=["c", "a", "d", "b"])
    assert list(hardest(tests, 2).inputs) == ["333", "4444"] and list(hardest(tests, 2).outputs) == ["c", "d"]
    assert hardest(tests, 4) is tests and hardest(tests, None) is tests
    easy = {"inputs": ["1", "1 2"], "outputs": ["wrong", "3"]}
    assert value(code_tests, "print(3)", easy, max_tests=1) == 1.0


@pytest.mark.parametrize(
    "options", [{"test_s": 0}, {"max_tests": 0}, {"sandbox": "none"}, {"at_least": "hope"}, {"tests": 3}]
)
def test_options_that_cannot_work_are_refused_when_the_rubric_is_read(options: dict[str, Any]) -> None:
    for name in ("code_tests", "coderl"):
        with pytest.raises(ConfigError):
            load_component(name).make(options)


def test_the_ranges_are_true_bounds() -> None:
    assert (code_tests.make({}).low, code_tests.make({}).high) == (0.0, 1.0)
    assert (coderl.make({}).low, coderl.make({}).high) == (-1.0, 1.0)
    assert CodeOptions().total_s + 5 < 30  # the rubric's own deadline
