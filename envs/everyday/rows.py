"""Everyday questions as dataset rows."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Literal, get_args

from verl_agentic import ConfigError, EnvRow, Message

from .draw import Draw, Split
from .kinds import KINDS

Wordings = Literal["all", "seen", "new"]
_MAX_DRAWS = 1000
_NEW_SHARE = 0.25


def make_rows(
    *, split: Split, count: int, seed: int, kinds: str = "+".join(KINDS), wordings: Wordings = "all"
) -> list[EnvRow]:
    """Returns `count` different questions; equal arguments give equal rows.

    Rows of `test` share no word, number or date with those of `train`.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of every choice.
        kinds: names in `kinds.KINDS`, with `+` between them; they take turns.
        wordings: of test rows: `seen` are those of training rows, `new` is one more for each kind, `all` takes the new
            one for a quarter of the rows.

    Raises:
        ConfigError: an unknown kind or value of `wordings`, or more rows than there are questions.
    """
    names = kinds.split("+")
    if unknown := [name for name in names if name not in KINDS]:
        raise ConfigError(f"kinds must be of {list(KINDS)} with + between them, got {unknown[0]!r} in {kinds!r}")
    if wordings not in get_args(Wordings):
        raise ConfigError(f"wordings must be one of {list(get_args(Wordings))}, got {wordings!r}")
    draw = Draw(random.Random(f"{split}/{seed}/{kinds}"), split)
    rows: dict[str, EnvRow] = {}
    for index in range(count):
        kind = names[index % len(names)]
        for _ in range(_MAX_DRAWS):
            row = _make_row(kind, draw, "seen" if split == "train" else wordings)
            if row.prompt[-1].content not in rows:
                break
        else:
            raise ConfigError(f"there are no more questions of kind {kind!r}, got count={count}; lower it or add kinds")
        rows[row.prompt[-1].content] = row
    return list(rows.values())


def _make_row(kind: str, draw: Draw, wordings: Wordings) -> EnvRow:
    question = KINDS[kind](draw)
    *old, new = question.wordings
    is_new = wordings == "new" or (wordings == "all" and draw.rng.random() < _NEW_SHARE)
    text = new if is_new else draw.one_of(old)
    extra: dict[str, Any] = {"kind": kind, "code": question.code, "is_new_wording": is_new}
    if question.guesses:
        extra["guesses"] = list(question.guesses)
    return EnvRow(
        prompt=(Message("user", text),),
        ground_truth=question.answer,
        data_source="everyday",
        extra={"task_id": f"{kind}-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}", **extra},
    )
