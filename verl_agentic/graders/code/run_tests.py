"""Runs a program on hidden tests in a sandbox, and compares its outputs outside of it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal

from verl_agentic.base.deadlines import MIN_CODE_S, code_left_s
from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.base.places.error_places import describe_cause
from verl_agentic.graders.code.compare_outputs import CHECKERS, TOLERANCE, load_checker, same_output, same_value
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Runner
from verl_agentic.sandbox.run_code.languages import LANGUAGES

TestVerdict = Literal["passed", "wrong", "error", "timeout", "compile_error", "not_run"]
_FAILURES: dict[str, TestVerdict] = {"timeout": "timeout", "compile_error": "compile_error", "not_run": "not_run"}
_HARNESS = files("verl_agentic.graders.code").joinpath("code_harness.py").read_text(encoding="utf-8")
_OUTPUT_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_FILE_MB = 64
_START_S = 5.0  # on a busy machine
_COMPILE_S = 30.0
_CPU_S = 1  # beside the test's own


@dataclass(frozen=True, kw_only=True)
class CodeRules:
    """Rules for running programs and comparing their outputs."""

    language: str = "python"
    """Name in `sandbox.run_code.languages.LANGUAGES`; the sandbox must have its compiler."""
    prelude: bool = False
    """Python only: gives programs the names of common modules (`List`, `sqrt`, `math`). They never shadow builtins."""
    checker: str = "lines"
    """Comparison of outputs: `lines`, `tokens`, `exact` or `ignore_case`, or your function for problems with several
    right answers (`package.module:function` or `path/file.py:function`). It gets input, found and expected
    output. With `fn_name`, results are compared as JSON unless you give a function."""
    tolerance: float = TOLERANCE
    """Maximum absolute or relative error of expected numbers that are not integers."""

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ConfigError(f"language must be one of {sorted(LANGUAGES)}, got {self.language!r}; name one of them")
        if not 0 <= self.tolerance < 1:
            raise ConfigError(f"tolerance must be at least 0 and below 1, got {self.tolerance}; 1e-6 is usual")
        if self.checker not in CHECKERS:
            load_checker(self.checker)

    def is_right(self, test_input: str, output: str, expected: str, tests: CodeTests) -> bool:
        """Returns whether an output is right. Raises ScoringError if the user's checker failed."""
        if checker := load_checker(self.checker):
            try:
                return bool(checker(test_input, output, expected))
            except Exception as cause:
                raise ScoringError(
                    f"the checker {self.checker!r} failed, got {describe_cause(cause)}; fix it"
                ) from cause
        if tests.fn_name is None:
            return same_output(output, expected, checker=self.checker, tolerance=self.tolerance)
        if same_value(output, expected, tolerance=self.tolerance):
            return True
        return tests.is_wrapped and same_value(f"[{output}]", expected, tolerance=self.tolerance)


DEFAULT_RULES = CodeRules()


@dataclass(frozen=True, kw_only=True)
class CodeTests:
    """Tests of one task, in the form of APPS and TACO."""

    inputs: Sequence[str]
    """Inputs on stdin; with `fn_name`, the arguments, one JSON value per line."""
    outputs: Sequence[str]
    """Expected outputs; with `fn_name`, results as JSON."""
    fn_name: str | None = None
    """Function, or method of a class `Solution`, to call; None for programs that read and print."""
    is_wrapped: bool = False
    """Whether each expected result is wrapped in a list of one, as in APPS; the bare result is also right."""

    def __post_init__(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise DataError(
                f"tests need as many outputs as inputs, and at least one, got {len(self.inputs)} inputs and "
                f"{len(self.outputs)} outputs"
            )

    @classmethod
    def from_json(cls, text: str | dict[str, Any]) -> CodeTests:
        """Reads tests from a row's `ground_truth`: an object with `inputs`, `outputs` and optionally `fn_name`.

        Lists are the lines of a text. With `fn_name`, input lists are arguments, and outputs are results, or lists of
        one result as in APPS. Input texts have one JSON value per line, and their outputs are JSON. A text that is not
        JSON is taken as a string.

        Raises:
            DataError: the ground truth has another form.
        """
        try:
            values = json.loads(text) if isinstance(text, str) else text
            fn_name, raw_inputs, expected = values.get("fn_name"), values["inputs"], values["outputs"]
            if not fn_name:
                inputs, outputs = [_to_text(item) for item in raw_inputs], [_to_text(item) for item in expected]
            elif all(isinstance(item, list) for item in raw_inputs):
                inputs = ["\n".join(map(json.dumps, item)) for item in raw_inputs]
                outputs = [json.dumps(item) for item in expected]
            else:
                inputs = ["\n".join(_to_json(line) for line in item.split("\n") if line.strip()) for item in raw_inputs]
                outputs = [_to_json(item) for item in expected]
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise DataError(
                f'tests must be {{"inputs": [...], "outputs": [...]}}, got {str(text)[:200]!r}; fix the row'
            ) from cause
        is_wrapped = bool(fn_name) and all(isinstance(item, list) and len(item) == 1 for item in expected)
        return cls(inputs=inputs, outputs=outputs, fn_name=fn_name or None, is_wrapped=is_wrapped)

    def part(self, first: int, last: int) -> CodeTests:
        """Returns the tests `first` to `last`, exclusive."""
        return replace(self, inputs=self.inputs[first:last], outputs=self.outputs[first:last])


@dataclass(frozen=True, kw_only=True)
class TestReport:
    """The result of every test."""

    __test__ = False  # pytest would collect it because of its name

    verdicts: tuple[TestVerdict, ...]
    outputs: tuple[str, ...] = ()
    """Output or result of each test, or the reason of its failure; empty if it did not run."""

    @property
    def fraction(self) -> float:
        """Share of passed tests: partial credit."""
        return sum(v == "passed" for v in self.verdicts) / len(self.verdicts)

    @property
    def all_passed(self) -> float:
        """1 if every test passed, else 0 (DeepCoder)."""
        return float(all(v == "passed" for v in self.verdicts))


async def run_tests(
    solution: str,
    tests: CodeTests,
    runner: Runner,
    *,
    test_s: float = 5.0,
    total_s: float | None = None,
    memory_mb: int = 1024,
    stop_at_failure: bool = False,
    rules: CodeRules = DEFAULT_RULES,
) -> TestReport:
    """Runs a solution on all tests, each in a separate process, as `python solution.py < input` would.

    The sandbox gets only the inputs. Expected outputs stay here and are compared in a thread.

    Args:
        solution: source of the program.
        runner: a sandbox or a pool.
        test_s: maximum wall time of one test, in seconds; slower tests fail.
        total_s: maximum wall time of all tests together; by default `test_s` for each. Less where a deadline around the
            call leaves less; tests that do not run in time have failed.
        memory_mb: maximum address space of one test, in MiB; contest templates reserve stacks of 512.
        stop_at_failure: skips the tests after the first one that did not finish.

    Raises:
        ConfigError: the sandbox lacks the language, or tests call a function in a language other than Python.
        SandboxError: the sandbox failed.
        ScoringError: the harness gave no results for reasons other than the program, or a checker failed.
    """
    if tests.fn_name and rules.language != "python":
        raise ConfigError(f"tests that call a function need Python, got {rules.language!r}; give programs that print")
    left_s = min(total_s or math.inf, test_s * len(tests.inputs))
    verdicts: list[TestVerdict] = []
    outputs: list[str] = []
    for first, last in _iter_batches(tests):
        part = tests.part(first, last)
        left_s = max(code_left_s(left_s + _START_S) - _START_S, MIN_CODE_S)
        command, limits = _make_command(solution, part, rules, test_s, left_s, memory_mb, stop_at_failure)
        result = await runner.run(command, limits=limits)
        report = await asyncio.to_thread(_judge_outputs, result, part, rules)
        verdicts += report.verdicts
        outputs += report.outputs
        left_s -= result.wall_s
        is_over = stop_at_failure and any(verdict not in ("passed", "wrong") for verdict in report.verdicts)
        if is_over or left_s <= 0 or "compile_error" in report.verdicts:
            break
    rest = len(tests.inputs) - len(verdicts)
    missing: TestVerdict = "compile_error" if "compile_error" in verdicts else "not_run"
    verdicts.extend(missing for _ in range(rest))
    return TestReport(verdicts=tuple(verdicts), outputs=(*outputs, *("",) * rest))


def _iter_batches(tests: CodeTests) -> Iterator[tuple[int, int]]:
    """Yields ranges of tests that fit into a sandbox together."""
    first, size = 0, 0
    for index, (test_input, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True)):
        more = len(test_input) + len(expected)
        if index > first and size + more > _BATCH_BYTES:
            yield first, index
            first, size = index, 0
        size += more
    yield first, len(tests.inputs)


def _compute_output_limit(expected: str) -> int:
    """Returns the maximum output size: a power of two, so that it reveals little about the expected output."""
    return max(_OUTPUT_BYTES, 1 << (4 * len(expected)).bit_length())


def _make_command(
    solution: str,
    tests: CodeTests,
    rules: CodeRules,
    test_s: float,
    total_s: float,
    memory_mb: int,
    stop_at_failure: bool,
) -> tuple[Command, Limits]:
    language, count = LANGUAGES[rules.language], len(tests.inputs)
    settings = {
        "count": count,
        "fn_name": tests.fn_name,
        "compile": list(language.compile),
        "run": list(language.run),
        "prelude": rules.prelude,
        "test_s": test_s,
        "total_s": total_s,
        "output_bytes": max(map(_compute_output_limit, tests.outputs)),
        "stop_at_failure": stop_at_failure,
    }
    command = Command(
        code=_HARNESS,
        files={
            language.source or "solution.py": solution.encode("utf-8", "replace"),
            ".tests/settings.json": json.dumps(settings).encode(),
            # Uses Unix line ends.
            **{
                f".tests/in.{index}": test_input.replace("\r\n", "\n").encode("utf-8", "surrogateescape")
                for index, test_input in enumerate(tests.inputs)
            },
        },
        outputs=["results.json", *(f".tests/out.{index}" for index in range(count))],
    )
    limits = Limits(
        wall_s=total_s + _START_S + (_COMPILE_S if language.compile else 0.0),
        cpu_s=math.ceil(test_s) + _CPU_S,
        memory_mb=max(memory_mb, language.memory_mb),
        file_mb=_FILE_MB,
    )
    return command, limits


def _judge_outputs(result: CommandResult, tests: CodeTests, rules: CodeRules) -> TestReport:
    count = len(tests.outputs)
    all_failed = TestReport(verdicts=("error",) * count, outputs=("",) * count)
    if "results.json" not in result.files:
        was_started = result.stdout.startswith("started")
        if was_started or result.oom or result.timed_out or result.exit_code < 0:
            return all_failed  # the solution killed the harness
        raise ScoringError(f"the test harness gave no results, got {result.stderr[-500:]!r}")
    try:
        test_results = [
            (str(record["status"]), str(record.get("output") or ""))
            for record in json.loads(result.files["results.json"])
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return all_failed  # only the solution can have written something else
    if len(test_results) != count:
        return all_failed
    if test_results[0][0] == "missing" and not result.stdout.startswith("started"):
        raise ConfigError(f"the sandbox lacks {test_results[0][1]!r} for programs in {rules.language!r}; add it")
    verdicts: list[TestVerdict] = []
    outputs: list[str] = []
    for index, (status, output) in enumerate(test_results):
        if status == "ran":
            output = result.files.get(f".tests/out.{index}", b"").decode("utf-8", "replace")
            is_right = rules.is_right(tests.inputs[index], output, tests.outputs[index], tests)
            verdicts.append("passed" if is_right else "wrong")
        else:
            verdicts.append(_FAILURES.get(status, "error"))
        outputs.append(output)
    return TestReport(verdicts=tuple(verdicts), outputs=tuple(outputs))


def _to_text(item: Any) -> str:
    return "\n".join(map(str, item)) if isinstance(item, list) else item if isinstance(item, str) else json.dumps(item)


def _to_json(item: Any) -> str:
    """Returns a value as JSON; a text that is already JSON stays unchanged."""
    try:
        json.loads(item, parse_int=str)  # of any length
    except (ValueError, RecursionError):
        return json.dumps(item)
    return item
