"""Every fixture of a broken run is diagnosed by the line that is to name it, and by no other."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from verl_agentic.diagnostics.diagnosis.checklist import CHECKS, diagnose, exit_code
from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence

_PATH = Path(__file__).parents[2] / "fixtures" / "broken_runs" / "make.py"
_SPEC = importlib.util.spec_from_file_location("broken_runs_make", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
broken_runs = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = broken_runs
_SPEC.loader.exec_module(broken_runs)


def test_a_healthy_run_is_ok_in_every_line(tmp_path: Path) -> None:
    verdicts = diagnose(RunEvidence(broken_runs.make("healthy", tmp_path)))

    assert {name: verdict.found for name, verdict in verdicts.items() if verdict.status != "ok"} == {}
    assert list(verdicts) == list(CHECKS)
    assert exit_code(verdicts) == 0


@pytest.mark.parametrize("name", list(broken_runs.FAULTS))
def test_a_fault_is_named_by_its_line_alone(name: str, tmp_path: Path) -> None:
    fault = broken_runs.FAULTS[name]

    verdicts = diagnose(RunEvidence(broken_runs.make(name, tmp_path)))

    verdict = verdicts[fault.check]
    assert verdict.status == ("warn" if fault.is_warned_of else "fail"), verdict
    told = f"{verdict.found} | {verdict.advice}"
    assert [words for words in fault.says if words not in told] == [], told
    others = {check: v.found for check, v in verdicts.items() if v.status == "fail" and check != fault.check}
    assert set(others) == set(fault.also), others
    assert exit_code(verdicts) == (0 if fault.is_warned_of else 1)


def test_the_first_seven_lines_are_the_checklist_in_its_order() -> None:
    order = ["reward_zeros", "length_truncation", "mask", "kl_entropy", "group_std"]

    assert list(CHECKS)[:7] == [*order, "tool_distribution", "prompt_variance"]


def test_every_line_but_those_of_records_has_a_broken_run() -> None:
    failing = {fault.check for fault in broken_runs.FAULTS.values()}

    assert len(broken_runs.FAULTS) >= 14
    # Health says what the others say; stop reasons, prompts and validation have tests of their own.
    assert set(CHECKS) - failing == {"prompt_variance", "stop_reasons", "validation", "health"}
