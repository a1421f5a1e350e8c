"""The phases of a run: model, data, and the stages of its course; each runs again only if its inputs have changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.cpu.quickstart import tasks
from verl_agentic.cpu.quickstart.child_process import MemoryMeter, termination_as_interrupt
from verl_agentic.cpu.quickstart.course import Course, load_course
from verl_agentic.cpu.quickstart.display import Display
from verl_agentic.cpu.quickstart.finished_phases import copy_phase, find_finished, record_file
from verl_agentic.cpu.quickstart.run_state import MODEL, RECIPE, QuickstartSettings, RunState
from verl_agentic.cpu.quickstart.stage_list import load_stages
from verl_agentic.cpu.quickstart.stages import CourseStage, ModelStage
from verl_agentic.cpu.quickstart.summary import Summary
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.verl.extensions.cpu.cpu_features import require_vllm


class Quickstart:
    """One run, in one folder."""

    def __init__(
        self,
        out: Path,
        settings: QuickstartSettings,
        *,
        fresh: bool = False,
        course: Course | None = None,
        stages: Sequence[CourseStage] | None = None,
    ) -> None:
        """Prepares a run.

        Args:
            out: its folder.
            settings: its options.
            fresh: remove what an earlier run left in the folder, and take nothing from runs beside it.
            course: by default that of the recipe.
            stages: by default those of the course.
        """
        if settings.engine == "vllm":
            require_vllm(settings.device)
        self.out = out.resolve()
        self.settings = settings
        self._course = course or load_course(settings.recipe)
        self._stages = load_stages(self._course) if stages is None else stages
        if fresh:
            _remove_run(self.out)
        self._display = Display()
        self._meter = MemoryMeter()
        self._state = RunState(
            out=self.out, settings=settings, course=self._course, display=self._display, meter=self._meter
        )
        self._is_fresh = fresh
        self._fingerprint = _hash_parts(*_config_texts())
        self._records: dict[str, dict[str, Any]] = {}

    def run(self) -> int:
        """Runs unfinished phases, and writes summary, metrics and report; returns the exit code."""
        self._display.announce(self._list_phases())
        try:
            with self._display, termination_as_interrupt():
                self._make_start()
                max_tasks = self._course.num_eval_untrained
                self._run_evaluation("base", self.out / MODEL, greedy=False, max_tasks=max_tasks)
                for stage in self._stages:
                    self._run_stage(stage)
        except KeyboardInterrupt:
            self._display.console.print(
                "Interrupted. Run the same command to continue, or pass --fresh to start again."
            )
            raise
        finally:
            self._meter.stop()
        shutil.rmtree(self.out / "checkpoint", ignore_errors=True)
        shutil.copytree(self._state.products[MODEL], self.out / "checkpoint")
        summary = Summary(self._state, self._stages, self._records)
        summary.write()
        summary.show()
        return 0

    def _list_phases(self) -> list[tuple[str, str]]:
        """Returns name and title of all phases, in order."""
        data = [(f"data {name}".strip(), "") for name in self._list_courses()]
        phases = [(MODEL, ""), *data, ("eval base", "")]
        for stage in self._stages:
            phases.append((stage.name, stage.title))
            if MODEL in stage.products(self._state.folder(stage.name)):
                phases.append((f"eval {stage.name}", ""))
        return phases

    def _list_runs(self) -> list[Path]:
        """Returns the folders whose finished phases count: this one, and the others beside it."""
        others = [] if self._is_fresh else sorted(path for path in self.out.parent.glob("*") if path != self.out)
        return [self.out, *others]

    def _list_courses(self) -> list[str]:
        """Returns the names of all courses whose data the stages use."""
        return list({"": None, **{stage.course: None for stage in self._stages if isinstance(stage, ModelStage)}})

    def _make_start(self) -> None:
        """Makes the model that the course begins with, and the tasks and demonstrations of its stages."""
        out, seed, course = self.out, self.settings.seed, self._course
        num_eval = self.settings.eval_tasks or course.num_eval
        courses = {name: course.named(name) for name in self._list_courses()}
        inputs = [seed, *(stage_course.inputs() for stage_course in courses.values())]
        self._run_phase(MODEL, lambda: tasks.make_model(courses.values(), out / MODEL, seed), inputs)
        self._state.products[MODEL] = out / MODEL
        for name, stage_course in courses.items():
            self._run_phase(
                f"data {name}".strip(),
                lambda stage_course=stage_course, name=name: tasks.make_data(
                    stage_course, out / "data" / name, out / MODEL, seed, num_eval, self._display.advance
                ),
                [num_eval],
            )

    def _run_stage(self, stage: CourseStage) -> None:
        """Runs a stage, and evaluates the model that it makes."""
        state = self._state
        inputs = [repr(stage), *stage.inputs(state)]
        self._run_phase(
            stage.name, lambda: stage.run(state), inputs, title=stage.title, folder=state.folder(stage.name)
        )
        state.finish(stage.name, stage.products(state.folder(stage.name)))
        if stage.name in state.models:
            self._run_evaluation(stage.name, state.models[stage.name], greedy=True)

    def _run_evaluation(self, name: str, model: Path, *, greedy: bool, max_tasks: int | None = None) -> None:
        self._run_phase(
            f"eval {name}",
            lambda: self._evaluate_model(name, model, greedy=greedy, max_tasks=max_tasks),
            [self.settings.device, self._state.dtype],
        )

    def _evaluate_model(self, name: str, model: Path, *, greedy: bool, max_tasks: int | None) -> dict[str, Any]:
        return tasks.evaluate(
            self._course,
            self.out,
            name,
            model,
            greedy=greedy,
            seed=self.settings.seed,
            advance=self._display.advance,
            max_tasks=max_tasks,
            device=self.settings.device,
            dtype=self._state.dtype,
        )

    def _run_phase(
        self,
        name: str,
        work: Callable[[], dict[str, Any]],
        inputs: list[Any] | None = None,
        *,
        title: str = "",
        folder: Path | None = None,
    ) -> None:
        """Runs a phase, unless this run or one beside it has done so with the same inputs after the same phases.

        Args:
            work: what it does; returns its record.
            inputs: what its result depends on, besides the phases before it.
            title: for the display.
            folder: removed first, unless an interrupted run with the same inputs left it.
        """
        path = record_file(self.out, name)
        self._fingerprint = _hash_parts(self._fingerprint, name, inputs)
        run, record = find_finished(self._list_runs(), name, self._fingerprint)
        with self._display.phase(name, title) as phase:
            if run == self.out:
                phase.reused()
            else:
                path.unlink(missing_ok=True)  # an interruption leaves a phase that is not finished
                if run is not None:
                    copy_phase(run, self.out, name)
                    phase.reused(run.name)
                else:
                    if folder is not None:
                        self._drop_foreign_files(folder)
                    record = {"fingerprint": self._fingerprint, **self._measure_work(work)}
                write_json_lines([record], path)  # atomically: another run may look for finished phases
        self._records[name] = record

    def _measure_work(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Does the work of a phase, and returns its record with time and memory."""
        started, cpu_before = time.monotonic(), _measure_cpu_s()
        result = work()
        self._meter.measure()
        return {
            "wall_s": time.monotonic() - started,
            "cpu_s": _measure_cpu_s() - cpu_before,
            "peak_rss_gb": self._meter.peak_bytes / 2**30,
            **result,
        }

    def _drop_foreign_files(self, folder: Path) -> None:
        """Removes files and logs of other inputs; keeps those of this phase, so that an interrupted run continues."""
        mark = folder / "fingerprint"
        if not mark.is_file() or mark.read_text() != self._fingerprint:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            mark.write_text(self._fingerprint)
            for stale in self._state.metric_files(folder.name):
                stale.unlink()


def _remove_run(folder: Path) -> None:
    """Removes the files of an earlier run; not the recipe of an environment, which is written before each run.

    Raises:
        ConfigError: the folder holds something else than a run.
    """
    entries = [path for path in folder.glob("*") if path.name != RECIPE]
    if entries and not (folder / "phases").is_dir():
        raise ConfigError(
            f"--fresh removes the folder of an earlier run, got {folder}, which is not one; name another folder"
        )
    for path in entries:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _config_texts() -> list[str]:
    from verl_agentic import __file__ as package

    return [file.read_text() for file in sorted((Path(package).parent / "config" / "agentic").glob("**/*.yaml"))]


def _measure_cpu_s() -> float:
    """Returns the CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _hash_parts(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
