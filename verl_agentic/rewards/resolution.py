"""What the tests of a repository say of a change: those that it should mend, and those that it should not break."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.errors import DataError, ScoringError
from verl_agentic.rewards.ground_truth import object_of
from verl_agentic.rewards.patch_paths import edited_tests, extract_diff, touched_paths
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.silence import is_silent

_PASSED = ("PASSED", "XFAIL")
_NAMES = {"f2p": ("f2p", "FAIL_TO_PASS"), "p2p": ("p2p", "PASS_TO_PASS")}


@dataclass(frozen=True, kw_only=True)
class TestResults:
    """How many of both kinds of tests pass."""

    __test__ = False  # its name looks like a class of tests to pytest

    f2p_passed: int
    """Tests that failed before the change and should pass (FAIL_TO_PASS)."""
    f2p_total: int
    p2p_passed: int
    """Tests that passed before it and should still do so (PASS_TO_PASS)."""
    p2p_total: int

    def __post_init__(self) -> None:
        are_counts = 0 <= self.f2p_passed <= self.f2p_total and 0 <= self.p2p_passed <= self.p2p_total
        if not are_counts or not self.f2p_total:
            raise DataError(f"at least one test must fail before the change, and no more pass than are, got {self}")

    @classmethod
    def of(
        cls,
        f2p: Mapping[str, bool | str],
        p2p: Mapping[str, bool | str],
        *,
        f2p_names: Iterable[str] = (),
        p2p_names: Iterable[str] = (),
    ) -> TestResults:
        """Returns the counts of results by test; a test that should be there and is not has failed.

        Args:
            f2p: test -> whether it passed, or its status: `PASSED` and `XFAIL` are passes, as in SWE-bench.
            p2p: the same.
            f2p_names: the tests that must be there.
            p2p_names: the same.

        Raises:
            DataError: no test that fails before the change.
        """
        first, second = (
            {**dict.fromkeys(names, False), **found} for names, found in ((f2p_names, f2p), (p2p_names, p2p))
        )
        return cls(
            f2p_passed=sum(map(_has_passed, first.values())),
            f2p_total=len(first),
            p2p_passed=sum(map(_has_passed, second.values())),
            p2p_total=len(second),
        )

    @property
    def f2p_fraction(self) -> float:
        """Share of the tests to be mended that pass."""
        return self.f2p_passed / self.f2p_total

    @property
    def p2p_fraction(self) -> float:
        """Share of the tests not to be broken that pass; 1 when there are none."""
        return self.p2p_passed / self.p2p_total if self.p2p_total else 1.0

    @property
    def resolved(self) -> float:
        """1 when all of both pass, else 0."""
        return float(self.f2p_passed == self.f2p_total and self.p2p_passed == self.p2p_total)


def results_of(sample: Sample) -> TestResults | None:
    """Returns the results of an episode's tests; None where its change cannot count: there is none, nobody made it (no
    answer and no call), it could not be applied, or it touches tests.

    The results come from the environment, as numbers of its `Reward.info`: `f2p_passed`, `f2p_total`, `p2p_passed`,
    `p2p_total`, with `patch_applied` and `edits_tests` (0 or 1) where it knows them; or, for episodes that were graded
    elsewhere, from the row: `extra["f2p"]` and `extra["p2p"]`, test -> whether it passed. The ground truth, where there
    is one, names the tests that must be there, under these names or SWE-bench's.

    The change is `extra["model_patch"]`, else a diff in the final answer. Where there is neither, the environment must
    say `edits_tests`, or have put the tests back before it ran them.

    Raises:
        DataError: results or ground truth are not what they should be.
        ScoringError: there are no results.
    """
    info = dict(sample.env.info) if sample.env is not None else {}
    if info.get("edits_tests", 0.0) > 0 or info.get("patch_applied", 1.0) <= 0 or _touches_tests(sample):
        return None
    if is_silent(sample) and not sample.extra.get("model_patch"):
        return None
    names = _names(sample.ground_truth)
    if "f2p_total" in info:
        return _of_counts(info, names)
    if "f2p" in sample.extra:
        if not sample.extra.get("model_patch", "patch"):
            return None
        f2p, p2p = (_outcomes(sample.extra.get(key, {}), key) for key in ("f2p", "p2p"))
        return TestResults.of(f2p, p2p, f2p_names=names["f2p"], p2p_names=names["p2p"])
    raise ScoringError(
        f"no test results, got info {sorted(info)} and extra {sorted(sample.extra)}; let the environment report "
        "f2p_passed, f2p_total, p2p_passed and p2p_total, or put f2p and p2p into the row's extra_info"
    )


def _touches_tests(sample: Sample) -> bool:
    patch = sample.extra.get("model_patch")
    if not isinstance(patch, str):
        patch = extract_diff(sample.final_answer) or ""
    hidden = sample.extra.get("test_patch")
    protected = touched_paths(hidden) if isinstance(hidden, str) else ()
    return bool(edited_tests(touched_paths(patch), protected=protected))


def _names(ground_truth: Any) -> dict[str, list[str]]:
    if ground_truth is None:
        return {"f2p": [], "p2p": []}
    values = object_of(ground_truth, of="resolved")
    return {kind: _list(next((values[k] for k in keys if k in values), []), kind) for kind, keys in _NAMES.items()}


def _list(names: Any, kind: str) -> list[str]:
    if isinstance(names, str):  # as SWE-bench's rows have them
        try:
            names = json.loads(names)
        except ValueError:
            names = None
    if isinstance(names, Mapping | str) or not isinstance(names, Iterable):
        raise DataError(f"the {kind} tests of a row must be a list of names, got {str(names)[:200]!r}; mend the row")
    return [str(name) for name in names]


def _outcomes(results: Any, kind: str) -> Mapping[str, bool | str]:
    if not isinstance(results, Mapping):
        raise DataError(f"the {kind} results must be {{test: passed}}, got {str(results)[:200]!r}; mend the row")
    return results


def _of_counts(info: Mapping[str, float], names: Mapping[str, list[str]]) -> TestResults:
    """Returns what the environment counted; tests of the row that it did not run have failed."""
    counts: dict[str, int] = {}
    for kind in _NAMES:
        for what in ("passed", "total"):
            key = f"{kind}_{what}"
            if key not in info:
                raise ScoringError(f"test results need {key}, got info {sorted(info)}; let the environment report it")
            counts[key] = int(info[key])
        counts[f"{kind}_total"] = max(counts[f"{kind}_total"], len(set(names[kind])))
    return TestResults(**counts)


def _has_passed(result: bool | str) -> bool:
    return result.upper() in _PASSED if isinstance(result, str) else bool(result)
