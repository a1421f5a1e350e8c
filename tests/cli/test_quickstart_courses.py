"""Courses as chains of stages: what each stage begins with, what a change repeats, and what is refused at once."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from quickstart_world import World, run_course

from verl_agentic.base import paths
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.cpu.quickstart.course import Course, load_course
from verl_agentic.cpu.quickstart.phases import Quickstart
from verl_agentic.cpu.quickstart.run_state import QuickstartSettings
from verl_agentic.cpu.quickstart.stage_list import RepeatedStages, load_stages, read_stages
from verl_agentic.cpu.quickstart.stages import STAGES, CourseStage

CHAIN = """
- sft: {steps: 2}
- sample: {tasks: 500, samples: 4}
- export: {as: pairs, gap: 0.3}
- dpo: {steps: 3, overrides: [optim.lr=1.0e-4]}
- export: {as: outcomes}
- outcome: {steps: 1}
- export: {as: rows}
- pear: {steps: 2}
- rl: {steps: 2}
"""
DONE = [
    "sft",
    "eval sft",
    "sample",
    "export",
    "dpo",
    "eval dpo",
    "export_2",
    "outcome",
    "export_3",
    "pear",
    "eval pear",
    "rl",
    "eval rl",
]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    bundled = paths.recipes_dir()
    monkeypatch.setattr(paths, "recipes_dir", lambda: tmp_path / "recipes")
    for name in ("quickstart", "search_qa"):
        (tmp_path / "recipes").mkdir(exist_ok=True)
        (tmp_path / "recipes" / name).symlink_to(bundled / name)
    return World(monkeypatch)


def write(folder: Path, stages: str, **files: str) -> Sequence[CourseStage]:
    """Writes the recipe `mine`, which extends the quickstart, and returns its stages."""
    recipe = folder / "recipes" / "mine"
    recipe.mkdir(exist_ok=True)
    (recipe / "course.yaml").write_text(yaml.safe_dump({"extends": "quickstart", "stages": yaml.safe_load(stages)}))
    for name in ("dpo", "outcome"):
        (recipe / f"{name}.yaml").write_text("trainer: {total_training_steps: 9}\n")
    for name, text in files.items():
        (recipe / f"{name}.yaml").write_text(text)
    return load_stages(load_course("mine"))


def run(folder: Path, **changes: Any) -> dict[str, Any]:
    settings = {"recipe": "mine", "seed": 0, "control": False, "rl_steps": None, "sft_steps": None, "eval_tasks": 5}
    run_course(Quickstart(folder / "out", QuickstartSettings(**{**settings, **changes})))
    return json.loads((folder / "out" / "summary.json").read_text())


@pytest.mark.slow
def test_each_stage_begins_with_the_newest_model_and_data(world: World, tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    run(tmp_path)
    out = tmp_path / "out"
    assert world.done == ["model", "data", "eval base", *DONE]
    assert world.given["sft"]["data.train_files"] == str(out / "data" / "sft.jsonl")
    assert world.given["sample"] == {"model": str(out / "sft" / "model"), "rows": "500", "samples": "4"}
    assert world.given["export"] == {"log": str(out / "sample"), "out": str(out / "export/rows.parquet"), "as": "pairs"}
    dpo = world.given["dpo"]
    assert (dpo["model.path"], dpo["data.train_files"]) == (str(out / "sft/model"), str(out / "export/rows.parquet"))
    assert (dpo["optim.lr"], dpo["trainer.total_training_steps"]) == ("1.0e-4", "3")
    assert world.given["outcome"]["data.train_files"] == str(out / "export_2" / "rows.parquet")
    pear = world.given["pear"]
    assert pear["model.path"] == str(out / "dpo" / "model"), "an outcome model is no policy"
    assert pear["data.train_files"] == str(out / "export_3" / "rows.parquet")
    rl = world.given["rl"]
    assert rl["actor_rollout_ref.model.path"] == str(out / "pear" / "model")
    assert rl["++agentic.implicit_reward.model_path"] == str(out / "outcome" / "model")
    assert (out / "checkpoint" / "config.json").read_text() == (out / "rl" / "model" / "config.json").read_text()


@pytest.mark.slow
def test_rows_of_an_export_replace_the_demonstrations(world: World, tmp_path: Path) -> None:
    write(tmp_path, "[sft: {}, sample: {}, export: {as: sft, where: acc >= 1}, sft: {}]")
    run(tmp_path)
    assert world.given["sft"]["data.train_files"].endswith("data/sft.jsonl")
    assert world.given["sft_2"]["data.train_files"].endswith("export/rows.parquet")


@pytest.mark.slow
def test_made_rows_replace_the_demonstrations_and_none_is_an_error(world: World, tmp_path: Path) -> None:
    write(tmp_path, "[make: {data: agent_flan, count: 7, options: {mix: {format: 1.0}}}, sft: {}, rl: {}]")
    run(tmp_path)
    given = world.given["make"]
    assert (given["count"], given["held_out"]) == ("7", str(tmp_path / "out" / "data" / "test.jsonl"))
    assert "'format': 1.0" in given["maker"] and given["teacher"] == "None"
    assert world.given["sft"]["data.train_files"] == str(tmp_path / "out" / "make" / "rows.jsonl")
    world.num_made = 0
    write(tmp_path, "[make: {data: agent_flan}, sft: {}]")
    with pytest.raises(DataError, match="lacks rows"):
        run(tmp_path)


@pytest.mark.slow
def test_a_warm_start_with_a_stop_criterion_hands_on_the_chosen_checkpoint(world: World, tmp_path: Path) -> None:
    write(tmp_path, "[sft: {steps: 20, stop: {every: 5, samples: 4}}, rl: {}]")
    run(tmp_path)
    out, overrides = tmp_path / "out", world.given["sft"]
    assert "verl_agentic.verl.extensions.offline.warm_start_trainer" in world.commands[0]
    assert (overrides["trainer.save_freq"], overrides["++warm_start.samples"]) == ("5", "4")
    assert overrides["++warm_start.rows"] == json.dumps(str(out / "data" / "train.jsonl")), "without demonstrations"
    assert overrides["++warm_start.limits.max_turns"] == "3"
    assert (out / "sft" / "model" / "config.json").read_text() == "chosen"
    assert json.loads((out / "phases" / "sft.json").read_text())["chosen"] == 1


@pytest.mark.slow
def test_a_stage_may_begin_with_an_earlier_model(world: World, tmp_path: Path) -> None:
    write(tmp_path, "[sft: {name: warm}, rl: {name: a}, rl: {name: b, start: warm}, sample: {start: a}]")
    run(tmp_path)
    paths = {name: str(tmp_path / "out" / name / "model") for name in ("warm", "a", "b")}
    assert [world.given[name]["actor_rollout_ref.model.path"] for name in "ab"] == [paths["warm"]] * 2
    assert world.given["sample"]["model"] == paths["a"]


@pytest.mark.slow
def test_repeated_stages_go_on_from_the_time_before(world: World, tmp_path: Path) -> None:
    inner = "[{sample: {}}, {export: {as: pairs}}, {dpo: {}}]"
    stages = write(tmp_path, f"[sft: {{}}, {{repeat: 2, stages: {inner}}}]")
    assert [stage.name for stage in stages] == [*("sft", "sample", "export", "dpo", "sample_2", "export_2", "dpo_2")]
    summary = run(tmp_path)
    assert world.given["sample_2"]["model"] == str(tmp_path / "out" / "dpo" / "model")
    assert world.given["dpo_2"]["data.train_files"].endswith("export_2/rows.parquet")
    assert [key for key in summary if key.startswith("success")] == [
        *("success_base", "success_sft", "success_dpo", "success_dpo_2")
    ]


@pytest.mark.slow
def test_another_course_gives_a_stage_its_tasks_and_files(world: World, tmp_path: Path) -> None:
    write(tmp_path, "[sft: {}, rl: {}, rl: {course: search_qa}]")
    run(tmp_path)
    assert world.done[:3] == ["model", "data", "data search_qa"]
    assert world.given["rl_2"]["data.train_files"] == str(tmp_path / "out" / "data" / "search_qa" / "train.jsonl")
    command = world.commands[-1]
    assert command[command.index("--config-dir") + 1].endswith("recipes/search_qa")


@pytest.mark.slow
def test_all_evaluations_are_in_summary_metrics_table_and_report(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "[sft: {steps: 1}, rl: {steps: 2}, rl: {steps: 3, recipe: guided}]")
    summary = run(tmp_path)
    assert (summary["success_rl_2"], summary["greedy_rl_2"], summary["steps"]) == (0.5, 0.625, 5)
    rows = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["phase"], row["step"]) for row in rows] == [
        *(("sft", 1), ("rl", 1), ("rl", 2), ("rl_2", 1), ("rl_2", 2), ("rl_2", 3))
    ]
    lines = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [(line[1].strip(), line[2].strip()) for line in lines] == [
        *(("untrained", "0.000"), ("after sft", "0.250"), ("after rl", "0.875"), ("after rl_2", "0.500"))
    ]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "3: rl_2" in report and "in step 5" in report


@pytest.mark.slow
@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize(
    ("old", "new", "first"),
    [
        ("sft: {steps: 2}", "sft: {steps: 3}", "sft"),
        ("gap: 0.3", "gap: 0.4", "export"),
        ("optim.lr=1.0e-4", "optim.lr=1.0e-5", "dpo"),
        ("rl: {steps: 2}", "rl: {steps: 2, overrides: [algorithm.gamma=0.9]}", "rl"),
    ],
)
def test_a_changed_stage_repeats_itself_and_those_after_it(
    world: World, tmp_path: Path, old: str, new: str, first: str
) -> None:
    write(tmp_path, CHAIN)
    run(tmp_path)
    world.done.clear()
    write(tmp_path, CHAIN.replace(old, new))
    run(tmp_path)
    assert world.done == DONE[DONE.index(first) :]


@pytest.mark.slow
def test_a_repeated_stage_keeps_the_steps_of_a_stage_whose_name_begins_with_its_own(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path, "[sft: {steps: 1}, rl: {name: rl_a, steps: 1}, rl: {steps: 1}]")
    run(tmp_path)
    write(tmp_path, "[sft: {steps: 1}, rl: {name: rl_a, steps: 1}, rl: {steps: 2}]")
    run(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["phase"], row["step"]) for row in rows] == [("sft", 1), ("rl_a", 1), ("rl", 1), ("rl", 2)]


@pytest.mark.slow
def test_a_changed_recipe_file_repeats_its_stages_and_those_after_them(world: World, tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    run(tmp_path)
    world.done.clear()
    write(tmp_path, CHAIN, dpo="trainer: {total_training_steps: 9, save_freq: 1}\n")
    run(tmp_path)
    assert world.done == DONE[DONE.index("dpo") :]


@pytest.mark.slow
def test_an_interrupted_chain_goes_on_with_the_stage_that_was_interrupted(world: World, tmp_path: Path) -> None:
    write(tmp_path, "[sft: {}, rl: {}, rl: {}]")
    kept: list[bool] = []

    def interrupt(folder: Path) -> None:
        kept.append((folder / "begun").is_file())
        (folder / "begun").touch()
        if folder.name == "rl_2" and len(kept) == 2:
            raise KeyboardInterrupt

    world.during_rl = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    world.done.clear()
    run(tmp_path)
    assert world.done == ["rl_2", "eval rl_2"] and kept == [False, False, True]


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ("[sft: {}, dpo: {}]", r"stages\[1\].dpo"),
        ("[sft: {}, outcome: {}]", r"stages\[1\].outcome"),
        ("[sft: {}, pear: {}]", r"stages\[1\].pear"),
        ("[sft: {}, export: {as: pairs}]", r"stages\[1\].export"),
        ("[sft: {}, sample: {}, export: {}]", r"stages\[2\].export"),
        ("[sft: {}, sample: {}, export: {as: sft, where: acc >}]", r"stages\[2\].export"),
        ("[sft: {step: 3}]", "'step'"),
        ("[sft: {steps: 0}]", "sft.steps"),
        ("[sft: {stop: {patience: 1}}]", "sft.stop"),
        ("[rlhf: {}]", "'rlhf'"),
        ("[{sft: {}, rl: {}}]", r"stages\[0\]"),
        ("[sft]", "'sft'"),
        ("sft: {}", "stages"),
        ("[]", "stages"),
        ("[sft: {}, rl: {start: warm}]", "rl.start"),
        ("[sft: {name: data}]", "sft.name"),
        ("[{repeat: 2, stages: [dpo: {}]}]", r"stages\[0\].stages\[0\].dpo"),
        ("[{repeat: 0, stages: [sft: {}]}]", r"stages\[0\].repeat"),
        ("[sft: {}, rl: {recipe: ppo}]", "ppo.yaml"),
        ("[sample: {}]", "stages"),
        ("[make: {data: flan}, sft: {}]", "'flan'"),
        ("[make: {data: agent_flan, options: {mixed: 1}}, sft: {}]", "'mixed'"),
        ("[sft: {}, sample: {tree: {width: 1}}]", "sample.tree.width"),
    ],
)
def test_a_wrong_course_is_refused_before_anything_runs(world: World, tmp_path: Path, stages: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        write(tmp_path, stages)
    assert not world.done


def test_the_docs_name_every_stage_and_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "courses.md").read_text()
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    told: dict[str, set[str]] = {}
    for names, second, *_ in [line for line in lines if len(line) == 2]:
        for name in re.findall(r"`(\w+)`", names):
            told.setdefault(name, set()).update(re.findall(r"`(\w+)`", second))
    keys = {kind: {item.name for item in fields(stage)} for kind, stage in STAGES.items()}
    keys["export"] = keys["export"] - {"shape"} | {"as"}
    keys["repeat"] = {item.name for item in fields(RepeatedStages)}
    assert told == keys
    explained = {key for line in lines if len(line) == 3 for key in re.findall(r"`(\w+)`", line[0])}
    assert explained >= set.union(*(own for kind, own in keys.items() if kind not in ("export", "repeat")))
    assert explained >= {item.name for item in fields(Course)} - {"recipe"}


def test_every_kind_has_its_own_title_and_reads_an_empty_section() -> None:
    assert len({kind.title for kind in STAGES.values()}) == len(STAGES) == 8
    exports = [{"export": {"as": shape}} for shape in ("pairs", "outcomes", "rows")]
    before = [{"sft": None}, {"sample": None}, *exports]
    for kind in set(STAGES) - {"export", "make"}:
        assert read_stages([*before, {kind: None}], name="stages")[-1].kind == kind
