"""Hindsight: the quest that a failed episode solved."""

from __future__ import annotations

from typing import Any

from verl_agentic import EnvRow, Sample

from .act import ActTool, Presentation
from .games import load_game
from .games.game import Game
from .games.quest import Quest
from .rows import prompt_of


def describe(sample: Sample) -> str | None:
    """Returns the prompt of a quest in the same world that the episode's last turn has solved; None without one.

    Only quests can be relabelled, because only their prompt shows the goal: lakes and levels show it in every position,
    and the arms of a bandit are right or wrong. Only the last turn counts, because an earlier goal would have ended the
    episode.

    Raises:
        DataError: the sample's ground truth is not a game.
    """
    game = load_game(sample.ground_truth)
    presentation = Presentation.of(EnvRow(prompt=sample.prompt, extra=sample.extra))
    played = _replay_turns(game, sample, presentation) if isinstance(game, Quest) else None
    if not isinstance(game, Quest) or played is None:
        return None
    for other in game.others_reached(played.state):
        before = _replay_turns(other, sample, presentation, num_turns=len(sample.turns) - 1)
        after = _replay_turns(other, sample, presentation)
        if before and after and (before.is_open, after.is_open) == (True, False):
            return prompt_of(other, presentation)
    return None


def _replay_turns(
    game: Game[Any], sample: Sample, presentation: Presentation, *, num_turns: int | None = None
) -> ActTool | None:
    """Returns the game after the first turns; None if its observations differ from the recorded ones."""
    tool = ActTool(game, presentation)
    turns = sample.turns[:num_turns]
    for turn in turns:
        if turn is not sample.turns[-1] and len(turn.observations) != max(1, len(turn.calls)):
            return None  # more was said than the game says, such as that no call is carried out any more
        tool.begin_turn()
        for call in turn.calls:
            before, was_refused = tool.state, call.result is None and call.is_error
            answer = None if was_refused or call.name != tool.name else tool.play(call.arguments).content
            if call.result is None or call.result == answer:
                continue
            if not call.is_error:
                return None
            tool.state = before  # refused before it reached the game
    return tool
