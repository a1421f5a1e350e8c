"""Files that swebench 5.x reads: predictions, and a task repository."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.base.errors import DataError
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree, write_tree
from verl_agentic.swe.releases.package_names import normal_name

_REPOSITORY = "/testbed"
_SITE = "/opt/site"


def export_predictions(patches: Mapping[str, str | None], path: Path, *, model: str) -> int:
    """Writes predictions for `swebench eval -p`; returns how many.

    Args:
        patches: instance id -> unified diff, or None.
        path: file to write.
        model: name of the model in swebench's reports.
    """
    rows = ({"instance_id": name, "model_name_or_path": model, "model_patch": patch} for name, patch in patches.items())
    return write_json_lines(rows, path)


def export_task_repository(tasks: Sequence[RepoTask], store: TaskStore, folder: Path) -> int:
    """Writes a task repository for `swebench images build` and `swebench eval --task-repo`.

    Returns the number of tasks. Mined tasks get a Dockerfile, with the base tree and the test requirements beside it.
    Imported tasks need the image and the evaluation script of their rows.

    Raises:
        DataError: an imported task has no image or no evaluation script, or files of a mined task are missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_yaml(folder / "sweb.yaml", {"name": folder.name, "tasks": "tasks"})
    for task in tasks:
        _write_task(task, store, folder / "tasks" / task.instance_id)
    return len(tasks)


def eval_script(task: RepoTask) -> str:
    """Returns the script that puts the hidden tests in place and runs them, between swebench's markers."""
    if task.eval_script:
        return task.eval_script
    if not task.targets or task.kind == "imported":
        raise DataError(
            f"the task {task.instance_id} has no eval_script, got an imported row without it; "
            "download the dataset in the form of SWE-bench 5.x"
        )
    targets = shlex.join(task.targets)
    roots = ":".join([f"{_REPOSITORY}/{task.source_root}".rstrip("/"), _REPOSITORY, _SITE])
    options = "-rA -p no:cacheprovider -o addopts= --tb=short --continue-on-collection-errors"
    return "\n".join(
        [
            "#!/bin/bash",
            "set -uxo pipefail",
            f"cd {_REPOSITORY}",
            f"cp -r /opt/hidden_tests/. {_REPOSITORY}/",
            ": '>>>>> Start Test Output'",
            f"PYTHONPATH={roots} PYTHONDONTWRITEBYTECODE=1 TZ=UTC python -m pytest {options} {targets}",
            ": '>>>>> End Test Output'",
            "",
        ]
    )


def image_of(task: RepoTask) -> str:
    """Returns the task's image, or the name of the one that its Dockerfile makes."""
    if task.image:
        return task.image
    name = normal_name(task.instance_id.replace("__", "_1776_").replace("==", "-")).replace("1776-", "1776_")
    return f"verl-agentic/swe.{name}:latest"


def _write_task(task: RepoTask, store: TaskStore, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if task.kind == "imported" and not task.image:
        raise DataError(f"the task {task.instance_id} has no image, got an imported row without it; add the column")
    values: dict[str, Any] = {
        "instance_id": task.instance_id,
        "repo": task.repo,
        "version": task.version,
        "base_commit": task.base_commit,
        "split": "test",
        "image": image_of(task),
        "log_parser": task.log_parser,
        "eval_type": task.eval_type,
    }
    if not all(values[key] for key in ("log_parser", "eval_type")):
        raise DataError(f"the task {task.instance_id} has no log_parser, got {values}; use rows of SWE-bench 5.x")
    _write_yaml(folder / "task.yaml", values)
    tests = {"FAIL_TO_PASS": list(task.fail_to_pass), "PASS_TO_PASS": list(task.pass_to_pass)}
    texts = {
        "tests.json": json.dumps(tests, indent=2),
        "problem_statement.md": task.problem_statement,
        "hints.md": task.hints_text,
        "gold.patch": task.patch,
        "test.patch": task.test_patch,
        "eval.sh": eval_script(task),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "test_assets").mkdir(exist_ok=True)
    if task.kind != "imported":
        _write_image(task, store, folder)


def _write_image(task: RepoTask, store: TaskStore, folder: Path) -> None:
    """Writes a Dockerfile with the base tree, the hidden tests and the installed requirements beside it."""
    parts: Iterable[tuple[str, Mapping[str, bytes]]] = (
        ("repository", read_tree(store.base(task))),
        ("hidden_tests", store.hidden_tests(task)),
        ("site", read_tree(site) if (site := store.site(task)) is not None else {}),
    )
    for name, files in parts:
        (folder / name).mkdir(exist_ok=True)
        write_tree(files, folder / name)
    lines = [
        "FROM python:3.11-slim",
        "RUN apt-get update && apt-get install -y --no-install-recommends git patch && rm -rf /var/lib/apt/lists/*",
        f"COPY site {_SITE}",
        "COPY hidden_tests /opt/hidden_tests",
        f"COPY repository {_REPOSITORY}",
        f"WORKDIR {_REPOSITORY}",
        "RUN git init -q . && git add -A -f . && git -c user.name=base -c user.email=base@localhost commit -qm base",
        "",
    ]
    (folder / "Dockerfile").write_text("\n".join(lines), encoding="utf-8")


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
