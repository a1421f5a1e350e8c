"""The domain telecom: both sides have tools; tasks in tau2's format, written for this test."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import Action, DataError, EnvRow, StopReason, Transcript

from .database import Database
from .domains import WORLDS
from .domains.phone import SURROUNDINGS
from .domains.telecom import Telecom
from .env import make_env
from .gold import gold
from .rows import make_rows
from .scenario import Script, call
from .test_env import endpoint, turns
from .user import ScriptedUser, asking_for

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
DB = """
[[plans]]
plan_id = "P1"
data_limit_gb = 5.0
price_per_month = 40.0
data_refueling_price_per_gb = 2.0
[[lines]]
line_id = "L1"
phone_number = "555-1"
status = "Active"
plan_id = "P1"
[[customers]]
customer_id = "C1"
full_name = "Ann Lee"
date_of_birth = "1990-01-02"
phone_number = "555-9"
line_ids = ["L1"]
bill_ids = []
"""
PHONE = """
[device]
sim_card_status = "active"
sim_card_missing = false
airplane_mode = false
network_signal_strength = "good"
network_technology_connected = "5G"
network_connection_status = "connected"
battery_level = 80
data_enabled = true
roaming_enabled = false
network_mode_preference = "4g_5g_preferred"
wifi_enabled = false
wifi_connected = false
wifi_signal_strength = "none"
wifi_calling_enabled = false
wifi_calling_mms_over_wifi = false
data_saver_mode = false
vpn_connected = false
[device.active_apn_settings]
apn_name = "internet"
mmsc_url = "http://mms"
[device.app_statuses.messaging.permissions]
sms = true
storage = true
"""
INFO = {"env_type": "user", "func_name": "set_user_info", "arguments": {"name": "Ann Lee", "phone_number": "555-1"}}
HAS_DATA = {"env_type": "user", "func_name": "assert_mobile_data_status", "arguments": {"expected_status": True}}


def user(name: str, **arguments: Any) -> dict[str, Any]:
    return {"requestor": "user", "name": name, "arguments": arguments}


def desk(name: str, **arguments: Any) -> dict[str, Any]:
    return {"requestor": "assistant", "name": name, "arguments": {"customer_id": "C1", "line_id": "L1", **arguments}}


def before(name: str, **arguments: Any) -> dict[str, Any]:
    return {"env_type": "user", "func_name": name, "arguments": arguments}


def a_task(number: int, broken: Sequence[Any], actions: Sequence[Any], asserted: Sequence[Any], *basis: str) -> Any:
    instructions = {
        "reason_for_call": "My phone has no internet.",
        "known_info": "",
        "task_instructions": "You are patient.",
    }
    return {
        "id": str(number),
        "user_scenario": {"persona": None, "instructions": instructions},
        "initial_state": {"initialization_actions": [INFO, *broken]},
        "evaluation_criteria": {
            "actions": list(actions),
            "env_assertions": list(asserted),
            "reward_basis": ["ENV_ASSERTION", *basis],
        },
    }


LINE = {"customer_id": "C1", "line_id": "L1"}
USED_UP = {"env_type": "assistant", "func_name": "set_data_usage", "arguments": {**LINE, "data_used_gb": 5.1}}
OVERDUE = {**LINE, "new_bill_id": "B7", "contract_ended": False}
SUSPENDED = {"env_type": "assistant", "func_name": "suspend_line_for_overdue_bill", "arguments": OVERDUE}
PAID = {"env_type": "assistant", "func_name": "assert_no_overdue_bill", "arguments": {"overdue_bill_id": "B7"}}
SERVICE = {"env_type": "user", "func_name": "assert_service_status", "arguments": {"expected_status": "connected"}}
TRANSFER = {"requestor": "assistant", "name": "transfer_to_human_agents", "arguments": {"summary": "x"}}
REFUEL = desk("refuel_data", gb_amount=1.0)
PAY = [
    {**desk("send_payment_request"), "arguments": {"customer_id": "C1", "bill_id": "B7"}},
    user("make_payment"),
    desk("resume_line"),
    user("reboot_device"),
]
TASKS = [
    a_task(0, [before("turn_data_off"), USED_UP], [user("toggle_data"), REFUEL], [HAS_DATA]),
    a_task(1, [SUSPENDED, before("simulate_network_search")], PAY, [PAID, SERVICE]),
    a_task(2, [before("lock_sim_card", mode="pin")], [TRANSFER], [{**SERVICE, "assert_value": False}], "ACTION"),
]


@pytest.fixture
def data(tmp_path: Path) -> str:
    home = tmp_path / "telecom"
    home.mkdir()
    (home / "tasks.json").write_text(json.dumps(TASKS))
    (home / "split_tasks.json").write_text(json.dumps({"train": ["0", "1", "2"], "test": []}))
    (home / "main_policy.txt").write_text("Help.")
    (home / "tech_support_manual.txt").write_text("Toggle things.")
    (home / "db.toml").write_text(DB)
    (home / "user_db.toml").write_text(PHONE)
    return str(tmp_path)


def rows_of(data: str) -> list[EnvRow]:
    rows = make_rows(split="train", count=3, seed=0, domain="telecom", data=data, keep_refusals=True)
    return sorted(rows, key=lambda row: row.extra["task_id"])


async def play(row: EnvRow, policy: Any, data: str, **config: Any) -> float:
    env = make_env(row, data=data, **config)
    messages, actions, stop = list(await env.start()), [], None
    while stop is None and len(actions) < 9:
        turn = policy(messages)
        actions.append(Action(turn=0, text="", content=turn.content, tool_calls=turn.tool_calls))
        observation = await env.step(actions[-1])
        messages += [turn, *observation.messages]
        stop = observation.stop
    stop = stop or StopReason.MAX_TURNS
    transcript = Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=stop)
    return (await env.score(transcript)).outcome


async def test_the_actions_of_both_sides_solve_every_task(data: str) -> None:
    assert [await play(row, gold(row), data) for row in rows_of(data)] == [1.0] * 3


@pytest.mark.parametrize("missing", range(4))
async def test_every_action_is_needed(data: str, missing: int) -> None:
    pay = rows_of(data)[1]
    steps = json.loads(pay.extra["solution"])
    assert await play(pay, turns(*steps[:missing], *steps[missing + 1 :]), data) == 0.0


async def test_tasks_that_a_transfer_solves_are_left_out_unless_asked_for(data: str) -> None:
    rows = make_rows(split="train", count=2, seed=0, domain="telecom", data=data)
    assert {row.extra["task_id"] for row in rows} == {"tau2-telecom-0", "tau2-telecom-1"}
    transfer = call("transfer_to_human_agents", summary="another")
    assert [await play(row, turns("What is it?", transfer), data) for row in rows_of(data)] == [0.0, 0.0, 1.0]


async def test_a_required_call_must_be_made(data: str) -> None:
    assert await play(rows_of(data)[2], turns("I cannot do that."), data) == 0.0


def test_the_prompt_has_both_parts_of_the_policy_and_no_tool_of_the_customer(data: str) -> None:
    row = rows_of(data)[0]
    assert row.prompt[0].content.startswith("<main_policy>\nHelp.\n</main_policy>\n<tech_support_manual>")
    names = {tool.name for tool in make_env(row, data=data).tools}
    assert "refuel_data" in names and not names & set(Telecom.hands)


async def test_a_language_model_plays_the_customer_with_tools(data: str) -> None:
    toggle = {"id": "c1", "type": "function", "function": {"name": "toggle_data", "arguments": "{}"}}
    unknown = {"id": "c2", "type": "function", "function": {"name": "fly", "arguments": "{"}}
    script = ["No internet.", [toggle], [unknown], "Mobile data is on now.", "###STOP###"]
    row = rows_of(data)[0]
    with endpoint(*script) as (url, requests):
        refuel = call("refuel_data", customer_id="C1", line_id="L1", gb_amount=1.0)
        policy = turns("Please switch mobile data on.", refuel, "Does it work?")
        assert await play(row, policy, data, user={"url": url, "model": "m"}) == 1.0
    assert {entry["function"]["name"] for entry in requests[0]["tools"]} == set(Telecom.hands)
    messages = requests[3]["messages"][-4:]
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]
    assert messages[0]["tool_calls"] == [toggle] and messages[1]["tool_call_id"] == "c1"
    assert messages[1]["content"].startswith("mobile data: on") and messages[3]["content"].startswith("Error:")


DATA, MMS = (call(f"assert_{subject}", expected_status=True) for subject in ("mobile_data_status", "can_send_mms"))
FAST = call("assert_internet_speed", expected_speed=200)
EXCELLENT = call("assert_internet_speed", expected_speed=200, expected_desc="excellent")
MODE, SMS = "set_network_mode_preference", {"app_name": "messaging", "permission": "sms"}


def a_phone() -> Telecom:
    device = tomllib.loads(PHONE)["device"]
    return Telecom(Database({"phone": {"device": device, "surroundings": SURROUNDINGS}, "lines": {}}))


@pytest.mark.parametrize(
    ("broken", "repair", "assertion"),
    [
        (call("turn_airplane_mode_on"), call("toggle_airplane_mode"), DATA),
        (call("unseat_sim_card"), call("reseat_sim_card"), DATA),
        (call("break_vpn"), call("disconnect_vpn"), EXCELLENT),
        (call("turn_data_saver_mode_on"), call("toggle_data_saver_mode"), FAST),
        (call(MODE, mode="2g_only"), call(MODE, mode="4g_5g_preferred"), FAST),
        (call("set_wifi_calling", enabled=True, mms_over_wifi=True), call("toggle_wifi_calling"), MMS),
        (call("remove_app_permission", **SMS), call("grant_app_permission", **SMS), MMS),
    ],
    ids=lambda entry: entry["name"],
)
def test_a_fault_of_the_phone_and_its_repair(broken: Any, repair: Any, assertion: Any) -> None:
    phone = a_phone()
    phone.simulate_network_search()
    expected = {**assertion, "value": True}
    assert phone.holds(expected)
    phone.prepare(broken)
    assert not phone.holds(expected)
    phone.replay(repair)
    assert phone.holds(expected)


def test_reset_apn_settings_apply_after_a_reboot() -> None:
    phone = a_phone()
    phone.break_apn_mms_setting()
    can_send = {**MMS, "value": True}
    phone.replay(call("reset_apn_settings"))
    assert not phone.holds(can_send)
    phone.replay(call("reboot_device"))
    assert phone.holds(can_send)


async def test_the_scripted_customer_uses_the_tools_that_a_message_names() -> None:
    phone = a_phone()
    customer = ScriptedUser(Script(messages=("hi",), facts={}), phone.hand_tools())
    both = await customer.reply("Please toggle data saver mode, and then check SIM status.")
    assert both is not None and both.startswith("data saver mode: on") and both.endswith("SIM card: active")
    assert [name for name, _ in phone.carried_out] == ["toggle_data_saver_mode", "check_sim_status"]
    assert "Which mode do you mean: 4g_5g_preferred," in str(
        await customer.reply("Please set network mode preference.")
    )
    request = asking_for(call("grant_app_permission", app_name="messaging", permission="storage"))
    assert await customer.reply(request) == "messaging has the permission storage"
    assert await customer.reply("It is done.") is None


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (a_task(0, [before("explode")], [], [HAS_DATA]), "'explode'"),
        (a_task(0, [], [], [{**HAS_DATA, "func_name": "assert_joy"}]), "assertion"),
    ],
)
def test_a_task_with_an_unknown_function_is_refused(data: str, task: Any, says: str) -> None:
    (Path(data) / "telecom" / "tasks.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match=says):
        rows_of(data)


def test_one_payment_request_at_a_time_and_a_charge_opens_a_bill(data: str) -> None:
    world = WORLDS["telecom"]
    telecom = world.begin(world.tables(data), [])
    refuel = call("refuel_data", customer_id="C1", line_id="L1", gb_amount=1.5)
    telecom.replay(refuel)
    telecom.replay(refuel)
    (bill,) = telecom.database.records("bills")
    assert (bill["total_due"], bill["status"], len(bill["line_items"])) == (6.0, "Draft", 2)
    tools = {tool.name: tool for tool in telecom.tools()}
    request = {"customer_id": "C1", "bill_id": bill["bill_id"]}
    first, second = (asyncio.run(tools["send_payment_request"].call(request)) for _ in range(2))
    assert not first.is_error and "awaits its payment already" in second.content
