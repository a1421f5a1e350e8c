"""Makes a task from a base tree, a solution and the tests that tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.grading.run_tests import TestRun
from verl_agentic.swe.grading.tree_diffs import tree_diff
from verl_agentic.swe.outcomes import Comparison


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The release that a task comes from, and how its tests run."""

    package: str
    version: str
    archive: str
    sha256: str
    """Of the source distribution."""
    site: str
    """Key of the installed test requirements."""
    targets: tuple[str, ...]
    """Files of tests."""
    source_root: str

    @classmethod
    def of(cls, task: RepoTask) -> Origin:
        """Returns the origin of an existing task."""
        return cls(
            package=task.repo.partition("/")[2],
            version=task.version,
            archive=str(task.tree.get("sdist", "")),
            sha256=str(task.tree.get("sha256", "")),
            site=task.site,
            targets=task.targets,
            source_root=task.source_root,
        )


def with_changes(files: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Returns the files after changes; None removes a file."""
    return {path: content for path, content in {**files, **changes}.items() if content is not None}


def make_task(
    store: TaskStore,
    origin: Origin,
    *,
    kind: str,
    suffix: str = "",
    base: Mapping[str, bytes],
    solution: Mapping[str, bytes | None],
    hidden: Mapping[str, bytes],
    comparison: Comparison,
    after: TestRun,
    statement: str,
    hints: str = "",
    flags: Mapping[str, str] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> RepoTask:
    """Stores the files of a task and returns it.

    Args:
        store: takes base tree and hidden tests.
        origin: of the tree.
        kind: release, hunk, mutation or combined.
        suffix: distinguishes tasks of one release.
        base: tree that the agent gets.
        solution: path -> new content; None for removed files.
        hidden: tests that decide.
        comparison: tests by what the solution does to them.
        after: a run with the solution.
        statement, hints: what the agent reads, and a second form of it.
        flags: why the task may be unfair.
        provenance: what made the task.
    """
    visible = {path: base.get(path) for path in hidden}
    return RepoTask(
        instance_id=f"pypi__{origin.package}-{origin.version}{suffix}",
        repo=f"pypi/{origin.package}",
        version=origin.version,
        base_commit=store.add_tree(base),
        problem_statement=statement,
        hints_text=hints,
        patch=tree_diff({path: base.get(path) for path in solution}, solution),
        test_patch=tree_diff(visible, dict(hidden)),
        fail_to_pass=comparison.f2p,
        pass_to_pass=comparison.p2p,
        kind=kind,
        tests=store.add_tests(hidden),
        site=origin.site,
        targets=origin.targets,
        source_root=origin.source_root,
        tree={"sdist": origin.archive, "sha256": origin.sha256},
        test_s=round(after.cpu_s, 3),
        reference={test: outcome for test, outcome in after.outcomes.items() if outcome != "passed"},
        flags=flags or {},
        provenance=provenance or {},
    )
