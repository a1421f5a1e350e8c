"""Every course of the recipes runs all its stages on a CPU, with one step of each training.

Courses that extend one recipe take model, data and warm start of the first one, whose folder is beside theirs.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from verl_agentic.base.paths import recipes_dir
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.quickstart.phases import Quickstart
from verl_agentic.cpu.quickstart.run_state import QuickstartSettings
from verl_agentic.cpu.quickstart.stage_list import load_stages
from verl_agentic.cpu.quickstart.stages import CourseStage, ExportStage, RlStage, SampleStage, TrainingStage
from verl_agentic.data.export.critique import Critic
from verl_agentic.log.files.record_files import numbered_records

pytest.importorskip("verl")
COURSES = sorted(path.parent.name for path in recipes_dir().glob("*/course.yaml") if "stages:" in path.read_text())
# A model after one step solves nothing, and all its attempts are cut.
_RL = ["data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4", "agentic.sampling.gates=[]"]
_OWN = {"short": ["agentic.rubric.mask_stops=[]"]}


def chance(messages: object, text: str) -> float:
    """Judges turns, so that two different ones never tie."""
    return zlib.crc32(text.encode()) / 2**32


def shortened(stage: CourseStage) -> CourseStage:
    """Returns a stage with few tasks or one step, for attempts that all fail."""
    if isinstance(stage, TrainingStage):
        more = [*_RL, *_OWN.get(stage.name, [])] if isinstance(stage, RlStage) else []
        return replace(stage, steps=1, overrides=(*stage.overrides, *more))
    if isinstance(stage, SampleStage):
        return replace(stage, tasks=16, samples=2)
    if isinstance(stage, ExportStage) and stage.by == "acc":
        return replace(stage, where=None, by="session")
    assert isinstance(stage, ExportStage) and stage.by == "step"
    return replace(stage, critic=Critic(function=f"{__file__}:chance", weight=1.0), continuations=1, gap=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("courses")


@pytest.mark.recipes
@pytest.mark.parametrize("name", COURSES)
def test_every_stage_of_a_course_runs(name: str, folder: Path) -> None:
    course = replace(load_course(name), num_train=16, num_demos=64)
    stages = [*map(shortened, load_stages(course))]
    out = folder / name
    settings = QuickstartSettings(
        recipe=name, seed=0, control=False, rl_steps=None, sft_steps=None, eval_tasks=4, engine="agentic"
    )
    assert Quickstart(out, settings, course=course, stages=stages).run() == 0

    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    trained = [stage for stage in stages if isinstance(stage, TrainingStage)]
    assert [(row["phase"], row["step"]) for row in metrics] == [(stage.name, 1) for stage in trained]
    summary = json.loads((out / "summary.json").read_text())
    for stage in stages:
        if isinstance(stage, ExportStage):
            assert len(list(numbered_records(out / stage.name / "rows.parquet"))) >= 16
        elif isinstance(stage, TrainingStage):
            assert (f"success_{stage.name}" in summary) == (stage.kind != "outcome")
    assert AutoModelForCausalLM.from_pretrained(out / "checkpoint").num_parameters() > 100_000
