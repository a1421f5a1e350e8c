"""Rows of other datasets as tasks: one function per format, chosen by the columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.code.patch_paths import touched_paths
from verl_agentic.swe.grading.repo_task import RepoTask
from verl_agentic.swe.grading.tree_diffs import reverse_diff

Row = Mapping[str, Any]
_STATUS = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL)\s+(\S+)", re.M)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class RowFormat(NamedTuple):
    """A dataset's form of rows."""

    columns: tuple[str, ...]
    """Columns that every row has; they tell the formats apart."""
    convert: Callable[[Row], RepoTask]
    example: str
    """A dataset of this form."""


def task_of_row(row: Row, *, form: str | None = None) -> RepoTask:
    """Returns the task of a row.

    Args:
        row: of a dataset.
        form: name in `FORMATS`; None detects it by the columns.

    Raises:
        ConfigError: `form` is unknown.
        DataError: no format fits, formats fit whose patches have opposite directions, or a column is missing or
            malformed.
    """
    if form is not None and form not in FORMATS:
        raise ConfigError(f"a format is one of {', '.join(FORMATS)}, got {form!r}; leave it out to detect it")
    row = _with_names(row)
    name = form or _detect_format(row)
    if name is None:
        needs = "; ".join(
            f"{name}: {', '.join(sorted(_find_missing(row, row_format.columns)))}"
            for name, row_format in FORMATS.items()
        )
        raise DataError(f"the columns fit no format, got {sorted(row)}; missing are {needs}")
    if missing := _find_missing(row, FORMATS[name].columns):
        raise DataError(f"a row of the format {name} lacks {sorted(missing)}, got {sorted(row)}; add the columns")
    return FORMATS[name].convert(row)


def _convert_swebench(row: Row) -> RepoTask:
    """Maps SWE-bench 5.x and SWE-bench-like rows that name their image."""
    task = RepoTask.from_json({**row, "kind": "imported"})
    return _with_targets(task)


def _convert_swebench_old(row: Row) -> RepoTask:
    """Maps the twelve older columns. The image has a fixed name; the evaluation script is not in these rows."""
    name = str(row["instance_id"]).replace("__", "_1776_").lower()
    image = _find_image(row) or f"swebench/sweb.eval.x86_64.{name}:latest"
    return _convert_swebench({**row, "image": image, "log_parser": "", "eval_type": "pass_and_fail", "eval_script": ""})


def _convert_swe_rebench(row: Row) -> RepoTask:
    """Maps SWE-rebench 1 and 2. `install_config` has the log parser; its commands stay in the provenance."""
    parser = _parse_object(row["install_config"], "install_config").get("log_parser")
    return _convert_swebench({**row, "image": _find_image(row), "log_parser": str(parser or "parse_log_pytest")})


def _convert_swe_gym(row: Row) -> RepoTask:
    name = str(row["instance_id"]).replace("__", "_s_").lower()
    image = _find_image(row) or f"xingyaoww/sweb.eval.x86_64.{name}:latest"
    return _convert_swebench({**row, "image": image, "log_parser": "parse_log_pytest"})


def _convert_swe_smith(row: Row) -> RepoTask:
    """Maps SWE-smith. Its `patch` makes the bug, so the solution is its reverse."""
    values = {key: value for key, value in row.items() if key not in ("patch", "image_name")}
    values |= {"image": row["image_name"], "patch": reverse_diff(str(row["patch"]))}
    values.setdefault("base_commit", row["instance_id"])  # a branch of the mirror repository
    return _convert_swebench(values)


def _convert_r2e_gym(row: Row) -> RepoTask:
    """Maps R2E-Gym. Tests that pass are FAIL_TO_PASS unless the log of the old commit shows that they passed."""
    expected = _parse_object(row["expected_output_json"], "expected_output_json")
    passed = [test for test, status in expected.items() if str(status).upper() == "PASSED"]
    before = _old_statuses(row.get("execution_result_content"))
    p2p = [test for test in passed if before.get(test) == "PASSED"]
    commit = str(row["commit_hash"])
    others = {key: value for key, value in row.items() if key not in ("problem_statement", "commit_hash")}
    flags = {} if before else {"f2p_unknown": "the row has no results of the old commit; all tests count as failing"}
    return RepoTask(
        instance_id=f"{row['repo_name']}-{commit[:12]}",
        repo=str(row["repo_name"]),
        base_commit=commit,
        problem_statement=str(row["problem_statement"]),
        fail_to_pass=tuple(test for test in passed if test not in set(p2p)),
        pass_to_pass=tuple(p2p),
        image=str(row["docker_image"]),
        kind="imported",
        reference={test: str(status).lower() for test, status in expected.items() if test not in set(passed)},
        flags=flags,
        provenance={"columns": others},
    )


def _convert_nemotron(row: Row) -> RepoTask:
    """Maps rows of NeMo Gym, which hold a row of another form as JSON text in their metadata."""
    metadata = _parse_object(
        _parse_object(row["responses_create_params"], "responses_create_params").get("metadata"), "metadata"
    )
    inner = _parse_object(metadata.get("instance_dict", metadata), "metadata.instance_dict")
    return task_of_row({**{key: value for key, value in metadata.items() if key != "instance_dict"}, **inner})


def _convert_nemotron_flat(row: Row) -> RepoTask:
    """Maps rows with `golden_patch` and the tests as `f2p` and `p2p`, or under SWE-bench's names."""
    return _convert_swebench({**row, "patch": row["golden_patch"], "image": _find_image(row)})


_TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_COMMON = ("instance_id", "repo", "problem_statement", "patch", *_TESTS)
FORMATS: dict[str, RowFormat] = {
    "swe-smith": RowFormat((*_COMMON, "image_name"), _convert_swe_smith, "SWE-bench/SWE-smith"),
    "swe-bench": RowFormat(
        (*_COMMON, "base_commit", "test_patch", "image", "eval_script"), _convert_swebench,
        "SWE-bench/SWE-bench_Verified",
    ),
    "swe-rebench": RowFormat(
        (*_COMMON, "base_commit", "test_patch", "install_config"), _convert_swe_rebench, "nebius/SWE-rebench-V2"
    ),
    "swe-bench-old": RowFormat(
        (*_COMMON, "base_commit", "test_patch", "environment_setup_commit"), _convert_swebench_old,
        "SWE-bench before 5.0",
    ),
    "swe-gym": RowFormat((*_COMMON, "base_commit", "test_patch"), _convert_swe_gym, "SWE-Gym/SWE-Gym"),
    "r2e-gym": RowFormat(
        ("repo_name", "docker_image", "commit_hash", "expected_output_json", "problem_statement"), _convert_r2e_gym,
        "R2E-Gym/R2E-Gym-Subset",
    ),
    "nemo-gym": RowFormat(("responses_create_params",), _convert_nemotron, "NeMo Gym's rows for SWE"),
    "nemotron": RowFormat(
        ("instance_id", "repo", "problem_statement", "golden_patch"), _convert_nemotron_flat, "rows with golden_patch"
    ),
}  # fmt: skip
"""Name -> format. The first format whose columns a row has is used."""


_SPELLINGS = {
    "fail_to_pass": "FAIL_TO_PASS",
    "f2p": "FAIL_TO_PASS",
    "pass_to_pass": "PASS_TO_PASS",
    "p2p": "PASS_TO_PASS",
}
_IMAGE_COLUMNS = ("image", "docker_image", "image_name")


def _with_names(row: Row) -> Row:
    """Returns the row with SWE-bench's names of the lists of tests. Raises DataError if it has two of one list."""
    named: dict[str, Any] = {}
    for key, value in row.items():
        name = _SPELLINGS.get(key, key)
        if value is not None and named.get(name) is not None and str(named[name]) != str(value):
            raise DataError(f"the row has two different lists {name}, got the columns {sorted(row)}; remove one")
        named[name] = named.get(name) if value is None else value
    return named


def _detect_format(row: Row) -> str | None:
    """Returns the first format that fits, or None.

    `image_name` is a column of SWE-smith, whose patch makes the bug, and of datasets whose patch fixes it. SWE-smith's
    rows name an image of SWE-smith and no commit, the others the reverse.
    """
    fitting = [name for name, row_format in FORMATS.items() if not _find_missing(row, row_format.columns)]
    if "swe-smith" not in fitting:
        return fitting[0] if fitting else None
    is_smith, others = "smith" in str(row["image_name"]).lower(), [name for name in fitting if name != "swe-smith"]
    if is_smith and row.get("base_commit") is None:
        return "swe-smith"
    if not is_smith and others:
        return others[0]
    raise DataError(
        "these columns do not say whether `patch` makes the bug (as in SWE-smith) or fixes it, got image_name="
        f"{row['image_name']!r}, base_commit={row.get('base_commit')!r}; choose --format swe-smith or --format "
        f"{others[0] if others else 'swe-gym'}"
    )


def _find_image(row: Row) -> str:
    """Returns the image that a row names in one of the usual columns; empty without one."""
    return next((str(row[name]) for name in _IMAGE_COLUMNS if row.get(name)), "")


def _find_missing(row: Row, columns: tuple[str, ...]) -> set[str]:
    return {column for column in columns if row.get(column) is None}


def _with_targets(task: RepoTask) -> RepoTask:
    """Adds the files that the test patch touches."""
    return task if task.targets else replace(task, targets=tuple(sorted(touched_paths(task.test_patch))))


def _parse_object(value: Any, column: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise DataError(f"{column} must be an object, or JSON text of one, got {str(value)[:80]!r}; fix the row")
    return dict(value)


def _old_statuses(content: Any) -> dict[str, str]:
    """Returns test -> status in the log of the commit before the fix; empty without such a log."""
    if content is None:
        return {}
    log = _COLORS.sub("", str(_parse_object(content, "execution_result_content").get("old_commit_res_stdout", "")))
    return {test.split("::", 1)[-1].replace("::", "."): status for status, test in _STATUS.findall(log)}
