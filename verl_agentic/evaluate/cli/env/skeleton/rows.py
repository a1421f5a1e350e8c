"""Tasks: the total of two things in the store; train and test never share a number."""

from __future__ import annotations

import random
from typing import Literal

from verl_agentic import EnvRow, Message

Split = Literal["train", "test"]
_THINGS = ("bolts", "hinges", "lamps", "pipes", "ropes", "screws", "tiles", "wires")
_NUMBERS = {"train": (200, 599), "test": (600, 999)}


def make_rows(*, split: Split, count: int, seed: int) -> list[EnvRow]:
    """Returns `count` different tasks; equal arguments give equal tasks."""
    rng = random.Random(f"{split}/{seed}")
    rows: dict[str, EnvRow] = {}
    while len(rows) < count:
        row = _make_row(split, rng)
        rows[row.extra["task_id"]] = row
    return list(rows.values())


def _make_row(split: Split, rng: random.Random) -> EnvRow:
    stock = {thing: rng.randint(*_NUMBERS[split]) for thing in rng.sample(_THINGS, 4)}
    first, second = rng.sample(sorted(stock), 2)
    question = f"How many {first} and {second} are in the store together? Look them up; answer with the number alone."
    return EnvRow(
        prompt=(Message("user", question),),
        ground_truth=str(stock[first] + stock[second]),
        data_source="my_env",
        extra={
            "task_id": f"{split}-"
            + "-".join(f"{thing}{number}" for thing, number in stock.items())
            + f"-{first}-{second}",
            "stock": stock,
            "asked_for": [first, second],
        },
    )
