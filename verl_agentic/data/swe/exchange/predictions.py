"""Patches for predictions: from a file, and from the episodes of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from verl_agentic.data.stored_samples import read_samples
from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Sample


def read_patches(path: Path) -> dict[str, str | None]:
    """Returns the patches of a JSON object: instance id -> diff. Raises DataError for another content."""
    try:
        patches = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise DataError(f"the patches cannot be read, got {path}: {cause}; write a JSON object") from cause
    if not isinstance(patches, dict) or not all(isinstance(one, str | None) for one in patches.values()):
        raise DataError(f"patches must be a JSON object of diffs by instance id, got {path}; fix the file")
    return patches


def evaluation_patches(folder: Path, instances: Collection[str], *, sample: int) -> dict[str, str | None]:
    """Returns the patch of one attempt at each task, from the episodes of an evaluation with the environment `swe`.

    The patch is the diff of the files that the grader accepted. It is None if the episode did not submit, or changed no
    accepted file. Void episodes and tasks without this attempt are left out.

    Args:
        folder: of `verl-agentic evaluate`.
        instances: ids of the tasks.
        sample: number of the attempt, from 0.

    Raises:
        DataError: the folder has no episode of these tasks, or the episodes have no patches.
    """
    stored = [one.sample for one in read_samples(folder) if one.session == sample]
    patches = dict(_patches(stored, instances))
    if not patches:
        raise DataError(
            f"no attempt {sample} at one of {len(instances)} tasks is stored in {folder}, got {len(stored)} other "
            "episodes; name the evaluation of these tasks"
        )
    return patches


def _patches(samples: list[Sample], instances: Collection[str]) -> Iterator[tuple[str, str | None]]:
    known = frozenset(instances)
    for sample in samples:
        name = sample.extra.get("task_id")
        if name in known and sample.env is not None:
            yield str(name), _patch(sample.env.details)


def _patch(details: Mapping[str, object]) -> str | None:
    patch = details.get("patch") if details.get("is_graded") else None
    return str(patch) if patch else None
