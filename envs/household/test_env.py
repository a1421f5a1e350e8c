"""household: tasks, commands, programs, the loop, and game files."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import ConfigError, DataError, EnvRow, EpisodeLimits, Message, StopReason, run_episode, scripted
from verl_agentic.bridges.text_world import solved_row
from verl_agentic.cpu.testing import tiny_codecs

from .commands import command_of, read_command, read_steps, step_of
from .env import demonstrator, gold, make_env
from .game_files import GameFileWorld, game_rows
from .house import NOTHING, House
from .house_maker import KINDS, make_house
from .planner import next_command
from .rows import make_rows
from .world import HouseholdWorld, Presentation

LIMITS = EpisodeLimits(max_response_tokens=60_000, max_context_tokens=80_000, max_turns=60)
HOUSE = {
    "receptacles": {"fridge 1": "closed", "sinkbasin 1": "surface", "microwave 1": "closed", "shelf 1": "surface"},
    "things": {"apple 1": "fridge 1", "apple 2": "sinkbasin 1", "mug 1": "shelf 1"},
}


def house(kind: str, thing: str = "apple", receptacle: str = "shelf") -> House:
    return House.from_spec({**HOUSE, "goal": {"kind": kind, "thing": thing, "receptacle": receptacle}})


def says(world: House, *commands: str) -> list[str]:
    return [world.act(command) for command in commands]


def test_a_command_that_is_not_possible_does_nothing() -> None:
    world = house("pick_and_place")
    before = (dict(world.receptacles), dict(world.things), world.place)
    for command in (
        "take apple 1 from fridge 1",
        "open fridge 1",
        "put mug 1 in/on shelf 1",
        "fly",
        "",
        "go to moon 1",
    ):
        assert world.act(command) == NOTHING
    assert (world.receptacles, world.things, world.place) == before


def test_closed_things_are_hidden_until_they_are_opened() -> None:
    world = house("pick_and_place")
    assert says(world, "go to fridge 1", "take apple 1 from fridge 1") == [
        "You arrive at fridge 1. The fridge 1 is closed.", NOTHING,
    ]  # fmt: skip
    assert world.act("open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1."
    assert world.act("take apple 1 from fridge 1") == "You pick up the apple 1 from the fridge 1."
    assert not any(command.startswith("take") for command in world.admissible()), "one thing at a time"


@pytest.mark.parametrize(
    ("kind", "appliance"), [("clean", "sinkbasin 1"), ("heat", "microwave 1"), ("cool", "fridge 1")]
)
def test_a_thing_must_be_ready_before_it_counts(kind: str, appliance: str) -> None:
    world = house(kind)
    says(world, "go to sinkbasin 1", "take apple 2 from sinkbasin 1", "go to shelf 1", "put apple 2 in/on shelf 1")
    assert not world.is_won
    says(world, "take apple 2 from shelf 1", f"go to {appliance}", f"{kind} apple 2 with {appliance}", "go to shelf 1")
    assert not world.is_won
    world.act("put apple 2 in/on shelf 1")
    assert world.is_won


def test_a_cold_apple_that_is_heated_is_not_cold_any_more() -> None:
    world = house("cool")
    says(world, "go to sinkbasin 1", "take apple 2 from sinkbasin 1", "go to fridge 1", "cool apple 2 with fridge 1")
    assert world.is_ready("apple 2")
    says(world, "go to microwave 1", "heat apple 2 with microwave 1")
    assert not world.is_ready("apple 2")


def test_two_things_are_needed_where_two_are_asked_for() -> None:
    world = house("pick_two")
    won = []
    while (command := next_command(world)) is not None:
        world.act(command)
        won.append(world.is_won)
    assert won.count(True) == 1 and won[-1] and world.contents("shelf 1") == ["apple 1", "apple 2", "mug 1"]


def test_a_lamp_counts_while_the_thing_is_carried() -> None:
    spec = {**HOUSE, "things": {**HOUSE["things"], "desklamp 1": "shelf 1"}}
    world = House.from_spec({**spec, "goal": {"kind": "look_in_light", "thing": "mug", "receptacle": ""}})
    says(world, "go to shelf 1", "use desklamp 1")
    assert not world.is_won and "take desklamp 1 from shelf 1" not in world.admissible()
    says(world, "take mug 1 from shelf 1", "use desklamp 1")
    assert world.is_won


@pytest.mark.parametrize("kind", KINDS)
def test_the_planner_solves_every_house_also_after_random_commands(kind: Any) -> None:
    rng = random.Random(0)
    for seed in range(60):
        world = House.from_spec(make_house(kind, seed, receptacles=10, things=8))
        assert not world.is_won
        for _ in range(rng.randrange(12)):
            world.act(rng.choice(world.admissible()))
        for _ in range(40):
            if (command := next_command(world)) is None:
                break
            assert world.act(command) != NOTHING, command
        assert world.is_won


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("  Take the apple 1 from the fridge 1 ", "take apple 1 from fridge 1"),
        ("move mug 1 to shelf 1", "put mug 1 in/on shelf 1"),
        ("put mug 1 on shelf 1", "put mug 1 in/on shelf 1"),
        ("place a mug 1 in/on shelf 1", "put mug 1 in/on shelf 1"),
    ],
)
def test_sentences_are_read_with_articles_and_synonyms(text: str, command: str) -> None:
    assert read_command(text) == command


def test_programs_are_read_as_virtualhome_writes_them() -> None:
    world = house("pick_and_place", "mug", "sinkbasin")
    program = "[Walk] <shelf> (1)\n[GRAB] <mug> (1) \n[WALK] <sinkbasin> (1)\n[PUTBACK] <mug> (1) <sinkbasin> (1)"
    for step in read_steps(program):
        assert world.act(command_of(step, world)) != NOTHING
    assert world.is_won
    assert command_of(("SIT", ("sofa 1",)), world) == command_of(("WALK", ()), world) == ""


def test_every_command_of_a_plan_is_a_step_and_back() -> None:
    for kind in KINDS:
        world = House.from_spec(make_house(kind, 1, receptacles=8, things=4))
        while (command := next_command(world)) is not None:
            (step,) = read_steps(step_of(command))
            assert command_of(step, world) == command
            world.act(command)


def test_a_program_stops_at_its_first_impossible_step() -> None:
    spec = {**HOUSE, "goal": {"kind": "pick_and_place", "thing": "mug", "receptacle": "sinkbasin"}}
    world = HouseholdWorld(spec, Presentation(style="program"))
    turn = world.step("[WALK] <shelf> (1) [GRAB] <apple> (1) [GRAB] <mug> (1)")
    assert not turn.is_valid and turn.text.endswith(NOTHING) and world._house.carried == ""


def test_an_episode_ends_after_its_steps_without_success() -> None:
    spec = {**HOUSE, "goal": {"kind": "pick_and_place", "thing": "mug", "receptacle": "sinkbasin"}}
    world = HouseholdWorld(spec, Presentation(max_steps=3))
    turns = [world.step(text) for text in ("nonsense", "look", "go to shelf 1")]
    assert [turn.is_over for turn in turns] == [False, False, True] and not turns[-1].is_won


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", [{}, {"style": "program"}, {"admissible": False}])
async def test_the_solution_scores_1_in_the_loop(tmp_path: Path, options: dict[str, Any]) -> None:
    tokenizer, codecs = tiny_codecs(tmp_path, "chat")
    for row in make_rows(split="test", count=6, seed=0, **options):
        next_message = gold(row)
        setup = scripted(
            lambda messages, gold=next_message: codecs["chat"].render_action(gold(messages)),
            codec=codecs["chat"], tokenizer=tokenizer, limits=LIMITS,
        )  # fmt: skip
        episode = await run_episode(row, make_env=make_env, setup=setup, request_id="r")
        assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ENV_DONE, 1.0)
        assert len(episode.actions) == row.extra["expert_actions"] and "invalid_actions" not in episode.info
        observed = episode.messages[2].content
        assert ("Possible commands:" in observed) == (options == {})


def test_wrong_options_and_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="style"):
        make_rows(split="train", count=1, seed=0, style="prose")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="receptacles"):
        make_rows(split="train", count=1, seed=0, receptacles=1)
    with pytest.raises(DataError, match="game_file"):
        make_env(EnvRow(prompt=(Message("user", "x"),), ground_truth={}))
    with pytest.raises(DataError, match="things"):
        House.from_spec({**HOUSE, "things": {"cup 1": "moon 1"}, "goal": {"kind": "clean", "thing": "cup"}})


def test_demonstrations_are_of_mixed_quality() -> None:
    (row,) = make_rows(split="train", count=1, seed=0, task="heat")
    best = gold(row)([])
    firsts = [demonstrator(row, rng=random.Random(seed), skilled=0.5)([]) for seed in range(40)]
    assert 12 <= firsts.count(best) <= 32


class FakeGame:
    """A game with a door, as `textworld.Environment` plays it."""

    def __init__(self, title: str = "", answer: str = "Done.") -> None:
        self.is_open, self.closed = False, 0
        self.title, self.answer = title, answer

    def _build_state(self, feedback: str, *, won: bool = False) -> dict[str, Any]:
        commands = ["go north", "look"] if self.is_open else ["open door", "look"]
        return {
            "feedback": feedback, "objective": "Leave the room.", "won": won, "lost": False,
            "admissible_commands": commands, "policy_commands": None if won else commands[:1],
        }  # fmt: skip

    def reset(self) -> dict[str, Any]:
        self.is_open = False
        return self._build_state(f"{self.title}\n\nA room with a door.  \n\n")

    def step(self, command: str) -> tuple[dict[str, Any], float, bool]:
        self.is_open = self.is_open or command == "open door"
        won = command == "go north"
        return self._build_state(self.answer, won=won), float(won), won

    def close(self) -> None:
        self.closed += 1


def test_a_game_file_is_solved_by_its_own_commands() -> None:
    world = GameFileWorld(Path("a.z8"), max_steps=50, open_game=lambda path: FakeGame())
    row = solved_row(world, bridge="household", task="game_file", number=0, max_steps=50)
    assert row is not None and row.extra["expert_actions"] == 2
    assert row.prompt[0].content == "A room with a door.\nLeave the room."


def test_a_game_answers_impossible_commands_with_nothing_and_ends_after_its_steps() -> None:
    world = GameFileWorld(Path("a.z8"), max_steps=2, open_game=lambda path: FakeGame())
    world.reset()
    first, second = world.step("go north"), world.step("open door\ngo north")
    assert first.text == f"{NOTHING}\nPossible commands: look, open door." and not first.is_over
    assert second.is_over and not second.is_won and not second.is_valid


def games_of(folder: Path, split: Any, count: int) -> list[str]:
    rows = game_rows(str(folder), split=split, count=count, seed=0, max_steps=50, open_game=lambda path: FakeGame())
    assert len({row.extra["task_id"] for row in rows}) == count
    return [str(Path(row.ground_truth["game_file"]).relative_to(folder)) for row in rows]


@pytest.mark.parametrize("valid", ["valid_seen", "valid_unseen", "test"])
def test_alfworlds_games_have_the_splits_of_their_folders(tmp_path: Path, valid: str) -> None:
    for split, number in itertools.product(("train", valid), range(3)):
        folder = tmp_path / split / f"pick-Mug-{number}" / f"trial_{number}"
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text('{"solvable": true}')
        (folder / "traj_data.json").write_text("{}")
    for split, folder in (("train", "train"), ("test", valid)):
        games = games_of(tmp_path, split, 3)
        assert len(set(games)) == 3 and all(re.fullmatch(rf"{folder}/.*/game\.tw-pddl", path) for path in games)
        assert len(games_of(tmp_path / folder, split, 3)) == 3, "the folder of one split alone"
    with pytest.raises(ConfigError, match=r"0 test games.*the folders of all splits"):
        games_of(tmp_path / "train", "test", 1)


def test_games_that_alfworld_leaves_out_are_left_out(tmp_path: Path) -> None:
    tmp_path = tmp_path / "removable-disk"
    for name, is_solvable in (("pick-Mug", False), ("pick-SlicedApple", True), ("pick-Book", True)):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / "game.tw-pddl").write_text(json.dumps({"solvable": is_solvable}))
    assert games_of(tmp_path, "train", 1) == ["train/pick-Book/game.tw-pddl"]
    with pytest.raises(ConfigError, match="has 1 train games"):
        games_of(tmp_path, "train", 2)


def test_what_textworld_writes_beside_a_game_is_no_game_and_equal_names_are_split_by_their_path(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).mkdir()
        for suffix in (".z8", ".json", ".ni"):
            (tmp_path / str(number) / f"game{suffix}").touch()
    counts = {"train": 0, "test": 0}
    for split in counts:
        with pytest.raises(ConfigError) as refused:
            games_of(tmp_path, split, 99)
        counts[split] = int(re.search(r"has (\d+) ", str(refused.value))[1])  # type: ignore[index]
    assert sum(counts.values()) == 30 and min(counts.values()) > 1
    games = {split: games_of(tmp_path, split, count) for split, count in counts.items()}
    assert not {*games["train"]} & {*games["test"]} and all(path.endswith(".z8") for path in games["train"])


def test_the_title_and_the_status_line_of_a_game_are_no_text_of_the_room() -> None:
    title = " ____  \n|    \\ \n $$$$ | $$\n"
    room = "-= Kitchen =-\nA kitchen.\n\n>" + " " * 40 + "-= Kitchen =-0/12"
    world = GameFileWorld(Path("a.z8"), max_steps=9, open_game=lambda path: FakeGame(title, room))
    assert world.reset() == "A room with a door.\nLeave the room."
    assert world.step("open door").text.startswith("-= Kitchen =-\nA kitchen.\nPossible commands")


def test_game_files_are_split_by_name(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"game{number}.z8").touch()
    rows = {
        split: game_rows(str(tmp_path), split=split, count=3, seed=0, max_steps=50, open_game=lambda path: FakeGame())
        for split in ("train", "test")
    }
    files = {split: {row.ground_truth["game_file"] for row in split_rows} for split, split_rows in rows.items()}
    assert len(files["train"]) == len(files["test"]) == 3 and not files["train"] & files["test"]
    with pytest.raises(ConfigError, match="test games"):
        game_rows(str(tmp_path), split="test", count=40, seed=0, max_steps=50, open_game=lambda path: FakeGame())


@pytest.mark.filterwarnings("ignore:Game .* is not fully supported")
def test_a_game_of_textworld_is_read_and_solved(tmp_path: Path) -> None:
    textworld = pytest.importorskip("textworld")
    options = textworld.GameOptions()
    options.seeds, options.path = 1, str(tmp_path / "one.z8")
    options.nb_rooms, options.nb_objects, options.quest_length = 2, 4, 3
    textworld.generator.compile_game(textworld.generator.make_game(options), options)
    world = GameFileWorld(tmp_path / "one.z8", max_steps=50)
    row = solved_row(world, bridge="household", task="game_file", number=0, max_steps=50)
    assert row is not None and row.extra["expert_actions"] >= 3
    prompt = row.prompt[0].content
    assert "Possible commands" not in prompt and "$$" not in prompt and not re.search(r"=-\s*\d+/\d+", prompt)
