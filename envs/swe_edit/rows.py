"""Rows: an issue with the localised parts of a repository."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.graders.components.retrieval import parse_answer
from verl_agentic.graders.stored_samples import read_samples
from verl_agentic.swe.grading.repo_task import RepoTask, read_tree
from verl_agentic.swe.grading.tree_diffs import changed_by, hunk_ranges
from verl_agentic.swe.task_split import choose_tasks, require_trees

from .edits import EXAMPLE
from .localise import Spans, excerpt, localise, widened

SYSTEM = "You fix an issue of a repository. You see parts of its files and answer with edits. You cannot run anything."
_TASK = """<issue>
{issue}
</issue>

These are parts of files of the repository. A line `...` is in the place of lines that are left out.

{files}

Fix the issue with one or more edits. Each edit is a block of this form:

{example}

SEARCH has whole lines of the file, copied exactly and with their indentation. Every occurrence of them is replaced by
the new lines. Write as many lines as make the place unique. Tests are taken care of, change none."""


def make_rows(
    *,
    split: Literal["train", "test"],
    count: int,
    seed: int,
    tasks: str | None = None,
    kinds: Sequence[str] | None = None,
    max_tests: int | None = None,
    localisation: str = "words",
    max_files: int = 3,
    max_elements: int = 8,
    around: int = 10,
) -> list[EnvRow]:
    """Returns `count` rows of different tasks; equal arguments give equal rows.

    A fourth of the tasks belongs to the test split, by the hash of `instance_id`; half of those of the sample.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the order.
        tasks: folder of `verl-agentic swe mine`, or its `tasks.jsonl`; None: the bundled sample.
        kinds: only tasks of these kinds (`release`, `hunk`, `mutation`, `combined`, `imported`).
        max_tests: only tasks with at most this number of tests to fix.
        localisation: what the prompt shows. `words`: files, functions and lines that share words with the issue.
            `files`: the whole files of the reference patch, as in SWE-RL. `hunks`: the lines around its hunks. A path:
            the folder of an evaluation of `repo_search` on these tasks, whose answers are shown.
        max_files: for `words`, number of files.
        max_elements: for `words`, number of functions and classes.
        around: lines shown before and after each place.

    Raises:
        ConfigError: an unknown split or localisation, or fewer than `count` tasks.
        DataError: the folder has no tasks or not their trees, or the evaluation no episodes.
    """
    answers = {} if localisation in ("words", "files", "hunks") else _read_answers(localisation)
    chosen = choose_tasks(
        split=split,
        count=count,
        seed=seed,
        folder=tasks,
        kinds=kinds,
        max_tests=max_tests,
        is_wanted=lambda task: not answers or task.instance_id in answers,
    )

    require_trees(chosen.place, {task.instance_id: task.base_commit for task in chosen.tasks})
    rows = []
    for task in chosen.tasks:
        base = read_tree(chosen.store.base(task))
        files = {path: text for path, content in base.items() if (text := _decode_text(content)) is not None}
        if localisation == "words":
            issue = task.problem_statement
            spans = localise(files, issue, max_files=max_files, max_elements=max_elements, around=around)
        elif localisation == "files":
            spans = {path: [(1, files[path].count("\n") + 1)] for path in hunk_ranges(task.patch) if path in files}
        else:
            spans = _widen_ranges(answers.get(task.instance_id) or hunk_ranges(task.patch), files, around)
        rows.append(_build_row(task, base, files, spans, store=chosen.place))
    return rows


def _widen_ranges(ranges: Mapping[str, Any], files: Mapping[str, str], around: int) -> Spans:
    """Returns ranges of lines with `around` lines more on both sides, for the files that there are."""
    spans = {path: [(span[0], span[1]) for span in of_file] for path, of_file in ranges.items() if path in files}
    return {path: widened(of_file, files[path], around) for path, of_file in spans.items()}


def check_row(row: EnvRow) -> None:
    """Raises DataError if the store of tasks lacks the row's repository."""
    task = RepoTask.from_json(row.extra["task"])
    require_trees(row.extra["store"], {task.instance_id: task.base_commit})


def _build_row(
    task: RepoTask, base: Mapping[str, bytes], files: Mapping[str, str], places: Spans, *, store: str
) -> EnvRow:
    excerpts = "\n\n".join(f"### {path}\n```\n{excerpt(files[path], spans)}\n```" for path, spans in places.items())
    fixed = {path: (content or b"").decode() for path, content in changed_by(base, task.patch).items()}
    context = {path: files[path] for path in sorted({*places, *fixed}) if path in files}
    truth = {
        "FAIL_TO_PASS": list(task.fail_to_pass),
        "PASS_TO_PASS": list(task.pass_to_pass),
        "code_context": context,
        "oracle_new_content": fixed,
    }
    text = _TASK.format(issue=task.problem_statement.strip(), files=excerpts, example=EXAMPLE)
    return EnvRow(
        prompt=(Message("system", SYSTEM), Message("user", text)),
        ground_truth=json.dumps(truth),
        data_source="swe_edit",
        extra={"task": task.to_json(), "store": store, "task_id": task.instance_id},
    )


def _read_answers(folder: str) -> dict[str, Mapping[str, Sequence[tuple[int, int]]]]:
    """Returns task -> the places of the first answer of an evaluation of `repo_search` that names one."""
    if not Path(folder).is_dir():
        raise ConfigError(
            f"localisation must be words, files, hunks, or the folder of an evaluation of repo_search, got {folder!r}"
        )
    answers: dict[str, Mapping[str, Sequence[tuple[int, int]]]] = {}
    for stored in read_samples(Path(folder)):
        task_id, places = str(stored.sample.extra.get("task_id")), parse_answer(stored.sample.final_answer)
        if places and task_id not in answers:
            answers[task_id] = places
    return answers


def _decode_text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
