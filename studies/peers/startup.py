"""Measures the start-up and the steps of a CPU run, in one process and with Ray's processes.

python studies/peers/startup.py [--quick] [--out FOLDER]

The run is the GRPO stage of the quickstart, which begins with its SFT model (`--quick`: one of 80 steps). Each phase
of the start-up ends with a line that verl prints. CPU seconds are those of the whole process tree.

`fixed_step_s`: a step of one group of two rows with at most 8 new tokens, which is nearly nothing but calls.
`calls_per_step`: calls of actors, counted in the run of one process. Ray's processes make the same ones.
`memory_gb`: proportional size of all processes, which counts shared pages once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

sys.path += [str(Path(__file__).parents[n] / name) for n, name in ((2, "benchmarks"), (1, "credit"))]

from _credit_runs import Size, WarmStart
from _peers_settings import RECIPE, Plan
from _report import Target, median, progress, report

from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT

_FOLDER = Path(__file__).parent
_ADDRESSES = ("threads", "local")
_PHASES = {
    "imports, config": "ray init kwargs",
    "Ray": "'actor_rollout_ref'",
    "data": "Total training steps",
    "worker groups": "create worker group",
    "model, FSDP": "actor and ref model engine initialized",
    "reward workers": "reward loop manager initialized",
    "rollout server": "checkpoint engine manager initialized",
    "agent loops": "Creating file logger",
}
"""Phase of the start-up -> the text whose first line ends it, in their order."""
_TINY = ("data.train_batch_size=1", "actor_rollout_ref.rollout.n=2", "data.max_response_length=8")
_TINY += ("actor_rollout_ref.actor.ppo_mini_batch_size=1",)
_TARGETS = {
    "start_up_s.threads": Target(bound=8.0, at_least=False, is_goal=True),
    "fixed_step_s.threads": Target(bound=0.5, at_least=False, is_goal=True),
}


@dataclass
class Measured:
    """One run."""

    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Phase -> wall and CPU seconds."""
    steps: list[dict[str, float]] = field(default_factory=list)
    processes: dict[str, float] = field(default_factory=dict)
    """Process -> its memory in GB."""
    calls: dict[str, int] = field(default_factory=dict)
    """Method of an actor -> its calls in all steps."""


def main() -> int:
    """Runs all trainings and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a weaker model and three steps")
    parser.add_argument("--out", type=Path, default=Path("outputs/startup"), help="folder (default %(default)s)")
    options = parser.parse_args()
    out, steps = options.out.resolve(), 3 if options.quick else 8
    none = dict.fromkeys(("max_tokens", "max_steps", "num_tasks"), 0)  # of trainings that are not run here
    size = Size(
        sft_steps=80 if options.quick else None, num_demos=600 if options.quick else None, eval_tasks=32, **none
    )
    start = WarmStart(out / "start", RECIPE, size)
    start.make()
    ratios: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    for address in _ADDRESSES:
        plan = Plan(start=start.out, out=out / address, seed=0, steps=steps)
        figures |= _figures(address, _run(plan, address), _run(plan, address, *_TINY))
    for name in ("start_up_s", "start_up_cpu_s", "step_s", "fixed_step_s", "memory_gb"):
        ratios[f"{name}_threads_to_local"] = round(figures[f"{name}.threads"] / figures[f"{name}.local"], 3)
    return report("startup", ratios=ratios, figures=figures, targets=_TARGETS)


def _figures(address: str, run: Measured, tiny: Measured) -> dict[str, Any]:
    walls, cpus = zip(*run.phases.values(), strict=True)
    timings = sorted({name for step in run.steps for name in step if name.startswith(("timing_s/", "time/"))})
    figures = {
        "start_up_s": round(sum(walls), 2),
        "start_up_cpu_s": round(sum(cpus), 2),
        "start_up": {name: f"{wall:.2f} s, {cpu:.2f} CPU s" for name, (wall, cpu) in run.phases.items()},
        "step_s": median([step["timing_s/step"] for step in run.steps[1:]]),
        "step": {name: median([step.get(name, 0.0) for step in run.steps[1:]]) for name in timings},
        "fixed_step_s": median([step["timing_s/step"] for step in tiny.steps[1:]]),
        "num_processes": len(run.processes),
        "memory_gb": round(sum(run.processes.values()), 2),
        "processes": run.processes,
    }
    if run.calls:
        figures["calls_per_step"] = {name: round(count / len(run.steps), 1) for name, count in run.calls.items()}
    return {f"{name}.{address}": value for name, value in figures.items()}


def _run(plan: Plan, address: str, *overrides: str) -> Measured:
    """Runs the training to its end."""
    progress(f"{address}{', tiny steps' if overrides else ''}: {plan.steps} steps")
    shutil.rmtree(plan.out, ignore_errors=True)
    plan.out.mkdir(parents=True)
    files = {name: plan.out / f"{name}.jsonl" for name in ("metrics", "calls")}
    command = [
        *[sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(plan.course.file("grpo").parent)],
        *["--config-name", "grpo", *plan.overrides(), f"ray_kwargs.ray_init.address={address}"],
        *["trainer.logger=[console,file]", "trainer.val_before_train=false", "trainer.test_freq=-1", *overrides],
    ]
    environment = {
        **os.environ,
        **CPU_ENVIRONMENT,
        "PYTHONUNBUFFERED": "1",
        "VERL_FILE_LOGGER_PATH": str(files["metrics"]),
        "VERL_USE_EXTERNAL_MODULES": "_startup_calls",
        "STARTUP_CALLS": str(files["calls"]),
        "PYTHONPATH": os.pathsep.join([str(_FOLDER), os.environ.get("PYTHONPATH", "")]),
    }
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    measured, begin = Measured(), time.monotonic()
    process = subprocess.Popen(command, env=environment, cwd=plan.out, errors="replace", **pipes)
    tree = _Tree(process.pid)
    waiting, ended_at, cpu_at, lines = dict(_PHASES), begin, 0.0, []
    for line in process.stdout or ():
        lines.append(line)
        if waiting and next(iter(waiting.values())) in line:
            now, cpu = time.monotonic(), tree.cpu_s()
            measured.phases[next(iter(waiting))] = (now - ended_at, cpu - cpu_at)
            del waiting[next(iter(waiting))]
            ended_at, cpu_at = now, cpu
        elif "step:1 " in line:
            measured.processes = dict(tree.memory_gb())
    if process.wait() or waiting:
        raise RuntimeError(f"the run failed or printed no line for {list(waiting)}: {''.join(lines[-40:])}")
    measured.steps = [json.loads(line)["data"] for line in files["metrics"].read_text().splitlines()]
    if files["calls"].exists():
        measured.calls = json.loads(files["calls"].read_text())
    return measured


class _Tree:
    """The processes of a run. The CPU seconds of those that have ended are kept."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu_s: dict[int, float] = {}

    def cpu_s(self) -> float:
        for process in self._members():
            self._cpu_s[process.pid] = sum(process.cpu_times()[:2])
        return sum(self._cpu_s.values())

    def memory_gb(self) -> Iterator[tuple[str, float]]:
        for process in self._members():
            name = process.cmdline()[0] if process.cmdline() else ""
            yield f"{Path(name).name.strip()} {process.pid}", round(process.memory_full_info().pss / 1e9, 3)

    def _members(self) -> list[psutil.Process]:
        return [one for one in (self._root, *self._root.children(recursive=True)) if one.is_running()]


if __name__ == "__main__":
    sys.exit(main())
