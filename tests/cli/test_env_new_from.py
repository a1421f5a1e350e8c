"""`env new --from`: an environment with gymnasium's interface becomes one whose turns are texts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.types import Action, StopReason, ToolCall
from verl_agentic.cli import main
from verl_agentic.episode.env_package import EnvPackage, load_env_package

pytest.importorskip("gymnasium")
GAME = """
import gymnasium
from gymnasium import spaces

class EchoEnv(gymnasium.Env):
    action_space = spaces.SPACE
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.code = int(self.np_random.integers(1000, 10_000))
        return f"Say {self.code}.", {}
    def step(self, action):
        is_right = str(action) in (str(self.code), "5")
        return ("right" if is_right else "no"), float(is_right), is_right or str(action) == "9", False, {}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_game(folder: Path, space: str) -> None:
    (folder / "games.py").write_text(GAME.replace("SPACE", space))


def make_row(package: EnvPackage) -> EnvRow:
    assert package.make_rows is not None
    (row,) = package.make_rows(split="train", count=1, seed=0)
    return row


def score_action(package: EnvPackage, text: str) -> float:
    """Returns the outcome of an episode of one action."""
    env = package.make_env(make_row(package))
    action = Action(turn=0, text="", content="", tool_calls=(ToolCall("act", {"action": text}),))

    async def play() -> float:
        await env.start()
        observation = await env.step(action)
        stop = observation.stop or StopReason.MAX_TURNS
        reward = await env.score(Transcript(messages=(), actions=(action,), stop_reason=stop))
        await env.close()
        return reward.outcome

    return asyncio.run(play())


def test_an_environment_of_a_file_is_copied_and_its_texts_are_turns(folder: Path) -> None:
    write_game(folder, "Text(4)")
    assert main(["env", "new", "echo_a", "--from", "games.py:EchoEnv"]) == 0
    (folder / "games.py").unlink()
    package = load_env_package("./echo_a")
    row = make_row(package)
    code = row.prompt[0].content.removeprefix("Say ").removesuffix(".")
    assert [score_action(package, text) for text in (code, "7", "9")] == [1.0, 0.0, 0.0], "9 ends it"
    assert package.gold is None and package.demonstrator is None, "there is no expert"
    assert len((folder / "echo_a" / "example.jsonl").read_text().splitlines()) == 4


def test_numbered_actions_have_names_that_can_be_changed(folder: Path) -> None:
    write_game(folder, "Discrete(3, start=4)")
    assert main(["env", "new", "echo_b", "--package", "--from", "games.py:EchoEnv"]) == 0
    package = load_env_package("./echo_b/echo_b")
    assert [score_action(package, text) for text in ("5", "6", "7")] == [1.0, 0.0, 0.0]
    assert make_row(package).prompt[0].content.startswith("Actions: 4, 5, 6.\nSay ")


def test_an_expert_gives_solutions_and_demonstrations(folder: Path) -> None:
    write_game(folder, "Text(4)")
    assert main(["env", "new", "echo_c", "--from", "games.py:EchoEnv"]) == 0
    source = folder / "echo_c" / "env.py"
    text = source.read_text().replace("raise NotImplementedError", "return str(env.code)")
    (folder / "echo_d").mkdir()
    for name in ("__init__.py", "world.py"):
        (folder / "echo_d" / name).write_text((folder / "echo_c" / name).read_text())
    (folder / "echo_d" / "env.py").write_text(text.replace("expert=None", "expert=expert"))
    package = load_env_package("./echo_d")
    assert package.gold is not None and package.demonstrator is not None
    row = make_row(package)
    (call,) = package.gold(row)(row.prompt).tool_calls
    assert score_action(package, call.arguments["action"]) == 1.0 and row.extra["expert_actions"] == 1


def test_a_registered_environment_whose_start_never_changes_has_rows_by_seed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "new", "lake", "--from", "gymnasium:FrozenLake-v1"]) == 0
    assert "observations are no texts, got 0; write `show` in lake/env.py" in capsys.readouterr().out
    assert "is_hidden=True" in (folder / "lake" / "env.py").read_text()
    assert make_row(load_env_package("./lake")).prompt[0].content == "Actions: 0, 1, 2, 3.\n0"


def test_an_environment_of_a_module_is_imported_and_needs_another_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_game(folder, "Text(4)")
    (folder / "games.py").rename(folder / "games_of_tests.py")
    monkeypatch.syspath_prepend(str(folder))
    assert main(["env", "new", "echo_e", "--from", "games_of_tests:EchoEnv"]) == 0
    assert score_action(load_env_package("./echo_e"), "5") == 1.0
    assert {path.name for path in (folder / "echo_e").glob("*.py")} == {"__init__.py", "env.py"}
    assert main(["env", "new", "games_of_tests", "--from", "games_of_tests:EchoEnv"]) == 2
    assert "hide its own module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("verifiers:my-taskset", "+agentic.env_config.taskset=my-taskset"),
        ("openenv:http://127.0.0.1:8000", "+agentic.env_config.url=http://127.0.0.1:8000"),
        ("gymnasium:Nope-v0", "got NameNotFound"),
        ("games.py:EchoEnv", "actions must be texts"),
        ("games.py:spaces", "got 'games.py:spaces'"),
        ("games", "gymnasium:ID, module:Class or file.py:Class, got 'games'"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_before_anything_is_written(
    source: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_game(folder, "MultiDiscrete([2, 2])")
    assert main(["env", "new", "refused", "--from", source]) == 2
    assert message in capsys.readouterr().err and not (folder / "refused").exists()
