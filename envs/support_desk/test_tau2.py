"""Contract of the reader of tau2's files: tasks in its format, written for this test; all real ones where installed."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import Action, ConfigError, DataError, EnvRow, Message, Transcript

from .env import make_env
from .gold import gold
from .rows import make_rows
from .scenario import Script

ADDRESS = {"address1": "1 Oak", "address2": "", "city": "Austin", "country": "USA", "state": "TX", "zip": "78701"}
DB: dict[str, Any] = {
    "products": {"55": {"name": "Cup", "product_id": "55", "variants": {}}},
    "users": {
        "ann_lee_1": {
            "user_id": "ann_lee_1",
            "name": {"first_name": "Ann", "last_name": "Lee"},
            "address": ADDRESS,
            "email": "ann@example.com",
            "payment_methods": {"paypal_1": {"source": "paypal", "id": "paypal_1"}},
            "orders": ["#W1"],
        }
    },
    "orders": {
        "#W1": {
            "order_id": "#W1",
            "user_id": "ann_lee_1",
            "address": ADDRESS,
            "items": [{"name": "Cup", "product_id": "55", "item_id": "7", "price": 9.5, "options": {}}],
            "status": "pending",
            "fulfillments": [],
            "payment_history": [{"transaction_type": "payment", "amount": 9.5, "payment_method_id": "paypal_1"}],
        }
    },
}
INSTRUCTIONS = {
    "task_instructions": "You are polite.",
    "domain": "retail",
    "reason_for_call": "You want to cancel order #W1 and know the refund.",
    "known_info": "You are Ann Lee in zip code 78701.",
    "unknown_info": "You do not know your email.",
}
CANCEL = {
    "action_id": "0_1",
    "name": "cancel_pending_order",
    "arguments": {"order_id": "#W1", "reason": "no longer needed"},
    "info": None,
}


def a_task(number: int, *actions: Any, outputs: Any = (), instructions: Any = INSTRUCTIONS) -> dict[str, Any]:
    return {
        "id": str(number),
        "description": {"purpose": None, "relevant_policies": None, "notes": None},
        "user_scenario": {"persona": "in a hurry", "instructions": instructions},
        "initial_state": None,
        "evaluation_criteria": {"actions": list(actions), "communicate_info": outputs, "nl_assertions": None},
    }


TRANSFER = {"name": "transfer_to_human_agents", "arguments": {"summary": "x"}}
TASKS = [
    a_task(0, {"name": "get_order_details", "arguments": {"order_id": "#W1"}}, CANCEL, TRANSFER, outputs=["9.5"]),
    a_task(1, CANCEL, instructions="Cancel #W1."),
    a_task(2, {"name": "get_order_details", "arguments": {"order_id": "#W1"}}, outputs=None),
    a_task(3, {**CANCEL, "arguments": {"order_id": "#W2", "reason": "no longer needed"}}),
]


def write(folder: Path, *, tasks: Any = TASKS, db: Any = DB, packed: bool = True) -> str:
    home = folder / "retail"
    home.mkdir()
    (home / "tasks.json").write_text(json.dumps(tasks))
    (home / "split_tasks.json").write_text(json.dumps({"train": ["0", "1", "2", "3"], "test": ["1"], "base": []}))
    (home / "policy.txt").write_text("# Policy\nAnswer.")
    if packed:
        (home / "db.json.gz").write_bytes(gzip.compress(json.dumps(db).encode()))
    else:
        (home / "db.json").write_text(json.dumps(db))
    return str(folder)


async def play(row: EnvRow, policy: Any, data: str) -> float:
    env = make_env(row, data=data)
    messages, actions, stop = list(await env.start()), [], None
    while stop is None:
        turn = policy(messages)
        actions.append(Action(turn=0, text="", content=turn.content, tool_calls=turn.tool_calls))
        observation = await env.step(actions[-1])
        messages += [turn, *observation.messages]
        stop = observation.stop
    transcript = Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=stop)
    return (await env.score(transcript)).outcome


def refuse(messages: Any) -> Message:
    return Message("assistant", "I am sorry, I cannot do that.")


@pytest.mark.parametrize("packed", [True, False])
async def test_tasks_become_rows_that_their_actions_solve(tmp_path: Path, packed: bool) -> None:
    data = write(tmp_path, packed=packed)
    all_rows = make_rows(split="train", count=4, seed=0, domain="retail", data=data, keep_refusals=True)
    rows = {row.extra["task_id"]: row for row in all_rows}
    first = rows["tau2-retail-0"]
    assert first.prompt[0].content == "# Policy\nAnswer."
    assert Script.read(first.extra["script"]).messages[0].startswith("You want to cancel order #W1")
    assert (
        "persona: in a hurry" in first.extra["scenario"] and "unknown info: You do not know" in first.extra["scenario"]
    )
    assert [await play(row, gold(row), data) for row in rows.values()] == [1.0] * 4
    assert [await play(rows[f"tau2-retail-{n}"], refuse, data) for n in range(4)] == [0.0, 0.0, 1.0, 1.0]


def test_tasks_in_which_nothing_happens_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    data = write(tmp_path)
    rows = make_rows(split="train", count=2, seed=0, domain="retail", data=data)
    assert {row.extra["task_id"] for row in rows} == {"tau2-retail-0", "tau2-retail-1"}
    with pytest.raises(ConfigError, match="count"):
        make_rows(split="train", count=3, seed=0, domain="retail", data=data)
    (only,) = make_rows(split="test", count=1, seed=0, domain="retail", data=data)
    assert only.extra["task_id"] == "tau2-retail-1"
    with pytest.raises(ConfigError, match="tau2"):
        make_env(only)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tasks": [{"id": "0"}]}, "task 0"),
        ({"tasks": [a_task(0, {"name": "dance", "arguments": {}})]}, "'dance'"),
        ({"db": {"users": {}}}, "'orders'"),
    ],
)
def test_other_files_are_refused_with_the_place(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    data = write(tmp_path, **files)
    with pytest.raises(DataError, match=message):
        make_rows(split="train", count=1, seed=0, domain="retail", data=data)


def test_a_missing_folder_and_a_domain_without_tools_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tau2/data/domains"):
        make_rows(split="train", count=1, seed=0, domain="airline", data=str(tmp_path))
    with pytest.raises(ConfigError, match="'telecom'"):
        make_rows(split="train", count=1, seed=0, domain="telecom")


def real_data() -> str:
    spec = importlib.util.find_spec("inspect_evals")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("inspect-evals is not installed")
    return str(Path(spec.submodule_search_locations[0]) / "tau2" / "data" / "domains")


@pytest.mark.parametrize(("domain", "counts"), [("retail", (74, 40)), ("airline", (30, 20)), ("telecom", (74, 40))])
def test_every_real_task_is_solved_by_its_actions(domain: Any, counts: tuple[int, int]) -> None:
    data = real_data()
    splits: tuple[Any, ...] = ("train", "test")
    for split, count in zip(splits, counts, strict=True):
        rows = make_rows(split=split, count=count, seed=0, domain=domain, data=data, keep_refusals=True)
        assert [asyncio.run(play(row, gold(row), data)) for row in rows] == [1.0] * count
