"""Diffs of trees are applied exactly, undone exactly, and refused where they do not fit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_agentic.base.errors import DataError
from verl_agentic.swe.grading.repo_task import read_tree, write_tree
from verl_agentic.swe.grading.tree_diffs import apply_diff, changed_by, count_changed, reverse_diff, tree_diff

_LINES = st.lists(st.sampled_from(["a", "b", "", "--- a", "+++ b", "@@ -1 +1 @@", "é\r", "\x0c"]), max_size=8)
_TEXTS = st.builds(lambda lines, end: ("\n".join(lines) + end).encode(), _LINES, st.sampled_from(["", "\n"]))
# Git has no diff for files that are empty on both sides, and hunks need content.
_TREES = st.dictionaries(st.sampled_from(["x.py", "d/y z.txt"]), _TEXTS.filter(bool), max_size=2)


@given(old=_TREES, new=_TREES)
def test_a_diff_turns_one_tree_into_the_other_and_its_reverse_back(
    old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    patch = tree_diff(dict(old), dict(new))
    assert apply_diff(old, patch) == new
    assert apply_diff(new, reverse_diff(patch)) == old


@settings(max_examples=15)
@given(old=_TREES, new=_TREES)
def test_git_applies_a_diff_in_the_same_way(
    old: dict[str, bytes], new: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    patch = tree_diff(dict(old), dict(new))
    if shutil.which("git") is None or not patch:
        return
    folder = tmp_path_factory.mktemp("tree")
    write_tree(old, folder)
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, input=patch.encode(), cwd=folder, check=True, env={"PATH": "/usr/bin:/bin", "HOME": "/"})
    assert read_tree(folder) == new


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-other\n+new\n", "does not fit"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n", "ends inside|shorter"),
        ("--- /dev/null\n+++ /dev/null\n", "names no file"),
    ],
)
def test_a_diff_that_does_not_fit_is_an_error(patch: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        changed_by({"x": b"old\n"}, patch)


def test_changed_lines_are_counted_without_headers(tmp_path: Path) -> None:
    assert count_changed(tree_diff({"x": b"a\nb\n"}, {"x": b"a\nc\n", "y": b"--\n"})) == 3
