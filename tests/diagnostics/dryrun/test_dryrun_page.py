"""The page of a dry run: its verdict first, every stage on the line of time, tokens by author."""

from __future__ import annotations

import re
from pathlib import Path

from verl_agentic.checks.dryrun.dryrun_page import write_dryrun_page
from verl_agentic.checks.dryrun.gradient_map import KindCount, Proof
from verl_agentic.checks.dryrun.step_report import FirstError, Report, Stage


def page_of(folder: Path, report: Report) -> str:
    write_dryrun_page(folder / "report.html", report, seconds=30.0, model="tiny", rows="32 rows", policy="scripted",
                      changes={"a CPU": ["a: 1 -> 2", "b: 2 -> 3"]}, log="main_ppo.log")  # fmt: skip
    return (folder / "report.html").read_text()


def stages(**seconds: float | None) -> list[Stage]:
    return [Stage(name=name, seconds=took) for name, took in seconds.items()]


def verdict(html: str) -> str:
    return re.findall('<h1 class="result">([^<]*)</h1>', html)[0]


def test_the_verdict_counts_stages_and_names_those_that_failed_or_were_not_shown(tmp_path: Path) -> None:
    report = Report(stages=stages(start=1.0, rollout=1.0, update=1.0), proof=None)
    assert verdict(page_of(tmp_path, report)) == "3 of 3 stages are right"
    report.stages[1].warn("void")
    assert verdict(page_of(tmp_path, report)) == "3 of 3 stages are right; not shown: agent loop"
    report.stages[2].fail("no parameter changed")
    html = page_of(tmp_path, report)
    assert verdict(html) == "2 of 3 stages are right; failed: update"
    assert ">no parameter changed</span>" in html and "2 values are not those" in html


def test_stages_lie_one_after_the_other_on_the_line_of_time(tmp_path: Path) -> None:
    html = page_of(tmp_path, Report(stages=stages(start=6.0, reward=None, rollout=3.0, update=1.0), proof=None))
    bars = re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)" height="1" fill="var', html)
    assert bars == [("0.0", "60.0"), ("60.0", "0.0"), ("60.0", "30.0"), ("90.0", "10.0")]
    assert "10 of 30 s are in stages, most of them in start" in html


def test_the_gradient_map_counts_tokens_of_each_author(tmp_path: Path) -> None:
    kinds = {"model": KindCount(tokens=8, masked_in=8, with_gradient=6), "tool": KindCount(tokens=4)}
    proof = Proof(kinds=kinds, due=6, due_with_gradient=6)
    html = page_of(tmp_path, Report(stages=stages(start=1.0), proof=proof))
    assert 'aria-label="model 6 with a gradient, 2 mask 1, no gradient"' in html
    assert 'aria-label="tool 4 mask 0"' in html
    assert "0 of 4 tokens that the policy did not write have a gradient" in html
    assert "exactly 0 on all 4 tokens" in html
    proof.kinds["tool"].with_gradient = 1
    proof.wrong.append("1 tokens of kind 'tool' have a gradient")
    html = page_of(tmp_path, Report(stages=stages(start=1.0), proof=proof))
    assert "1 of 4 tokens that the policy did not write" in html and "exactly 0" not in html


def test_a_run_that_ended_in_its_start_has_a_page(tmp_path: Path) -> None:
    report = Report(stages=stages(start=None), proof=None,
                    error=FirstError(stage="start", type="OSError", message="no file", trace="Traceback"))  # fmt: skip
    report.stages[0].fail("OSError: no file")
    html = page_of(tmp_path, report)
    assert "No stage has ended" in html and "OSError: no file" in html and "<summary>Trace</summary>" in html
