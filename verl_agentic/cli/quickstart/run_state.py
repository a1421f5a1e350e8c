"""What the stages of a run share: its settings, its course, and what the stages before have made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_agentic.cli.quickstart.child_process import MemoryMeter
from verl_agentic.cli.quickstart.course import Course
from verl_agentic.cli.quickstart.display import Display
from verl_agentic.cli.quickstart.stages import MODEL, CourseStage, ModelStage


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """Options of a run."""

    recipe: str
    seed: int
    control: bool
    rl_steps: int | None
    sft_steps: int | None
    eval_tasks: int
    engine: str = "agentic"
    """Engine of the rollouts of RL: `agentic`, or `vllm`, which must be installed."""


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
    def steps(self) -> Mapping[str, int | None]:
        """Training steps that the command line sets for all stages."""
        return {"sft": self.settings.sft_steps, "rl": self.settings.rl_steps}

    def folder(self, stage: CourseStage) -> Path:
        """Returns the folder of a stage."""
        return self.out / stage.name

    def metric_files(self, stage: str) -> list[Path]:
        """Returns the files with the logged steps of a stage; a resumed run has several."""
        files = (self.out / "logs").glob(f"{stage}_*.jsonl")
        return [path for path in files if path.stem.rpartition("_")[0] == stage]

    def data(self, stage: ModelStage) -> Path:
        """Returns the folder of a stage's tasks and demonstrations."""
        return self.out / "data" / stage.course

    def model(self, stage: ModelStage) -> Path:
        """Returns the model that a stage begins with."""
        return self.models[stage.start] if stage.start else self.products[MODEL]

    def finish(self, stage: CourseStage) -> None:
        """Takes the products of a finished stage."""
        made = stage.products(self.folder(stage))
        self.products |= made
        if MODEL in made:
            self.models[stage.name] = made[MODEL]
