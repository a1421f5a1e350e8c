"""The tool `act`: executes actions of a game, one or several per turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic import ConfigError, EnvRow, ToolResult

from .games.game import STYLES, Game, Style

SEPARATOR = "||"
"""Separator of the actions of one turn."""
_LISTED_ACTIONS = 40


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """Shows and runs the game of a row."""

    style: Style = "full"
    actions_per_turn: int = 1
    """Maximum actions per turn."""

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ConfigError(f"style must be one of {list(STYLES)}, got {self.style!r}")
        if (
            isinstance(self.actions_per_turn, bool)
            or not isinstance(self.actions_per_turn, int)
            or self.actions_per_turn < 1
        ):
            raise ConfigError(f"actions_per_turn must be an integer of at least 1, got {self.actions_per_turn!r}")

    @classmethod
    def of(cls, row: EnvRow) -> Presentation:
        """Returns the presentation from the row's `extra`, with defaults.

        Raises:
            ConfigError: a value is invalid.
        """
        return cls(**{name: row.extra[name] for name in ("style", "actions_per_turn") if name in row.extra})


class ActTool:
    """Executes the argument `action`; keeps the state of the game."""

    name = "act"

    def __init__(self, game: Game[Any], presentation: Presentation) -> None:
        self.game = game
        self.state = game.start()
        self._presentation = presentation
        self._left = presentation.actions_per_turn
        self._counts: Counter[str] = Counter()

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `action`; an enum where the actions are always the same."""
        max_actions, actions = self._presentation.actions_per_turn, self.game.actions
        action_schema: dict[str, Any] = {"type": "string"}
        if max_actions == 1 and actions is not None:
            action_schema["enum"] = list(actions)
        elif max_actions > 1:
            named = f" of {', '.join(actions)}" if actions is not None else ""
            action_schema["description"] = f"Up to {max_actions} actions{named}, separated by {SEPARATOR}."
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": "Plays an action.",
                "parameters": {"type": "object", "properties": {"action": action_schema}, "required": ["action"]},
            },
        }

    @property
    def is_open(self) -> bool:
        """Tells whether the game goes on."""
        return self.game.status(self.state) == "open"

    def begin_turn(self) -> None:
        """Resets the number of actions of the turn."""
        self._left = self._presentation.actions_per_turn

    def take_counts(self) -> Counter[str]:
        """Returns the counts since the last call."""
        counts, self._counts = self._counts, Counter()
        return counts

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the new position; see `play`."""
        return self.play(arguments)

    def play(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Executes the actions in order, up to the first impossible one, and returns the new position."""
        text = arguments.get("action")
        if not isinstance(text, str) or set(arguments) != {"action"}:
            return ToolResult('Error: the arguments must be {"action": "<text>"}', True, "wrong_arguments")
        if not self.is_open:
            return ToolResult("Error: the game is over; nothing was done", is_error=True)
        texts: list[str] = []
        error_kind, num_done = None, 0
        for part in [part for part in text.split(SEPARATOR) if part.strip()] or [text]:
            error_kind = self._try_action(part, texts)
            if error_kind is not None:
                break
            num_done += 1
            if not self.is_open:
                break
        views = [self.view()] if num_done else []
        return ToolResult("\n".join([*texts, *views]), error_kind is not None, error_kind)

    def view(self) -> str:
        """Returns the position as text."""
        return self.game.view(self.state, self._presentation.style)

    def possible(self) -> str:
        """Returns the actions that are possible now, as a sentence lists them."""
        legal = self.game.legal(self.state)
        return ", ".join(legal[:_LISTED_ACTIONS]) + (", ..." if len(legal) > _LISTED_ACTIONS else "")

    def _try_action(self, text: str, texts: list[str]) -> str | None:
        """Executes one action and appends its text to `texts`; returns the kind of error, if any."""
        if not self._left:
            max_actions = self._presentation.actions_per_turn
            texts.append(f"Error: only {max_actions} action{'s' * (max_actions > 1)} a turn; the rest was not done")
            self._counts["surplus_actions"] += 1
            return "too_many"
        # Every attempt counts, so that a turn cannot test many actions.
        self._left -= 1
        action = self.game.read(self.state, text)
        if action is None:
            # The policy's text is not repeated, because it may contain tags of the protocol.
            texts.append(f"Error: this action is not possible; possible actions: {self.possible()}")
            self._counts["invalid_actions"] += 1
            return "wrong_arguments"
        move = self.game.move(self.state, action)
        self._counts["moves"] += 1
        self._counts["ineffective_moves"] += not move.is_effective
        self.state = move.state
        if move.text and self._presentation.style == "full":
            texts.append(move.text)
        return None
