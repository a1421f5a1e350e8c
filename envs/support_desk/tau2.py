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
                rows.append(_build_row(task, world, policy))
        except (KeyError, TypeError, AttributeError) as cause:
            raise DataError(
                f"task {place} of {world.name} is not a task of tau2, got {type(cause).__name__}: {cause}; it has id, "
                "user_scenario and evaluation_criteria"
            ) from cause
    tables = world.tables(data)
    return [row for row in rows if keep_refusals or _needs_work(row, world, tables)]


def _build_row(task: Mapping[str, Any], world: World, policy: str) -> EnvRow:
    criteria = task["evaluation_criteria"]
    actions = [_read_action(action, world) for action in criteria.get("actions") or ()]
    basis = criteria.get("reward_basis") or ("DB",)
    target = Target(
        actions=actions,
        outputs=tuple(str(text) for text in criteria.get("communicate_info") or ()),
        checks=tuple(_CHECKS[name] for name in basis if name in _CHECKS),
        assertions=[_read_assertion(record, world) for record in criteria.get("env_assertions") or ()],
    )
    before = (task.get("initial_state") or {}).get("initialization_actions") or ()
    script = _read_script(task["user_scenario"])
    return EnvRow(
        prompt=(Message("system", policy), Message("user", script.messages[0])),
        ground_truth=target.to_json(),
        data_source="support_desk",
        extra={
            "task_id": f"tau2-{world.name}-{task['id']}",
            "domain": world.name,
            "is_tau2": True,
            "confirm": False,
            "setup": json.dumps([_read_preparation(record, world) for record in before]),
            "script": script.to_json(),
            "scenario": _describe_scenario(task["user_scenario"]),
            "solution": json.dumps(_build_solution(target, world), ensure_ascii=False),
        },
    )


def _build_solution(target: Target, world: World) -> list[Step]:
    """Returns the target's actions as turns: the desk asks for those of the customer."""
    steps: list[Step] = []
    for action in target.actions:
        if action["name"] != TRANSFER:
            steps.append(asking_for(action) if action["name"] in world.tools.hands else action)
    transfers = [action for action in target.actions if action["name"] == TRANSFER]
    if transfers and "calls" in target.checks:
        return [*steps, "May I transfer you to a human agent?", transfers[0]]
    return [*steps, " ".join([_SOLVED, *target.outputs])]


def _read_action(action: Mapping[str, Any], world: World) -> Call:
    tool_names = (*world.tools.reads, *world.tools.changes, *world.tools.hands)
    action_call = _check_tool(
        call(action["name"], **action["arguments"]), tool_names, "an action must call a tool", world
    )
    compared = [] if action["name"] == TRANSFER else action.get("compare_args")
    return action_call if compared is None else {**action_call, "compare": list(compared)}


def _read_preparation(action: Mapping[str, Any], world: World) -> Call:
    tool_names = (*world.tools.preparations, *world.tools.changes, *world.tools.hands)
    return _check_tool(
        call(action["func_name"], **action["arguments"]), tool_names, "an initial state must use a call", world
    )


def _read_assertion(assertion: Mapping[str, Any], world: World) -> Assertion:
    assertion_call = _check_tool(
        call(assertion["func_name"], **assertion["arguments"]),
        world.tools.assertions,
        "an assertion must be one",
        world,
    )
    return {**assertion_call, "value": assertion.get("assert_value", True)}


def _check_tool(tool_call: Call, tool_names: Iterable[str], problem: str, world: World) -> Call:
    if tool_call["name"] not in tool_names:
        raise DataError(f"{problem} of {world.name}, got {tool_call['name']!r}; there are {sorted(tool_names)}")
    return tool_call


def _read_script(scenario: Mapping[str, Any]) -> Script:
    """Returns lines for a scripted customer, who says at once what he wants and who he is. A language model plays the
    customer as the benchmark means it."""
    instructions = scenario["instructions"]
    if isinstance(instructions, str):
        return Script(messages=(instructions,), facts={})
    opening = f"{instructions['reason_for_call']} {instructions.get('known_info') or ''}".strip()
    return Script(messages=(opening,), facts={".": instructions.get("task_instructions") or opening})


def _describe_scenario(scenario: Mapping[str, Any]) -> str:
    instructions = scenario["instructions"]
    parts: Iterable[Any] = (instructions,)
    if not isinstance(instructions, str):
        keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
        parts = (f"{key.replace('_', ' ')}: {instructions[key]}" for key in keys if instructions.get(key))
    persona = scenario.get("persona")
    return "\n".join([*([f"persona: {persona}"] if persona else []), *parts])


def _needs_work(row: EnvRow, world: World, tables: Tables) -> bool:
    target, setup = Target.read(row.ground_truth), json.loads(row.extra["setup"])
    gold = final_state(world, tables, setup=setup, actions=target.actions).database.changes()
    idle = final_state(world, tables, setup=setup, actions=[call(TRANSFER, summary="")])
    return bool(target.outputs) or not is_reached(idle, target, gold)
