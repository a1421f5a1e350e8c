"""Runs the tests of a repository with a runner whose report is read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from verl_agentic.base.deadlines import MIN_CODE_S, code_left_s
from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.sandbox.interface import Backend, Command, Lender, Sandbox
from verl_agentic.swe.grading.repo_task import read_tree
from verl_agentic.swe.grading.run_tests import LIMITS, OUTPUT_BYTES, Limits, TestRun, open_sandbox
from verl_agentic.swe.grading.runners.registry import toolchain_env
from verl_agentic.swe.grading.runners.report_runner import ReportRunner, TestOutcome

_NOT_FOUND = 127
_MAX_WHY = 1000


async def run_reported_tests(
    sandboxes: Backend | Lender,
    runner: ReportRunner,
    *,
    tree: Mapping[str, bytes] | Path,
    changed: Mapping[str, bytes | None] | None = None,
    targets: Sequence[str],
    image: str = "",
    limits: Limits = LIMITS,
) -> TestRun:
    """Runs tests in a fresh sandbox, one target after the other.

    Nothing protects a report from the code that is tested, so `grade` also runs poisoned tests. A target without a
    complete report has the outcome `error` under its own name, and none of its tests has an outcome.

    Use a backend that isolates. `local` is for trusted code only.

    Args:
        sandboxes: a pool or a started backend, with the toolchain (`toolchain_options`).
        runner: of the repository's language.
        tree: the repository with its tests, or its folder.
        changed: path -> new content of files that differ from the tree; None for deleted ones.
        targets: files or folders of tests.
        image: image of a container with the toolchain in its PATH; needs the backend `docker`.
        limits: of the whole run.

    Raises:
        DataError: there are no targets.
        SandboxError: the sandbox failed.
        ScoringError: the sandbox lacks the toolchain.
    """
    if not targets:
        raise DataError("a run needs tests, got no targets; name files or folders of tests")
    deadline = time.monotonic() + max(code_left_s(limits.wall_s), MIN_CODE_S)
    env = runner.env if image else toolchain_env(runner.name)
    base = dict(tree) if isinstance(tree, Mapping) else read_tree(tree)
    files = {path: content for path, content in {**base, **(changed or {})}.items() if content is not None}
    outcomes: dict[str, TestOutcome] = {}
    why: dict[str, str] = {}
    ended, cpu_s = True, 0.0
    async with open_sandbox(sandboxes, [], image) as sandbox:
        await sandbox.put_tree(files, at="repo")
        for target in targets:
            argv = ["bash", "-c", 'cd repo && exec "$@"', "bash", *runner.make_command(target)]
            left_s = max(deadline - time.monotonic(), MIN_CODE_S)
            command = Command(argv=argv, env=env)
            result = await sandbox.run(command, limits=replace(limits, wall_s=left_s, output_bytes=OUTPUT_BYTES))
            if result.exit_code == _NOT_FOUND:  # which code that is tested may return, too
                await _require_program(sandbox, runner, argv[4], env)
            cpu_s += result.cpu_s
            ended = ended and not (result.timed_out or result.oom)
            report = runner.read(result.stdout)
            outcomes |= {f"{target}::{name}": outcome for name, outcome in report.outcomes.items()}
            why |= {f"{target}::{name}": text for name, text in report.why.items()}
            if not report.outcomes:
                outcomes[target] = "error"
                why[target] = (result.stderr.strip() or result.stdout.strip())[-_MAX_WHY:]
    return TestRun(outcomes=outcomes, ended=ended, cpu_s=cpu_s, why=why)


async def _require_program(sandbox: Sandbox, runner: ReportRunner, program: str, env: Mapping[str, str]) -> None:
    """Raises ScoringError if the sandbox lacks the program of a runner."""
    command = Command(argv=["bash", "-c", 'command -v "$0"', program], env=env)
    if not (await sandbox.run(command, limits=Limits())).ok:
        raise ScoringError(
            f"the tests did not start, got no program {program!r} in the sandbox, which needs the toolchain of "
            f"{runner.language}; install it on this machine, or choose an image that has it"
        )
