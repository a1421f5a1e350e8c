"""State that the stages of a run share: settings, course, and products of earlier stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_agentic.cli.options.device_option import Device
from verl_agentic.cpu.bfloat16 import has_bfloat16
from verl_agentic.cpu.quickstart.child_process import MemoryMeter
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.cpu.quickstart.display import Display

MODEL = "model"
"""The product that the next stage begins with."""
RECIPE = "recipe"
"""Folder of the recipe that was made of an environment."""


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """Options of a run."""

    recipe: str
    seed: int
    control: bool
    rl_steps: int | None
    sft_steps: int | None
    eval_tasks: int | None = None
    """Number of held-out tasks; None: that of the course."""
    engine: str = "agentic"
    """Engine of the rollouts of RL: `agentic`, or `vllm`, which must be installed."""
    device: Device = "cpu"
    """Device of training and evaluation."""


@dataclass(kw_only=True)
class RunState:
    """A run, as its stages see it."""

    out: Path
    settings: QuickstartSettings
    course: Course
    display: Display
    meter: MemoryMeter
    products: dict[str, Path] = field(default_factory=dict)
    """Newest product of each kind that a finished stage gave."""
    models: dict[str, Path] = field(default_factory=dict)
    """Stage -> its model."""

    @property
    def dtype(self) -> str:
        """Type in which models compute: that of the course, on a CPU where it has instructions for it."""
        if self.settings.device == "cuda":
            return self.course.gpu_dtype
        # vLLM for CPUs serves in float32.
        is_bfloat16 = self.course.cpu_dtype == "bfloat16" and self.settings.engine == "agentic" and has_bfloat16()
        return "bfloat16" if is_bfloat16 else "float32"

    @property
    def steps(self) -> Mapping[str, int | None]:
        """Training steps that the command line sets for all stages."""
        return {"sft": self.settings.sft_steps, "rl": self.settings.rl_steps}

    def folder(self, stage: str) -> Path:
        """Returns the folder of a stage."""
        return self.out / stage

    def metric_files(self, stage: str) -> list[Path]:
        """Returns the files with the logged steps of a stage."""
        return metric_files(self.out, stage)

    def data(self, course: str) -> Path:
        """Returns the folder of the tasks and demonstrations of another course; of this one for an empty name."""
        return self.out / "data" / course

    def model(self, start: str) -> Path:
        """Returns the model of a stage; the newest one for an empty name."""
        return self.models[start] if start else self.products[MODEL]

    def finish(self, stage: str, products: Mapping[str, Path]) -> None:
        """Takes the products of a finished stage."""
        self.products |= products
        if MODEL in products:
            self.models[stage] = products[MODEL]


def metric_files(out: Path, stage: str) -> list[Path]:
    """Returns the files with the logged steps of a stage in the folder of a run; a resumed run has several."""
    files = (out / "logs").glob(f"{stage}_*.jsonl")
    return [path for path in files if path.stem.rpartition("_")[0] == stage]
