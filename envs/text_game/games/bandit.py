"""A bandit: try arms with random payoffs, then choose the best arm."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from verl_agentic import ConfigError, DataError

from .game import Move, Status, Style

_NAMES = (
    "phoenix",
    "dragon",
    "tiger",
    "turtle",
    "raven",
    "wolf",
    "otter",
    "falcon",
    "badger",
    "viper",
    "heron",
    "lynx",
)
_PULL, _CHOOSE = "pull", "choose"


@dataclass(frozen=True, kw_only=True)
class BanditOptions:
    """Options of a bandit."""

    arms: int = 2
    """Number of arms."""
    pulls: int = 10
    """Number of pulls before the choice."""
    gap: float = 0.4
    """Minimum gap between the best arm's probability and all others."""

    def __post_init__(self) -> None:
        if not 2 <= self.arms <= len(_NAMES):
            raise ConfigError(f"arms must be 2 to {len(_NAMES)}, got {self.arms}")
        if self.pulls < 0:
            raise ConfigError(f"pulls must not be negative, got {self.pulls}")
        if not 0 < self.gap < 1:
            raise ConfigError(f"gap must be more than 0 and less than 1, got {self.gap}")


class BanditState(NamedTuple):
    """The results so far, and the choice."""

    results: tuple[tuple[int, ...], ...]
    """Results of each arm, 0 or 1 per pull."""
    chosen: str | None


class Bandit:
    """A bandit; see `Game`."""

    options: ClassVar[type] = BanditOptions

    def __init__(self, chances: Mapping[str, float], *, pulls: int, seed: int) -> None:
        """Makes the game of arms.

        Args:
            chances: each arm's probability of a payoff.
            pulls: number of pulls.
            seed: of the payoffs: the n-th pull of an arm always has the same result.

        Raises:
            DataError: no arm is better than all others.
        """
        self._chances, self._pulls, self._seed = dict(chances), pulls, seed
        first, second, *_ = [*sorted(self._chances.values(), reverse=True), -1.0, -1.0]
        if first <= second:
            raise DataError(f"one arm must pay more often than all others, got {self._chances}; make the rows anew")
        self._best = max(self._chances, key=lambda name: self._chances[name])
        self.actions: Sequence[str] = [f"{verb} {name}" for verb in (_PULL, _CHOOSE) for name in self._chances]

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Bandit:
        """Returns the bandit of a row; see `Game.from_spec`."""
        return cls(spec["chances"], pulls=spec["pulls"], seed=spec["seed"])

    @classmethod
    def generate(cls, seed: int, options: BanditOptions) -> Bandit:
        """Returns the bandit of a seed; see `Game.generate`."""
        rng = random.Random(seed)
        best = round(rng.uniform(options.gap, 1.0), 3)
        others = [round(rng.uniform(0.0, best - options.gap), 3) for _ in range(options.arms - 1)]
        chances = rng.sample([best, *others], options.arms)
        names = rng.sample(_NAMES, options.arms)
        return cls(dict(zip(names, chances, strict=True)), pulls=options.pulls, seed=rng.getrandbits(31))

    @property
    def spec(self) -> dict[str, Any]:
        """The arms and the seed."""
        return {"game": "bandit", "chances": dict(self._chances), "pulls": self._pulls, "seed": self._seed}

    @property
    def identity(self) -> str:
        """The arms with their chances, in order."""
        return repr(self._chances)

    def prepare(self) -> None:
        """Nothing."""

    def start(self) -> BanditState:
        """Returns the first state, without pulls."""
        return BanditState(((),) * len(self._chances), None)

    def legal(self, state: BanditState) -> Sequence[str]:
        """Returns all actions, or only the choices once all pulls are used."""
        return self.actions if self._pulls_left(state) else self.actions[len(self._chances) :]

    def read(self, state: BanditState, text: str) -> str | None:
        """Returns the action of a text, in any case."""
        meant = " ".join(text.casefold().split())
        return next((action for action in self.legal(state) if action == meant), None)

    def move(self, state: BanditState, action: str) -> Move[BanditState]:
        """Pulls an arm, or chooses one, which ends the game."""
        verb, _, name = action.partition(" ")
        if verb == _CHOOSE:
            return Move(state._replace(chosen=name), f"You choose {name}.")
        index = list(self._chances).index(name)
        paid = int(random.Random(f"{self._seed}/{name}/{len(state.results[index])}").random() < self._chances[name])
        results = (*state.results[:index], (*state.results[index], paid), *state.results[index + 1 :])
        return Move(state._replace(results=results), f"You pull {name}: it pays {paid}.")

    def status(self, state: BanditState) -> Status:
        """Returns `dead` if a worse arm was chosen."""
        if state.chosen is None:
            return "open"
        return "goal" if state.chosen == self._best else "dead"

    def distance(self, state: BanditState) -> int | None:
        """Returns 1 before the choice: the solution needs no pulls."""
        return {"open": 1, "goal": 0, "dead": None}[self.status(state)]

    def solution(self, state: BanditState) -> list[str]:
        """Returns the choice of the best arm."""
        return [f"{_CHOOSE} {self._best}"] if self.status(state) == "open" else []

    def rules(self, style: Style) -> str:
        """Returns goal and actions; nothing in the compact style."""
        if style == "compact":
            return ""
        return (
            "Each arm pays 1 with a chance of its own, else 0. Choose the arm with the highest chance; before, you may "
            f"pull arms to find out.\nActions: {', '.join(self.actions)}."
        )

    def view(self, state: BanditState, style: Style) -> str:
        """Returns the results of each arm so far."""
        paid = [
            f"{name}: {' '.join(map(str, results)) or '-'}"
            for name, results in zip(self._chances, state.results, strict=True)
        ]
        pulls_left = self._pulls_left(state)
        return "\n".join([*paid, f"pulls: {pulls_left}" if style == "compact" else f"Pulls left: {pulls_left}"])

    def _pulls_left(self, state: BanditState) -> int:
        return self._pulls - sum(map(len, state.results))
