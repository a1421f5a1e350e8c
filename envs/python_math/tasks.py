"""Multiplications that a tiny model cannot do without a tool; train and test never share an operand."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal, get_args

from verl_agentic import ConfigError, EnvRow, Message

Split = Literal["train", "test"]
Tool = Literal["python", "none"]
# All products have six digits, so that the length of an answer has no information.
_LOW, _HIGH = 317, 999
_TEST_SHARE = 0.2
_OPERAND_SEED = 20240  # which numbers are held out is part of the task, not of a run


@dataclass(frozen=True, kw_only=True)
class Task:
    """One question with its answer."""

    task_id: str
    left: int
    right: int

    @property
    def question(self) -> str:
        """The question for the policy."""
        return f"What is {self.expression}?"

    @property
    def expression(self) -> str:
        """The product as Python and as the question writes it."""
        return f"{self.left}*{self.right}"

    @property
    def answer(self) -> str:
        """The right answer."""
        return str(self.left * self.right)

    @property
    def worked_answer(self) -> str:
        """The product by the digits of the right operand, with the answer in a box."""
        digits = str(self.right)
        parts = [int(digit) * 10**place for place, digit in enumerate(reversed(digits)) if digit != "0"][::-1]
        products = " + ".join(f"{self.left}*{part}" for part in parts)
        values = " + ".join(str(self.left * part) for part in parts)
        return (
            rf"{self.expression} is {products}. That is {values} = {self.answer}." + "\n" + rf"\boxed{{{self.answer}}}"
        )


def operands(split: Split) -> list[int]:
    """Returns the operands of a split; the two splits are disjoint."""
    numbers = list(range(_LOW, _HIGH + 1))
    random.Random(_OPERAND_SEED).shuffle(numbers)
    cut = int(len(numbers) * _TEST_SHARE)
    return sorted(numbers[:cut] if split == "test" else numbers[cut:])


def make_tasks(*, split: Split, count: int, seed: int) -> list[Task]:
    """Returns `count` different tasks; equal arguments give equal tasks."""
    numbers, rng = operands(split), random.Random(f"{split}/{seed}")
    if not 0 <= count <= len(numbers) ** 2:
        raise ValueError(f"count must be 0 to {len(numbers) ** 2} for split {split!r}, got {count}")
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < count:
        pairs[rng.choice(numbers), rng.choice(numbers)] = None
    return [Task(task_id=f"{split}-{a}x{b}", left=a, right=b) for a, b in pairs]


def make_rows(
    *, split: Split, count: int, seed: int, tool: Tool = "python", demonstrations: bool = False
) -> list[EnvRow]:
    """Returns `count` different tasks as dataset rows; see `make_tasks`. With `tool="none"` they have no tool.

    With `demonstrations` each has a worked answer in `extra_info.demonstration`, for the loss `rl_plus`.

    Raises:
        ConfigError: an unknown tool.
    """
    check_tool(tool)
    tool_column = {} if tool == "python" else {"tool": tool}
    return [
        EnvRow(
            prompt=(Message("user", task.question),),
            ground_truth=task.answer,
            data_source="python_math",
            extra={
                "task_id": task.task_id,
                **tool_column,
                **({"demonstration": task.worked_answer} if demonstrations else {}),
            },
        )
        for task in make_tasks(split=split, count=count, seed=seed)
    ]


def check_tool(tool: Any) -> None:
    """Raises ConfigError for an unknown tool."""
    if tool not in get_args(Tool):
        raise ConfigError(f"tool must be one of {list(get_args(Tool))}, got {tool!r}")


def to_task(row: EnvRow) -> Task:
    """Returns the task of a row of `make_rows`."""
    left, _, right = row.prompt[-1].content.removeprefix("What is ").rstrip("?").partition("*")
    return Task(task_id=row.extra["task_id"], left=int(left), right=int(right))
