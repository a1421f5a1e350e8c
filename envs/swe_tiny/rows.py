"""Rows: a short function with one wrong operator, and a call that shows it."""

from __future__ import annotations

import functools
import json
import random
import zlib
from typing import Any, Literal

from verl_agentic import ConfigError, EnvRow, Message

from .functions import (
    FLIPS,
    HELD_OUT,
    INPUTS,
    NAMES,
    TEMPLATES,
    VARIABLES,
    places,
    plain,
    results,
    with_operator,
    written,
)

_MAX_CONSTANT = 5
_TEST_SHARE = 5  # one pair of name and constant in five belongs to the test split
_MAX_MISSES = 500  # in a row


def make_rows(
    *,
    split: Literal["train", "test"],
    count: int,
    seed: int,
    templates: Literal["seen", "held_out"] = "seen",
) -> list[EnvRow]:
    """Returns `count` rows of different tasks; equal arguments give equal rows.

    Args:
        split: `train` or `test`. The splits share no pair of a function's name and constant.
        count: number of rows.
        seed: of the choice.
        templates: `seen`: the templates of the training rows. `held_out`: others, for the test split only.

    Raises:
        ConfigError: unknown split or templates, or too few different tasks.
    """
    if split not in ("train", "test") or templates not in ("seen", "held_out"):
        raise ConfigError(f"split must be train or test, templates seen or held_out, got {split!r} and {templates!r}")
    if templates == "held_out" and split == "train":
        raise ConfigError("held_out templates are for the test split, got split='train'; use split='test'")
    rng = random.Random(f"{split}/{templates}/{seed}")
    rows: dict[str, EnvRow] = {}
    misses = 0
    while len(rows) < count:
        row = _draw_row(rng, templates)
        if row is None or row.extra["split"] != split or row.extra["task_id"] in rows:
            misses += 1
            if misses > _MAX_MISSES:
                raise ConfigError(f"found only {len(rows)} different tasks of split {split!r}, got {count=}")
            continue
        rows[row.extra["task_id"]] = row
        misses = 0
    return list(rows.values())


def source_of(name: str, variables: tuple[str, str], lines: list[str]) -> str:
    """Returns a function as text, with spaces between all words."""
    return "\n".join([f"def {name} ( {variables[0]} , {variables[1]} ) :", *(f"    {line}" for line in lines)])


@functools.cache
def _compute_results(template: str, constant: int, place: int | None, operator: str) -> list[int] | None:
    """Returns the results of a function, or of one with another operator at a place; names do not matter."""
    lines = written({**TEMPLATES, **HELD_OUT}[template], variables=("a", "b"), constant=constant)
    if place is not None:
        lines = with_operator(lines, places(lines)[place], operator)
    return results(source_of("f", ("a", "b"), plain(lines)))


def _draw_row(rng: random.Random, kind: str) -> EnvRow | None:
    """Returns a row, or None if the drawn bug changes no result."""
    templates = TEMPLATES if kind == "seen" else HELD_OUT
    template, name, variables = rng.choice(list(templates)), rng.choice(NAMES), rng.choice(VARIABLES)
    constant = rng.randint(1, _MAX_CONSTANT)
    lines = written(templates[template], variables=variables, constant=constant)
    number = rng.randrange(len(places(lines)))
    place = places(lines)[number]
    new = rng.choice(FLIPS[place[2]])
    bug = with_operator(lines, place, new)
    wrong = source_of(name, variables, plain(bug))
    want, got = _compute_results(template, constant, None, ""), _compute_results(template, constant, number, new)
    wrong_inputs = [index for index in range(len(INPUTS)) if want and (got is None or want[index] != got[index])]
    if not want or not got or not wrong_inputs:
        return None
    index = rng.choice(wrong_inputs)
    pair = f"{name} ( {INPUTS[index][0]} , {INPUTS[index][1]} )"
    extra: dict[str, Any] = {
        "task_id": f"{template}-{zlib.crc32(wrong.encode()):08x}",
        "source": wrong,
        "old_line": plain(bug)[place[0]].strip(),
        "new_line": plain(lines)[place[0]].strip(),
        "split": "test" if zlib.crc32(f"{name}/{constant}".encode()) % _TEST_SHARE == 0 else "train",
    }
    prompt = f"{wrong}\n{pair} gives {got[index]} , should give {want[index]}"
    return EnvRow(prompt=(Message("user", prompt),), ground_truth=json.dumps(want), data_source="swe_tiny", extra=extra)
