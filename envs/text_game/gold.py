"""The solution of every game: the fewest actions from the present position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall

from .act import SEPARATOR, ActTool, Presentation
from .games import load_game


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the optimal policy; it uses as many actions per turn as the row allows.

    It replays the game from the calls of the conversation, so that it can continue another policy's episode.

    Raises:
        DataError: the row has no valid game, or one that cannot be won.
    """
    game, presentation = load_game(row.ground_truth), Presentation.of(row)
    game.prepare()

    def next_message(messages: Sequence[Message]) -> Message:
        tool = ActTool(game, presentation)
        for message in messages:
            tool.begin_turn()
            for call in message.tool_calls:
                if call.name == tool.name and call.error is None:
                    tool.play(call.arguments)
        actions = game.solution(tool.state)[: presentation.actions_per_turn]
        if not actions:
            return Message("assistant", "The game is over.")
        return Message("assistant", "", tool_calls=(ToolCall(tool.name, {"action": f" {SEPARATOR} ".join(actions)}),))

    return next_message
