"""A patch that fits a tree only backwards is an error of the task, and no missing reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.swe.grading.grade import grade
from verl_agentic.swe.grading.repo_task import read_tree
from verl_agentic.swe.grading.tree_diffs import ReversedPatchError, changed_by, reverse_diff
from verl_agentic.swe.sample_store import sample_store


async def test_a_reversed_reference_solution_is_refused_before_any_test_runs() -> None:
    store = sample_store()
    task = next(iter(store.tasks()))
    base = read_tree(store.base(task))
    changed = changed_by(base, task.patch)
    backwards = replace(task, patch=reverse_diff(task.patch))
    with pytest.raises(ReversedPatchError, match="fits only backwards"):
        changed_by(base, backwards.patch)
    runner: Any = None
    with pytest.raises(DataError, match="--format"):
        await grade(backwards, store, changed, runner)


def test_a_patch_that_fits_in_no_direction_is_another_error() -> None:
    with pytest.raises(DataError, match=r"m\.py") as refused:
        changed_by({"m.py": b"y = 1\n"}, "--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
    assert not isinstance(refused.value, ReversedPatchError)
