"""Patches for predictions: from a file, and from the episodes of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from verl_agentic.base.errors import DataError
from verl_agentic.evaluate.selection import SELECTED
from verl_agentic.graders.stored_samples import read_samples
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.rewards.sample import Sample


def read_patches(path: Path) -> dict[str, str | None]:
    """Returns the patches of a JSON object: instance id -> diff. Raises DataError for another content."""
    try:
        patches = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise DataError(f"the patches cannot be read, got {path}: {cause}; write a JSON object") from cause
    if not isinstance(patches, dict) or not all(isinstance(patch, str | None) for patch in patches.values()):
        raise DataError(f"patches must be a JSON object of diffs by instance id, got {path}; fix the file")
    return patches


def evaluation_patches(folder: Path, instances: Collection[str], *, sample: int | None) -> dict[str, str | None]:
    """Returns the patch of one attempt at each task, from an evaluation with the environment `swe` or `swe_edit`.

    The patch is the diff of the files that the grader accepted. It is None if the episode did not submit, or changed no
    accepted file. Void episodes and tasks without this attempt are left out.

    Args:
        folder: of `verl-agentic evaluate`.
        instances: ids of the tasks.
        sample: number of the attempt, from 0; None: the one that `evaluate --select` has chosen.

    Raises:
        DataError: the folder has no episode of these tasks, or the episodes have no patches.
    """
    stored = [
        trajectory.sample for trajectory in read_samples(folder) if sample is None or trajectory.session == sample
    ]
    if sample is None:
        chosen = _read_choices(folder)
        stored = [stored_sample for stored_sample in stored if stored_sample.id in chosen]
    patches = dict(_iter_patches(stored, instances))
    if not patches:
        attempt = "that was chosen" if sample is None else sample
        raise DataError(
            f"no attempt {attempt} at one of {len(instances)} tasks is stored in {folder}, got {len(stored)} other "
            "episodes; name the evaluation of these tasks"
        )
    return patches


def _iter_patches(samples: list[Sample], instances: Collection[str]) -> Iterator[tuple[str, str | None]]:
    task_ids = frozenset(instances)
    for sample in samples:
        name = sample.extra.get("task_id")
        if name in task_ids and sample.env is not None:
            yield str(name), _read_patch(sample.env.details)


def _read_patch(details: Mapping[str, object]) -> str | None:
    patch = details.get("patch") if details.get("is_graded") else None
    return str(patch) if patch else None


def _read_choices(folder: Path) -> frozenset[str]:
    """Returns the ids of the samples that were chosen. Raises DataError if nothing was."""
    path = folder / SELECTED
    if not path.is_file():
        raise DataError(f"the evaluation has no choices, got no {path}; run verl-agentic evaluate with --select")
    return frozenset(f"{record['task_id']}/{record['sample']}" for _, record in read_json_lines(path))
