"""`quickstart --env`: a recipe is made of an environment that has rows and solutions, and nothing else."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml
from quickstart_world import World

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
from verl_agentic.cli import main
from verl_agentic.cpu.quickstart import tasks
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.quickstart.env_recipe import write_env_recipe
from verl_agentic.cpu.quickstart.gold_demos import demonstrator_of

ENV = """
from verl_agentic import EnvRow, Message, Reward, ToolEnv

class EchoEnv(ToolEnv):
    async def score(self, transcript):
        return Reward(float(transcript.final_answer == self.row.ground_truth))

def make_env(row):
    return EchoEnv(row, [])

def make_rows(*, split, count, seed):
    start = 0 if split == "train" else 5000
    numbers = [str(1000 + start + 7 * seed + index) for index in range(count)]
    return [EnvRow(prompt=(Message("user", f"Say {number}."),), ground_truth=number) for number in numbers]

def gold(row):
    return lambda messages: Message("assistant", row.ground_truth)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_env(folder: Path, name: str, text: str = ENV) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    return f"./{name}"


def test_a_recipe_has_the_environment_and_the_lengths_of_its_solutions(folder: Path) -> None:
    recipe = write_env_recipe(write_env(folder, "echo_short"), folder / "recipe")
    course = load_course(recipe)
    assert course.env == str(folder / "echo_short") and course.own_tokenizer
    grpo, sft = course.read("grpo"), course.read("sft")
    assert grpo["agentic"] == {"env": course.env, "limits": {"max_turns": 2}}
    assert grpo["data"]["max_response_length"] == 32 and 20 < grpo["data"]["max_prompt_length"] < 64
    assert sft["data"]["max_length"] == grpo["data"]["max_prompt_length"] + 32
    longer = ENV.replace('"Say', '"Please listen, and then say after me, digit by digit: Say')
    other = load_course(write_env_recipe(write_env(folder, "echo_long", longer), folder / "other"))
    assert other.read("grpo")["data"]["max_prompt_length"] > grpo["data"]["max_prompt_length"]


def test_demonstrations_of_an_environment_with_solutions_are_of_mixed_quality(folder: Path) -> None:
    course = load_course(write_env_recipe(write_env(folder, "echo_mixed"), folder / "recipe"))
    episodes = tasks.run_demonstrations(
        course, tasks.make_rows(course, seed=0, num_eval=1)["demos"][:64], model=make_tokenizer(folder), seed=0
    )
    outcomes = [episode.reward.outcome for episode in episodes]
    assert 0.3 < sum(outcomes) / len(outcomes) < 0.7 and not any(episode.is_void for episode in episodes)


def make_tokenizer(folder: Path) -> Path:
    tasks.make_tiny_tokenizer(folder / "tokenizer")
    return folder / "tokenizer"


def test_a_solution_that_cannot_read_another_task_gives_up() -> None:
    def gold(row: EnvRow):  # type: ignore[no-untyped-def]
        return lambda messages: Message("assistant", str(int(messages[-1].content) + row.ground_truth))

    rows = [EnvRow(prompt=(Message("user", text),), ground_truth=1) for text in ("7", "odd")]
    demonstrator = demonstrator_of(gold, rows)
    seven, odd = rows
    assert demonstrator(seven, rng=random.Random(0), skilled=1.0)(seven.prompt).content == "8"
    assert demonstrator(odd, rng=random.Random(0), skilled=0.0)(odd.prompt).content == "I do not know."


def test_the_command_runs_the_course_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(monkeypatch)
    env = write_env(folder, "echo_run")
    command = ["quickstart", "--env", env, "--sft-steps", "2", "--rl-steps", "2"]
    assert main(command) == 0
    out = folder / "outputs" / "quickstart-echo_run"
    assert f"the recipe of {env} is in outputs/quickstart-echo_run/recipe" in capsys.readouterr().out
    assert world.given["rl"]["trainer.default_local_dir"] == str(out / "rl")
    assert str(out / "recipe") in world.commands[-1] and json.loads((out / "summary.json").read_text())["steps"] == 2
    world.done.clear()
    assert main(command) == 0 and not world.done, "the recipe is the same, so that all phases are reused"
    assert main([*command, "--fresh"]) == 0 and world.done and (out / "recipe" / "grpo.yaml").is_file()
    shown = " ".join(capsys.readouterr().out.split())
    assert f"--rows {out / 'data' / 'test.jsonl'} 'a question'" in shown, "the row of the question has more than an id"
    assert main([*command, "--control"]) == 0
    report = (folder / "outputs" / f"{out.name}-control" / "report.html").read_text()
    assert "real rewards" in report, "a control is compared with the run beside it"
    (out / "recipe").rename(folder / "changed")
    assert main(["quickstart", "--recipe", "./changed", "--out", "again"]) == 0
    assert str(folder / "changed") in world.commands[-1]


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        ("make_rows", r"needs make_rows\(split=, count=, seed=\) beside make_env, got '.*/echo_"),
        ("gold", r"needs gold\(row\) or demonstrator\(row, rng=\) beside make_env"),
    ],
)
def test_an_environment_without_rows_or_solutions_is_refused(removed: str, message: str, folder: Path) -> None:
    env = write_env(folder, f"echo_{removed}", ENV.replace(f"def {removed}(", "def other("))
    with pytest.raises(ConfigError, match=message):
        write_env_recipe(env, folder / "recipe")
    assert not (folder / "recipe").exists()


def test_errors_of_the_environment_have_their_place_and_wrong_solutions_are_named(folder: Path) -> None:
    raising = write_env(folder, "echo_raising", ENV.replace("    start = 0 if", "    {}['x']\n    start = 0 if"))
    with pytest.raises(ConfigError, match=r"KeyError: 'x' \(echo_raising/__init__.py:12 in make_rows\)"):
        write_env_recipe(raising, folder / "recipe")
    wrong = write_env(folder, "echo_wrong", ENV.replace('"assistant", row.ground_truth', '"assistant", "no"'))
    with pytest.raises(ConfigError, match=r"got none of 64 demonstrations .* env validate"):
        write_env_recipe(wrong, folder / "recipe")


def test_a_recipe_and_an_environment_are_not_chosen_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--env", "./mine", "--recipe", "search_qa"]) == 2
    assert "got './mine' beside it" in capsys.readouterr().err


def test_the_recipe_is_that_of_the_quickstart_but_for_environment_and_lengths(folder: Path) -> None:
    recipe = Path(write_env_recipe(write_env(folder, "echo_same"), folder / "recipe"))
    for name in ("sft", "grpo"):
        written, base = yaml.safe_load((recipe / f"{name}.yaml").read_text()), load_course("quickstart").read(name)
        for values in (written, base):
            values.pop("data"), values.pop("agentic", None)
        assert written == base
