"""Runs the tests of a repository in a sandbox, with results that the code of the repository cannot send itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import json
import posixpath
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from verl_agentic.base.deadlines import MIN_CODE_S, code_left_s
from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.graders.code.patch_paths import is_harness, is_test
from verl_agentic.sandbox.boxes.box_client import DEFAULT_PATH
from verl_agentic.sandbox.interface import Backend, Command, CommandResult, Lender, Limits, Sandbox, Tree
from verl_agentic.swe.grading.accepted import folders_above
from verl_agentic.swe.grading.repo_task import read_tree
from verl_agentic.swe.grading.runners.report_runner import TestOutcome

LIMITS = Limits(wall_s=180.0, cpu_s=120, memory_mb=2048, processes=128, open_files=512)
"""Limits of one run of a test suite."""
TEST_S = 30.0
IMAGE_FOLDER = "/testbed"
"""Folder of the repository in images of SWE-bench, SWE-Gym, SWE-smith and R2E-Gym."""
IMAGE_ENV = {"PATH": f"/opt/miniconda3/envs/testbed/bin:{IMAGE_FOLDER}/.venv/bin:{DEFAULT_PATH}"}
"""Environment that finds the Python of these images."""
OUTPUT_BYTES = 32 << 20
"""Maximum size of the report of a run."""
_SOURCES = {
    f"grade/{name}": files("verl_agentic.swe.grading").joinpath(source).read_bytes()
    for name, source in (("harness.py", "pytest_harness.py"), ("audit_hook.py", "audit_hook.py"))
}
_OUTCOMES = frozenset(get_args(TestOutcome))
_SOURCE_ROOTS = ("src", "lib", "python")


@dataclass(frozen=True, order=True)
class Inspection:
    """One way in which code of the repository looked at what runs it (`audit_hook`)."""

    kind: str
    """`frames`, `reads` or `starts` of a process, or `changes` of a test module."""
    path: str
    """File of the nearest code of the repository."""
    line: int
    target: str
    """Field, function or file that was accessed."""


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """Results of one run of a repository's tests."""

    __test__ = False  # pytest would collect it because of its name

    outcomes: Mapping[str, TestOutcome]
    """Test -> outcome. A file that cannot be collected has the outcome `error` under its own name."""
    ended: bool
    """Whether pytest came to its announced end. If not, no outcome may count."""
    cpu_s: float = 0.0
    """CPU time of all tests, in seconds."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Test -> message of its failure."""
    tampered: tuple[str, ...] = ()
    """Attempts to change trusted files, pytest, or to send results. If there is one, `ended` is False."""
    inspections: frozenset[Inspection] = frozenset()

    @property
    def passed(self) -> frozenset[str]:
        """The tests that passed in the call phase; none if the run did not end."""
        return frozenset(test for test, outcome in self.outcomes.items() if outcome == "passed" and self.ended)


async def run_repository_tests(
    runner: Backend | Lender,
    *,
    tree: Mapping[str, bytes] | Path,
    changed: Mapping[str, bytes | None] | None = None,
    site: Path | None,
    targets: Sequence[str],
    image: str = "",
    limits: Limits = LIMITS,
    test_s: float = TEST_S,
    plugins: Sequence[str] = (),
) -> TestRun:
    """Runs tests with pytest in a fresh sandbox.

    A parent process starts pytest in a child and accepts one message per test. It signs the results with a secret that
    the child never has. The parent imports no code of the repository. Code of the repository runs in the same process
    as pytest, so it can still change what pytest reports: `grade` finds this with poisoned tests.

    Use a backend that isolates. `local` is for trusted code only.

    Args:
        runner: a pool or a started backend.
        tree: the repository with its tests, or its folder, which must not change while it is used.
        changed: path -> new content of files that differ from the tree; None for deleted ones.
        site: folder with pytest and the other requirements; None if the sandbox has them installed.
        targets: files or tests below the tree.
        image: image of a container with the repository in `IMAGE_FOLDER`; the tree is what that folder has, and is not
            written again. Needs the backend `docker`.
        limits: of the whole run; `output_bytes` is ignored. The wall time is less where a deadline around the call
            leaves less, so that runs one after the other never pass it: a run that is cut has not ended.
        test_s: maximum wall time of one test, in seconds. A slower test has failed; the others still run.
        plugins: modules of pytest plugins to load.

    Raises:
        DataError: there are no targets, or the site has a module of the repository.
        SandboxError: the sandbox failed.
        ScoringError: the sandbox lacks Python or pytest.
    """
    limits = replace(limits, wall_s=max(code_left_s(limits.wall_s), MIN_CODE_S))
    base = dict(tree) if isinstance(tree, Mapping) else _read_once(tree)
    if not image and _replaces_folder(base, changed or {}):
        tree = base  # that cannot be written over a tree
    is_sent = isinstance(tree, Mapping) and not image
    sent_files: dict[str, bytes | None] = {**(base if is_sent else {}), **(changed or {})}
    repository = {path for path in {**base, **sent_files} if sent_files.get(path, b"") is not None}
    job = {
        **_describe_repository(repository, site, targets),
        "plugins": list(plugins),
        "image_folder": IMAGE_FOLDER if image else "",
        "removed": [] if is_sent else [path for path in base if path not in repository],
        "test_s": test_s,
        "wall_s": max(limits.wall_s - 2.0, 1.0),
    }
    secret = secrets.token_bytes(32)
    read_only = [] if site is None else [Tree(source=site, at="site", read_only=True)]
    trees = [Tree(source=tree, at="repo"), *read_only] if isinstance(tree, Path) else read_only
    async with open_sandbox(runner, trees, image) as sandbox:
        command = _make_command(job, secret, sent_files, image=image)
        result = await sandbox.run(command, limits=replace(limits, output_bytes=OUTPUT_BYTES))
    return _read_results(result, secret)


def _replaces_folder(base: Mapping[str, Any], changed: Mapping[str, bytes | None]) -> bool:
    """Returns whether a new file is at the path of a folder, or below that of a file."""
    added = [path for path, content in changed.items() if content is not None and path not in base]
    folders = {folder for path in base for folder in folders_above(path)} if added else set()
    return any(path in folders or not base.keys().isdisjoint(folders_above(path)) for path in added)


def _make_command(
    job: Mapping[str, Any], secret: bytes, sent_files: Mapping[str, bytes | None], *, image: str
) -> Command:
    place = "changed" if image else "repo"
    return Command(
        argv=["python", "-I", "-B", "grade/harness.py", "grade/job.json", "grade/audit_hook.py"],
        stdin=secret,
        env=IMAGE_ENV if image else {},
        files={
            **_SOURCES,
            "grade/job.json": json.dumps(job).encode(),
            **{f"{place}/{path}": content for path, content in sent_files.items() if content is not None},
        },
    )


def _describe_repository(repository: Collection[str], site: Path | None, targets: Sequence[str]) -> dict[str, Any]:
    """Returns what the harness must know of the paths of a repository. Raises DataError as `run_repository_tests`."""
    if not targets:
        raise DataError("a run needs tests, got no targets; name files or tests of the tree")
    roots = source_roots(repository)
    if both := sorted(_find_modules(repository, roots) & site_modules(site)):
        raise DataError(f"the site has modules of the repository, got {both}; install the site without them")
    return {
        "targets": list(targets),
        "has_site": site is not None,
        "roots": roots,
        "test_folders": sorted({posixpath.dirname(p) or "." for p in repository if p.endswith(".py") and is_test(p)}),
        "trusted": [path for path in repository if is_test(path) or is_harness(path)],
        "hidden": [path for path in repository if is_test(path)],
    }


def source_roots(tree: Iterable[str]) -> list[str]:
    """Returns the folders of a tree that imports start from: `src`, `lib` or `python` with a package, then `.`."""
    paths = list(tree)
    roots = [root for root in _SOURCE_ROOTS if any(p.startswith(f"{root}/") and p.endswith(".py") for p in paths)]
    return [*(root for root in roots if f"{root}/__init__.py" not in paths), "."]


def site_modules(site: Path | None) -> frozenset[str]:
    """Returns the names of the modules in a folder of installed packages."""
    if site is None:
        return frozenset()
    names = (path.name for path in site.iterdir())
    return frozenset(name.split(".")[0] for name in names if not name.endswith((".dist-info", ".egg-info", ".pth")))


def _find_modules(tree: Iterable[str], roots: Iterable[str]) -> set[str]:
    names: set[str] = set()
    for root in roots:
        prefix = "" if root == "." else f"{root}/"
        for path in tree:
            parts = path.removeprefix(prefix).split("/")
            is_module = (len(parts) == 1 and path.endswith(".py")) or parts[1:] == ["__init__.py"]
            if path.startswith(prefix) and is_module and not is_test(path) and not is_harness(path):
                names.add(parts[0].removesuffix(".py"))
    return names - {"__init__"}


@functools.lru_cache(maxsize=8)
def _read_once(tree: Path) -> dict[str, bytes]:
    return read_tree(tree)


@contextlib.asynccontextmanager
async def open_sandbox(runner: Backend | Lender, trees: Sequence[Tree], image: str) -> AsyncIterator[Sandbox]:
    """Provides a fresh sandbox of a pool or of a backend."""
    if isinstance(runner, Lender):
        async with runner.lease(trees=trees, image=image or None) as sandbox:
            yield sandbox
        return
    sandbox = await runner.create(trees=trees, image=image or None)
    try:
        yield sandbox
    finally:
        await asyncio.shield(sandbox.close())


def _read_results(result: CommandResult, secret: bytes) -> TestRun:
    """Returns the signed results; nothing counts without a valid signature."""
    first, _, rest = result.stdout.partition("\n")
    if not first.startswith("ready "):
        if "could not be written" in result.stderr or not (result.timed_out or result.oom):
            raise ScoringError(
                f"the tests did not start, got exit code {result.exit_code} and {result.stderr[-500:]!r}; "
                "check that the sandbox has Python, disk space, and pytest in the site"
            )
        return TestRun(outcomes={}, ended=False, cpu_s=result.cpu_s)
    try:
        message = json.loads(rest)
        body = str(message["body"])
        if not hmac.compare_digest(message["mac"], hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()):
            raise ValueError("wrong signature")
        results: dict[str, Any] = json.loads(body)
    except (ValueError, KeyError, TypeError):
        return TestRun(outcomes={}, ended=False, cpu_s=result.cpu_s)
    tampered = tuple(results["tampered"])
    places = [(kind, *place.rpartition(":")[::2], target) for kind, place, target in results["inspections"]]
    return TestRun(
        outcomes={
            test: outcome if outcome in _OUTCOMES else "conflict" for test, outcome in results["outcomes"].items()
        },
        ended=bool(results["ended"]) and not tampered,
        cpu_s=float(results["cpu_s"]),
        why=results["why"],
        tampered=tampered,
        inspections=frozenset(Inspection(kind, path, int(line), target) for kind, path, line, target in places),
    )
