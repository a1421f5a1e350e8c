"""The functions of a package whose text worlds are made from the name of a task and a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.bridges.task_rows import Split, draw_rows
from verl_agentic.bridges.text_world import ExpertWorld, TextWorldEnv, demonstrator_of, expert_policy, solved_row


class TextWorldPackage:
    """`make_env`, `make_rows`, `gold` and `demonstrator` of a package."""

    def __init__(
        self,
        bridge: str,
        *,
        tasks: Sequence[str],
        make_world: Callable[..., ExpertWorld],
        make_expert: Callable[..., ExpertWorld] | None = None,
        draw: Callable[..., EnvRow | None] | None = None,
        is_hidden: bool = False,
    ) -> None:
        """Makes the functions.

        Args:
            bridge: name of the package.
            tasks: names of all tasks.
            make_world: task, number, and more of a row's ground truth -> a new world.
            make_expert: the same, of a world that has an expert; default: `make_world`.
            draw: task, number and `max_steps` -> a row that can be solved, or None; default: by the expert.
            is_hidden: whether prompts do not show what the problem is, see `draw_rows`.
        """
        self._bridge, self._tasks, self._is_hidden = bridge, tasks, is_hidden
        self._make_world, self._make_expert = make_world, make_expert or make_world
        self._draw = draw or self._draw_solved
        self.demonstrator = demonstrator_of(partial(_make_of_row, self._make_expert))

    def make_env(self, row: EnvRow) -> TextWorldEnv:
        """Returns the environment of one episode. Its outcome is 1 if the task is solved, or the game is won."""
        return TextWorldEnv(row, _make_of_row(self._make_world, row))

    def gold(self, row: EnvRow) -> Callable[[Sequence[Message]], Message]:
        """Returns the expert's policy for a row. It may know secrets, luck, and an opponent's moves."""
        return expert_policy(partial(_make_of_row, self._make_expert, row))

    def make_rows(
        self, *, split: Split, count: int, seed: int, task: str | None = None, max_steps: int = 64
    ) -> list[EnvRow]:
        """Returns `count` different rows that can be solved; the splits share no prompt, or no number.

        Args:
            split: `train` or `test`.
            count: number of rows.
            seed: of the worlds.
            task: one of `tasks.txt`; None: all of them in turn.
            max_steps: maximum actions of the solution.

        Raises:
            ConfigError: an unknown task, or hardly any world that is solved in so many actions.
        """
        draw = partial(self._draw, max_steps=max_steps)
        options = {"task": task, "split": split, "count": count, "seed": seed}
        return draw_rows(self._tasks, draw, **options, is_hidden=self._is_hidden)

    def _draw_solved(self, task: str, number: int, *, max_steps: int) -> EnvRow | None:
        world = self._make_expert(task, number)
        return solved_row(world, bridge=self._bridge, task=task, number=number, max_steps=max_steps)


def _make_of_row(make_world: Callable[..., ExpertWorld], row: EnvRow) -> ExpertWorld:
    """Returns the world of a row; Arrow may have filled in nulls."""
    truth = {name: value for name, value in row.ground_truth.items() if value is not None}
    return make_world(truth.pop("task"), truth.pop("seed"), **truth)
