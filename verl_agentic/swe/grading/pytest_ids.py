"""Names of tests that pytest can run, and tasks that have others."""

from __future__ import annotations

import re
from collections.abc import Iterable

from verl_agentic.base.errors import DataError
from verl_agentic.swe.grading.repo_task import RepoTask

_ID = re.compile(r"[^:\s]+\.(py|pyi|txt|rst|md)::.+", re.DOTALL)


def is_pytest_id(name: str) -> bool:
    """Returns whether a name is a pytest id: a file, and the test in it.

    Names of other runners are none (`test_x (app.tests.C)`, `test_x`, a docstring), and neither is an id whose
    parameters were cut at a space, as in some datasets (`tests/test_a.py::test_x[a`).
    """
    if not _ID.fullmatch(name):
        return False
    parameters = name.partition("::")[2].partition("[")
    return not parameters[1] or name.endswith("]")


def foreign_tests(task: RepoTask) -> tuple[str, ...]:
    """Returns the tests of a task for pytest that pytest cannot run."""
    if task.runner != "pytest":
        return ()
    return tuple(test for test in (*task.fail_to_pass, *task.pass_to_pass) if not is_pytest_id(test))


def require_pytest(tasks: Iterable[RepoTask]) -> None:
    """Refuses tasks whose tests are not all those of pytest: the grader would count these tests as failed.

    Raises:
        DataError: the message has their number.
    """
    tasks = list(tasks)
    if others := {task.instance_id: names for task in tasks if (names := foreign_tests(task))}:
        first, names = next(iter(others.items()))
        raise DataError(
            f"{len(others)} of {len(tasks)} tasks have tests that pytest cannot run (of Django, SymPy or R2E-Gym, or "
            f"cut at a space), got {names[0]!r} in {first}; leave these tasks out (verl-agentic swe import "
            "--pytest-only), or grade them with swebench"
        )
