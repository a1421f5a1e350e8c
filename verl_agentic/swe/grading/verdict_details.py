"""The details of a verdict: patch, files and tests, for the viewer and for exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.swe.grading.grade import GradeReport
from verl_agentic.swe.grading.tree_diffs import tree_diff

_MAX_PATCH_CHARS = 200_000
_MAX_TESTS, _MAX_WHY, _MAX_WHY_CHARS = 500, 20, 1_000


def verdict_details(
    report: GradeReport | None, *, base: Mapping[str, bytes], changed: Mapping[str, bytes | None]
) -> dict[str, Any]:
    """Returns the details for `Reward.details`.

    `patch` is the diff of the accepted files, `refused` has the reasons for the others. `f2p` and `p2p` have the
    outcome of each test; tests to keep that passed are only counted (`p2p_passed`). Without a report, the episode was
    not graded: `is_graded` is False, and `patch` is the diff of all files.

    Args:
        report: the verdict, or None.
        base: the base tree.
        changed: path -> new content, or None for a deleted file.
    """
    paths = changed if report is None else report.accepted
    old = {path: base.get(path) for path in paths}
    patch = tree_diff(old, {path: changed.get(path) for path in paths})
    is_whole = len(patch) <= _MAX_PATCH_CHARS
    details: dict[str, Any] = {"is_graded": report is not None, "patch": patch if is_whole else ""}
    if not is_whole:
        details["patch_chars"] = len(patch)
    if report is None:
        return details
    failures = {test: outcome for test, outcome in report.p2p.items() if outcome != "passed"}
    why = {test: text[:_MAX_WHY_CHARS] for test, text in list(report.why.items())[:_MAX_WHY]}
    return {
        **details,
        "accepted": list(report.accepted)[:_MAX_TESTS],
        "refused": _take_first(report.refused),
        "f2p": _take_first(report.f2p),
        "p2p": _take_first(failures),
        "p2p_passed": len(report.p2p) - len(failures),
        "why": why,
        "forged": list(report.forged)[:_MAX_TESTS],
        "suspicious": list(report.suspicious)[:_MAX_TESTS],
        "tampered": list(report.tampered)[:_MAX_TESTS],
        "flags": list(report.flags)[:_MAX_TESTS],
    }


def _take_first(values: Mapping[str, str]) -> dict[str, str]:
    return dict(list(values.items())[:_MAX_TESTS])
