"""The results of a run: `summary.json`, `metrics.jsonl`, `report.html`, `viewer.html`, and a table."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from verl_agentic.cpu.quickstart.run_state import RunState
from verl_agentic.cpu.quickstart.stages import CourseStage, RlStage
from verl_agentic.evaluate.evaluation_log import read_episodes
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.observe.quickstart_report import ComparedRun, write_report
from verl_agentic.observe.success_over_attempts import proportion_interval

_VIEWER, _NUM_VIEWED = "viewer.html", 96


class Summary:
    """The results of a finished run."""

    def __init__(self, state: RunState, stages: Sequence[CourseStage], records: dict[str, dict[str, Any]]) -> None:
        self._state, self._out, self._stages, self._records = state, state.out, stages, records
        self._rl = [stage.name for stage in stages if isinstance(stage, RlStage)]
        self._models = list(state.models)
        evals = {name: records[f"eval {name}"] for name in ("base", *self._models)}
        self._rows = self._read_metrics()
        self.figures = {
            **{f"success_{name}": record["sampled"] for name, record in evals.items()},
            **{f"greedy_{name}": evals[name]["greedy"] for name in self._models},
            **{f"tool_rate_{name}": evals[name]["tool_rate_sampled"] for name in self._models},
            "num_eval_tasks": evals[self._models[-1]]["num_tasks"],
            "num_eval_tasks_base": evals["base"]["num_tasks"],
            "steps": len(self._rl_rows()),
            "wall_s": sum(record["wall_s"] for record in records.values()),
            "cpu_s": sum(_read_cpu_s(record) for record in records.values()),
            "peak_rss_gb": max(record["peak_rss_gb"] for record in records.values()),
            "seed": state.settings.seed,
            "dtype": state.dtype,
        }

    def write(self) -> None:
        """Writes the files into the run's folder."""
        write_json_lines(self._rows, self._out / "metrics.jsonl")
        (self._out / "summary.json").write_text(json.dumps(self.figures, indent=2) + "\n")
        rl = self._records.get("rl", {})
        write_report(
            self._out / "report.html",
            figures=self.figures,
            stages=self._models,
            metrics=self._rl_rows(),
            before=self._read_episodes(self._models[0]),
            after=self._read_episodes(self._models[-1]),
            is_control=self._state.settings.control,
            other=_other_run(self._out, rl, seed=self.figures["seed"]),
            viewer=_export_viewer(self._out, self._rl),
            run_dir=os.path.relpath(self._out),
        )

    def show(self) -> None:
        """Prints the table."""
        f, console = self.figures, Console()
        is_part = f["num_eval_tasks_base"] < f["num_eval_tasks"]
        part = f" ({f['num_eval_tasks_base']} for the untrained model)" if is_part else ""
        table = Table(title=f"{f['num_eval_tasks']} held-out tasks{part}, seed {f['seed']}, {f['dtype']}")
        for column in ("", "success, sampled", "95 % interval", "success, greedy", "tool used"):
            table.add_column(column, justify="right" if column else "left")
        for name in ("base", *self._models):
            record = self._records[f"eval {name}"]
            success, tool = record["sampled"], record["tool_rate_sampled"]
            table.add_row(
                "untrained" if name == "base" else f"after {name}",
                f"{success:.3f}",
                _format_interval(success, record["num_tasks"]),
                f"{record['greedy']:.3f}" if "greedy" in record else "",
                f"{tool:.3f}",
            )
        console.print(table)
        for title, seconds_of in (("wall time", itemgetter("wall_s")), ("CPU time", _read_cpu_s)):
            seconds = {name: seconds_of(record) for name, record in self._records.items()}
            phases = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
            console.print(f"{title} {sum(seconds.values()):.0f} s ({phases})")
        console.print(f"peak memory {f['peak_rss_gb']:.1f} GB")
        console.print(f"report: {self._out / 'report.html'}")
        if row := self._find_solved_row():
            course = self._state.course
            options = ["--model", str(self._out / "checkpoint"), "--env", course.env, "--protocol", course.protocol]
            for name, value in course.env_config.items():
                options += ["--config", f"{name}={json.dumps(value)}"]
            if json.loads(row["extra"]).keys() - {"task_id"}:  # the environment may need them
                options += ["--rows", str(self._state.data("") / "test.jsonl")]
            command = ["verl-agentic", "play", *options, row["prompt"][0]["content"]]
            console.print(f"try it: {shlex.join(command)}", soft_wrap=True, markup=False)

    def _find_solved_row(self) -> Mapping[str, Any] | None:
        """Returns a held-out row of one message that the last model solves greedily, and that is the first row with
        its question; None if there is none."""
        firsts: dict[str, Mapping[str, Any]] = {}
        for row in self._read_rows(f"{self._models[-1]}_greedy"):
            if len(row["prompt"]) == 1:
                firsts.setdefault(row["prompt"][0]["content"], row)
        return next((row for row in firsts.values() if row["acc"] == 1.0), None)

    def _read_metrics(self) -> list[dict[str, Any]]:
        """Returns the logged steps of all stages in order; for a step that was logged twice (a resumed run), the last
        record."""
        rows = []
        for stage in self._stages:
            files = sorted(self._state.metric_files(stage.name), key=lambda path: path.stat().st_mtime)
            steps = {record["step"]: record["data"] for path in files for record in _whole_records(path)}
            rows += [{"phase": stage.name, "step": step, **steps[step]} for step in sorted(steps)]
        return rows

    def _rl_rows(self) -> list[dict[str, Any]]:
        """Returns the steps of all stages of RL, numbered through."""
        rows = [row for row in self._rows if row["phase"] in self._rl]
        return [{**row, "step": number} for number, row in enumerate(rows, 1)]

    def _read_episodes(self, name: str) -> list[dict[str, Any]]:
        return [_describe_episode(row) for row in self._read_rows(f"{name}_sampled")]

    def _read_rows(self, name: str) -> list[Mapping[str, Any]]:
        """Returns the last row of each episode of an evaluation."""
        return [rows[-1] for rows in read_episodes(self._out / "eval" / name).values()]


def _describe_episode(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an episode for the report; `labels` are `kind` and flags of the task."""
    extra = json.loads(row["extra"])
    kind = {"kind": extra["kind"]} if isinstance(extra.get("kind"), str) else {}
    flags = {name: "yes" if value else "no" for name, value in extra.items() if isinstance(value, bool)}
    segments = [{"kind": "prompt", "text": f"{message['role']}\n{message['content']}\n"} for message in row["prompt"]]
    for turn in row["turns"]:
        segments.append({"kind": "model", "text": turn["text"]})
        segments += [{"kind": "tool", "text": f"\n{text}\n"} for text in turn["observations"]]
    return {
        "outcome": row["acc"] or 0.0,
        "stop_reason": row["stop_reason"],
        "question": row["prompt"][-1]["content"] if row["prompt"] else "",
        "labels": {**kind, **flags},
        "segments": segments,
    }


def _read_cpu_s(record: Mapping[str, Any]) -> float:
    """Returns the CPU time of a phase; 0 for a record of a version that did not measure it."""
    return record.get("cpu_s", 0.0)


def _other_run(out: Path, record: dict[str, Any], *, seed: int) -> ComparedRun | None:
    """Returns the newest finished run of the other kind (control or not) with the same recipe and seed, in a folder
    beside this one."""
    runs: list[tuple[float, ComparedRun]] = []
    for path in out.parent.glob("*/phases/rl.json"):
        folder = path.parent.parent
        files = [folder / name for name in ("summary.json", "metrics.jsonl")]
        theirs = json.loads(path.read_text())
        is_pair = theirs.get("recipe") == record.get("recipe") and "control" in theirs and "control" in record
        if not is_pair or theirs["control"] == record["control"] or not all(file.is_file() for file in files):
            continue
        figures = json.loads(files[0].read_text())
        if figures["seed"] == seed:
            steps = [json.loads(line) for line in files[1].read_text().splitlines()]
            metrics = [step for step in steps if step["phase"] == "rl"]
            runs.append((files[0].stat().st_mtime, ComparedRun(figures=figures, metrics=metrics)))
    return max(runs, key=lambda run: run[0])[1] if runs else None


def _export_viewer(out: Path, stages: Sequence[str]) -> str:
    """Writes the viewer with the newest trajectories of RL; returns its name, or nothing if none were logged."""
    from verl_agentic.observe.viewer.export import newest_rows, write_page
    from verl_agentic.observe.viewer.query import Query
    from verl_agentic.observe.viewer.run_view import RunView

    logs = [out / stage / "log" for stage in stages if any((out / stage / "log").rglob("trajectories-*.arrows"))]
    if not logs:
        return ""
    view = RunView(logs[-1], shown_as=out)
    rows = newest_rows(view, limit=_NUM_VIEWED, query=Query())
    write_page(out / _VIEWER, view, {row: [] for row in rows})
    return _VIEWER


def _format_interval(success: float, num_tasks: int) -> str:
    low, high = proportion_interval(success * num_tasks, num_tasks)
    return f"{low:.3f} to {high:.3f}"


def _whole_records(path: Path) -> list[dict[str, Any]]:
    """Returns the records of a log; the last line of a killed run may be incomplete."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1] if line]
