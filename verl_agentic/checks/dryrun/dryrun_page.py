"""The report of a dry run as one HTML page: verdict, timeline of the stages, gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from verl_agentic.checks.dryrun.step_report import Report, Stage
from verl_agentic.web.pages.charts import Bar, Part, part_bars
from verl_agentic.web.pages.page import write_page

_COLOURS = {"ok": "good", "warn": "odd", "fail": "bad", "not reached": "soft"}
_WORDS = {"ok": "ok", "warn": "not shown", "fail": "FAIL", "not reached": "not reached"}


def write_dryrun_page(
    path: Path,
    report: Report,
    *,
    seconds: float,
    model: str,
    rows: str,
    policy: str,
    changes: Mapping[str, Sequence[str]],
    log: str,
) -> None:
    """Writes the page.

    Args:
        path: of the HTML file.
        report: of the run.
        seconds: duration of the run, its start included.
        model: description of the model.
        rows: source of the rows.
        policy: description of the policy.
        changes: reason -> changed values of the configuration.
        log: path of the run's log.
    """
    write_page(
        path,
        Path(__file__).with_suffix(".html"),
        title="verl-agentic dryrun",
        result=_summarise_stages(report),
        picture=_draw_timeline(report, seconds=seconds),
        report=report,
        seconds=seconds,
        model=model,
        rows=rows,
        policy=policy,
        changes=changes,
        num_changes=sum(map(len, changes.values())),
        log=log,
        gradient=_draw_gradient(report),
        shown=report.shown,
        styles=_COLOURS,
        words=_WORDS,
    )


def _summarise_stages(report: Report) -> str:
    right = sum(stage.status in ("ok", "warn") for stage in report.stages)
    count = f"{right} of {len(report.stages)} stages are right"
    failed = [_shorten_title(stage) for stage in report.stages if stage.status == "fail"]
    unseen = [_shorten_title(stage) for stage in report.stages if stage.status == "warn"]
    if failed:
        return f"{count}; failed: {', '.join(failed)}"
    return f"{count}; not shown: {', '.join(unseen)}" if unseen else count


def _draw_timeline(report: Report, *, seconds: float) -> Markup:
    """Returns the stages as bars on a timeline; stages without a duration have no bar."""
    bars, elapsed_s = [], 0.0
    timed = sum(stage.seconds or 0.0 for stage in report.stages)
    for stage in report.stages:
        parts = [
            Part(label="", amount=elapsed_s),
            Part(label=_WORDS[stage.status], amount=stage.seconds or 0.0, colour=f"var(--{_COLOURS[stage.status]})"),
        ]
        elapsed_s += stage.seconds or 0.0
        took = "" if stage.seconds is None else f"{stage.seconds:.1f} s"
        note = took if stage.status == "ok" else f"{_WORDS[stage.status]} {took}".strip()
        bars.append(Bar(label=_shorten_title(stage), parts=parts, note=note))
    longest = max(report.stages, key=lambda stage: stage.seconds or 0.0)
    title = f"{timed:.0f} of {seconds:.0f} s are in stages, most of them in {_shorten_title(longest)}"
    return part_bars(bars, title=title if timed else "No stage has ended")


def _shorten_title(stage: Stage) -> str:
    return stage.title.partition(":")[0]


def _draw_gradient(report: Report) -> Markup:
    """Returns the tokens by author, with and without a gradient."""
    if report.proof is None:
        return Markup()
    bars, kinds = [], report.proof.kinds
    for kind, count in sorted(kinds.items()):
        masked = count.masked_in - min(count.masked_in, count.with_gradient)
        parts = [
            Part(label="with a gradient", amount=count.with_gradient, colour="var(--series-1)"),
            Part(label="mask 1, no gradient", amount=masked, colour="var(--series-2)"),
            Part(label="mask 0", amount=count.tokens - count.with_gradient - masked, colour="var(--series-4)"),
        ]
        bars.append(Bar(label=kind, parts=parts, note=f"{count.with_gradient} of {count.tokens}"))
    others = sum(count.with_gradient for kind, count in kinds.items() if kind != "model")
    title = f"{others} of {report.proof.num_observed} tokens that the policy did not write have a gradient"
    return part_bars(bars, title=title)
