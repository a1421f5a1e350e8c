"""Runs the program of a final answer on the hidden tests of its row; what the components that judge code share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from verl_agentic.errors import ConfigError
from verl_agentic.rewards.code.compare_outputs import TOLERANCE
from verl_agentic.rewards.code.extract_program import extract_code
from verl_agentic.rewards.code.run_tests import CodeRules, CodeTests, TestReport, run_tests
from verl_agentic.rewards.sample import Sample
from verl_agentic.sandbox.backends import NAMES
from verl_agentic.sandbox.interface import Runner
from verl_agentic.sandbox.isolation import DEFAULT_ISOLATION, Isolation
from verl_agentic.sandbox.process_pool import shared_pool


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """Where programs run, and how long; the options of `code_tests` and `coderl`."""

    test_s: float = 5.0
    """Wall time of one test, in seconds; one that takes longer has failed."""
    total_s: float = 20.0
    """Wall time of all tests together; those that it leaves no time for have failed. The rubric's `timeout_s` must be
    longer by the wait for a sandbox and its start (5 s), else a slow program is an error and no failure."""
    max_tests: int | None = None
    """Most tests that are run: those with the longest inputs; None for all."""
    memory_mb: int = 1024
    """Addresses that one test may reserve, in MiB."""
    sandbox: str = "auto"
    """Backend: `auto`, `namespaces`, `docker`, `landlock`, `remote` or `local`."""
    at_least: str = DEFAULT_ISOLATION.name.lower()
    """Weakest isolation that is allowed."""
    language: str = "python"
    """See `CodeRules.language`."""
    prelude: bool = False
    """See `CodeRules.prelude`: names of the usual modules, as LiveCodeBench's starter code expects."""
    checker: str = "lines"
    """See `CodeRules.checker`: `lines`, `tokens`, `ignore_case`, `exact`, or a function of yours."""
    tolerance: float = TOLERANCE
    """See `CodeRules.tolerance`."""
    rules: CodeRules = field(init=False)
    """The last four together."""

    def __post_init__(self) -> None:
        if self.sandbox not in NAMES:
            raise ConfigError(f"sandbox must be one of {NAMES}, got {self.sandbox!r}; name one of them")
        Isolation.parse(self.at_least)
        least = {"test_s": self.test_s, "total_s": self.total_s, "memory_mb": self.memory_mb}
        for name, value in least.items():
            if not value > 0:
                raise ConfigError(f"{name} must be greater than 0, got {value}; raise it")
        if self.max_tests is not None and self.max_tests < 1:
            raise ConfigError(f"max_tests must be at least 1, got {self.max_tests}; leave it out to run all tests")
        rules = CodeRules(language=self.language, prelude=self.prelude, checker=self.checker, tolerance=self.tolerance)
        object.__setattr__(self, "rules", rules)

    @classmethod
    def of(cls, options: dict[str, Any]) -> CodeOptions:
        """Returns the options of a rubric.

        Raises:
            ConfigError: unknown ones, or values that cannot work.
        """
        known = [name for name, one in cls.__dataclass_fields__.items() if one.init]
        if unknown := sorted(options.keys() - set(known)):
            raise ConfigError(f"unknown options, got {unknown}; known ones: {sorted(known)}")
        return cls(**options)


async def run_answer(
    sample: Sample, options: CodeOptions, *, stop_at_failure: bool = False, runner: Runner | None = None
) -> TestReport | None:
    """Returns what became of the program of the final answer (see `extract_code`); None where there is none.

    Args:
        sample: its ground truth has the form that `CodeTests.from_json` takes.
        options: where it runs, and how long.
        stop_at_failure: leave out the tests after the first one that did not run to its end.
        runner: a sandbox or pool of the caller, such as one with packages, in place of the one that the options name.

    Raises:
        DataError: the ground truth is none.
        SandboxError: the sandbox failed.
        ScoringError: the tests gave no results, and it was not the program's doing.
    """
    # Reading may take a second where tests, or the answer, are large.
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
    """Returns the `count` tests with the longest inputs, in their order; all where there are no more."""
    if count is None or count >= len(tests.inputs):
        return tests
    longest = sorted(range(len(tests.inputs)), key=lambda index: -len(tests.inputs[index]))[:count]
    chosen = sorted(longest)
    return replace(
        tests, inputs=[tests.inputs[index] for index in chosen], outputs=[tests.outputs[index] for index in chosen]
    )
