"""Rows from templates: requests over ten domains, with expected calls."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.base.tools.schema_check import argument_schema

from .apis import APIS, CHAINS, DOMAIN_OF, INTENTS, Draw, Intent, call
from .apis.base import Slots, Split
from .env import Case, respond

SYSTEM = (
    "Use the tools to do what the user asks. Call every tool that the request needs, with the values that the user "
    "gave and no others; leave out what has a default unless the user asked for something else. If none of the tools "
    "can do it, say so without calling one. If a value is missing that a tool requires, ask for it without calling the "
    "tool. Calls that do not depend on each other belong into one turn."
)
CASES: tuple[Case, ...] = (
    "single",
    "multiple",
    "parallel",
    "parallel_multiple",
    "sequential",
    "missing_function",
    "missing_parameter",
)
"""The cases that `make_rows` makes, in turn."""

_SEVERAL: Mapping[Split, tuple[str, ...]] = {
    "train": ("I need several things:", "Please take care of all of these:", "Here is my list:"),
    "test": ("A few tasks for you:", "Do the following for me:"),
}
_TRIES = 200  # attempts to find a new row


@dataclass(frozen=True, kw_only=True)
class _Task:
    request: str
    tools: Sequence[str]
    calls: Sequence[Mapping[str, Any]] = ()
    asks: str | None = None


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    cases: Sequence[Case] = CASES,
    distractors: int = 4,
) -> list[EnvRow]:
    """Returns `count` rows with different requests; equal arguments give equal rows.

    The splits share neither wordings nor names, dates, ids and amounts; small numbers and enumerations they share.

    Args:
        split: `train` or `test`.
        count: how many rows; the cases take turns.
        seed: of every choice.
        cases: some of `CASES`.
        distractors: number of tools besides the needed ones.

    Raises:
        ConfigError: an unknown case or split, or too few different rows.
    """
    if split not in ("train", "test") or not cases or not set(cases) <= set(CASES) or not 0 <= distractors <= len(APIS):
        raise ConfigError(
            f"split must be train or test, cases some of {CASES}, distractors 0 to {len(APIS)}, "
            f"got {split!r}, {cases!r}, {distractors!r}"
        )
    draw = Draw(random.Random(f"{split}/{seed}"), split)
    rows: dict[str, EnvRow] = {}
    for index in range(count):
        case = cases[index % len(cases)]
        for _ in range(_TRIES):
            task = _MAKERS[case](draw, distractors)
            if task.request not in rows:
                rows[task.request] = _build_row(task, case=case, task_id=f"{split}-{seed}-{index}")
                break
        else:
            raise ConfigError(f"no more different {case} rows of split {split!r} after {index}, got count={count}")
    return list(rows.values())


def _draw_single(draw: Draw, distractors: int) -> _Task:
    intent = draw.choice(INTENTS)
    slots = intent.draw(draw)
    return _Task(request=_draw_wording(intent, slots, draw), tools=[intent.tool], calls=[_build_call(intent, slots)])


def _draw_multiple(draw: Draw, distractors: int) -> _Task:
    task = _draw_single(draw, 0)
    return _Task(request=task.request, tools=_add_distractors(draw, task.tools, distractors), calls=task.calls)


def _draw_parallel(draw: Draw, distractors: int) -> _Task:
    intent = draw.choice(INTENTS)
    return _combine_intents([intent] * draw.number(2, 3), draw, 0)


def _parallel_multiple(draw: Draw, distractors: int) -> _Task:
    by_tool = {intent.tool: intent for intent in draw.rng.sample(INTENTS, len(INTENTS))}
    return _combine_intents(list(by_tool.values())[: draw.number(2, 4)], draw, distractors)


def _draw_sequential(draw: Draw, distractors: int) -> _Task:
    chain = draw.choice(CHAINS)
    slots = chain.draw(draw)
    calls = chain.calls(slots, _answer_call)
    request = draw.choice(chain.train if draw.split == "train" else chain.test).format(**slots)
    return _Task(request=request, tools=_add_distractors(draw, [c["name"] for c in calls], distractors), calls=calls)


def _missing_function(draw: Draw, distractors: int) -> _Task:
    task = _draw_single(draw, 0)
    domain = DOMAIN_OF[task.tools[0]]
    others = [name for name in APIS if DOMAIN_OF[name] != domain]
    return _Task(request=task.request, tools=draw.rng.sample(others, min(len(others), max(1, distractors))))


def _missing_parameter(draw: Draw, distractors: int) -> _Task:
    intent = draw.choice([intent for intent in INTENTS if intent.without])
    topic = draw.choice(sorted(intent.without))
    wording = intent.without[topic][0 if draw.split == "train" else 1]
    request = wording.format(**intent.draw(draw))
    return _Task(request=request, tools=_add_distractors(draw, [intent.tool], distractors), asks=topic)


_MAKERS: Mapping[Case, Callable[[Draw, int], _Task]] = {
    "single": _draw_single,
    "multiple": _draw_multiple,
    "parallel": _draw_parallel,
    "parallel_multiple": _parallel_multiple,
    "sequential": _draw_sequential,
    "missing_function": _missing_function,
    "missing_parameter": _missing_parameter,
}


def _combine_intents(intents: Sequence[Intent], draw: Draw, distractors: int) -> _Task:
    """Returns a request with several independent calls."""
    lines, calls = [draw.choice(_SEVERAL[draw.split])], []
    for number, intent in enumerate(intents, start=1):
        slots = intent.draw(draw)
        while _build_call(intent, slots) in calls:
            slots = intent.draw(draw)
        lines.append(f"{number}. {_draw_wording(intent, slots, draw)}")
        calls.append(_build_call(intent, slots))
    tools = _add_distractors(draw, [intent.tool for intent in intents], distractors)
    return _Task(request="\n".join(lines), tools=tools, calls=calls)


def _draw_wording(intent: Intent, slots: Slots, draw: Draw) -> str:
    return draw.choice(intent.train if draw.split == "train" else intent.test).format(**slots)


def _build_call(intent: Intent, slots: Slots) -> dict[str, Any]:
    return call(intent.tool, **intent.arguments(slots))


def _add_distractors(draw: Draw, needed: Sequence[str], distractors: int) -> list[str]:
    """Returns the needed tools and distractors, in random order."""
    names = list(dict.fromkeys(needed))
    others = [name for name in APIS if name not in names]
    names += draw.rng.sample(others, min(len(others), distractors))
    draw.rng.shuffle(names)
    return names


def _answer_call(name: str, arguments: Mapping[str, Any]) -> Any:
    return respond(APIS[name].schema, argument_schema(APIS[name].parameters).with_defaults(arguments))


def _build_row(task: _Task, *, case: Case, task_id: str) -> EnvRow:
    extra = {"task_id": task_id, "case": case, "tools": json.dumps([APIS[name].schema for name in task.tools])}
    return EnvRow(
        prompt=(Message("system", SYSTEM), Message("user", task.request)),
        ground_truth=json.dumps(list(task.calls)),
        data_source="function_calling",
        extra={**extra, "asks": task.asks or "", "strings": "exact"},
    )
