"""The code verifier: what a test's verdict is, and that nothing a solution does turns it into a pass."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from verl_agentic.base.errors import DataError, SandboxUnavailableError, ScoringError
from verl_agentic.graders.code.compare_outputs import same_output, same_value
from verl_agentic.graders.code.extract_program import extract_code
from verl_agentic.graders.code.run_tests import CodeRules, CodeTests, TestReport, run_tests
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

ADD = CodeTests(inputs=[f"{n} {n + 1}\n" for n in range(10)], outputs=[f"{2 * n + 1}\n" for n in range(10)])
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"


@pytest.mark.parametrize(
    ("found", "expected", "is_same"),
    [("3", "3", True), ("3.0000001", "3", False), ("3", "3.0000001", True), ("3", "3.001", False)],
)
def test_only_expected_integers_must_match_exactly(found: str, expected: str, is_same: bool) -> None:
    assert same_output(found, expected, tolerance=1e-6) is is_same


def test_the_tolerance_is_relative_to_numbers_above_1_and_absolute_below() -> None:
    assert same_output("1000001.5", "1000000.5") and not same_output("1000002.5", "1000000.5")
    assert same_output("0.0000015", "0.000001") and not same_output("0.000003", "0.000001")


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    made = SandboxPool(NamespaceBackend(), PoolConfig(size=1, warm=0))
    try:
        await made.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    yield made
    await made.close()


async def test_seven_of_ten_is_seven_tenths_and_strictly_nothing(pool: SandboxPool) -> None:
    report = await run_tests(f"{RIGHT}\nif a >= 7: print('more')", ADD, pool)
    # vectors.json, V-CODE: passed 7 of 10 -> partial 0.7, DeepCoder 0
    assert (report.fraction, report.all_passed) == (0.7, 0.0)
    assert report.verdicts == ("passed",) * 7 + ("wrong",) * 3


async def test_a_right_solution_passes(pool: SandboxPool) -> None:
    assert (await run_tests(RIGHT, ADD, pool)).all_passed == 1.0


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("solution", "verdict"),
    [
        ("def f(:", "compile_error"),
        pytest.param("huge " * 10_000, "compile_error", id="too-long-for-the-compiler"),
        pytest.param("(" * 5_000 + ")" * 5_000, "compile_error", id="too-deep-for-the-compiler"),
        ("1 / 0", "error"),
        ("while True: pass", "timeout"),
        ("import time; time.sleep(60)", "timeout"),
        ("import os; os._exit(0)", "wrong"),
        ("import sys; sys.exit(3)", "error"),
        ("x = bytearray(10**10)", "error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "error"),
        ("while True: print('x' * 1000)", "error"),
        ("print(open('.tests/settings.json').read())", "wrong"),
    ],
)
async def test_no_way_to_fail_is_a_pass(solution: str, verdict: str, pool: SandboxPool) -> None:
    tests = CodeTests(inputs=ADD.inputs[:2], outputs=ADD.outputs[:2])
    assert (await run_tests(solution, tests, pool, test_s=0.5)).verdicts == (verdict, verdict)


async def test_a_solution_that_ends_its_judge_has_failed(pool: SandboxPool) -> None:
    report = await run_tests("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", ADD, pool)
    assert report.fraction == 0.0


async def test_a_solution_that_writes_the_results_itself_has_failed(pool: SandboxPool) -> None:
    forged = json.dumps([{"status": "ran", "output": "?"}] * 10)
    code = f"import os, signal\nopen('results.json', 'w').write({forged!r})\nos.kill(os.getppid(), signal.SIGKILL)"
    assert (await run_tests(code, ADD, pool)).fraction == 0.0


async def test_the_expected_outputs_do_not_go_inside(pool: SandboxPool) -> None:
    sent: list[Command] = []

    class Recorder:
        async def run(self, command: Command, *, limits: Limits) -> CommandResult:
            sent.append(command)
            return await pool.run(command, limits=limits)

    await run_tests("print(input())", CodeTests(inputs=["question"], outputs=["needle-7f3"]), Recorder())
    (command,) = sent
    everything = b"\n".join([(command.code or "").encode(), command.stdin, *command.files.values()])
    assert b"question" in everything and b"needle-7f3" not in everything
    assert not command.argv and not command.env


async def test_functions_and_methods_are_called_with_json(pool: SandboxPool) -> None:
    tests = CodeTests(inputs=["[1, 2]\n3", "[]\n1"], outputs=["[4, 5]", "[]"], fn_name="shift")
    function = "def shift(xs, k):\n    print('noise')\n    return [x + k for x in xs]"
    method = "class Solution:\n    def shift(self, xs, k):\n        return tuple(x + k for x in xs)"
    assert (await run_tests(function, tests, pool)).all_passed == 1.0
    assert (await run_tests(method, tests, pool)).all_passed == 1.0
    assert (await run_tests("def shift(xs, k): return xs", tests, pool)).verdicts == ("wrong", "passed")


async def test_names_of_the_usual_modules_are_there_only_when_wanted(pool: SandboxPool) -> None:
    tests = CodeTests(inputs=[""], outputs=["6 2"])
    code = "print(prod([1, 2, 3]), len(list(permutations('ab'))))"
    assert (await run_tests(code, tests, pool, rules=CodeRules(prelude=True))).all_passed == 1.0
    assert (await run_tests(code, tests, pool)).verdicts == ("error",)


async def test_tests_after_a_crash_can_be_left_out(pool: SandboxPool) -> None:
    report = await run_tests(f"{RIGHT}\n[0][a // 2]", ADD, pool, stop_at_failure=True)
    assert report.verdicts == ("passed", "passed", "error") + ("not_run",) * 7


async def test_a_judge_without_results_is_an_error_of_scoring_and_not_a_verdict() -> None:
    class Broken:
        async def run(self, command: Command, *, limits: Limits) -> CommandResult:
            return CommandResult(stdout="", stderr="no space left", exit_code=1, timed_out=False, wall_s=0.1)

    with pytest.raises(ScoringError, match="no space left"):
        await run_tests(RIGHT, ADD, Broken())


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        (" 1 2 \n\n3", "1 2\n3\n", True),
        ("1 2 3", "1 2\n3", False),
        ("0.3333333", "0.333333333", True),
        ("0.333", "0.333333333", False),
        ("10000001", "10000000", False),  # whole numbers are compared as such
        ("nan", "1", False),
        ("", "", True),
        ("yes", "YES", False),
    ],
)
def test_printed_outputs_are_compared_by_lines_or_as_numbers(found: str, expected: str, same: bool) -> None:
    assert same_output(found, expected) is same


def test_values_are_compared_as_json() -> None:
    assert same_value("[1, 2.0]", "[1, 2]")
    assert not same_value("5", "[5]")
    assert not same_value("[1]", "[1, 2]")
    assert not same_value("no json", "1")


def test_the_last_fenced_block_is_the_solution() -> None:
    assert extract_code("first ```python\nx = 1\n``` then ```py\nx = 2\n``` done") == "x = 2\n"
    assert extract_code("no code at all") is None


@pytest.mark.parametrize(
    "bad", ["no json", {"inputs": ["1"]}, {"inputs": [], "outputs": []}, {"inputs": ["1"], "outputs": []}]
)
def test_tests_that_are_none_are_an_error(bad: object) -> None:
    with pytest.raises(DataError):
        CodeTests.from_json(bad)  # type: ignore[arg-type]


def test_lines_in_lists_are_joined() -> None:
    tests = CodeTests.from_json('{"inputs": [["1", "2"]], "outputs": [[3]]}')
    assert (list(tests.inputs), list(tests.outputs)) == (["1\n2"], ["3"])


def test_a_report_counts_all_tests() -> None:
    assert TestReport(verdicts=("passed", "not_run", "timeout", "passed")).fraction == 0.5
