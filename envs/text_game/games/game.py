"""The interface of games: pure functions of a state, for playing, replaying and solving."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Style = Literal["full", "compact"]
"""`full` explains rules and symbols; `compact` shows the bare position, for small models and short contexts."""
STYLES: tuple[Style, ...] = ("full", "compact")
Status = Literal["open", "goal", "dead"]


@dataclass(frozen=True)
class Move(Generic[State]):
    """The result of an action."""

    state: State
    text: str = ""
    """A sentence on the result; empty if the new position shows it."""
    is_effective: bool = True
    """False if nothing changed."""


class Game(Protocol[State]):
    """A start position with rules; states are immutable, and randomness is a function of the state."""

    options: ClassVar[type]
    """Dataclass of the options of a new game."""

    @classmethod
    def generate(cls, seed: int, options: Any) -> Game[Any]:
        """Returns the game of a seed, which can be won.

        Raises:
            ConfigError: hardly any game matches the options.
        """
        ...

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Game[Any]:
        """Returns the game of a `spec`.

        Raises:
            DataError: it is not a game of this kind.
        """
        ...

    @property
    def spec(self) -> dict[str, Any]:
        """The game as plain JSON; `load_game` makes an equal game of it."""
        ...

    @property
    def identity(self) -> str:
        """A text that identifies the puzzle, independent of seed and presentation."""
        ...

    @property
    def actions(self) -> Sequence[str] | None:
        """All actions, if they are constant; None for free text."""
        ...

    def prepare(self) -> None:
        """Does slow computations in advance. May be called from any thread."""
        ...

    def start(self) -> State:
        """Returns the first state."""
        ...

    def legal(self, state: State) -> Sequence[str]:
        """Returns the possible actions."""
        ...

    def read(self, state: State, text: str) -> str | None:
        """Returns the legal action of a text; None without one."""
        ...

    def move(self, state: State, action: str) -> Move[State]:
        """Executes a legal action."""
        ...

    def status(self, state: State) -> Status:
        """Returns whether the goal is reached, open, or unreachable."""
        ...

    def distance(self, state: State) -> int | None:
        """Returns the length of the solution; None if the goal is unreachable."""
        ...

    def solution(self, state: State) -> list[str]:
        """Returns the fewest actions that reach the goal, with known randomness; empty at the end of the game.

        Raises:
            DataError: there is no solution.
        """
        ...

    def rules(self, style: Style) -> str:
        """Returns the rules for the policy; may be empty in the compact style."""
        ...

    def view(self, state: State, style: Style) -> str:
        """Returns the position as text for the policy."""
        ...
