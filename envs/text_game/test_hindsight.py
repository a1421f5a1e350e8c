"""Quests that were solved by accident: what is told of them is what the game would have said."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from verl_agentic import Message, Reward, Sample, StopReason
from verl_agentic.rewards.sample import Call, Turn

from .act import ActTool, Presentation
from .games import load_game
from .hindsight import describe
from .rows import make_rows

# A hall with an apple, a coin and an open chest; the quest is about the coin.
WORLD = {
    **{"game": "quest", "start": "hall", "goal": ["coin", "you"], "rooms": ["hall", "attic"]},
    "exits": [["hall", "north", "attic", None]],
    "furniture": {"chest": "hall"},
    "locks": {"chest": ["open", None]},
    "things": {"apple": "hall", "coin": "attic"},
}
STYLE = {"style": "compact", "actions_per_turn": 2}


def play(*turns: str | None, spec: Any = None, told: int | None = None, **extra: Any) -> Sample:
    """Returns the episode of these actions, one text a turn; None is a turn without a call."""
    extra = {**STYLE, **extra}
    tool = ActTool(load_game(spec or WORLD), Presentation(**extra))
    played: list[Turn] = []
    for index, action in enumerate(turns):
        tool.begin_turn()
        results = [] if action is None else [tool.play({"action": action})]
        is_last = index == len(turns) - 1
        calls = tuple(
            Call(name="act", arguments={"action": action}, result=None if is_last else result.content,
                 is_error=result.is_error and not is_last) for result in results
        )  # fmt: skip
        observations = () if is_last else tuple(result.content for result in results) or ("An action is needed.",)
        played.append(Turn(index=index, text=action or "", content="", calls=calls, observations=observations))
    return Sample(
        id="quest",
        prompt=(Message("user", "quest: get the coin"),),
        turns=tuple(played),
        final_answer="",
        stop_reason=StopReason.MAX_TURNS,
        ground_truth=spec or WORLD,
        extra=extra,
        env=Reward(0.0),
    )


TAKEN = "quest: get the apple\nhall; exits: north; here: chest (open, in it: nothing), apple; you have: nothing"


def test_what_the_last_turn_has_got_is_the_quest() -> None:
    assert describe(play("go north", "go south", "take apple")) == TAKEN
    assert describe(play("take apple", "put apple in chest")) == TAKEN.replace(
        "get the apple", "put the apple in the chest"
    )
    description = describe(play("take apple", style="full"))
    assert description is not None and description.startswith("You play a text adventure. Your quest: get the apple.\n")


def test_what_was_got_earlier_or_given_up_again_is_none() -> None:
    assert describe(play("take apple", "go north")) is None
    assert describe(play("take apple", None)) is None
    assert describe(play("take apple", "drop apple")) is None
    assert describe(play("take apple || drop apple", "take apple")) is None
    assert describe(play("look")) is None


def test_an_action_that_was_refused_is_not_played_again() -> None:
    first, last = play("look", "take apple").turns
    refused = Call(name="act", arguments={"action": "go north"}, result="Error: only 1 call a turn", is_error=True)
    both = replace(
        first, calls=(*first.calls, refused), observations=(*first.observations, "Error: only 1 call a turn")
    )
    assert describe(replace(play("look"), turns=(both, last))) == TAKEN
    last = replace(last, calls=(replace(last.calls[0], is_error=True),))
    assert describe(replace(play("look"), turns=(first, last))) is None


def test_an_episode_that_the_game_would_have_answered_otherwise_is_none() -> None:
    first, last = play("look", "take apple").turns
    assert describe(replace(play("look"), turns=(first, last))) == TAKEN
    other = replace(first, calls=(replace(first.calls[0], result="a cellar"),))
    assert describe(replace(play("look"), turns=(other, last))) is None
    # Told that this is the last turn, in which no call is carried out.
    warned = replace(first, observations=(*first.observations, "This is your last turn."))
    assert describe(replace(play("look"), turns=(warned, last))) is None


@pytest.mark.parametrize("game", ["frozen_lake", "sokoban", "bandit"])
def test_other_games_show_their_goal_all_along_or_are_right_or_wrong(game: str) -> None:
    (row,) = make_rows(split="train", count=1, seed=0, game=game)
    first = load_game(row.ground_truth)
    assert describe(play(*first.solution(first.start())[:1], spec=row.ground_truth)) is None


def test_of_random_play_every_quest_that_is_told_was_won_in_its_last_turn() -> None:
    num_quests = 0
    for row in make_rows(split="train", count=150, seed=0, game="quest", quest_length=2, **STYLE):
        game, rng = load_game(row.ground_truth), random.Random(row.extra["task_id"])
        state, actions = game.start(), []
        while len(actions) < 4 and game.status(state) == "open":
            actions.append(rng.choice(game.legal(state)))
            state = game.move(state, actions[-1]).state
        if game.status(state) == "goal" or (text := describe(play(*actions, spec=row.ground_truth))) is None:
            continue
        num_quests += 1
        quest = text.splitlines()[0].removeprefix("quest: ").replace("the ", "").replace("get ", "take ")
        assert quest == actions[-1]
    assert num_quests >= 5
