"""The games themselves: their solvers against a search that knows no tricks, their rules on positions made by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from verl_agentic import ConfigError, DataError

from .games import GAMES, load_game
from .games.bandit import Bandit
from .games.frozen_lake import FrozenLake, FrozenLakeOptions, LakeState
from .games.game import Game
from .games.grid import NAMES, after
from .games.quest import Quest
from .games.quest_maker import QuestOptions
from .games.sokoban import Sokoban, SokobanOptions

SEEDS = range(200)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("frozen_lake", {}),
    ("frozen_lake", {"slip": 2 / 3, "placement": "random"}),
    ("sokoban", {}),
    ("quest", {}),
    ("bandit", {}),
]
# The best-known 4x4 lake; its shortest way has 6 steps: Down, Down, Right, Right, Down, Right.
LAKE = ["P___", "_O_O", "___O", "O__G"]
# Pushing the box right, right and then down twice brings it onto the target.
LEVEL = ["######", "#____#", "#@$__#", "#____#", "#___.#", "######"]
QUEST = {
    "game": "quest",
    "rooms": ["hall", "cellar"],
    "exits": [["hall", "north", "cellar", "red door"]],
    "furniture": {"table": "hall", "chest": "cellar", "box": "hall"},
    "locks": {"red door": ["locked", "red key"], "chest": ["closed", None], "box": ["closed", None]},
    "things": {"red key": "box", "apple": "table", "coin": "hall"},
    "start": "hall",
    "goal": ["apple", "chest"],
}

RING = {
    "rooms": ["hall", "cellar", "attic", "study"],
    "exits": [
        ["hall", "north", "cellar", "red door"],
        ["cellar", "east", "attic", None],
        ["hall", "east", "study", None],
        ["study", "north", "attic", None],
    ],
}


def generate(name: str, seed: int, **options: Any) -> Game[Any]:
    game = GAMES[name].generate(seed, GAMES[name].options(**options))
    game.prepare()
    return game


def searched(game: Game[Any], state: Any) -> int | None:
    """Returns the fewest actions to the goal, by trying everything that is legal; None when nothing leads there."""
    ends, states, length = [state], {state}, 0
    while ends:
        if any(game.status(s) == "goal" for s in ends):
            return length
        next_states = {game.move(s, a).state for s in ends if game.status(s) == "open" for a in game.legal(s)}
        ends, states, length = list(next_states - states), states | next_states, length + 1
    return None


def play(game: Game[Any], *actions: str) -> Any:
    state = game.start()
    for action in actions:
        assert action in game.legal(state)
        state = game.move(state, action).state
    return state


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_the_solution_reaches_the_goal_in_the_fewest_actions(name: str, options: dict[str, Any]) -> None:
    for seed in SEEDS:
        game = generate(name, seed, **options)
        state = game.start()
        solution = game.solution(state)
        assert game.status(state) == "open"
        assert len(solution) == game.distance(state) == searched(game, state)
        for num_moves, action in enumerate(solution, start=1):
            state = game.move(state, action).state
            assert game.distance(state) == len(solution) - num_moves
        assert game.status(state) == "goal" and game.solution(state) == []


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_wherever_a_game_has_led_its_distance_is_that_of_a_search(name: str, options: dict[str, Any]) -> None:
    statuses: Counter[str] = Counter()
    for seed in range(40):
        game, rng = generate(name, seed, **options), random.Random(seed)
        state = game.start()
        for _ in range(8):
            if game.status(state) == "open":
                state = game.move(state, rng.choice(game.legal(state))).state
        statuses[game.status(state)] += 1
        if game.status(state) == "dead":
            assert game.distance(state) is None and game.solution(state) == []
        elif name != "frozen_lake" or not options or game.status(state) == "goal":
            assert game.distance(state) == searched(game, state)
        else:  # the number of moves is part of a slippery state: there is no end to them
            assert game.status(_follow_solution(game, state)) == "goal"
    assert statuses["open"] and (statuses["dead"] or name == "quest")


def _follow_solution(game: Game[Any], state: Any) -> Any:
    solution = game.solution(state)
    assert len(solution) == game.distance(state)
    for action in solution:
        state = game.move(state, action).state
    return state


def test_a_level_is_dead_exactly_when_a_search_finds_no_way() -> None:
    dead = 0
    for seed in range(30):
        game, rng = generate("sokoban", seed, boxes=2, size=6), random.Random(seed)
        state = game.start()
        for _ in range(12):
            if game.status(state) != "open":
                break
            state = game.move(state, rng.choice(NAMES)).state
        is_dead = _without_deadlocks(game, state) is None
        assert (game.status(state) == "dead") is is_dead
        dead += is_dead
    assert 0 < dead < 30


def _without_deadlocks(game: Game[Any], state: Any) -> int | None:
    """Returns the fewest moves to the goal by a search that walks on where `status` says dead."""
    ends, states, length = [state], {state}, 0
    while ends:
        if any(game.status(s) == "goal" for s in ends):
            return length
        next_states = {game.move(s, a).state for s in ends for a in NAMES}
        ends, states, length = list(next_states - states), states | next_states, length + 1
    return None


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_a_seed_gives_the_same_game_and_its_spec_alone_makes_it_again(name: str, options: dict[str, Any]) -> None:
    identities = set()
    for seed in range(20):
        game = generate(name, seed, **options)
        assert game.spec == generate(name, seed, **options).spec
        copy = load_game(json.loads(json.dumps(game.spec)))
        copy.prepare()
        assert (copy.spec, copy.identity) == (game.spec, game.identity)
        rng, state, other = random.Random(seed), game.start(), copy.start()
        for _ in range(10):
            assert game.view(state, "full") == copy.view(other, "full") and game.legal(state) == copy.legal(other)
            if game.status(state) == "open":
                action = rng.choice(game.legal(state))
                state, other = game.move(state, action).state, copy.move(other, action).state
        identities.add(game.identity)
    assert len(identities) > 15


# FrozenLake


def test_the_best_known_lake_is_crossed_in_6_moves() -> None:
    game = FrozenLake(LAKE)
    assert len(game.solution(game.start())) == 6
    assert game.status(play(game, "Down", "Down", "Right", "Right", "Down", "Right")) == "goal"
    assert game.status(play(game, "Down", "Right")) == "dead"


def test_a_move_against_the_border_stays_and_says_so() -> None:
    move = FrozenLake(LAKE).move(LakeState((0, 0), 0), "Up")
    assert (move.state.cell, move.text, move.is_effective) == ((0, 0), "You cannot leave the lake.", False)


def test_on_ice_that_is_not_slippery_only_the_cell_counts() -> None:
    game = FrozenLake(LAKE)
    assert play(game, "Down", "Up", "Right", "Left") == game.start()


def test_the_views_of_a_lake() -> None:
    game = FrozenLake(LAKE, coordinates=True)
    state = play(game, "Down", "Down")
    assert game.view(state, "compact").splitlines()[:4] == ["____", "_O_O", "P__O", "O__G"]
    assert game.view(state, "full").splitlines() == [
        *["_ _ _ _", "_ O _ O", "P _ _ O", "O _ _ G"],
        *["you: (2,0)", "goal: (3,3)", "holes: (1,1) (1,3) (2,3) (3,0)"],
    ]
    assert FrozenLake(LAKE).rules("compact") == "" and "Up, Right, Down, Left" in FrozenLake(LAKE).rules("full")


@pytest.mark.sample(1)
@pytest.mark.parametrize("slip", [2 / 3, 0.2])
def test_slips_go_sideways_half_to_each_side_and_as_often_as_said(slip: float) -> None:
    board = ["_" * 5, "_" * 5, "__P__", "_" * 5, "____G"]
    game, tries = FrozenLake(board, slip=slip, seed=7), 6000
    for action in NAMES:
        ends = Counter(game.move(LakeState((2, 2), moves), action).state.cell for moves in range(tries))
        left, right = NAMES[NAMES.index(action) - 1], NAMES[(NAMES.index(action) + 1) % 4]
        assert set(ends) == {after((2, 2), direction) for direction in (action, left, right)}
        # The standard deviation of a share of 1/3 is 0.006.
        assert ends[after((2, 2), action)] / tries == pytest.approx(1 - slip, abs=0.03)
        assert ends[after((2, 2), left)] / tries == pytest.approx(slip / 2, abs=0.03)
        assert ends[after((2, 2), right)] / tries == pytest.approx(slip / 2, abs=0.03)


def test_luck_follows_from_the_seed_of_the_lake_alone() -> None:
    def slips(seed: int) -> list[Any]:
        game = FrozenLake(["___", "_P_", "__G"], slip=0.5, seed=seed)
        return [game.move(LakeState((1, 1), moves), "Up").state.cell for moves in range(40)]

    assert slips(1) == slips(1) != slips(2)
    assert "slip" not in FrozenLake(LAKE).spec


def test_holes_are_as_frequent_as_asked_and_a_way_is_left() -> None:
    boards = ["".join(generate("frozen_lake", seed, size=8, hole_probability=0.2).spec["board"]) for seed in range(60)]
    # 62 free cells; boards without a way are drawn again, which makes the share a little smaller.
    assert 0.16 < sum(board.count("O") for board in boards) / (60 * 62) < 0.21
    assert not any("O" in "".join(generate("frozen_lake", seed, hole_probability=0).spec["board"]) for seed in range(9))


def test_start_and_goal_are_in_corners_or_anywhere_apart() -> None:
    corners = [generate("frozen_lake", seed).spec["board"] for seed in range(30)]
    assert all((board[0][0], board[-1][-1]) == ("P", "G") for board in corners)
    games = [generate("frozen_lake", seed, placement="random") for seed in range(60)]
    assert len({game.start().cell for game in games}) > 8
    assert min(game.distance(game.start()) or 0 for game in games) == 2


# Sokoban


def test_a_level_of_the_textbook() -> None:
    game = Sokoban(LEVEL)
    game.prepare()
    # Right, Right, then around the box: Up, Right, Down, Down.
    assert game.distance(game.start()) == 6
    assert game.status(play(game, "Right", "Right", "Up", "Right", "Down", "Down")) == "goal"


def test_a_box_in_a_corner_or_at_a_wall_without_a_target_is_the_end() -> None:
    game = Sokoban(LEVEL)
    game.prepare()
    # Down along the left side of the box, and up from below: it is then at the upper wall.
    at_wall = play(game, "Down", "Right", "Up")
    assert game.status(at_wall) == "dead" and game.distance(at_wall) is None


def test_walls_and_boxes_stop_a_push() -> None:
    game = Sokoban(["#######", "#@$$_.#", "#____.#", "#######"])
    for action, text in (("Up", "A wall is in the way."), ("Right", "The box cannot be pushed.")):
        move = game.move(game.start(), action)
        assert (move.state, move.text, move.is_effective) == (game.start(), text, False)
    wall = Sokoban(["#####", "#@_##", "#.$##", "#####"])
    state = wall.move(wall.start(), "Right").state
    assert wall.move(state, "Down").text == "The box cannot be pushed."


def test_the_views_of_a_level() -> None:
    game = Sokoban(["######", "#+$._#", "#$__*#", "#____#", "######"], coordinates=True)
    assert game.view(game.start(), "compact").splitlines() == [
        *["######", "#+$._#", "#$__*#", "#____#", "######"],
        *["you: (1,1)", "boxes: (1,2) (2,1) (2,4)", "targets: (1,1) (1,3) (2,4)"],
    ]


@pytest.mark.parametrize(("size", "boxes", "low", "high"), [(5, 1, 2, 5), (6, 2, 8, 10), (7, 2, 4, 30)])
def test_levels_are_of_the_size_and_length_that_is_asked_for(size: int, boxes: int, low: int, high: int) -> None:
    for seed in range(15):
        game = generate("sokoban", seed, size=size, boxes=boxes, min_moves=low, max_moves=high)
        board = "".join(game.spec["board"])
        assert len(game.spec["board"]) == size and len(board) == size**2
        assert (board.count("$"), board.count("*")) == (boxes, 0)
        assert low <= (game.distance(game.start()) or 0) <= high


# Quest


def test_a_quest_by_hand() -> None:
    game = load_game(QUEST)
    solution = game.solution(game.start())
    openings = ["open box", "unlock red door with red key", "open red door", "open chest"]
    others = ["take red key", "take apple", "go north", "put apple in chest"]
    assert sorted(solution) == sorted([*openings, *others])
    assert game.status(play(game, *solution)) == "goal" and searched(game, game.start()) == 8


def test_what_was_done_in_a_quest_can_be_undone_and_the_solution_follows() -> None:
    game = load_game(QUEST)
    state = play(game, "open box", "take red key", "take coin", "put coin in box", "close box", "drop red key")
    # The key lies in the hall again: all but opening the box is left, and the key is taken from the floor.
    assert (game.distance(state), searched(game, state)) == (7, 7)
    assert "take coin" not in game.legal(state) and "take coin" in game.legal(game.move(state, "open box").state)


def test_doors_and_keys_of_a_quest() -> None:
    game = load_game(QUEST)
    assert not {"go north", "open red door", "unlock red door with red key"} & set(game.legal(game.start()))
    state = play(game, "open box", "take red key", "unlock red door with red key")
    assert "open red door" in game.legal(state) and "go north" not in game.legal(state)
    state = game.move(state, "open red door").state
    assert {"go north", "close red door"} <= set(game.legal(state))


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("  Take THE apple. ", "take apple"),
        ("pick up apple", "take apple"),
        ("take the apple from the table", "take apple"),
        ("open the box!", "open box"),
        ("i", "look"),
        ("inventory", "look"),
        ("take table", None),
        ("n", None),  # the door is locked
        ("take", None),
        ("", None),
        ("take apple and coin", None),
    ],
)
def test_commands_are_read_with_articles_and_synonyms(command: str, meant: str | None) -> None:
    game = load_game(QUEST)
    assert game.read(game.start(), command) == meant


def test_directions_and_prepositions_are_read_too() -> None:
    game = load_game(QUEST)
    state = play(game, "take apple", "open box", "take red key", "unlock red door with red key", "open red door")
    assert game.read(state, "N") == game.read(state, "walk north") == "go north"
    assert game.read(state, "insert the apple into the box") == "put apple in box"
    assert game.read(state, "place apple onto table") == "put apple on table"


def test_the_views_of_a_quest() -> None:
    game = load_game(QUEST)
    assert game.view(game.start(), "full") == (
        "You are in the hall.\nExits: north (red door, locked).\n"
        "You see: table (on it: apple), box (closed), coin.\nYou carry: nothing."
    )
    state = play(game, "open box", "take apple")
    assert game.view(state, "compact") == (
        "hall; exits: north (red door, locked); here: table (on it: nothing), box (open, in it: red key), coin; "
        "you have: apple"
    )
    assert game.move(state, "put apple in box").text == "You put the apple in the box."
    assert game.rules("compact") == "quest: put the apple in the chest"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("rooms", "objects", "length", "seeds"),
    [(1, 2, 1, 20), (2, 3, 4, 20), (3, 4, 6, 20), (5, 8, 10, 8), (10, 15, 20, 2)],
)
def test_a_quest_has_the_size_that_is_asked_for_and_its_shortest_solution_the_length(
    rooms: int, objects: int, length: int, seeds: int
) -> None:
    for seed in range(seeds):
        game = generate("quest", seed, rooms=rooms, objects=objects, quest_length=length)
        spec = game.spec
        assert (len(spec["rooms"]), len(spec["furniture"]) + len(spec["things"])) == (rooms, objects)
        assert len(spec["exits"]) == rooms - 1
        assert len(game.solution(game.start())) == length
        if length <= 6:
            assert searched(game, game.start()) == length


def test_quests_have_locks_whose_keys_must_be_found() -> None:
    games = [generate("quest", seed, rooms=3, objects=5, quest_length=8) for seed in range(30)]
    solutions = [" ".join(game.solution(game.start())) for game in games]
    assert sum("unlock" in solution and "key" in solution for solution in solutions) > 10


PATH = {"layout": "path", "rooms": 5, "objects": 6, "keys": 3, "quest_length": 10, "hint": True}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rooms", "length"), [(2, 5), (4, 7), (5, 10), (5, 11), (12, 20)])
def test_a_path_has_the_rooms_and_the_length_that_are_asked_for(rooms: int, length: int) -> None:
    for seed in range(20):
        game = generate("quest", seed, **{**PATH, "rooms": rooms, "quest_length": length})
        spec = game.spec
        ends = [end for room, _, behind, _ in spec["exits"] for end in (room, behind)]
        assert sorted(Counter(ends).values()) == [1, 1, *[2] * (rooms - 2)]
        assert (len(spec["rooms"]), len(spec["things"]), spec["furniture"]) == (rooms, 6, {})
        assert len(game.solution(game.start())) == length
        if rooms <= 4:
            assert searched(game, game.start()) == length


def test_one_of_the_keys_in_the_first_room_of_a_path_opens_the_last_door() -> None:
    for seed in range(20):
        game = generate("quest", seed, **PATH)
        assert isinstance(game, Quest)
        spec, solution = game.spec, game.solution(game.start())
        keys = [name for name, place in spec["things"].items() if name.endswith(" key") and place == spec["start"]]
        (locked,) = [lid for lid, (status, _) in spec["locks"].items() if status == "locked"]
        right = spec["locks"][locked][1]
        assert len(keys) == 3 and right in keys and f"take {right}" in solution
        assert f"unlock {locked} with {right}" == solution[-4] and solution[-3] == f"open {locked}"
        assert set(game.other_keys(game.start(), right)) == set(keys) - {right}
        wrong = game.move(game.start(), f"take {game.other_keys(game.start(), right)[0]}").state
        assert game.distance(wrong) == len(solution)


def test_a_hint_names_what_is_locked() -> None:
    game = load_game({**QUEST, "hint": True})
    assert game.rules("compact") == "quest: put the apple in the chest; locked: red door"
    assert game.rules("full").startswith(
        "You play a text adventure. Your quest: put the apple in the chest; locked: red door."
    )
    assert load_game(game.spec).rules("compact") == game.rules("compact")


# Bandit


def test_a_bandit_pays_as_its_chances_say_and_the_best_arm_is_to_be_chosen() -> None:
    game = Bandit({"lynx": 0.2, "wolf": 0.7}, pulls=6000, seed=3)
    state = play(game, *["pull lynx", "pull wolf"] * 1000)
    # Standard deviation of a share: at most 0.0145.
    assert [sum(paid) / 1000 for paid in state.results] == pytest.approx([0.2, 0.7], abs=0.06)
    assert game.status(play(game, "choose wolf")) == "goal" and game.status(play(game, "choose lynx")) == "dead"


def test_pulls_are_limited_and_shown() -> None:
    game = Bandit({"lynx": 0.0, "wolf": 1.0}, pulls=3, seed=3)
    state = play(game, "pull wolf", "pull lynx", "pull wolf")
    assert game.view(state, "full") == "lynx: 0\nwolf: 1 1\nPulls left: 0"
    assert game.legal(state) == ["choose lynx", "choose wolf"]
    assert game.read(state, "Choose  Wolf") == "choose wolf" and game.read(state, "pull wolf") is None


def test_the_best_arm_is_better_by_the_gap() -> None:
    for seed in range(50):
        *others, best = sorted(generate("bandit", seed, arms=4, gap=0.3).spec["chances"].values())
        assert best - max(others) >= 0.3 - 1e-9 and min(others) >= 0 and best <= 1


# What is refused


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "board",
        {},
        {"game": "chess"},
        {"game": ["quest"]},
        {"game": "frozen_lake"},
        {"game": "frozen_lake", "board": ["PG_", "__"]},
        {"game": "frozen_lake", "board": ["P_", "_?"]},
        {"game": "frozen_lake", "board": ["P_", "_P"]},
        {"game": "frozen_lake", "board": ["PO", "OG"]},
        {"game": "sokoban", "board": ["####", "#@$#", "####"]},
        {"game": "sokoban", "board": ["@$.", "___"]},
        {"game": "sokoban", "board": ["#" * 14, *["#" + "_" * 12 + "#"] * 9, "#@$$$$....___#", "#" * 14]},
        {"game": "quest"},
        {**QUEST, "goal": ["sword", "chest"]},
        {**QUEST, "things": {"red key": "box", "apple": "attic"}},
        {**QUEST, "exits": []},
        {**QUEST, "rooms": ["hall", "cellar", "attic"]},
        {**QUEST, **RING},
        {"game": "bandit", "chances": {"a": 0.5, "b": 0.5}, "pulls": 1, "seed": 0},
    ],
    ids=str,
)
def test_what_is_no_game_is_refused(spec: Any) -> None:
    with pytest.raises(DataError):
        load_game(spec)


def test_what_cannot_be_won_is_refused() -> None:
    with pytest.raises(DataError, match="level"):
        Sokoban(["#####", "#$@.#", "#___#", "#####"]).prepare()
    own_key = {**QUEST, "locks": {**QUEST["locks"], "box": ["locked", "red key"]}}
    with pytest.raises(DataError, match="quest"):
        load_game(own_key).prepare()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (FrozenLakeOptions, {"size": 1}),
        (FrozenLakeOptions, {"hole_probability": 1}),
        (FrozenLakeOptions, {"slip": 1.5}),
        (FrozenLakeOptions, {"placement": "centre"}),
        (SokobanOptions, {"size": 4}),
        (SokobanOptions, {"boxes": 0}),
        (SokobanOptions, {"min_moves": 9, "max_moves": 8}),
        (SokobanOptions, {"size": 16, "boxes": 3}),
        (QuestOptions, {"rooms": 0}),
        (QuestOptions, {"objects": 21}),
        (QuestOptions, {"quest_length": 0}),
        (QuestOptions, {"layout": "ring"}),
        (QuestOptions, {**PATH, "keys": 6}),
        (QuestOptions, {**PATH, "quest_length": 12}),
        (QuestOptions, {**PATH, "quest_length": 7}),
        (QuestOptions, {**PATH, "objects": 14, "keys": 12}),
    ],
)
def test_options_out_of_range_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"got"):
        kind(**options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frozen_lake", {"size": 16, "hole_probability": 0.9}),
        ("sokoban", {"size": 5, "min_moves": 90, "max_moves": 90}),
        ("quest", {"rooms": 1, "objects": 1, "quest_length": 9}),
    ],
)
def test_what_no_game_fulfils_is_told_instead_of_searched_for_ever(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"none of \d+"):
        generate(name, 0, **options)


def test_siblings_share_the_solutions_of_a_level_and_nothing_outlives_them() -> None:
    from .games import sokoban_solver

    shared = sokoban_solver._shared
    before = len(shared)
    first, second = Sokoban(LEVEL), Sokoban(LEVEL)
    first.prepare()
    second.prepare()
    assert first._level_solutions is second._level_solutions and len(shared) == before + 1
    del first, second
    assert len(shared) == before


def test_every_kind_of_game_is_named_in_its_spec() -> None:
    assert {generate(name, 1).spec["game"] for name in GAMES} == set(GAMES)
    assert isinstance(load_game(QUEST), Quest)
