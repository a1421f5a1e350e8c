"""Rows from tau2's tasks, as the package inspect-evals ships them (`inspect_evals/tau2/data/domains`).

A task has `user_scenario` (for the simulated user), `initial_state` (calls before the conversation) and
`evaluation_criteria`: `actions` of both sides, `env_assertions` about the final state, `communicate_info`, which
replies must contain, and `reward_basis`, which says what of it counts.

Paper: https://arxiv.org/abs/2506.07982
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from verl_agentic import DataError, EnvRow, Message

from .database import Tables
from .desk_tool import TRANSFER
from .scenario import Assertion, Call, Script, Step, Target, call
from .tau2_files import Tau2Files
from .user import asking_for
from .world import World, final_state, is_reached

_SOLVED = "It is done."
_CHECKS = {"DB": "database", "ENV_ASSERTION": "assertions", "ACTION": "calls"}


def read_tau2(data: str, world: World, *, split: str, keep_refusals: bool) -> list[EnvRow]:
    """Returns the tasks of a split, in their order.

    Args:
        data: the folder with the domains.
        world: the domain.
        split: a split of tau2, such as `train`, `test` or `full`.
        keep_refusals: keeps tasks that are solved by a transfer to a human agent without another call or word.

    Raises:
        DataError: a file is missing, or a task has another format.
    """
    files = Tau2Files(data=data, domain=world.name)
    tasks = files.json("tasks.json")
    chosen = set(map(str, files.json("split_tasks.json")[split]))
    policy, rows = files.policy(), []
    for place, task in enumerate(tasks):
        try:
            if str(task["id"]) in chosen:
                rows.append(_row(task, world, policy))
        except (KeyError, TypeError, AttributeError) as cause:
            raise DataError(
                f"task {place} of {world.name} is not a task of tau2, got {type(cause).__name__}: {cause}; it has id, "
                "user_scenario and evaluation_criteria"
            ) from cause
    tables = world.tables(data)
    return [row for row in rows if keep_refusals or _needs_work(row, world, tables)]


def _row(task: Mapping[str, Any], world: World, policy: str) -> EnvRow:
    criteria = task["evaluation_criteria"]
    actions = [_action(action, world) for action in criteria.get("actions") or ()]
    basis = criteria.get("reward_basis") or ("DB",)
    target = Target(
        actions=actions,
        outputs=tuple(str(text) for text in criteria.get("communicate_info") or ()),
        checks=tuple(_CHECKS[name] for name in basis if name in _CHECKS),
        assertions=[_assertion(one, world) for one in criteria.get("env_assertions") or ()],
    )
    before = (task.get("initial_state") or {}).get("initialization_actions") or ()
    script = _script(task["user_scenario"])
    return EnvRow(
        prompt=(Message("system", policy), Message("user", script.messages[0])),
        ground_truth=target.to_json(),
        data_source="support_desk",
        extra={
            "task_id": f"tau2-{world.name}-{task['id']}",
            "domain": world.name,
            "is_tau2": True,
            "confirm": False,
            "setup": json.dumps([_preparation(one, world) for one in before]),
            "script": script.to_json(),
            "scenario": _scenario(task["user_scenario"]),
            "solution": json.dumps(_solution(target, world), ensure_ascii=False),
        },
    )


def _solution(target: Target, world: World) -> list[Step]:
    """Returns the target's actions as turns: the desk asks for those of the customer."""
    steps: list[Step] = []
    for action in target.actions:
        if action["name"] != TRANSFER:
            steps.append(asking_for(action) if action["name"] in world.tools.hands else action)
    transfers = [action for action in target.actions if action["name"] == TRANSFER]
    if transfers and "calls" in target.checks:
        return [*steps, "May I transfer you to a human agent?", transfers[0]]
    return [*steps, " ".join([_SOLVED, *target.outputs])]


def _action(action: Mapping[str, Any], world: World) -> Call:
    known = (*world.tools.reads, *world.tools.changes, *world.tools.hands)
    made = _known(call(action["name"], **action["arguments"]), known, "an action must call a tool", world)
    compared = [] if action["name"] == TRANSFER else action.get("compare_args")
    return made if compared is None else {**made, "compare": list(compared)}


def _preparation(action: Mapping[str, Any], world: World) -> Call:
    known = (*world.tools.preparations, *world.tools.changes, *world.tools.hands)
    return _known(call(action["func_name"], **action["arguments"]), known, "an initial state must use a call", world)


def _assertion(one: Mapping[str, Any], world: World) -> Assertion:
    made = _known(call(one["func_name"], **one["arguments"]), world.tools.assertions, "an assertion must be one", world)
    return {**made, "value": one.get("assert_value", True)}


def _known(made: Call, known: Iterable[str], what: str, world: World) -> Call:
    if made["name"] not in known:
        raise DataError(f"{what} of {world.name}, got {made['name']!r}; there are {sorted(known)}")
    return made


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


def _needs_work(row: EnvRow, world: World, tables: Tables) -> bool:
    target, setup = Target.read(row.ground_truth), json.loads(row.extra["setup"])
    gold = final_state(world, tables, setup=setup, actions=target.actions).database.changes()
    idle = final_state(world, tables, setup=setup, actions=[call(TRANSFER, summary="")])
    return bool(target.outputs) or not is_reached(idle, target, gold)
