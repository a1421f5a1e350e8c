"""Dataset rows: generated requests of customers, or tau2's tasks."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from verl_agentic import ConfigError, EnvRow, Message

from .domains import WORLDS
from .scenario import Request, Script, Step, Target
from .tau2 import read_tau2

Split = Literal["train", "test"]
DomainName = Literal["retail", "airline", "telecom"]
_TEST_PART = 5  # every fifth customer is for tests
_MAX_MISSES = 2_000
_GENERATED = tuple(name for name, world in WORLDS.items() if world.generator is not None)


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    domain: DomainName | None = None,
    requests: int | None = None,
    data: str = "",
    keep_refusals: bool = False,
) -> list[EnvRow]:
    """Returns `count` different tasks as dataset rows; equal arguments give equal rows.

    Args:
        split: train and test have different customers; of tau2's tasks, its own splits.
        count: how many.
        seed: of the choice and the order.
        domain: `retail` or `airline`, of tau2 also `telecom`; None: all in turn.
        requests: number of requests of a customer, 1 or 2; None: 1 in two of three rows.
        data: folder with tau2's domains; empty: generated tasks.
        keep_refusals: keeps the tasks of tau2 that a transfer to a human agent solves.

    Raises:
        ConfigError: there are too few tasks, or an argument is invalid.
        DataError: a file of tau2 is missing or malformed.
    """
    if split not in get_args(Split) or domain not in (None, *get_args(DomainName)):
        raise ConfigError(
            f"split must be one of {get_args(Split)} and domain of {get_args(DomainName)} or None, got {split!r} and "
            f"{domain!r}"
        )
    if requests not in (None, 1, 2):
        raise ConfigError(f"requests must be 1, 2 or None, got {requests!r}")
    domains: Sequence[str] = (tuple(WORLDS) if data else _GENERATED) if domain is None else (domain,)
    if data:
        worlds = [WORLDS[name] for name in domains]
        rows = [row for world in worlds for row in read_tau2(data, world, split=split, keep_refusals=keep_refusals)]
        random.Random(f"{split}/{seed}").shuffle(rows)
        if len(rows) < count:
            raise ConfigError(f"count must be at most {len(rows)} for split {split!r} of {list(domains)}, got {count}")
        return rows[:count]
    if unknown := sorted({*domains} - {*_GENERATED}):
        raise ConfigError(f"domains with generated tasks are {_GENERATED}, got {unknown}; set data to tau2's folder")
    generators = [_generate_rows(name, split, seed, requests) for name in domains]
    return [next(generators[number % len(domains)]) for number in range(count)]


def _generate_rows(domain: str, split: Split, seed: int, requests: int | None) -> Iterator[EnvRow]:
    generator = WORLDS[domain].generator
    assert generator is not None, domain
    rng = random.Random(f"support_desk/{domain}/{split}/{seed}")
    users = [user for key, user in generator.tables()["users"].items() if _split_of(key) == split]
    task_keys: set[str] = set()
    misses = 0
    while misses < _MAX_MISSES:
        user, num_requests = rng.choice(users), requests or rng.choice([1, 1, 2])
        chosen = generator.requests(user, rng)[:num_requests]
        facts, question, find = generator.identity(user, rng)
        row = _build_row(
            domain, chosen, Script(messages=tuple(r.message for r in chosen), facts=facts), [question, find]
        )
        if len(chosen) == num_requests and row.ground_truth + row.extra["script"] not in task_keys:
            task_keys.add(row.ground_truth + row.extra["script"])
            misses = 0
            yield row
        misses += 1
    raise ConfigError(
        f"there are hardly more than {len(task_keys)} tasks of {domain} for {split!r} with "
        f"requests={requests}; lower count"
    )


def _build_row(domain: str, requests: Sequence[Request], script: Script, steps: list[Step]) -> EnvRow:
    facts = dict(script.facts)
    for request in requests:
        facts |= request.facts
    script = Script(messages=script.messages, facts=facts)
    actions = [action for request in requests for action in request.actions]
    outputs = tuple(output for request in requests for output in request.outputs)
    solution = [*steps, *(step for request in requests for step in request.steps)]
    kinds = "+".join(request.kind for request in requests)
    digest = hashlib.sha256((script.to_json() + json.dumps(actions)).encode()).hexdigest()[:8]
    policy = (Path(__file__).parent / "domains" / f"{domain}.md").read_text(encoding="utf-8")
    wants = "\n".join(f"- {message}" for message in script.messages)
    knows = "\n".join(f"- {fact}" for fact in facts.values())
    return EnvRow(
        prompt=(Message("system", policy), Message("user", script.messages[0] if script.messages else "")),
        ground_truth=Target(actions=actions, outputs=outputs).to_json(),
        data_source="support_desk",
        extra={
            "task_id": f"{domain}-{kinds}-{digest}",
            "domain": domain,
            "kind": kinds,
            "is_tau2": False,
            "confirm": True,
            "script": script.to_json(),
            "scenario": f"You want, one after the other:\n{wants}\nYou know, and say when asked:\n{knows}",
            "solution": json.dumps(solution, ensure_ascii=False),
        },
    )


def _split_of(key: str) -> Split:
    return "test" if hashlib.sha256(key.encode()).digest()[0] % _TEST_PART == 0 else "train"
