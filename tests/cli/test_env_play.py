"""`verl-agentic env play`: typed turns go through protocol, environment and score, and are written for the viewer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.cli import main
from verl_agentic.evaluate.env_validation.script_codec import make_script_codec
from verl_agentic.evaluate.evaluation_log import read_episodes

ENV = '''
from verl_agentic import EnvRow, Message, Observation, Reward, StopReason, ToolEnv


class Door(ToolEnv):
    """A door that opens with the right number; trying costs."""

    def __init__(self, row):
        super().__init__(row, tools=[self.turn, self.jam])
        self.is_open = False

    def turn(self, number: int) -> str:
        """Turns the dial."""
        self.is_open = number == self.row.ground_truth
        return f"click {number}"

    def jam(self) -> str:
        """Breaks."""
        raise KeyError("dial")

    async def step(self, action):
        observation = await super().step(action)
        if self.is_open:
            return Observation(messages=(Message("user", "The door opens."),), stop=StopReason.ENV_DONE)
        return Observation(messages=observation.messages, reward=-0.25, stop=observation.stop)

    async def score(self, transcript):
        if transcript.final_answer == "break":
            raise OSError("no scale")
        return Reward(float(self.is_open), parts={"calm": 0.125})


def make_env(row):
    return Door(row)


def make_rows(*, split, count, seed):
    return [EnvRow(prompt=(Message("user", f"Open door {i}."),), ground_truth=i) for i in range(count)]
'''


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Returns a function that plays typed lines and returns the exit code and what was shown."""
    (tmp_path / "door").mkdir()
    (tmp_path / "door" / "__init__.py").write_text(ENV)
    monkeypatch.chdir(tmp_path)

    def run(*lines: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = main(["env", "play", "./door", "--out", "out", *options])
        captured = capsys.readouterr()
        return code, " ".join((captured.out + captured.err).split())

    return run


def records() -> list[Any]:
    if not Path("out/trajectories").exists():
        return []
    return sorted((row for (row,) in read_episodes(Path("out")).values()), key=lambda row: row["time"])


def test_a_person_sees_task_tools_observations_rewards_and_the_end(play: Callable[..., tuple[int, str]]) -> None:
    code, shown = play('/call turn {"number": 2}', "/call jam", '/call turn {"number": 3}', options=("--row", "3"))
    assert code == 0
    order = ["turn(number: integer): Turns the dial.", "Open door 3.", "click 2", "reward of this turn: -0.25",
             "KeyError: 'dial'", "raised at door/__init__.py:19 in jam", "The door opens.",
             "stopped by env_done: outcome 1, reward 1.125, calm 0.125"]  # fmt: skip
    places = [shown.find(text) for text in order if text != "reward of this turn: -0.25"]
    assert -1 not in places and places == sorted(places), shown
    assert shown.count("reward of this turn: -0.25") == 2 and shown.count("Open door 3.") == 1


def test_the_tokens_are_those_of_the_protocol_and_the_viewer_shows_them(
    play: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    play('/call turn {"number": 2}', "no")
    (record,) = records()
    tokenizer, _ = make_script_codec("chat")
    ids, mask = record["response_ids"], record["response_mask"]
    sampled = tokenizer.decode([token for token, is_sampled in zip(ids, mask, strict=True) if is_sampled])
    assert sampled == '<tool_call>\n{"name": "turn", "arguments": {"number": 2}}\n</tool_call><|im_end|>no<|im_end|>'
    assert main(["view", "out", "--export", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text()
    detail = json.loads(
        page.rpartition('<script type="application/json"')[2].partition(">")[2].partition("</script>")[0]
    )
    assert "".join(detail["tokens"]["texts"]) == tokenizer.decode(ids)


def test_each_episode_is_another_one_of_its_row(play: Callable[..., tuple[int, str]]) -> None:
    for _ in range(2):
        play("no")
    play("no", options=("--row", "1"))
    first, second, third = records()
    assert (first["uid"], first["session"], second["session"]) == (second["uid"], 0, 1)
    assert third["uid"] != first["uid"] and third["session"] == 0


@pytest.mark.parametrize("lines", [(), ("/quit",), ('/call turn {"number": 2}', "/quit")])
def test_a_person_who_leaves_writes_nothing(play: Callable[..., tuple[int, str]], lines: tuple[str, ...]) -> None:
    code, shown = play(*lines)
    assert code == 1 and "you left the episode; it is not written" in shown and not records()


def test_a_line_that_is_no_turn_costs_no_turn_and_raw_text_stays_as_it_is(play: Callable[..., tuple[int, str]]) -> None:
    code, shown = play(
        "", "/oops", "/call", '/call turn {"number": ', "/call turn 3", "/raw <tool_call>{</tool_call>", "no"
    )
    assert code == 0 and shown.count("/quit") == 1 + 5
    calls, answer = records()[0]["turns"]
    assert "<tool_call>{</tool_call>" in calls["text"] and answer["content"] == "no"


def test_an_environment_that_fails_makes_a_void_episode_with_its_place(play: Callable[..., tuple[int, str]]) -> None:
    code, shown = play("break")
    assert code == 1 and "OSError: no scale (door/__init__.py:29 in score) stopped by infra_error: void" in shown
    assert records()[0]["is_void"] and "Traceback" not in shown
    assert "no scale" in play("break", options=("--traceback",))[1].partition("Traceback (most recent call last)")[2]


def test_a_row_that_does_not_exist_and_another_protocol_in_the_same_folder_are_refused(
    play: Callable[..., tuple[int, str]],
) -> None:
    play("no")
    code, shown = play("no", options=("--protocol", "search_r1"))
    assert code == 2 and "protocol was 'chat' and is 'search_r1'; use another --out" in shown
    Path("rows.jsonl").write_text(
        '{"prompt": [{"role": "user", "content": "Go."}], "reward_model": {"ground_truth": 1}}\n'
    )
    code, shown = play("no", options=("--rows", "rows.jsonl", "--row", "1"))
    assert code == 2 and "--row must be below the number of rows, 1, got 1; choose another" in shown
