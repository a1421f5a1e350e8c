"""Rows from tau2's tasks, as the package inspect-evals ships them (`inspect_evals/tau2/data/domains`).

A domain has `tasks.json`, `split_tasks.json` (`train`, `test`, `base`), `policy.txt` (or `.md`) and `db.json`. A task
has `user_scenario` (for the simulated user) and `evaluation_criteria`: `actions`, whose replay gives the gold state,
and `communicate_info`, which replies must contain.

Paper: https://arxiv.org/abs/2506.07982
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_agentic import DataError, EnvRow, Message

from .database import Tables
from .desk_tool import TRANSFER
from .scenario import Script, Step, Target
from .world import DOMAINS, domain_tables, read_json, replay

_SOLVED = "It is done."


def read_tau2(data: str, domain: str, *, split: str, keep_refusals: bool) -> list[EnvRow]:
    """Returns the tasks of a split, in their order.

    Args:
        data: the folder with the domains.
        domain: `retail` or `airline`.
        split: `train` or `test`.
        keep_refusals: keeps tasks in which nothing changes and nothing must be said. There, doing nothing is right.

    Raises:
        DataError: a file is missing, or a task has another format.
    """
    tasks = read_json(data, domain, "tasks.json")
    chosen = set(map(str, read_json(data, domain, "split_tasks.json")[split]))
    policy, rows = _policy(Path(data) / domain), []
    for place, task in enumerate(tasks):
        try:
            if str(task["id"]) in chosen:
                rows.append(_row(task, domain, policy))
        except (KeyError, TypeError, AttributeError) as cause:
            raise DataError(
                f"task {place} of {domain} is not a task of tau2, got {type(cause).__name__}: {cause}; it has id, "
                "user_scenario and evaluation_criteria"
            ) from cause
    tables = domain_tables(domain, data)
    return [row for row in rows if keep_refusals or _needs_work(row, domain, tables)]


def _row(task: Mapping[str, Any], domain: str, policy: str) -> EnvRow:
    criteria = task["evaluation_criteria"]
    actions = [_call(action, domain) for action in criteria.get("actions") or ()]
    outputs = tuple(str(text) for text in criteria.get("communicate_info") or ())
    steps: list[Step] = [action for action in actions if action["name"] != TRANSFER]
    steps.append(" ".join([_SOLVED, *outputs]))
    script = _script(task["user_scenario"])
    return EnvRow(
        prompt=(Message("system", policy), Message("user", script.messages[0])),
        ground_truth=Target(actions=actions, outputs=outputs).to_json(),
        data_source="support_desk",
        extra={
            "task_id": f"tau2-{domain}-{task['id']}",
            "domain": domain,
            "is_tau2": True,
            "confirm": False,
            "script": script.to_json(),
            "scenario": _scenario(task["user_scenario"]),
            "solution": json.dumps(steps, ensure_ascii=False),
        },
    )


def _call(action: Mapping[str, Any], domain: str) -> dict[str, Any]:
    known = (*DOMAINS[domain].reads, *DOMAINS[domain].changes)
    if action["name"] not in known:
        raise DataError(f"an action must call a tool of {domain}, got {action['name']!r}; tools: {sorted(known)}")
    return {"name": action["name"], "arguments": dict(action["arguments"])}


def _script(scenario: Mapping[str, Any]) -> Script:
    """Returns lines for a scripted customer, who says at once what he wants and who he is. A language model plays the
    customer as the benchmark means it."""
    told = scenario["instructions"]
    if isinstance(told, str):
        return Script(messages=(told,), facts={})
    opening = f"{told['reason_for_call']} {told.get('known_info') or ''}".strip()
    return Script(messages=(opening,), facts={".": told.get("task_instructions") or opening})


def _scenario(scenario: Mapping[str, Any]) -> str:
    told = scenario["instructions"]
    parts: Iterable[Any] = (told,)
    if not isinstance(told, str):
        keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
        parts = (f"{key.replace('_', ' ')}: {told[key]}" for key in keys if told.get(key))
    persona = scenario.get("persona")
    return "\n".join([*([f"persona: {persona}"] if persona else []), *parts])


def _policy(folder: Path) -> str:
    for name in ("policy.txt", "policy.md"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise DataError(f"a domain of tau2 has a policy.txt or policy.md, got none in {folder}")


def _needs_work(row: EnvRow, domain: str, tables: Tables) -> bool:
    target = Target.read(row.ground_truth)
    return bool(target.outputs or replay(domain, tables, target.actions))
