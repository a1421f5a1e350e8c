"""The quickstart in two parts: one warm start, and many trainings from it, each in a folder of its own.

What is done is not done again, as in the quickstart; a training that was interrupted begins anew, because the count of
its tokens is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _credit_methods import Method

from verl_agentic.cpu.quickstart import tasks
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.quickstart.phases import Quickstart
from verl_agentic.cpu.quickstart.run_state import MODEL, QuickstartSettings, RunState
from verl_agentic.cpu.quickstart.stages import RlStage, SftStage
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.observe.checks.credit_horizon import credit_horizon
from verl_agentic.observe.diagnosis.evidence import RunEvidence

_HERE = Path(__file__).parent
_NEVER = 1_000_000
_HORIZON = ("turns", "episodes", "variance", "correlation")
_NUM_PLAYS = 4  # of every held-out task: it costs little, and halves the error of a run's success


@dataclass(frozen=True, kw_only=True)
class Size:
    """Amount of work; the same for all methods of a task."""

    sft_steps: int | None
    """None: the recipe's."""
    max_tokens: int
    """Sampled tokens of a training, up to half a step."""
    max_steps: int
    num_tasks: int
    """Training tasks; few enough that some come again, as a curriculum needs."""
    eval_tasks: int
    num_demos: int | None = None
    """None: the recipe's."""


class _Rl(RlStage):
    """RL with overrides of a trial, which are no part of its inputs because they have paths."""

    own: tuple[str, ...] = field(default=(), repr=False)
    ray: str = field(default="", repr=False)
    """Folder of Ray."""

    def flags(self, run: RunState) -> list[str]:
        return [*self.own, f"+ray_kwargs.ray_init._temp_dir={self.ray}"]

    def run(self, run: RunState) -> dict[str, Any]:
        record = super().run(run)
        found = credit_horizon.diagnose(RunEvidence(run.folder(self.name))).evidence  # the log is removed afterwards
        return {**record, "horizon": {key: found.get(key) for key in _HORIZON}}


class WarmStart(Quickstart):
    """The model that all trainings of a recipe begin with."""

    def __init__(self, out: Path, recipe: str, size: Size) -> None:
        """Names the folder; nothing is done yet."""
        settings = QuickstartSettings(
            recipe=recipe, seed=0, control=False, rl_steps=None, sft_steps=size.sft_steps, eval_tasks=size.eval_tasks
        )
        course = load_course(recipe)
        demos = {} if size.num_demos is None else {"num_demos": size.num_demos}
        super().__init__(out, settings, course=dataclasses.replace(course, **demos))

    def make(self) -> dict[str, Any]:
        """Makes it; returns its success on the held-out tasks."""
        with self._measured():
            self._make_start()
            self._run_stage(self._sft())
        return self._records["eval sft"]

    def _sft(self) -> SftStage:
        return SftStage(name="sft")

    def _evaluate_model(self, name: str, model: Path, *, greedy: bool, max_tasks: int | None) -> dict[str, Any]:
        seeds = range(self.settings.seed * _NUM_PLAYS, (self.settings.seed + 1) * _NUM_PLAYS)
        played = [
            tasks.evaluate(
                self._course,
                self.out,
                name,
                model,
                greedy=False,
                seed=seed,
                advance=self._display.advance,
                max_tasks=max_tasks,
            )
            for seed in seeds
        ]
        return {key: _mean([one[key] for one in played]) for key in played[0]}

    @contextlib.contextmanager
    def _measured(self) -> Iterator[None]:
        try:
            with self._display:
                yield
        finally:
            self._meter.stop()


class Trial(WarmStart):
    """One training."""

    def __init__(self, out: Path, recipe: str, size: Size, *, method: Method, seed: int, start: Path) -> None:
        """Names the folder; nothing is done yet.

        Args:
            out: its folder.
            recipe: what is learned.
            size: how much.
            method: how.
            seed: of prompts and sampling.
            start: folder of the warm start.
        """
        settings = QuickstartSettings(
            recipe=recipe, seed=seed, control=False, rl_steps=size.max_steps, sft_steps=None, eval_tasks=size.eval_tasks
        )
        Quickstart.__init__(self, out, settings)
        self._method, self._size, self._start = method, size, start
        self._modules = ("_credit_budget", *method.modules)
        self._begun = json.loads((start / "phases" / "eval_sft.json").read_text())
        sources = [(_HERE / f"{module}.py").read_text() for module in self._modules]
        # Without paths, so that a copied folder of results is continued too.
        self._fingerprint = _hash(self._fingerprint, self._begun["fingerprint"], *self._overrides(), *sources)

    def make(self) -> dict[str, Any]:
        """Trains and plays the held-out tasks; returns what came of it."""
        for name in ("data", "sft/model"):
            link = self.out / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(self._start.resolve() / name)
        self._state.finish("sft", {MODEL: self.out / "sft" / "model"})
        environment = {
            "VERL_USE_EXTERNAL_MODULES": ",".join(self._modules),
            "PYTHONPATH": os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")]),
        }
        # Ray's sockets do not fit into long paths.
        with (
            self._measured(),
            tempfile.TemporaryDirectory(prefix="credit", ignore_cleanup_errors=True) as ray,
            _environ(environment),
        ):
            self._run_stage(_Rl(name="rl", own=(*self._critic(), *self._overrides()), ray=ray))
        shutil.rmtree(self.out / "rl", ignore_errors=True)
        return self._summary()

    def _critic(self) -> list[str]:
        return [f"critic.model.path={self._start.resolve() / 'sft' / 'model'}"] if self._method.needs_critic else []

    def _overrides(self) -> list[str]:
        return [
            "trainer.v1.trainer_mode=credit_benchmark",
            f"+benchmark.max_tokens={self._size.max_tokens}",
            f"data.train_max_samples={self._size.num_tasks}",
            # A schedule over steps would favour those that need fewer or more of them for the same tokens.
            "actor_rollout_ref.actor.optim.lr_scheduler_type=constant",
            f"trainer.save_freq={_NEVER}",
            "trainer.resume_mode=disable",
            *self._method.overrides,
        ]

    def _summary(self) -> dict[str, Any]:
        log = max((self.out / "logs").glob("rl_*.jsonl"), key=lambda path: path.stat().st_mtime)
        steps = [row["data"] for _, row in read_json_lines(log)]
        found = {
            "recipe": Path(self.settings.recipe).name,
            "method": self._method.name,
            "seed": self.settings.seed,
            "success_sft": self._begun["sampled"],
            "success_rl": self._records["eval rl"]["sampled"],
            "tool_rate_rl": self._records["eval rl"]["tool_rate_sampled"],
            "tokens": steps[-1]["benchmark/tokens"],
            "groups": steps[-1]["benchmark/groups"],
            "steps": len(steps),
            "zero_signal_share": _mean([step["benchmark/zero_signal_share"] for step in steps]),
            "void_share": _mean([step["benchmark/void_share"] for step in steps]),
            "step_s": sum(step["timing_s/step"] for step in steps),
            "wall_s": sum(record["wall_s"] for record in self._records.values()),
            "num_plays": self._size.eval_tasks * _NUM_PLAYS,
            "curve": [step["episode/acc"] for step in steps],
            "curve_tokens": [step["benchmark/tokens"] for step in steps],
            "horizon": self._records["rl"]["horizon"],
        }
        (self.out / "result.json").write_text(json.dumps(found, indent=1) + "\n")
        return found


def read_result(path: Path) -> dict[str, Any]:
    """Returns what a finished training has written."""
    return json.loads(path.read_text())


@contextlib.contextmanager
def _environ(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
