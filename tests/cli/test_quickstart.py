"""The quickstart's phases: done once, again when their inputs change, and the figures they leave behind."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quickstart_world import World, run_course

from verl_agentic.base import paths
from verl_agentic.base.errors import ConfigError, MissingDependencyError
from verl_agentic.cli.options.option_values import parse_key_values
from verl_agentic.cpu.quickstart import phases, run_state
from verl_agentic.cpu.quickstart.course import Course, load_course
from verl_agentic.cpu.quickstart.phases import Quickstart
from verl_agentic.cpu.quickstart.run_state import QuickstartSettings
from verl_agentic.evaluate.cli import play
from verl_agentic.log.reader import write_run
from verl_agentic.verl.extensions.cpu import cpu_features

KEYS = [
    *("success_base", "success_sft", "success_rl", "greedy_sft", "greedy_rl", "tool_rate_sft", "tool_rate_rl"),
    *("num_eval_tasks", "num_eval_tasks_base", "steps", "wall_s", "cpu_s", "peak_rss_gb", "seed", "dtype"),
]
ALL = ["model", "data", "eval base", "sft", "eval sft", "rl", "eval rl"]
SETTINGS = {"recipe": "quickstart", "seed": 3, "control": False, "rl_steps": 4, "sft_steps": 2, "eval_tasks": 5}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder without runs of other tests beside it, whose phases would count."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def run(out: Path, *, fresh: bool = False, **changes: Any) -> dict[str, Any]:
    run_course(Quickstart(out, QuickstartSettings(**{**SETTINGS, **changes}), fresh=fresh))
    return json.loads((out / "summary.json").read_text())


def test_a_run_leaves_summary_metrics_report_and_checkpoint(world: World, tmp_path: Path) -> None:
    summary = run(tmp_path)
    assert world.done == ALL
    assert list(summary) == KEYS
    figures = {k: v for k, v in summary.items() if k not in ("wall_s", "cpu_s", "peak_rss_gb")}
    assert figures == {
        "success_base": 0.0,
        "success_sft": 0.25,
        "success_rl": 0.875,
        "greedy_sft": 0.375,
        "greedy_rl": 1.0,
        "tool_rate_sft": 0.125,
        "tool_rate_rl": 0.4375,
        "num_eval_tasks": 5,
        "num_eval_tasks_base": 5,
        "steps": 4,
        "seed": 3,
        "dtype": "float32",
    }
    assert 0 <= summary["wall_s"] < 60 and 0 < summary["cpu_s"] < 60 and 0 < summary["peak_rss_gb"] < 24
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(r["phase"], r["step"]) for r in rows] == [("sft", 1), ("sft", 2)] + [("rl", i) for i in range(1, 5)]
    report = (tmp_path / "report.html").read_text()
    assert all(text in report for text in ("a question", "kind: sums", "is_new: yes")) and "code:" not in report
    assert (tmp_path / "checkpoint" / "model.safetensors").is_file()


@pytest.mark.slow
def test_rollouts_are_sampled_by_the_engine_that_is_chosen(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_features, "is_installed", lambda package: False)
    with pytest.raises(MissingDependencyError, match="make vllm"):
        run(tmp_path / "missing", engine="vllm")
    assert not world.done and not (tmp_path / "missing").exists()
    monkeypatch.setattr(cpu_features, "is_installed", lambda package: True)
    for engine in ("vllm", "agentic"):
        run(tmp_path / engine, fresh=True, engine=engine)
        sft, grpo = world.commands[-2:]
        assert "+agentic=cpu_vllm" not in sft
        assert ("+agentic=cpu_vllm" in grpo) == (engine == "vllm")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("changes", "dtype", "groups"),
    [
        ({}, "float32", ["one_gpu_sft_float32", "one_gpu_float32"]),
        ({"engine": "vllm"}, "float32", ["one_gpu_sft_float32", "one_gpu_vllm"]),
        ({}, "bfloat16", ["one_gpu_sft", "one_gpu"]),
    ],
)
def test_trainers_and_evaluations_run_on_the_gpu_that_is_chosen(
    changes: dict[str, Any],
    dtype: str,
    groups: list[str],
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_features, "is_installed", lambda package: True)
    monkeypatch.setattr(phases, "load_course", lambda recipe: replace(load_course(recipe), gpu_dtype=dtype))
    run(tmp_path, **changes, device="cuda")
    assert [f"+agentic={group}" in command for group, command in zip(groups, world.commands, strict=True)] == [True] * 2
    assert set(world.platforms) == {"nvidia"} and world.engines == [{"device": "cuda", "dtype": dtype}] * 3
    world.done.clear()
    run(tmp_path, **changes)  # what a GPU has made is not taken for a CPU's
    assert world.done == ALL[ALL.index("eval base") :]
    assert set(world.platforms[2:]) == {"cpu"} and world.engines[3:] == [{"device": "cpu", "dtype": "float32"}] * 3
    assert not any("one_gpu" in part for command in world.commands[2:] for part in command)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("has_bfloat16", "engine", "dtype"),
    [(True, "agentic", "bfloat16"), (False, "agentic", "float32"), (True, "vllm", "float32")],
)
def test_a_cpu_computes_in_the_type_of_the_course_if_it_has_instructions(
    has_bfloat16: bool, engine: str, dtype: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_features, "is_installed", lambda package: True)
    monkeypatch.setattr(run_state, "has_bfloat16", lambda: has_bfloat16)
    monkeypatch.setattr(phases, "load_course", lambda recipe: replace(load_course(recipe), cpu_dtype="bfloat16"))
    run(tmp_path, engine=engine)
    groups = ["+agentic=bfloat16_sft", "+agentic=bfloat16"]
    is_chosen = [group in command for group, command in zip(groups, world.commands, strict=True)]
    assert is_chosen == [dtype == "bfloat16"] * 2
    assert world.engines == [{"device": "cpu", "dtype": dtype}] * 3
    assert json.loads((tmp_path / "summary.json").read_text())["dtype"] == dtype


def test_vllm_for_a_gpu_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "is_installed", lambda package: False)
    with pytest.raises(MissingDependencyError, match=r"verl\[vllm\]"):
        run(tmp_path, engine="vllm", device="cuda")


@pytest.mark.slow
def test_the_report_of_a_run_has_its_control_once_both_are_there(world: World, tmp_path: Path) -> None:
    learning, control = tmp_path / "quickstart", tmp_path / "quickstart-control"
    run(learning)
    assert "control: rewards shuffled" not in (learning / "report.html").read_text()
    run(tmp_path / "another-seed", seed=4, control=True)
    run(control, control=True)
    run(learning)  # reuses everything

    reports = [(folder / "report.html").read_text() for folder in (learning, control)]

    assert all("control: rewards shuffled" in text and "real rewards" in text for text in reports)
    assert ["it must not learn" in text for text in reports] == [False, True]


@pytest.mark.slow
def test_training_is_logged_where_the_viewer_finds_it(world: World, tmp_path: Path) -> None:
    logged: list[str] = []

    def log_one(folder: Path) -> None:
        (given,) = [part for part in world.commands[-1] if ".log.dir=" in part]
        logged.append(given.partition("=")[2])
        keys = {"uid": "u", "session": 0, "index": 0, "split": "train", "step": 1, "place": "last", "role": "policy"}
        write_run(logged[0], trajectories=[keys])

    world.during_rl = log_one
    run(tmp_path)

    assert logged == [str(tmp_path / "rl" / "log")]
    assert (tmp_path / "viewer.html").is_file() and 'href="viewer.html"' in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_the_table_shows_before_and_after(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    shown = capsys.readouterr().out
    assert "5 held-out tasks, seed 3" in shown
    lines = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line[1:-1]] for line in lines] == [
        ["untrained", "0.000", "0.000 to 0.434", "", "0.000"],
        ["after sft", "0.250", "0.053 to 0.664", "0.375", "0.125"],
        ["after rl", "0.875", "0.440 to 0.984", "1.000", "0.438"],
    ]
    printed = shown.replace("\n", "")
    assert (
        "--env python_math --protocol chat --rows " in printed and "'a question'" in printed
    )  # which the model solves


def test_an_untrained_model_that_solves_nothing_tries_few_tasks_and_every_output_says_how_many(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "load_course", lambda recipe: replace(load_course(recipe), num_eval_untrained=2))
    summary = run(tmp_path)
    assert (summary["num_eval_tasks_base"], summary["num_eval_tasks"]) == (2, 5)
    shown = capsys.readouterr().out
    assert "5 held-out tasks (2 for the untrained model), seed 3" in shown and "0.000 to 0.658" in shown
    report = (tmp_path / "report.html").read_text()
    assert "untrained, 2 tasks" in report and "0 to 66" in report and "5 tasks that were not trained on" in report


def test_the_suggested_question_is_played_with_the_options_of_the_environment(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Course, "env_config", {"tool": "none", "seed": 3})
    run(tmp_path)
    printed = capsys.readouterr().out.replace("\n", "")
    (suggestion,) = re.findall("try it: verl-agentic (play .*'a question')", printed)
    arguments = argparse.ArgumentParser()
    play.add_arguments(arguments)
    config = arguments.parse_args(shlex.split(suggestion)[1:]).config
    assert parse_key_values(config, option="--config") == {"tool": "none", "seed": 3}


def test_a_second_run_reuses_everything_and_gives_the_same_figures(world: World, tmp_path: Path) -> None:
    first = run(tmp_path)
    world.done.clear()
    assert run(tmp_path) == first
    assert world.done == []


def test_a_control_takes_what_the_run_beside_it_has_made_of_the_same_inputs(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learning, control = tmp_path / "a", tmp_path / "b"
    first = run(learning)
    run(control, seed=9)  # leaves a step more of SFT than the run beside it, whose logs must go
    (control / "logs" / "sft_1.jsonl").write_text('{"step": 3, "data": {}}\n')
    world.done.clear()
    capsys.readouterr()
    second = run(control, control=True)
    assert world.done == ["rl", "eval rl"]
    assert "eval sft: 0 s, already done in a" in capsys.readouterr().out.replace("evaluate held-out tasks: ", "eval ")
    assert {**second, "wall_s": 0, "cpu_s": 0, "peak_rss_gb": 0} == {**first, "wall_s": 0, "cpu_s": 0, "peak_rss_gb": 0}
    rows = [json.loads(line) for line in (control / "metrics.jsonl").read_text().splitlines()]
    assert [(r["phase"], r["step"]) for r in rows] == [("sft", 1), ("sft", 2)] + [("rl", i) for i in range(1, 5)]
    assert not list((control / "sft").glob("global_step_*")), "checkpoints are large, and no later phase needs them"
    world.done.clear()
    run(control, control=True, fresh=True)
    assert world.done == ALL


@pytest.mark.slow
def test_a_phase_that_other_settings_have_interrupted_is_not_finished(world: World, tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    run(tmp_path)
    world.during_rl = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seed=9)
    world.during_rl = lambda folder: None
    world.done.clear()
    run(tmp_path)
    assert world.done == ALL[:-1], "the last evaluation was not begun, so that it is still there"


@pytest.mark.slow
@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"seed": 4}, "model"),
        ({"fresh": True}, "model"),
        ({"eval_tasks": 6}, "data"),
        ({"sft_steps": 3}, "sft"),
        ({"rl_steps": 3}, "rl"),
        ({"control": True}, "rl"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_other_settings_repeat_what_depends_on_them(
    world: World, tmp_path: Path, change: dict[str, Any], first: str
) -> None:
    run(tmp_path)
    world.done.clear()
    run(tmp_path, **change)
    assert world.done == ALL[ALL.index(first) :]
    world.done.clear()
    run(tmp_path, **{k: v for k, v in change.items() if k != "fresh"})
    assert world.done == []


@pytest.mark.slow
def test_another_recipe_file_repeats_its_stage_and_those_after_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = tmp_path / "recipes"
    shutil.copytree(paths.recipes_dir() / "quickstart", recipes / "quickstart")
    monkeypatch.setattr(paths, "recipes_dir", lambda: recipes)
    run(tmp_path / "out")
    world.done.clear()
    changed = recipes / "quickstart/grpo.yaml"
    changed.write_text(changed.read_text() + "# changed\n")
    run(tmp_path / "out")
    assert world.done == ["rl", "eval rl"]


@pytest.mark.slow
def test_after_an_interruption_only_what_was_not_done_runs_and_its_checkpoints_are_kept(
    world: World, tmp_path: Path
) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "global_step_1").mkdir()
        raise KeyboardInterrupt

    world.during_rl = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert world.done == ALL[:-1]
    world.done.clear()
    found: list[bool] = []
    world.during_rl = lambda folder: found.append((folder / "global_step_1").is_dir())
    run(tmp_path)
    assert world.done == ["rl", "eval rl"] and found == [True]


@pytest.mark.slow
def test_checkpoints_of_other_settings_are_not_resumed(world: World, tmp_path: Path) -> None:
    run(tmp_path)
    found: list[bool] = []
    world.during_rl = lambda folder: found.append((folder / "global_step_1").is_dir())
    run(tmp_path, seed=9)
    assert found == [False]


@pytest.mark.slow
def test_the_newest_checkpoint_is_played_not_the_last_by_name(world: World, tmp_path: Path) -> None:
    run(tmp_path, rl_steps=17)  # global_step_1, 9, 17
    assert (tmp_path / "checkpoint" / "config.json").read_text() == "17"


@pytest.mark.slow
def test_a_step_that_was_logged_twice_counts_once_and_a_cut_line_not_at_all(world: World, tmp_path: Path) -> None:
    def killed(folder: Path) -> None:
        with (tmp_path / "logs" / "rl_0.jsonl").open("a") as log:
            log.write('{"step": 5, "da')
        raise KeyboardInterrupt

    world.during_rl = killed
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    world.during_rl = lambda folder: None
    assert run(tmp_path)["steps"] == 4


@pytest.mark.slow
def test_the_trainers_are_verls_own_and_the_control_differs_in_the_estimator_alone(
    world: World, tmp_path: Path
) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b", fresh=True, control=True)
    sft, rl, _, control = [[part.replace("/b/", "/a/") for part in command] for command in world.commands]
    assert sft[1:3] == ["-m", "torch.distributed.run"] and "verl.trainer.sft_trainer" in sft
    assert "--local-addr=127.0.0.1" in sft, "else it starts only where the name of the host resolves"
    assert rl[1:3] == ["-m", "verl.trainer.main_ppo"]
    assert set(control) - set(rl) == {"algorithm.adv_estimator=grpo_shuffled"}
    assert set(rl) <= set(control)


def test_fresh_removes_no_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="which is not one"):
        Quickstart(tmp_path, QuickstartSettings(**SETTINGS), fresh=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
