"""The phases of the quickstart; each runs once, and again only if its inputs have changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.adapters.cpu.cpu_features import require_vllm
from verl_agentic.cli.quickstart import tasks
from verl_agentic.cli.quickstart.child_process import CPU_ENVIRONMENT, MemoryMeter, run_child, termination_as_interrupt
from verl_agentic.cli.quickstart.course import Course, load_course
from verl_agentic.cli.quickstart.display import Display
from verl_agentic.cli.quickstart.summary import Summary
from verl_agentic.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """Options of a run; they are hashed together with recipes and code."""

    recipe: str
    seed: int
    control: bool
    rl_steps: int | None
    sft_steps: int | None
    eval_tasks: int
    engine: str = "agentic"
    """Engine of the rollouts of GRPO: `agentic`, or `vllm`, which must be installed."""


class Quickstart:
    """One run, in one folder."""

    def __init__(self, out: Path, settings: QuickstartSettings, *, fresh: bool = False) -> None:
        if settings.engine == "vllm":
            require_vllm()
        self.out = out.resolve()
        self.settings = settings
        self._course = load_course(settings.recipe)
        if fresh:
            _remove_run(self.out)
        self._fingerprint = _hash(dataclasses.asdict(settings), *_sources(self._course))
        self._display = Display()
        self._meter = MemoryMeter()
        self._records: dict[str, dict[str, Any]] = {}

    def run(self) -> int:
        """Runs unfinished phases, and writes summary, metrics and report; returns the exit code."""
        try:
            with self._display, termination_as_interrupt():
                self._run_phases()
        except KeyboardInterrupt:
            self._display.console.print(
                "Interrupted. Run the same command to continue, or pass --fresh to start again."
            )
            raise
        finally:
            self._meter.stop()
        summary = Summary(self.out, recipe=self.settings.recipe, seed=self.settings.seed, records=self._records)
        summary.write()
        summary.show()
        return 0

    def _run_phases(self) -> None:
        out, seed, course = self.out, self.settings.seed, self._course
        self._phase("model", lambda: tasks.make_model(course, out, seed))
        num_eval = self.settings.eval_tasks
        self._phase("data", lambda: tasks.make_data(course, out, seed, num_eval, self._display.advance))
        self._phase("eval base", lambda: self._evaluate("base", out / "model", greedy=False))
        self._phase("sft", self._sft)
        self._phase("eval sft", lambda: self._evaluate("sft", out / "sft" / "model", greedy=True))
        self._phase("rl", self._rl)
        self._phase("eval rl", lambda: self._evaluate("rl", out / "checkpoint", greedy=True))

    def _phase(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Runs a phase, unless its record shows a run with the same inputs."""
        path = self.out / "phases" / f"{name.replace(' ', '_')}.json"
        self._fingerprint = _hash(self._fingerprint, name)
        record = json.loads(path.read_text()) if path.is_file() else {}
        with self._display.phase(name) as phase:
            if record.get("fingerprint") == self._fingerprint:
                phase.reused()
            else:
                started = time.monotonic()
                result = work()
                self._meter.measure()
                record = {
                    "fingerprint": self._fingerprint,
                    "wall_s": time.monotonic() - started,
                    "peak_rss_gb": self._meter.peak_bytes / 2**30,
                    **result,
                }
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(record))
        self._records[name] = record

    def _evaluate(self, name: str, model: Path, *, greedy: bool) -> dict[str, Any]:
        seed = self.settings.seed
        return tasks.evaluate(
            self._course, self.out, name, model, greedy=greedy, seed=seed, advance=self._display.advance
        )

    def _sft(self) -> dict[str, Any]:
        folder = self.out / "sft"
        shutil.rmtree(folder, ignore_errors=True)
        self._drop_logs("sft")
        overrides = [
            f"model.path={self.out / 'model'}",
            f"data.train_files={self.out / 'data' / 'sft.jsonl'}",
            f"trainer.default_local_dir={folder}",
            f"trainer.seed={self.settings.seed}",
            *_steps(self.settings.sft_steps),
        ]
        module = ["torch.distributed.run", "--standalone", "--nproc_per_node=1", "-m", "verl.trainer.sft_trainer"]
        self._train("sft", module, overrides, metric="train/loss")
        shutil.copytree(_newest_huggingface(folder), folder / "model")
        return {}

    def _rl(self) -> dict[str, Any]:
        folder = self.out / "rl"
        self._drop_foreign_checkpoints(folder)
        overrides = [
            f"actor_rollout_ref.model.path={self.out / 'sft' / 'model'}",
            f"data.train_files={self.out / 'data' / 'train.jsonl'}",
            f"data.val_files={self.out / 'data' / 'test.jsonl'}",
            f"data.seed={self.settings.seed}",
            f"actor_rollout_ref.rollout.seed={self.settings.seed}",
            f"trainer.default_local_dir={folder}",
            f"++agentic.log.dir={folder / 'log'}",
            *(["algorithm.adv_estimator=grpo_shuffled"] if self.settings.control else []),
            *(["+agentic=cpu_vllm"] if self.settings.engine == "vllm" else []),
            *_steps(self.settings.rl_steps),
        ]
        self._train("grpo", ["verl.trainer.main_ppo"], overrides, metric="episode/acc")
        shutil.rmtree(self.out / "checkpoint", ignore_errors=True)
        shutil.copytree(_newest_huggingface(folder), self.out / "checkpoint")
        return {"recipe": self.settings.recipe, "control": self.settings.control}

    def _train(self, recipe: str, module: list[str], overrides: list[str], *, metric: str) -> None:
        config = self._course.file(recipe)
        logs = self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        metrics = logs / f"{recipe}_{len(list(logs.glob(f'{recipe}_*.jsonl')))}.jsonl"
        steps = tasks.steps_of(self._course, recipe, overrides)
        run_child(
            [
                *[sys.executable, "-m", *module, "--config-dir", str(config.parent), "--config-name", recipe],
                *overrides,
                "trainer.logger=[file]",
            ],
            log=logs / f"{recipe}.log",
            environment={**CPU_ENVIRONMENT, "VERL_FILE_LOGGER_PATH": str(metrics)},
            meter=self._meter,
            on_poll=lambda: self._display.follow(metrics, steps, metric),
        )

    def _drop_foreign_checkpoints(self, folder: Path) -> None:
        """Removes checkpoints of other inputs; keeps those of this phase, so that an interrupted run continues."""
        mark = folder / "fingerprint"
        if not mark.is_file() or mark.read_text() != self._fingerprint:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            mark.write_text(self._fingerprint)
            self._drop_logs("grpo")

    def _drop_logs(self, recipe: str) -> None:
        for stale in (self.out / "logs").glob(f"{recipe}_*.jsonl"):
            stale.unlink()


def _remove_run(folder: Path) -> None:
    """Removes the folder of an earlier run.

    Raises:
        ConfigError: it holds something else than a run.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "phases").is_dir():
        raise ConfigError(
            f"--fresh removes the folder of an earlier run, got {folder}, which is not one; name another folder"
        )
    shutil.rmtree(folder, ignore_errors=True)


def _steps(steps: int | None) -> list[str]:
    return [] if steps is None else [f"trainer.total_training_steps={steps}"]


def _newest_huggingface(folder: Path) -> Path:
    found = [p.parent for p in folder.glob("**/huggingface/config.json") if list(p.parent.glob("*.safetensors"))]
    if not found:
        raise DataError(f"no Hugging Face model in the checkpoints, got {folder}; see the logs beside it")
    return max(found, key=lambda path: int(path.relative_to(folder).parts[0].rsplit("_", 1)[-1]))


def _sources(course: Course) -> list[str]:
    from verl_agentic import __file__ as package

    files = [
        *sorted(course.file("grpo").parent.glob("*.yaml")),
        *sorted((Path(package).parent / "config" / "agentic").glob("*.yaml")),
        *sorted(course.package.folder.glob("**/*.py")),
    ]
    return [file.read_text() for file in files]


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
