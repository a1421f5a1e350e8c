"""Runs the program of a final answer on the hidden tests of its row, for the components that judge code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.code.compare_outputs import TOLERANCE
from verl_agentic.graders.code.extract_program import extract_code
from verl_agentic.graders.code.run_tests import CodeRules, CodeTests, TestReport, run_tests
from verl_agentic.rewards.sample import Sample
from verl_agentic.sandbox.interface import Runner
from verl_agentic.sandbox.isolation import DEFAULT_ISOLATION, Isolation
from verl_agentic.sandbox.pools.backends import NAMES
from verl_agentic.sandbox.pools.process_pool import shared_pool


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """Sandbox and limits of programs: the options of `code_tests` and `coderl`."""

    test_s: float = 5.0
    """Maximum wall time of one test, in seconds; slower tests fail."""
    total_s: float = 20.0
    """Maximum wall time of all tests together, in seconds; tests that do not run in time fail. A deadline of the
    component (`timeout_s`) that is less than 10 s longer cuts it. The wait for a sandbox counts against neither."""
    max_tests: int | None = None
    """Maximum number of tests, those with the longest inputs; None: all."""
    memory_mb: int = 1024
    """Maximum address space of one test, in MiB."""
    sandbox: str = "auto"
    """Backend: `auto`, `namespaces`, `docker`, `landlock`, `remote` or `local`."""
    at_least: str = DEFAULT_ISOLATION.name.lower()
    """Minimum isolation."""
    language: str = "python"
    """See `CodeRules.language`."""
    prelude: bool = False
    """See `CodeRules.prelude`: names of the usual modules, as LiveCodeBench's starter code expects."""
    checker: str = "lines"
    """See `CodeRules.checker`: `lines`, `tokens`, `ignore_case`, `exact`, or a function of yours."""
    tolerance: float = TOLERANCE
    """See `CodeRules.tolerance`."""
    rules: CodeRules = field(init=False)
    """The last four options together."""

    def __post_init__(self) -> None:
        if self.sandbox not in NAMES:
            raise ConfigError(f"sandbox must be one of {NAMES}, got {self.sandbox!r}; name one of them")
        Isolation.parse(self.at_least)
        amounts = {"test_s": self.test_s, "total_s": self.total_s, "memory_mb": self.memory_mb}
        for name, value in amounts.items():
            if not value > 0:
                raise ConfigError(f"{name} must be greater than 0, got {value}; raise it")
        if self.max_tests is not None and self.max_tests < 1:
            raise ConfigError(f"max_tests must be at least 1, got {self.max_tests}; leave it out to run all tests")
        rules = CodeRules(language=self.language, prelude=self.prelude, checker=self.checker, tolerance=self.tolerance)
        object.__setattr__(self, "rules", rules)

    @classmethod
    def of(cls, options: dict[str, Any]) -> CodeOptions:
        """Reads the options of a rubric. Raises ConfigError if an option is unknown or out of range."""
        option_names = [name for name, field in cls.__dataclass_fields__.items() if field.init]
        if unknown := sorted(options.keys() - set(option_names)):
            raise ConfigError(f"unknown options, got {unknown}; known ones: {sorted(option_names)}")
        return cls(**options)


async def run_answer(
    sample: Sample, options: CodeOptions, *, stop_at_failure: bool = False, runner: Runner | None = None
) -> TestReport | None:
    """Runs the program of the final answer (see `extract_code`) on its tests; None if there is no program.

    Args:
        sample: its ground truth has the form of `CodeTests.from_json`.
        options: sandbox and limits.
        stop_at_failure: skips the tests after the first one that did not finish.
        runner: a sandbox or pool instead of the one in the options.

    Raises:
        DataError: the ground truth has another form.
        SandboxError: the sandbox failed.
        ScoringError: the tests gave no results, for reasons other than the program.
    """
    # Reading large tests or answers may take a second.
    tests = await asyncio.to_thread(CodeTests.from_json, sample.ground_truth)
    code = await asyncio.to_thread(extract_code, sample.final_answer, fn_name=tests.fn_name, language=options.language)
    if code is None:
        return None
    return await run_tests(
        code,
        hardest(tests, options.max_tests),
        runner or shared_pool(options.sandbox, at_least=options.at_least),
        test_s=options.test_s,
        total_s=options.total_s,
        memory_mb=options.memory_mb,
        stop_at_failure=stop_at_failure,
        rules=options.rules,
    )


def hardest(tests: CodeTests, count: int | None) -> CodeTests:
    """Returns the `count` tests with the longest inputs, in their order; None: all."""
    if count is None or count >= len(tests.inputs):
        return tests
    longest = sorted(range(len(tests.inputs)), key=lambda index: -len(tests.inputs[index]))[:count]
    chosen = sorted(longest)
    return replace(
        tests, inputs=[tests.inputs[index] for index in chosen], outputs=[tests.outputs[index] for index in chosen]
    )
