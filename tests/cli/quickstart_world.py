"""A fake of the work of a quickstart's phases, for tests of the chain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.cpu.quickstart import stages, tasks
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.cpu.quickstart.phases import Quickstart
from verl_agentic.data.export.export_run import Exported, ExportOptions
from verl_agentic.data.making.make_data import MakingReport
from verl_agentic.log.reader import write_run


class World:
    """Writes the files that the work would leave, in no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.commands: list[list[str]] = []
        """Commands of trainers."""
        self.platforms: list[str] = []
        self.engines: list[dict[str, str]] = []
        """Device and dtype of evaluations."""
        self.given: dict[str, dict[str, str]] = {}
        """Stage -> what its work was given, the last time."""
        self.num_made = 3
        """Rows that a stage `make` writes."""
        self.during_rl: Callable[[Path], None] = lambda folder: None
        for name in ("make_model", "make_data", "evaluate", "sample", "make_conversations"):
            monkeypatch.setattr(tasks, name, getattr(self, name))
        monkeypatch.setattr(stages, "run_child", self.run_child)
        monkeypatch.setattr(stages, "export_run", self.export_run)
        monkeypatch.setattr(stages, "read_rows", lambda path: [path] * 600)

    def make_model(self, courses: Iterable[Course], folder: Path, seed: int) -> dict[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").touch()
        self.done.append("model")
        return {"parameters": 7}

    def make_data(
        self, course: Course, folder: Path, model: Path, seed: int, num_eval: int, advance: Callable[[int, int], None]
    ) -> dict[str, Any]:
        self.done.append("data" if folder.name == "data" else f"data {folder.name}")
        advance(1, 2)
        return {}

    def evaluate(
        self, course: Course, out: Path, name: str, model: Path, *, greedy: bool, seed: int, advance: Any,
        max_tasks: int | None = None, **engine: str,
    ) -> dict[str, Any]:  # fmt: skip
        self.done.append(f"eval {name}")
        self.engines.append(engine)
        assert (model / "config.json").is_file()
        score = {"base": 0.0, "sft": 0.25, "rl": 0.875}.get(name, 0.5)
        row = {"uid": "t", "extra": json.dumps({"kind": "sums", "is_new": True, "code": "1 + 1"}), "acc": score,
               "prompt": [{"role": "user", "content": "a question"}], "stop_reason": "answered",
               "turns": [{"text": name, "observations": []}]}  # fmt: skip
        write_run(out / "eval" / f"{name}_sampled", trajectories=[row])
        greedily = {"greedy": score + 0.125, "tool_rate_greedy": 0.0} if greedy else {}
        write_run(out / "eval" / f"{name}_greedy", trajectories=[{**row, "acc": float(name == "rl")}])
        return {"num_tasks": max_tasks or 5, "sampled": score, "tool_rate_sampled": score / 2, **greedily}

    def sample(
        self, course: Course, rows: Sequence[EnvRow], folder: Path, model: Path, *, samples: int, **_: Any
    ) -> dict[str, Any]:
        self.done.append(folder.name)
        self.given[folder.name] = {"model": str(model), "rows": str(len(rows)), "samples": str(samples)}
        return {}

    def make_conversations(self, course: Course, out: Path, model: Path, **options: Any) -> MakingReport:
        self.done.append(out.parent.name)
        self.given[out.parent.name] = {"model": str(model), **{name: str(value) for name, value in options.items()}}
        return MakingReport(rows=self.num_made, dropped={}, examples={}, unfinished=0)

    def export_run(self, run_dir: Path, out: Path, options: ExportOptions) -> Exported:
        self.done.append(out.parent.name)
        self.given[out.parent.name] = {"log": str(run_dir), "out": str(out), "as": options.shape}
        return Exported(records=1, rows=1)

    def run_child(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], meter: Any, on_poll: Any
    ) -> None:
        given = dict(part.split("=", 1) for part in command if "=" in part)
        folder, steps = Path(given["trainer.default_local_dir"]), int(given["trainer.total_training_steps"])
        self.done.append(folder.name)
        self.commands.append(list(command))
        self.platforms.append(environment["VERL_PLATFORM"])
        self.given[folder.name] = given
        on_poll()
        records = [{"step": i, "data": {"episode/acc": i / 10, "odd": None}} for i in range(1, steps + 1)]
        Path(environment["VERL_FILE_LOGGER_PATH"]).write_text("".join(json.dumps(r) + "\n" for r in records))
        on_poll()
        if "verl.trainer.main_ppo" in command:
            self.during_rl(folder)
        for step in range(1, steps + 1, 8):
            model = folder / f"global_step_{step}" / "actor" / "huggingface"
            model.mkdir(parents=True, exist_ok=True)
            (model / "config.json").write_text(str(step))
            (model / "model.safetensors").touch()
        if "++warm_start.env" in given:
            chosen = folder / "global_step_1" / "huggingface"
            chosen.mkdir(parents=True, exist_ok=True)
            (chosen / "config.json").write_text("chosen")
            (folder / "warm_start.json").write_text(json.dumps({"chosen": 1, "stopped": "", "checks": []}))


def run_course(quickstart: Quickstart) -> None:
    """Runs a quickstart whose display announces exactly the phases that run."""
    announced = [name for name, _ in quickstart._list_phases()]
    assert quickstart.run() == 0
    assert announced == list(quickstart._records)
