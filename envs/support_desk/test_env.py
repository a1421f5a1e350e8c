"""The support desk: customers, tools, the outcome, and what must not score."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from verl_agentic import (
    Action,
    ConfigError,
    DataError,
    EnvRow,
    Message,
    Reward,
    StopReason,
    ToolCall,
    Transcript,
    read_rows,
)
from verl_agentic.base.errors import EnvError
from verl_agentic.graders.components.tau_bench import tau_bench, tau_bench_reward
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.observe.success_over_attempts import pass_hat_k
from verl_agentic.rewards.sample import Sample, to_turns

from .database import Database
from .demos import demonstrator
from .domains import WORLDS
from .domains.retail import Retail
from .env import SupportDeskEnv, make_env
from .gold import gold, to_turn
from .rows import make_rows
from .scenario import Script
from .user import ModelUser, ScriptedUser
from .world import final_state

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
ROWS = [*EXAMPLES, *make_rows(split="test", count=30, seed=5)]


def row_of(kind: str) -> EnvRow:
    rows = make_rows(split="train", count=300, seed=0, requests=1)
    return next(row for row in rows if row.extra["kind"] == kind)


class Talk:
    """An episode that a test plays with a policy."""

    def __init__(self, row: EnvRow, **config: Any) -> None:
        self.row = row
        self.env: SupportDeskEnv = make_env(row, **config)
        self.messages: list[Message] = []
        self.actions: list[Action] = []
        self.stop: StopReason | None = None

    async def play(self, policy: Any, *, max_turns: int = 40) -> float:
        self.messages += await self.env.start()
        while self.stop is None and len(self.actions) < max_turns:
            turn = policy(self.messages)
            number = len(self.actions)
            self.actions.append(
                Action(turn=number, text=turn.content, content=turn.content, tool_calls=turn.tool_calls)
            )
            observation = await self.env.step(self.actions[-1])
            self.messages += [self.actions[-1].to_message(), *observation.messages]
            self.stop = observation.stop
        return (await self.reward()).outcome

    async def reward(self) -> Reward:
        stop = self.stop or StopReason.MAX_TURNS
        return await self.env.score(
            Transcript(messages=tuple(self.messages), actions=tuple(self.actions), stop_reason=stop)
        )


def turns(*steps: str | dict[str, Any]) -> Any:
    """Returns a policy that plays steps one after the other; the last one for ever."""

    def policy(messages: list[Message]) -> Message:
        step = steps[min(sum(message.role == "assistant" for message in messages), len(steps) - 1)]
        if isinstance(step, str):
            return Message("assistant", step)
        return Message("assistant", "", tool_calls=(ToolCall(step["name"], step["arguments"]),))

    return policy


def steps_of(row: EnvRow) -> list[Any]:
    return json.loads(row.extra["solution"])


# The outcome.


@pytest.mark.sample(6)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.extra["task_id"])
async def test_the_solution_scores_1_and_leaves_the_row_as_it_was(row: EnvRow) -> None:
    before = json.dumps(WORLDS[row.extra["domain"]].tables(), sort_keys=True)
    assert await Talk(row).play(gold(row)) == 1.0
    assert json.dumps(WORLDS[row.extra["domain"]].tables(), sort_keys=True) == before


@pytest.mark.parametrize(
    "steps",
    [
        ["I am sorry, I cannot do that."],
        [""],
        ["<think>I will do it</think>"],
        ["It is done."],
        ["What is your email, name, zip code or user id?", "Do you confirm?", "It is done. Anything else?"],
        [{"name": "transfer_to_human_agents", "arguments": {"summary": "no idea"}}],
    ],
    ids=["refuses", "silent", "only-thinks", "claims", "talks", "transfers"],
)
async def test_no_task_is_solved_without_work(steps: list[Any]) -> None:
    assert [await Talk(row).play(turns(*steps)) for row in ROWS] == [0.0] * len(ROWS)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["cancel", "address", "return", "exchange", "bags", "cabin"])
async def test_a_change_without_the_customers_yes_scores_0(kind: str) -> None:
    row = row_of(kind)
    talk = Talk(row)
    assert await talk.play(demonstrator(row, rng=random.Random(0), kind="unconfirmed")) == 0.0
    assert dict((await talk.reward()).info) == {"db_equal": 1.0, "outputs_said": 1.0, "unconfirmed_changes": 1.0}


async def test_a_change_that_the_policy_forbids_scores_0_though_the_tools_allow_it() -> None:
    late = row_of("refuse_return")
    order = json.loads(late.extra["solution"])[2]["arguments"]["order_id"]
    record = WORLDS["retail"].tables()["orders"][order]
    arguments = {
        "order_id": order,
        "item_ids": [record["items"][0]["item_id"]],
        "payment_method_id": record["payment_history"][0]["payment_method_id"],
    }
    taken_back = {"name": "return_delivered_order_items", "arguments": arguments}
    outputs = " ".join(json.loads(late.ground_truth)["outputs"])
    talk = Talk(late)
    assert await talk.play(turns(*steps_of(late)[:3], "Do you confirm?", taken_back, f"Done. {outputs}")) == 0.0
    assert not talk.messages[-2].is_error and (await talk.reward()).info["db_equal"] == 0.0
    fixed = row_of("refuse_cancel")
    assert fixed.extra["domain"] in WORLDS


async def test_a_right_change_of_another_order_or_one_change_more_scores_0() -> None:
    row = row_of("cancel")
    *steps, last = steps_of(row)
    other = next(
        key
        for key, order in WORLDS["retail"].tables()["orders"].items()
        if order["status"] == "pending" and key not in str(steps)
    )
    extra = {"name": "cancel_pending_order", "arguments": {"order_id": other, "reason": "no longer needed"}}
    if row.extra["domain"] == "airline":
        key = next(key for key in WORLDS["airline"].tables()["reservations"] if key not in str(steps))
        extra = {"name": "cancel_reservation", "arguments": {"reservation_id": key}}
    assert await Talk(row).play(turns(*steps, last)) == 1.0
    assert await Talk(row).play(turns(*steps, extra, last)) == 0.0
    assert await Talk(row).play(turns(*steps[:-1], extra, last)) == 0.0


async def test_what_must_be_said_must_be_said_to_the_customer() -> None:
    row = row_of("question")
    outputs = json.loads(row.ground_truth)["outputs"]
    looked_up = steps_of(row)[:3]
    assert await Talk(row).play(turns(*looked_up, f"{outputs[0]} and {outputs[1]}")) == 1.0
    assert await Talk(row).play(turns(*looked_up, f"<think>{outputs}</think> You paid {outputs[0]}")) == 0.0
    beside_a_call = replace(to_turn(looked_up[2]), content=f"{outputs}")
    replies = [*map(to_turn, looked_up[:2]), beside_a_call, to_turn("Done.")]
    assert await Talk(row).play(lambda messages: replies[sum(m.role == "assistant" for m in messages)]) == 0.0


# Policies without reasoning.

_ALL_DATES = ", ".join(f"2024-05-{day:02}" for day in range(1, 32))


def reads_all(say: Callable[[list[str]], list[str]]) -> Callable[[list[Message]], Message]:
    """Returns a policy that reads all records of the customer, and then says texts made of them; the last for ever."""

    def policy(messages: list[Message]) -> Message:
        user_texts = [message.content for message in messages if message.role == "user"]
        read = [message.content for message in messages if message.role == "tool"]
        num_turns = sum(message.role == "assistant" for message in messages)
        if num_turns == 0:
            return Message("assistant", "Please tell me your user id, or your email, or name and zip code.")
        names = re.findall(r"I am (\w+) (\w+), zip code (\d+)", user_texts[-1])
        if emails := re.findall(r"\S+@\S+\w", user_texts[-1]):
            first = ToolCall("find_user_id_by_email", {"email": emails[0]})
        elif names:
            first = ToolCall(
                "find_user_id_by_name_zip", dict(zip(("first_name", "last_name", "zip"), names[0], strict=True))
            )
        else:
            first = ToolCall("get_user_details", {"user_id": re.findall(r"\w+_\w+_\d+", user_texts[-1] + "a_b_1")[0]})
        user = ToolCall("get_user_details", {"user_id": (read or [""])[0]})
        calls = [first, user] if first.name != "get_user_details" else [first]
        if len(read) < len(calls):
            return Message("assistant", "", tool_calls=(calls[len(read)],))
        details = read[len(calls) - 1]
        keys = list(dict.fromkeys(re.findall(r"#W\d+|\b(?=\w*[A-Z])[A-Z0-9]{6}\b", details)))
        number = len(read) - len(calls)
        if number < len(keys):
            name, key = ("get_order_details", "order_id") if "#" in keys[number] else (
                "get_reservation_details", "reservation_id")  # fmt: skip
            return Message("assistant", "", tool_calls=(ToolCall(name, {key: keys[number]}),))
        texts = say(read)
        return Message("assistant", texts[min(num_turns - 1 - len(read), len(texts) - 1)])

    return policy


def _extract_values(read: list[str]) -> str:
    return " ".join(re.findall(r"\d{12}|20\d\d-\d\d-\d\d|processed|delivered|\d+\.\d\d", " ".join(read)))


_DUMPS: dict[str, Callable[[list[str]], list[str]]] = {
    "all in one reply": lambda read: ["\n".join(read)],
    "one reply per record": lambda read: [f"Please see: {text}" for text in read],
    "with a refusal": lambda read: ["I cannot do that. " + " ".join(read)],
    "a refusal, then all": lambda read: ["I cannot do that. Do you agree?", *(f"Please see {part}" for part in read)],
    "values only": lambda read: [f"Unfortunately not. {_extract_values(read)}"],
    "values without separators": lambda read: [f"I cannot. {_extract_values(read).replace(' ', '')}"],
    "values with commas": lambda read: [f"I cannot. {_extract_values(read).replace(' ', ',')}"],
    "a value per reply": lambda read: [f"I cannot, please see {part}?" for part in _extract_values(read).split()],
    "sorry": lambda read: ["sorry"],
    "all dates": lambda read: [f"I cannot do that. {_ALL_DATES} processed delivered"],
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", _DUMPS)
async def test_a_policy_that_passes_on_all_records_is_not_paid(name: str) -> None:
    # 29 of 100 rows were paid for the first one
    rows = make_rows(split="train", count=100, seed=0)
    paid = [row.extra["kind"] for row in rows if await Talk(row).play(reads_all(_DUMPS[name]), max_turns=60)]
    assert paid == []


async def test_the_policy_of_these_tests_reads_what_answers_need() -> None:
    rows = make_rows(split="train", count=100, seed=0)
    right = [row for row in rows if json.loads(row.ground_truth)["outputs"] and "refuse" in row.extra["kind"]]
    assert len(right) >= 20
    for row in right:
        outputs = json.loads(row.ground_truth)["outputs"]
        talk = Talk(row)
        await talk.play(reads_all(lambda read: ["sorry"]), max_turns=60)
        assert all(any(output in message.content for message in talk.messages) for output in outputs)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, I can't: the order is {0}. Its tracking number is {1}.",
        "Unfortunately, order {order} ({0}, tracking {1}) is no longer pending. Only pending orders can be cancelled.",
        "We won't be able to do it. Status: {0}; tracking: {1}; you paid {paid} for it.",
    ],
)
async def test_an_honest_refusal_is_paid_in_other_words(reply: str) -> None:
    row = row_of("refuse_cancel")
    if row.extra["domain"] != "retail":
        row = next(r for r in make_rows(split="train", count=300, seed=0, domain="retail", requests=1)
                   if r.extra["kind"] == "refuse_cancel")  # fmt: skip
    looks = steps_of(row)[:3]
    order = looks[2]["arguments"]["order_id"]
    paid = WORLDS["retail"].tables()["orders"][order]["payment_history"][0]["amount"]
    answer = reply.format(*json.loads(row.ground_truth)["outputs"], order=order, paid=f"{paid:.2f}")
    assert await Talk(row).play(turns(*looks, answer)) == 1.0


def test_the_component_reads_no_output_in_copies_and_long_replies() -> None:
    record = json.dumps({f"field {number}": f"value {number}" for number in range(20)})
    for reply in (record, f"See: {record.replace(' ', '')}", "x" * 2000 + " value 7"):
        assert tau_bench_reward(db_equal=True, outputs=["value 7"], replies=[reply], tool_outputs=[record]) == 0.0
    assert tau_bench_reward(db_equal=True, outputs=["value 7"], replies=["It is value 7."], tool_outputs=[record]) == 1


async def test_a_conversation_that_a_budget_ends_scores_0() -> None:
    row = EXAMPLES[0]
    assert await Talk(row).play(gold(row), max_turns=len(steps_of(row)) - 1) == 0.0


def test_the_reward_and_pass_hat_k_are_the_published_ones() -> None:
    # vectors.json, V-TAU
    cases = zip([True, True, False], ["10", "x", "10"], strict=True)
    assert [tau_bench_reward(db_equal=equal, outputs=["10"], replies=[reply]) for equal, reply in cases] == [
        1.0,
        0.0,
        0.0,
    ]
    assert [pass_hat_k(4, 3, k) for k in (1, 2, 3, 4)] == [0.75, 0.5, 0.25, 0.0]


@pytest.mark.parametrize("kind", ["careful", "curt", "refuses"])
async def test_the_component_computes_the_outcome_from_what_the_environment_reports(kind: Any) -> None:
    for row in ROWS[:8]:
        talk = Talk(row)
        outcome = await talk.play(demonstrator(row, rng=random.Random(0), kind=kind))
        sample = Sample(
            id="r",
            prompt=row.prompt,
            turns=to_turns(talk.messages[len(row.prompt) :], talk.actions),
            final_answer=talk.actions[-1].content,
            stop_reason=talk.stop or StopReason.MAX_TURNS,
            ground_truth=row.ground_truth,
            env=await talk.reward(),
        )
        assert tau_bench.make({})(sample) == outcome


# Rows.


def test_the_databases_are_generated_and_rows_are_about_different_customers() -> None:
    tables = WORLDS["retail"].tables()
    assert (len(tables["users"]), len(tables["orders"]), len(tables["products"])) == (120, 480, 8)
    train, test = (make_rows(split="train", count=100, seed=0), make_rows(split="test", count=100, seed=0))
    assert len({row.extra["script"] for row in train}) == 100
    users = [set(re.findall(r"[a-z]+_[a-z]+_\d{4}|\S+@example", str(rows))) for rows in (train, test)]
    assert len(users[0]) > 20 and len(users[1]) > 5 and not users[0] & users[1]


def test_rows_can_have_one_domain_and_a_number_of_requests() -> None:
    for count in (1, 2):
        rows = make_rows(split="train", count=20, seed=0, domain="retail", requests=count)
        assert {len(Script.read(row.extra["script"]).messages) for row in rows} == {count}
        assert {row.extra["domain"] for row in rows} == {"retail"}
    wrong: Any = {"domain": "bank"}
    with pytest.raises(ConfigError, match="'bank'"):
        make_rows(split="train", count=1, seed=0, **wrong)
    with pytest.raises(ConfigError, match="requests"):
        make_rows(split="train", count=1, seed=0, requests=3)


# Tools.


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("calculate", {"expression": "(2 + 3.5) * 2 / 4 - -1"}, "3.75"),
        ("calculate", {"expression": "9**9**9"}, "Error: the expression must have numbers"),
        ("calculate", {"expression": "__import__('os')"}, "Error: the expression must have numbers"),
        ("find_user_id_by_email", {"email": "nobody@example.com"}, "Error: user not found"),
        ("get_order_details", {"order_id": "#W0"}, "Error: order not found"),
        ("cancel_pending_order", {"order_id": "#W0", "reason": "I want to"}, "do not fit its schema"),
    ],
)
async def test_tools_explain_what_they_refuse(name: str, arguments: dict[str, Any], says: str) -> None:
    tools = {tool.name: tool for tool in Retail(Database(WORLDS["retail"].tables())).tools()}
    assert says in (await tools[name].call(arguments)).content


TABLES: Any = {
    "users": {
        "u": {
            "user_id": "u", "name": {"first_name": "A", "last_name": "B"}, "email": "a@b.c", "address": {"zip": "1"},
            "payment_methods": {"card": {"source": "credit_card"}, "gift": {"source": "gift_card", "balance": 5.0}},
        }
    },
    "products": {
        "p": {
            "product_id": "p", "name": "Cup",
            "variants": {
                "1": {"item_id": "1", "options": {"c": "red"}, "available": True, "price": 10.0},
                "2": {"item_id": "2", "options": {"c": "blue"}, "available": True, "price": 13.0},
                "3": {"item_id": "3", "options": {"c": "black"}, "available": False, "price": 13.0},
                "4": {"item_id": "4", "options": {"c": "gold"}, "available": True, "price": 99.0},
            },
        }
    },
    "orders": {
        status: {
            "order_id": status, "user_id": "u", "status": status, "address": {},
            "items": [{"item_id": "1", "product_id": "p", "price": 10.0, "options": {"c": "red"}, "name": "Cup"}],
            "payment_history": [{"transaction_type": "payment", "amount": 10.0, "payment_method_id": "gift"}],
        }
        for status in ("pending", "delivered")
    },
}  # fmt: skip


CANCEL, MODIFY, PAY = "cancel_pending_order", "modify_pending_order_items", "modify_pending_order_payment"
RETURN, EXCHANGE = "return_delivered_order_items", "exchange_delivered_order_items"
ONE = {"item_ids": ["1"]}


@pytest.mark.parametrize(
    ("name", "order", "payment", "arguments", "changed"),
    [
        (CANCEL, "pending", None, {"reason": "no longer needed"}, (15.0, "cancelled")),
        (CANCEL, "delivered", None, {"reason": "no longer needed"}, None),
        (MODIFY, "pending", "gift", {**ONE, "new_item_ids": ["2"]}, (2.0, "pending (item modified)")),
        (MODIFY, "pending", "gift", {**ONE, "new_item_ids": ["3"]}, None),
        (MODIFY, "pending", "gift", {**ONE, "new_item_ids": ["4"]}, None),
        (MODIFY, "pending", "card", {"item_ids": ["1", "1"], "new_item_ids": ["2", "2"]}, None),
        (PAY, "pending", "card", {}, (15.0, "pending")),
        (PAY, "pending", "gift", {}, None),
        (RETURN, "delivered", "gift", ONE, (5.0, "return requested")),
        (RETURN, "delivered", "card", ONE, None),
        (EXCHANGE, "delivered", "card", {**ONE, "new_item_ids": ["2"]}, (5.0, "exchange requested")),
        (EXCHANGE, "delivered", "card", {**ONE, "new_item_ids": []}, None),
    ],
)
def test_changes_follow_the_rules_of_tau2(
    name: str, order: str, payment: str | None, arguments: dict[str, Any], changed: tuple[float, str] | None
) -> None:
    paid = {} if payment is None else {"payment_method_id": payment}
    action = {"name": name, "arguments": {"order_id": order, **paid, **arguments}}
    changes = final_state(WORLDS["retail"], TABLES, actions=[action]).database.changes()
    if changed is None:
        assert not changes
        return
    user: Any = changes.get(("users", "u"), TABLES["users"]["u"])
    assert (user["payment_methods"]["gift"]["balance"], changes["orders", order]["status"]) == changed


async def test_siblings_do_not_see_each_others_changes() -> None:
    row = row_of("cancel")
    first, second = Talk(row), Talk(row)
    assert await first.play(gold(row)) == 1.0
    assert second.env.state_key() == "[]" != first.env.state_key()
    assert await second.play(gold(row)) == 1.0


# Customers.


async def test_the_scripted_customer_answers_questions_confirms_and_then_goes_on() -> None:
    user = ScriptedUser(Script(messages=("cancel it", "and send it"), facts={"e-?mail": "a@b.c", "why": "broken"}))
    assert await user.open() == "cancel it"
    assert await user.reply("Your email and why?") == "a@b.c broken"
    assert await user.reply("I will cancel it. Do you confirm?") == "Yes, please go ahead."
    assert await user.reply("It is cancelled. Is there anything else? An email follows.") == "and send it"
    assert await user.reply("It is sent.") is None


async def test_the_scripted_customer_leaves_a_silent_desk() -> None:
    user = ScriptedUser(Script(messages=("hi",), facts={}))
    assert [await user.reply(" ") for _ in range(3)] == ["Are you still there?", "Are you still there?", None]


@contextmanager
def endpoint(*answers: str | list[Any] | dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Serves an OpenAI-compatible endpoint with fixed texts or calls, and yields its URL and the requests it got."""
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = answers[min(len(requests), len(answers)) - 1]
            message = {"content": answer} if isinstance(answer, str) else {"content": None, "tool_calls": answer}
            choice = answer if isinstance(answer, dict) else {"message": message}
            body = json.dumps({"choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_language_model_plays_the_customer_from_the_scenario() -> None:
    row = row_of("question")
    outputs = json.loads(row.ground_truth)["outputs"]
    with endpoint("Hello, it is about my order.", "My email is a@b.c", "Thanks! ###STOP###") as (url, requests):
        talk = Talk(row, user={"url": url, "model": "m", "temperature": 0.5})
        assert await talk.play(turns("Your email?", f"You paid {outputs[0]}, and {outputs[1]}.")) == 1.0
    assert talk.messages[1].content == "Hello, it is about my order."
    last = requests[-1]
    assert (last["model"], last["temperature"], len(requests)) == ("m", 0.5, 3)
    assert [message["role"] for message in last["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert row.extra["scenario"] in last["messages"][0]["content"] and last["messages"][3]["content"] == "Your email?"


@pytest.mark.parametrize(
    "form",
    [
        "<think>{}</think>\nI want a refund.",
        "{}</think>I want a refund.",
        "<think>a<think>{}</think>b ###STOP###</think>I want a refund.",
        "[THINK]{}[/THINK]I want a refund.",
        "I want <think>{}</think>a refund.",
        "I want a refund. <think>{}",
    ],
)
async def test_thoughts_of_a_customer_reach_nobody(form: str) -> None:
    secret = "I would accept a voucher."
    text = form.format(secret)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with endpoint(text, text, {"message": {"content": text, "tool_calls": [call]}}, text) as (url, requests):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        messages = [await user.open(), await user.reply("What?"), await user.reply("Why?")]
    assert messages == ["I want a refund."] * 3
    assert secret not in json.dumps(requests)


@pytest.mark.parametrize(
    "marker", ["###STOP###", "###stop###", "### STOP ###", "**###STOP###**", "\nSTOP", "\n[STOP]", "###TRANSFER###",
               "###Transfer###", "\n### stop", "###OUT-OF-SCOPE###", "### out of scope ###", "###OUT_OF_SCOPE###"]
)  # fmt: skip
async def test_text_beside_a_stop_marker_is_delivered_and_the_next_reply_ends_the_talk(marker: str) -> None:
    with endpoint("Hi", f"Yes, go ahead and cancel it. {marker}", marker) as (url, requests):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        await user.open()
        assert str(await user.reply("Shall I cancel order 7?")).strip("* ") == "Yes, go ahead and cancel it."
        assert user.is_leaving and await user.reply("It is cancelled.") is None and len(requests) == 2
    with endpoint("Hi", marker.strip()) as (url, _):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        await user.open()
        assert await user.reply("Anything else?") is None


@pytest.mark.parametrize(
    "text",
    ["Please stop the order.", "STOP doing this!", "Stop.", "STOP!", "STOP?", "I want to transfer 10 #2",
     "order #77 stop #78", "Can you STOP order #77?", "Yes, STOP it, please", "That is out of scope.", "# 1 transfer",
     "1. Stop\n2. Go"],
)  # fmt: skip
async def test_a_customer_may_speak_of_stops_and_transfers(text: str) -> None:
    with endpoint("Hi", text) as (url, _):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        await user.open()
        assert (await user.reply("Yes?"), user.is_leaving) == (text, False)


async def test_a_consent_beside_a_stop_marker_counts_and_is_counted() -> None:
    row = row_of("cancel")
    with endpoint("Hi", "Yes, go ahead. ###STOP###") as (url, _):
        talk = Talk(row, user={"url": url, "model": "m"})
        await talk.env.start()
        action = Action(turn=0, text="May I?", content="May I?", tool_calls=())
        consent = await talk.env.step(action)
        assert [message.content for message in consent.messages] == ["Yes, go ahead."] and consent.stop is None
        assert consent.info["user_stops_with_text"] == 1.0
        assert (await talk.env.step(action)).stop is StopReason.ENV_DONE


@pytest.mark.parametrize("message", [{"content": None, "reasoning_content": "Hm"}, {"content": "I want to canc"}])
async def test_a_customer_who_is_cut_says_what_to_raise(message: dict[str, Any]) -> None:
    cut = {"message": message, "finish_reason": "length"}
    with endpoint("Hi", cut) as (url, _):
        user = ModelUser("s", ChatModel(url=url, model="m", max_tokens=9))
        await user.open()
        with pytest.raises(DataError, match="max_tokens"):
            await user.reply("Tell me all.")
    with endpoint(cut) as (url, _), pytest.raises(EnvError, match="max_tokens"):
        await ModelUser("s", ChatModel(url=url, model="m", max_tokens=9)).open()


LOOK = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    "text", ["<think>", "<think>Hm</think>", "Hm</think>", " ", {"message": {"content": "", "tool_calls": [LOOK]}}]
)
async def test_a_customer_whom_the_desk_silences_does_not_void_the_episode(text: Any) -> None:
    with endpoint("Hi", *[text] * 20) as (url, _):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        await user.open()
        with pytest.raises(DataError, match="must write a message"):
            await user.reply("Write <think> and nothing else.")


@pytest.mark.parametrize("text", ["\U0001f44d", "...", "?", "\u2705"])
async def test_a_customer_may_answer_without_words(text: str) -> None:
    with endpoint("Hi", text, f"{text} ###STOP###") as (url, _):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        await user.open()
        assert (await user.reply("Shall I?"), user.is_leaving) == (text, False)
        assert await user.reply("Shall I?") == (None if text in "...?" else text)


async def test_a_customer_who_leaves_before_the_talk_is_a_failure_of_the_environment() -> None:
    with endpoint("###STOP###") as (url, _), pytest.raises(EnvError, match="open"):
        await ModelUser("s", ChatModel(url=url, model="m")).open()


async def test_a_customer_who_cannot_be_reached_is_a_failure_of_the_environment() -> None:
    with endpoint(" ") as (url, _):
        user = ModelUser("s", ChatModel(url=url, model="m"))
        with pytest.raises(EnvError, match="empty"):
            await user.open()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"user": {"url": "h:1/v1", "model": "m"}}, "begins with http"),
        ({"user": {"model": "m"}}, "'url'"),
        ({"user": {"url": "http://h/v1", "model": "m", "colour": 1}}, "colour"),
        ({"data": "/none"}, "tau2"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(EXAMPLES[0], **config)


def test_a_malformed_row_is_refused() -> None:
    row = EXAMPLES[0]
    for broken in ('{"actions": [{"name": 1}], "outputs": []}', "{}", '{"actions": [], "outputs": [3]}'):
        with pytest.raises(DataError):
            make_env(replace(row, ground_truth=broken))
    with pytest.raises(DataError, match="facts"):
        make_env(replace(row, extra={**row.extra, "script": "{}"}))
    with pytest.raises(ConfigError, match="domain"):
        make_env(replace(row, extra={**row.extra, "domain": "bank"}))
