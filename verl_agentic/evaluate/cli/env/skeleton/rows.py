"""Tasks: the stock of one thing in the store; no thing of a training task is in a test task."""

from __future__ import annotations

import random
from typing import Literal

from verl_agentic import EnvRow, Message

Split = Literal["train", "test"]
_COLOURS = ("black", "blue", "brown", "green", "red", "white")
_NOUNS = ("bolts", "hinges", "lamps", "pipes", "ropes", "screws", "tiles")
_ALL = [f"{colour} {noun}" for colour in _COLOURS for noun in _NOUNS]
# Every fourth thing is for tests: both splits have all colours and all nouns.
_THINGS = {"train": [thing for place, thing in enumerate(_ALL) if place % 4], "test": _ALL[::4]}


def make_rows(*, split: Split, count: int, seed: int) -> list[EnvRow]:
    """Returns `count` different tasks; equal arguments give equal tasks."""
    rng = random.Random(f"{split}/{seed}")
    rows: dict[str, EnvRow] = {}
    while len(rows) < count:
        row = _make_row(split, rng)
        rows[row.extra["task_id"]] = row
    return list(rows.values())


def _make_row(split: Split, rng: random.Random) -> EnvRow:
    stock = {thing: rng.randint(100, 999) for thing in rng.sample(_THINGS[split], 3)}
    thing = rng.choice(sorted(stock))
    question = f"How many {thing} are in the store? Look them up; answer with the number alone."
    return EnvRow(
        prompt=(Message("user", question),),
        ground_truth=str(stock[thing]),
        data_source="my_env",
        extra={
            "task_id": f"{split}-{thing}-" + "-".join(f"{other}{number}" for other, number in stock.items()),
            "stock": stock,
            "thing": thing,
        },
    )
