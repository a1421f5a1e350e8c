"""The results of a run: `summary.json`, `metrics.jsonl`, `report.html`, `viewer.html`, and a table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from verl_agentic.algorithms.batch_metrics.success_over_attempts import proportion_interval
from verl_agentic.data.rows import write_json_lines
from verl_agentic.data.stored_samples import STORED_SAMPLE
from verl_agentic.diagnostics.quickstart_report import ComparedRun, write_report

_VIEWER, _NUM_VIEWED = "viewer.html", 96


class Summary:
    """The results of a finished run."""

    def __init__(self, out: Path, *, recipe: str, seed: int, records: dict[str, dict[str, Any]]) -> None:
        self._out = out
        self._recipe = recipe
        self._records = records
        base, sft, rl = (records[f"eval {name}"] for name in ("base", "sft", "rl"))
        metrics = self._metrics()
        self.figures = {
            "success_base": base["sampled"],
            "success_sft": sft["sampled"],
            "success_rl": rl["sampled"],
            "greedy_sft": sft["greedy"],
            "greedy_rl": rl["greedy"],
            "tool_rate_sft": sft["tool_rate_sampled"],
            "tool_rate_rl": rl["tool_rate_sampled"],
            "num_eval_tasks": rl["num_tasks"],
            "steps": sum(m["phase"] == "grpo" for m in metrics),
            "wall_s": sum(record["wall_s"] for record in records.values()),
            "peak_rss_gb": max(record["peak_rss_gb"] for record in records.values()),
            "seed": seed,
        }
        self._rows = metrics

    def write(self) -> None:
        """Writes the files into the run's folder."""
        write_json_lines(self._rows, self._out / "metrics.jsonl")
        (self._out / "summary.json").write_text(json.dumps(self.figures, indent=2) + "\n")
        write_report(
            self._out / "report.html",
            figures=self.figures,
            metrics=_of_rl(self._rows),
            before=self._episodes("sft"),
            after=self._episodes("rl"),
            is_control=bool(self._records["rl"].get("control")),
            other=_other_run(self._out, self._records["rl"], seed=self.figures["seed"]),
            viewer=_export_viewer(self._out),
            run_dir=os.path.relpath(self._out),
        )

    def show(self) -> None:
        """Prints the table."""
        f, console = self.figures, Console()
        table = Table(title=f"{f['num_eval_tasks']} held-out tasks, seed {f['seed']}")
        for column in ("", "before SFT", "after SFT", "after RL"):
            table.add_column(column, justify="left" if not column else "right")
        table.add_row("success, sampled", *(f"{f[f'success_{n}']:.3f}" for n in ("base", "sft", "rl")))
        table.add_row(
            "95 % interval", *(_interval(f[f"success_{n}"], f["num_eval_tasks"]) for n in ("base", "sft", "rl"))
        )
        table.add_row("success, greedy", "", f"{f['greedy_sft']:.3f}", f"{f['greedy_rl']:.3f}")
        base = self._records["eval base"]["tool_rate_sampled"]
        table.add_row("tool used", f"{base:.3f}", f"{f['tool_rate_sft']:.3f}", f"{f['tool_rate_rl']:.3f}")
        seconds = ", ".join(f"{name} {record['wall_s']:.0f} s" for name, record in self._records.items())
        console.print(table)
        console.print(f"wall time {f['wall_s']:.0f} s ({seconds}); peak memory {f['peak_rss_gb']:.1f} GB")
        console.print(f"report: {self._out / 'report.html'}")
        if self._recipe == "quickstart":
            console.print(
                f"try it: verl-agentic play --model {self._out / 'checkpoint'} 'What is 123*456?'", soft_wrap=True
            )

    def _metrics(self) -> list[dict[str, Any]]:
        """Returns the logged steps of both trainings; for a step that was logged twice (a resumed run), the last
        record."""
        steps: dict[tuple[str, int], dict[str, Any]] = {}
        for path in sorted((self._out / "logs").glob("*.jsonl"), key=lambda p: p.stat().st_mtime):
            phase = path.stem.rsplit("_", 1)[0]
            for record in _whole_records(path):
                steps[phase, record["step"]] = {"phase": phase, "step": record["step"], **record["data"]}
        return [steps[key] for key in sorted(steps, key=lambda key: (key[0] != "sft", key[1]))]

    def _episodes(self, name: str) -> list[dict[str, Any]]:
        episodes = json.loads((self._out / "eval" / f"{name}_sampled.json").read_text())
        return [{**episode, "question": _question(episode)} for episode in episodes]


def _of_rl(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in metrics if row["phase"] == "grpo"]


def _question(episode: dict[str, Any]) -> str:
    """Returns the last message of the prompt; empty for a void episode."""
    sample = (episode.get(STORED_SAMPLE) or {}).get("sample") or {}
    return sample["prompt"][-1]["content"] if sample.get("prompt") else ""


def _other_run(out: Path, record: dict[str, Any], *, seed: int) -> ComparedRun | None:
    """Returns the newest finished run of the other kind (control or not) with the same recipe and seed, in a folder
    beside this one."""
    found: list[tuple[float, ComparedRun]] = []
    for path in out.parent.glob("*/phases/rl.json"):
        folder = path.parent.parent
        files = [folder / name for name in ("summary.json", "metrics.jsonl")]
        theirs = json.loads(path.read_text())
        is_pair = theirs.get("recipe") == record.get("recipe") and "control" in theirs and "control" in record
        if not is_pair or theirs["control"] == record["control"] or not all(file.is_file() for file in files):
            continue
        figures = json.loads(files[0].read_text())
        if figures["seed"] == seed:
            metrics = [json.loads(line) for line in files[1].read_text().splitlines()]
            found.append((files[0].stat().st_mtime, ComparedRun(figures=figures, metrics=_of_rl(metrics))))
    return max(found, key=lambda one: one[0])[1] if found else None


def _export_viewer(out: Path) -> str:
    """Writes the viewer with the newest trajectories; returns its name, or nothing if none were logged."""
    from verl_agentic.diagnostics.viewer.export import newest_rows, write_page
    from verl_agentic.diagnostics.viewer.query import Query
    from verl_agentic.diagnostics.viewer.run_view import RunView

    log = out / "rl" / "log"
    if not any(log.rglob("trajectories-*.arrows")):
        return ""
    view = RunView(log, shown_as=out)
    rows = newest_rows(view, limit=_NUM_VIEWED, query=Query())
    write_page(out / _VIEWER, view, {row: [] for row in rows})
    return _VIEWER


def _interval(success: float, num_tasks: int) -> str:
    low, high = proportion_interval(success * num_tasks, num_tasks)
    return f"{low:.3f} to {high:.3f}"


def _whole_records(path: Path) -> list[dict[str, Any]]:
    """Returns the records of a log; the last line of a killed run may be incomplete."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1] if line]
