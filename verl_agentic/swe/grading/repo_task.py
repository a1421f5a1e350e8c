"""Tasks that fix a repository, and the folder that holds their files.

DIR/tasks.jsonl           one task per line
DIR/trees/<sha256>/       base trees, without the fix and without the hidden tests
DIR/tests/<sha256>/       hidden tests, by their paths in the repository
DIR/sites/<key>/          installed requirements of the tests
"""

from __future__ import annotations

import ast
import compileall
import hashlib
import json
import os
import py_compile
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError

KINDS = ("release", "hunk", "mutation", "combined", "imported")
RUNNERS = ("pytest", "node", "go", "cargo")
_NAMES = {"fail_to_pass": "FAIL_TO_PASS", "pass_to_pass": "PASS_TO_PASS"}
_TASKS = "tasks.jsonl"


@dataclass(frozen=True, kw_only=True)
class RepoTask:
    """A change to make in a repository, and the tests that decide. A superset of a row of SWE-bench 5.x."""

    instance_id: str
    repo: str
    """`pypi/NAME` for mined tasks, `owner/name` for imported ones."""
    version: str = ""
    base_commit: str = ""
    """Key of the base tree in the store; a commit for imported tasks."""
    problem_statement: str
    hints_text: str = ""
    """A second statement: the failing test's call with got and expected."""
    patch: str = ""
    """Unified diff of the reference solution."""
    test_patch: str = ""
    """Unified diff from the visible to the hidden tests."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    log_parser: str = "parse_log_pytest"
    eval_type: str = "pass_and_fail"
    eval_script: str = ""
    image: str = ""
    """Docker image with the repository; empty for mined tasks."""
    kind: str = "release"
    """One of `KINDS`."""
    tests: str = ""
    """Key of the hidden tests in the store."""
    site: str = ""
    """Key of the installed test requirements in the store."""
    runner: str = "pytest"
    """What runs the tests, one of `RUNNERS`."""
    targets: tuple[str, ...] = ()
    """Files of tests to run; for `go`, folders of packages."""
    source_root: str = ""
    """Folder with the modules, relative to the tree: `src`, or empty for the tree itself."""
    tree: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the tree: name and sha256 of the sdist."""
    test_s: float = 0.0
    """CPU time of all tests, in seconds."""
    reference: Mapping[str, str] = field(default_factory=dict)
    """Test -> its outcome with the reference solution."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Why the task may be unfair: flag -> explanation."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, line: str | Mapping[str, Any]) -> RepoTask:
        """Returns the task of one JSON line or object; other keys go to `provenance["columns"]`.

        Raises:
            DataError: it is no JSON object, a column is missing, or a list of tests is malformed.
        """
        row = _parse_row(line)
        fields_by_column = {_NAMES.get(task_field.name, task_field.name): task_field.name for task_field in fields(cls)}
        values = {
            fields_by_column[key]: value for key, value in row.items() if key in fields_by_column and value is not None
        }
        required = ("instance_id", "repo", "problem_statement", "fail_to_pass")
        missing = [_NAMES.get(name, name) for name in required if name not in values]
        if missing:
            raise DataError(f"a task lacks {missing}, got the columns {sorted(row)}; run verl-agentic swe import first")
        for name in ("fail_to_pass", "pass_to_pass", "targets"):
            values[name] = names_of_tests(values.get(name, ()), column=_NAMES.get(name, name))
        others = {key: value for key, value in row.items() if key not in fields_by_column}
        if others:
            values["provenance"] = {**values.get("provenance", {}), "columns": others}
        if values.get("kind", "release") not in KINDS:
            raise DataError(f"kind must be one of {', '.join(KINDS)}, got {values['kind']!r}; fix the task")
        if values.get("runner", "pytest") not in RUNNERS:
            raise DataError(f"runner must be one of {', '.join(RUNNERS)}, got {values['runner']!r}; fix the task")
        return cls(**values)

    def to_json(self) -> str:
        """Returns one JSON line. The lists of tests are JSON text, as in SWE-bench."""
        row = {
            _NAMES.get(task_field.name, task_field.name): getattr(self, task_field.name) for task_field in fields(self)
        }
        row.update({name: json.dumps(list(row[name])) for name in _NAMES.values()})
        return json.dumps(row, ensure_ascii=False, default=dict)


class TaskStore:
    """A folder of tasks and their files. Trees, tests and sites are named by their content."""

    def __init__(self, folder: Path) -> None:
        """Takes the folder, which may be missing, or its `tasks.jsonl`."""
        self.folder = folder.parent if folder.suffix == ".jsonl" else folder
        self.path = folder if folder.suffix == ".jsonl" else folder / _TASKS

    def tasks(self) -> Iterator[RepoTask]:
        """Yields the tasks.

        Raises:
            DataError: the file is missing, or a line is no task.
        """
        if not self.path.is_file():
            raise DataError(f"no file of tasks, got {self.path}; make one with verl-agentic swe mine")
        with self.path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield RepoTask.from_json(line)
                except DataError as cause:
                    raise DataError(f"{self.path}:{number}: {cause}") from cause

    def write(self, tasks: Sequence[RepoTask]) -> None:
        """Writes the file of tasks atomically."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        partial.write_text("".join(f"{task.to_json()}\n" for task in tasks), encoding="utf-8")
        partial.replace(self.path)

    def base(self, task: RepoTask) -> Path:
        """Returns the folder of the base tree. Raises DataError if it is missing."""
        return self._find_folder("trees", task.base_commit, task)

    def hidden_tests(self, task: RepoTask) -> Mapping[str, bytes]:
        """Returns path in the repository -> content of the hidden tests. Raises DataError if they are missing."""
        return read_tree(self._find_folder("tests", task.tests, task))

    def site(self, task: RepoTask) -> Path | None:
        """Returns the folder of installed test requirements, or None if the task has none."""
        return self._find_folder("sites", task.site, task) if task.site else None

    def add_tree(self, files: Mapping[str, bytes]) -> str:
        """Stores a base tree and returns its key."""
        return self._add_files("trees", files)

    def add_tests(self, files: Mapping[str, bytes]) -> str:
        """Stores hidden tests and returns their key."""
        return self._add_files("tests", files)

    def add_site(self, folder: Path, *, key: str) -> None:
        """Moves a folder of installed packages into the store and compiles it; an existing one of this key stays.

        Compiling runs no code of the packages. It saves a third of a second of CPU time in every run of the tests.
        """
        target = self.folder / "sites" / key
        if target.is_dir():
            shutil.rmtree(folder)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        hashed = py_compile.PycInvalidationMode.UNCHECKED_HASH  # times of files differ inside of a sandbox
        compileall.compile_dir(folder, quiet=2, invalidation_mode=hashed, stripdir=str(folder))
        partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=".partial-"))
        _rename_folder(Path(shutil.move(folder, partial / key)), target)
        shutil.rmtree(partial, ignore_errors=True)

    def _find_folder(self, kind: str, key: str, task: RepoTask) -> Path:
        folder = self.folder / kind / key
        if not key or not folder.is_dir():
            raise DataError(
                f"the store has no {kind} of the task {task.instance_id}, got {folder}; copy the whole folder of "
                "verl-agentic swe mine, or use an environment with images for imported tasks"
            )
        return folder

    def _add_files(self, kind: str, files: Mapping[str, bytes]) -> str:
        key = tree_key(files)
        target = self.folder / kind / key
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=".partial-"))
            write_tree(files, partial)
            for path in partial.rglob("*"):
                path.chmod(0o555 if path.is_dir() else 0o444)
            partial.chmod(0o555)
            _rename_folder(partial, target)
        return key


def _rename_folder(partial: Path, target: Path) -> None:
    """Renames a folder; removes it if another process was faster."""
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        remove_tree(partial)


def read_tree(folder: Path, *, with_bytecode: bool = False) -> dict[str, bytes]:
    """Returns path -> content of the regular files below a folder. Links are skipped.

    Args:
        folder: to read.
        with_bytecode: also returns bytecode. Only that of a store's sites can be trusted.
    """
    files: dict[str, bytes] = {}
    for root, names, file_names in os.walk(folder):
        names[:] = sorted(name for name in names if with_bytecode or name != "__pycache__")
        for name in sorted(file_names):
            path = Path(root, name)
            is_kept = with_bytecode or not name.endswith((".pyc", ".pyo"))
            if is_kept and path.is_file() and not path.is_symlink():
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def write_tree(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files below a folder. Raises DataError if a path leaves it."""
    for name, content in files.items():
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"a path of a tree must lie below it, got {name!r}; remove the file")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def remove_tree(folder: Path) -> None:
    """Removes a folder with read-only folders inside."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


def tree_key(files: Mapping[str, bytes]) -> str:
    """Returns the sha256 of paths and contents."""
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def names_of_tests(value: Any, *, column: str) -> tuple[str, ...]:
    """Returns a list of test ids from a list, an array, or the text of a list in JSON or Python. Raises DataError for
    anything else."""
    names = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(names, str):
        names = _parse_literal(names)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"{column} must be a list of test ids, or its text in JSON or Python, got {str(value)[:80]!r}; fix it"
        )
    return tuple(names)


def _parse_literal(text: str) -> Any:
    """Returns the value of a text in JSON, or else in Python; None for other texts."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


def _parse_row(line: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(line, Mapping):
        return line
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise DataError(f"a task must be a JSON object, got {line[:80]!r}; write one object per line")
    return row
