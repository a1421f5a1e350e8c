"""Results of a repository's tests for a change: tests to fix and tests not to break."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.graders.answers.ground_truth import object_of
from verl_agentic.graders.code.patch_paths import edited_tests, extract_diff, touched_paths
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.sample import Sample

_NAMES = {"f2p": ("f2p", "FAIL_TO_PASS"), "p2p": ("p2p", "PASS_TO_PASS")}


@dataclass(frozen=True, kw_only=True)
class TestResults:
    """Numbers of passed tests of both kinds."""

    __test__ = False  # pytest would collect it because of its name

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
        reference: Mapping[str, bool | str] | None = None,
    ) -> TestResults:
        """Counts results by test; missing tests have failed.

        Args:
            f2p, p2p: test -> whether it passed, or its status. `PASSED` is a pass. `XFAIL` is a pass only if the test
            is `XFAIL` in the reference run, so a call of `pytest.xfail()` in the change does not count.
            f2p_names, p2p_names: the expected tests.
            reference: test -> its status with the reference solution.

        Raises:
            DataError: there is no f2p test.
        """
        first, second = (
            {**dict.fromkeys(names, False), **results} for names, results in ((f2p_names, f2p), (p2p_names, p2p))
        )
        reference_results = reference or {}
        return cls(
            f2p_passed=sum(_has_passed(result, reference_results.get(name)) for name, result in first.items()),
            f2p_total=len(first),
            p2p_passed=sum(_has_passed(result, reference_results.get(name)) for name, result in second.items()),
            p2p_total=len(second),
        )

    @property
    def f2p_fraction(self) -> float:
        """Share of passed f2p tests."""
        return self.f2p_passed / self.f2p_total

    @property
    def p2p_fraction(self) -> float:
        """Share of passed p2p tests; 1 if there are none."""
        return self.p2p_passed / self.p2p_total if self.p2p_total else 1.0

    @property
    def resolved(self) -> float:
        """1 if all tests pass, else 0."""
        return float(self.f2p_passed == self.f2p_total and self.p2p_passed == self.p2p_total)


def results_of(sample: Sample) -> TestResults | None:
    """Returns the results of an episode's tests, or None if its change does not count.

    A change does not count if it is missing, if the policy made no answer and no call, if it could not be applied, or
    if it touches tests or their configuration (`edited_tests`).

    The results come from the environment, as numbers of its `Reward.info`: `f2p_passed`, `f2p_total`, `p2p_passed`,
    `p2p_total`, or by name `f2p/<test>` and `p2p/<test>` (0 or 1), with optional `patch_applied` and `edits_tests` (0
    or 1). For episodes graded elsewhere, they come from the row: `extra["f2p"]` and `extra["p2p"]`, test -> whether it
    passed, or its status.

    The optional ground truth names the expected tests, under these names or SWE-bench's, and their statuses with the
    reference solution (`reference`: test -> status). Other results by name are ignored. Counts must be of these tests:
    missing ones have failed, more are an error.

    The change is `extra["model_patch"]`, else a diff in the final answer. An environment that counts tests has the
    change itself, unless it reports `patch_applied` or the answer is only a diff. Then the answer may quote any diff,
    and the environment must report `edits_tests` or restore the tests before it runs them. `extra["patch"]` is the
    reference solution; paths that it touches are allowed.

    Raises:
        DataError: results or ground truth have another form.
        ScoringError: there are no results, or the counts are not those of the row's tests.
    """
    info = dict(sample.env.info) if sample.env is not None else {}
    by_name = {kind: _select_results(info, kind) for kind in _NAMES}
    is_counted = "f2p_total" in info or any(by_name.values())
    if info.get("edits_tests", 0.0) > 0 or info.get("patch_applied", 1.0) <= 0:
        return None
    if _touches_tests(sample, may_quote=is_counted and "patch_applied" not in info):
        return None
    if is_silent(sample) and not sample.extra.get("model_patch"):
        return None
    names, reference = _read_test_names(sample.ground_truth), _read_reference(sample.ground_truth)
    if any(by_name.values()):
        return _of_names(by_name, names, reference)
    if is_counted:
        return _of_counts(info, names)
    if "f2p" in sample.extra:
        if not sample.extra.get("model_patch", "patch"):
            return None
        results = {key: _check_results(sample.extra.get(key, {}), key) for key in _NAMES}
        return _of_names(results, names, reference)
    raise ScoringError(
        f"no test results, got info {sorted(info)} and extra {sorted(sample.extra)}; let the environment report "
        "f2p_passed, f2p_total, p2p_passed and p2p_total, or put f2p and p2p into the row's extra_info"
    )


_FENCES = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*$|^[ \t]*</?\w+>[ \t]*$", re.MULTILINE)
"""Lines around a diff that leave an answer only a diff."""


def _touches_tests(sample: Sample, *, may_quote: bool) -> bool:
    patch = sample.extra.get("model_patch")
    if not isinstance(patch, str):
        plain = _FENCES.sub("", sample.final_answer).strip()
        is_diff = (extract_diff(plain) or "").strip() == plain
        patch = plain if is_diff else "" if may_quote else extract_diff(sample.final_answer) or ""
    hidden, reference = (_read_paths(sample.extra.get(key)) for key in ("test_patch", "patch"))
    return bool(edited_tests(touched_paths(patch), protected=hidden, allowed=reference))


def _read_paths(diff: Any) -> set[str]:
    return touched_paths(diff) if isinstance(diff, str) else set()


def _select_results(info: Mapping[str, float], kind: str) -> dict[str, bool]:
    """Returns an environment's results by test name."""
    prefix = f"{kind}/"
    return {key.removeprefix(prefix): value >= 1 for key, value in info.items() if key.startswith(prefix)}


def _read_reference(ground_truth: Any) -> Mapping[str, bool | str]:
    if ground_truth is None:
        return {}
    return _check_results(object_of(ground_truth, of="resolved").get("reference") or {}, "reference")


def _of_names(
    results: Mapping[str, Mapping[str, bool | str]], names: Mapping[str, list[str]], reference: Mapping[str, bool | str]
) -> TestResults:
    """Returns the results of the tests that the row names; of all tests if it names none."""
    f2p, p2p = (
        {test: status for test, status in results[kind].items() if not names[kind] or test in set(names[kind])}
        for kind in ("f2p", "p2p")
    )
    return TestResults.of(f2p, p2p, f2p_names=names["f2p"], p2p_names=names["p2p"], reference=reference)


def _read_test_names(ground_truth: Any) -> dict[str, list[str]]:
    if ground_truth is None:
        return {"f2p": [], "p2p": []}
    values = object_of(ground_truth, of="resolved")
    return {
        kind: _read_name_list(next((values[k] for k in keys if k in values), []), kind) for kind, keys in _NAMES.items()
    }


def _read_name_list(names: Any, kind: str) -> list[str]:
    if isinstance(names, str):  # as in SWE-bench
        try:
            names = json.loads(names)
        except ValueError:
            names = None
    if isinstance(names, Mapping | str) or not isinstance(names, Iterable):
        raise DataError(f"the {kind} tests of a row must be a list of names, got {str(names)[:200]!r}; fix the row")
    return [str(name) for name in names]


def _check_results(results: Any, kind: str) -> Mapping[str, bool | str]:
    if not isinstance(results, Mapping):
        raise DataError(f"the {kind} results must be {{test: passed}}, got {str(results)[:200]!r}; fix the row")
    return results


def _of_counts(info: Mapping[str, float], names: Mapping[str, list[str]]) -> TestResults:
    """Returns the environment's counts; tests of the row that did not run have failed.

    Raises:
        ScoringError: a count is missing, or there are more tests than the row names, so that others could hide
            failures.
    """
    counts: dict[str, int] = {}
    for kind in _NAMES:
        for part in ("passed", "total"):
            key = f"{kind}_{part}"
            if key not in info:
                raise ScoringError(f"test results need {key}, got info {sorted(info)}; let the environment report it")
            counts[key] = int(info[key])
        expected = len(set(names[kind]))
        if 0 < expected < counts[f"{kind}_total"]:
            raise ScoringError(
                f"{kind}_total must be the number of tests that the row names, {expected}, got "
                f"{counts[f'{kind}_total']}; let the environment run those tests, or report each as {kind}/<test>"
            )
        counts[f"{kind}_total"] = max(counts[f"{kind}_total"], expected)
    return TestResults(**counts)


def _has_passed(result: bool | str, reference: bool | str | None) -> bool:
    if not isinstance(result, str):
        return bool(result)
    status = result.upper()
    return status == "PASSED" or (status == "XFAIL" and str(reference).upper() == "XFAIL")
