"""The choice among several patches of one task: regression tests, then a majority vote.

Paper: https://arxiv.org/abs/2407.01489 (Agentless, section 3.3). Deviations: no reproduction tests are written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.graders.code.patches import FormatError
from verl_agentic.swe.grading.accepted import accept
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.run_tests import run_repository_tests, site_modules
from verl_agentic.swe.releases.file_kinds import test_targets

from .edits import changed_by_answer, normal_form

Form = tuple[tuple[str, str], ...]


async def choose(answers: Sequence[str], *, task: RepoTask, store: TaskStore, pool: Any) -> int | None:
    """Returns the index of the chosen answer, or None if no answer changes the code.

    1. Answers that do not apply, and patches without effect, are left out. Files that grading refuses do not count.
    2. The visible tests that passed before must pass with the patch. If no patch keeps them all, those that break the
       fewest stay.
    3. Patches that differ in comments, docstrings and layout only are equal. The most frequent one is chosen, of
       several the first.

    The hidden tests and the reference patch take no part.
    """
    base = await asyncio.to_thread(read_tree, store.base(task))
    site = store.site(task)
    changes: dict[int, Mapping[str, bytes | None]] = {}
    forms: dict[int, Form] = {}
    for index, answer in enumerate(answers):
        try:
            change = changed_by_answer(base, answer)
        except FormatError:
            continue
        files = accept(base, change, site_modules=site_modules(site)).files
        if form := normal_form(base, files):
            changes[index], forms[index] = files, form
    if not forms:
        return None
    first = {form: index for index, form in reversed(forms.items())}
    broken = await _count_broken(task, base, {form: changes[index] for form, index in first.items()}, site, pool)
    fewest = min(broken.values())
    votes = Counter(form for form in forms.values() if broken[form] == fewest)
    return first[max(votes, key=lambda form: (votes[form], -first[form]))]


async def _count_broken(
    task: RepoTask,
    base: Mapping[str, bytes],
    patches: Mapping[Form, Mapping[str, bytes | None]],
    site: Any,
    pool: Any,
) -> dict[Form, int]:
    """Returns the number of visible tests that passed before and do not pass with each patch."""
    targets = test_targets(base)
    if not targets:
        return dict.fromkeys(patches, 0)

    async def passed(files: Mapping[str, bytes | None]) -> frozenset[str]:
        tree = {path: content for path, content in {**base, **files}.items() if content is not None}
        return (await run_repository_tests(pool, tree=tree, site=site, targets=targets)).passed

    before, *after = await asyncio.gather(passed({}), *(passed(files) for files in patches.values()))
    return {form: len(before - passing) for form, passing in zip(patches, after, strict=True)}
