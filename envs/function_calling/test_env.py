"""function_calling validated: the expected calls score 1, everything else 0, and imported files mean what they say."""

from __future__ import annotations

import itertools
import json
import logging
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import (
    Action,
    ConfigError,
    DataError,
    EnvRow,
    EpisodeLimits,
    Message,
    ToolCall,
    Transcript,
    read_rows,
    run_episode,
    scripted,
)
from verl_agentic.base.tools.schema_check import argument_schema
from verl_agentic.cpu.testing import tiny_codecs

from . import rows
from .answers import TOPICS, asks_for, refuses, says_something
from .apis import APIS, CHAINS, INTENTS
from .bfcl import from_bfcl
from .env import FunctionRow, make_env
from .gold import gold
from .match import ExpectedCall, MadeCall, canonical, same_calls
from .rows import CASES, make_rows
from .toolrl import from_toolrl

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
WEATHER = APIS["get_forecast"].schema
PARIS = {"name": "get_forecast", "arguments": {"city": "Paris", "days": 3}}
ROME = {"name": "get_forecast", "arguments": {"city": "Rome"}}
Policy = Callable[[Sequence[Message]], Message]


def row(
    *calls: dict[str, Any],
    tools: Sequence[Any] = (WEATHER,),
    case: str = "multiple",
    as_text: bool = True,
    **extra: Any,
) -> EnvRow:
    dump: Callable[[Any], Any] = json.dumps if as_text else list
    return EnvRow(
        prompt=(Message("user", "How is the weather?"),),
        ground_truth=dump(calls),
        extra={"task_id": "t", "case": case, "tools": dump(tools), **extra},
    )


def turn(*calls: dict[str, Any], say: str = "") -> Message:
    return Message("assistant", say, tool_calls=tuple(ToolCall(c["name"], c["arguments"]) for c in calls))


async def play(task: EnvRow, *turns: Message, policy: Policy | None = None, **config: Any) -> tuple[float, list[str]]:
    """Returns the outcome, and what the tools answered."""
    script = iter(turns)
    env = make_env(task, **config)
    messages, actions, stop = list(await env.start()), [], None
    while stop is None:
        message = policy(messages) if policy else next(script)
        actions.append(
            Action(turn=len(actions), text=message.content, content=message.content, tool_calls=message.tool_calls)
        )
        observation = await env.step(actions[-1])
        messages += [message, *observation.messages]
        stop = observation.stop
    reward = await env.score(Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=stop))
    await env.close()
    return reward.outcome, [message.content for message in messages if message.role == "tool"]


# Rows and their solution


@pytest.mark.sample(1)
@pytest.mark.parametrize("split", ["train", "test"])
async def test_the_gold_policy_scores_1_on_every_row_and_echo_and_silence_0(split: Any) -> None:
    for task in make_rows(split=split, count=140, seed=3):
        assert (await play(task, policy=gold(task)))[0] == 1.0, task
        assert (await play(task, policy=lambda messages: turn(say=messages[-1].content)))[0] == 0.0
        assert (await play(task, policy=lambda messages: turn(say="")))[0] == 0.0


LIMITS = EpisodeLimits(max_response_tokens=4000, max_context_tokens=12_000, max_turns=4)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"))
    return tokenizer, codecs["chat"]


@pytest.mark.parametrize("task", EXAMPLES, ids=lambda task: task.extra["case"])
async def test_the_gold_policy_solves_every_example_through_the_loop(chat: Any, task: EnvRow) -> None:
    tokenizer, codec = chat
    episode = await run_episode(
        task,
        make_env=make_env,
        setup=scripted(gold(task), codec=codec, tokenizer=tokenizer, limits=LIMITS),
        request_id="r",
    )
    assert episode.error is None and episode.reward.outcome == 1.0
    assert episode.numbers()["tool_errors"] == 0.0


@pytest.mark.slow
def test_rows_are_repeatable_different_and_of_every_case() -> None:
    rows = make_rows(split="train", count=210, seed=1)
    assert rows == make_rows(split="train", count=210, seed=1) != make_rows(split="train", count=210, seed=2)
    assert len({task.prompt[-1].content for task in rows}) == 210
    assert [task.extra["case"] for task in rows] == [CASES[i % 7] for i in range(210)]


@pytest.mark.slow
def test_the_splits_share_no_request_no_wording_and_no_name() -> None:
    requests = {
        s: {task.prompt[-1].content for task in make_rows(split=s, count=300, seed=1)} for s in ("train", "test")
    }
    assert not requests["train"] & requests["test"]
    for intent in (*INTENTS, *CHAINS):
        assert not set(intent.train) & set(intent.test)
    cities = {s: {a["city"] for a in _collect_arguments(s, "get_forecast")} for s in ("train", "test")}
    assert len(cities["train"]) > 5 and len(cities["test"]) > 5 and not cities["train"] & cities["test"]


def _collect_arguments(split: Any, tool: str) -> list[dict[str, Any]]:
    rows = make_rows(split=split, count=400, seed=5, cases=["multiple", "parallel"])
    return [c["arguments"] for task in rows for c in json.loads(task.ground_truth) if c["name"] == tool]


def test_every_expected_call_fits_its_schema_and_says_what_the_request_says() -> None:
    for task in make_rows(split="train", count=350, seed=2):
        read = FunctionRow.read(task)
        for call in read.expected:
            assert not read.schemas[call.name].mismatches(call.arguments)
        if read.case in ("single", "multiple", "parallel", "parallel_multiple"):
            for value in _collect_leaves([call.arguments for call in read.expected]):
                # What is not said in so many words: the kind of an order's shipping, flags, "shuffled".
                if not isinstance(value, bool) and not str(value).startswith(("express", "Mill Road")):
                    assert (
                        f"{value:g}" in task.prompt[-1].content
                        if isinstance(value, float)
                        else (str(value) in task.prompt[-1].content)
                    ), (task.prompt[-1].content, value)


def _collect_leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in _collect_leaves(item)] if isinstance(value, list) else [value]


def test_a_missing_parameter_is_one_that_the_schema_requires() -> None:
    fields = lambda text: {name for _, name, _, _ in string.Formatter().parse(text) if name}  # noqa: E731
    for intent in INTENTS:
        for topic, wordings in intent.without.items():
            assert topic in TOPICS
            whole = [fields(text) for text in (*intent.train, *intent.test)]
            for wording in wordings:
                assert all(len(needed - fields(wording)) == 1 and fields(wording) < needed for needed in whole)
    for task in make_rows(split="test", count=60, seed=0, cases=["missing_parameter"]):
        assert FunctionRow.read(task).asks in TOPICS


def test_no_tool_of_a_missing_function_row_is_from_the_domain_of_the_request() -> None:
    for task in make_rows(split="train", count=60, seed=0, cases=["missing_function"]):
        assert json.loads(task.ground_truth) == [] and len(json.loads(task.extra["tools"])) == 4
        if "calendar" in task.prompt[-1].content:
            names = [tool["function"]["name"] for tool in json.loads(task.extra["tools"])]
            assert not {"create_event", "find_free_slot", "cancel_event"} & set(names)


def test_the_policy_sees_the_schemas_as_the_row_gives_them() -> None:
    for task in make_rows(split="test", count=14, seed=4):
        assert [tool.schema for tool in make_env(task).tools] == json.loads(task.extra["tools"])


def test_the_schemas_use_all_of_json_schema_that_real_tools_use() -> None:
    words = json.dumps([api.schema for api in APIS.values()])
    for keyword in ("anyOf", "enum", "default", "items", "pattern", "minItems", "maximum", '"object"', '"null"'):
        assert keyword in words
    assert len(APIS) >= 25


def test_impossible_wishes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="got 'dev'"):
        make_rows(split="dev", count=1, seed=0)  # type: ignore[arg-type]
    # Two names, twelve orders of two or three artists, two rooms: 48 requests.
    monkeypatch.setattr(rows, "CHAINS", [chain for chain in CHAINS if "playlist" in chain.train[0]])
    assert len(make_rows(split="test", count=40, seed=0, cases=["sequential"])) == 40
    with pytest.raises(ConfigError, match="count=49"):
        make_rows(split="test", count=49, seed=0, cases=["sequential"])


# Scoring


@pytest.mark.parametrize(
    ("calls", "outcome"),
    [
        ([PARIS, ROME], 1.0),
        ([ROME, PARIS], 1.0),
        ([{**ROME, "arguments": {"city": "Rome", "days": 1, "unit": "celsius"}}, PARIS], 1.0),
        ([{**PARIS, "arguments": {"days": 3.0, "city": "Paris"}}, ROME], 1.0),
        ([PARIS], 0.0),
        ([PARIS, ROME, ROME], 0.0),
        ([PARIS, {**ROME, "arguments": {"city": "rome"}}], 0.0),
        ([PARIS, {**ROME, "arguments": {"city": "Rome", "days": 2}}], 0.0),
        ([], 0.0),
    ],
    ids=["same", "swapped", "defaults", "1-is-1.0", "one-too-few", "one-too-many", "case", "extra-value", "none"],
)
@pytest.mark.parametrize("as_text", [True, False])
async def test_the_multiset_of_calls_must_be_the_expected_one(calls: Any, outcome: float, as_text: bool) -> None:
    task = row(PARIS, ROME, as_text=as_text)
    in_one_turn, one_by_one = [turn(*calls)] if calls else [], [turn(call) for call in calls]
    for turns in (in_one_turn, one_by_one):
        assert (await play(task, *turns, turn(say="done")))[0] == outcome


async def test_the_order_counts_where_the_row_says_so() -> None:
    task = row(PARIS, ROME, case="sequential")
    assert (await play(task, turn(PARIS), turn(ROME), turn()))[0] == 1.0
    assert (await play(task, turn(ROME), turn(PARIS), turn()))[0] == 0.0


@pytest.mark.parametrize(
    ("value", "says"),
    [(float("inf"), "expected a finite number, got Infinity"), (10**400, "cannot work with values that large")],
)
async def test_no_value_makes_the_environment_fail(value: Any, says: str) -> None:
    mass = {"name": "convert_mass", "arguments": {"value": value, "from_unit": "gram", "to_unit": "ounce"}}
    deep: Any = {}
    for _ in range(900):
        deep = {"x": deep}
    anything = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    task = row(PARIS, tools=[WEATHER, APIS["convert_mass"].schema, anything])
    outcome, answers = await play(task, turn(mass, {"name": "f", "arguments": deep}), turn(PARIS), turn())
    assert outcome == 1.0 and says in answers[0] and "values that large" in answers[1]


@pytest.mark.parametrize(("mode", "outcome"), [("ignored", 1.0), ("wrong", 0.0)])
async def test_a_call_that_was_refused_and_put_right_counts_only_when_asked_for(mode: Any, outcome: float) -> None:
    bad = {"name": "get_forecast", "arguments": {"city": "Paris", "days": "three"}}
    unknown = {"name": "forecast", "arguments": {}}
    score, answers = await play(row(PARIS), turn(bad, unknown), turn(PARIS), turn(), rejected_calls=mode)
    assert score == outcome
    assert answers[0] == (
        "Error: the arguments of 'get_forecast' do not fit its schema\n- $.days: expected integer, got \"three\""
    )
    assert answers[1].startswith("Error: unknown tool 'forecast'") and json.loads(answers[2])["city"] == "Paris"


@pytest.mark.parametrize(
    ("say", "outcome"),
    [
        ("I'm afraid I can’t do that with my tools.", 1.0),
        ("None of the tools fits.", 1.0),
        ("There is no suitable tool for it.", 1.0),
        ("It will be sunny.", 0.0),
        ("I cannot do that. Which city?", 0.0),
        ("How is the weather?", 0.0),
        ("", 0.0),
    ],
)
async def test_without_a_fitting_tool_the_answer_must_say_so(say: str, outcome: float) -> None:
    task = row(case="missing_function")
    assert (await play(task, turn(say=say)))[0] == outcome
    assert (await play(task, turn(PARIS), turn(say=say)))[0] == 0.0
    assert (await play(task, turn({"name": "no_tool", "arguments": {}}), turn(say=say)))[0] == 0.0


@pytest.mark.parametrize(
    ("say", "outcome"),
    [
        ("Which city do you mean?", 1.0),
        ("Happy to help! Where are you?", 1.0),
        ("Which date do you mean?", 0.0),
        ("Tell me the city.", 0.0),
        ("Which city, date, time, amount, name, path and text?", 0.0),
        ("I cannot do that.", 0.0),
    ],
)
async def test_a_missing_value_must_be_asked_for_by_what_it_is(say: str, outcome: float) -> None:
    task = row(case="missing_parameter", asks="place")
    assert (await play(task, turn(say=say)))[0] == outcome
    assert (await play(task, turn(ROME), turn(say=say)))[0] == 0.0


def test_what_only_repeats_the_prompt_says_nothing() -> None:
    prompt = ["None of the tools fits. Which city?", "Hello"]
    assert not refuses("none of  the tools fits. which city? hello", prompt=prompt)
    assert not asks_for("place", "None of the tools fits. Which city?", prompt=prompt)
    assert not says_something(" Hello ", prompt=prompt) and says_something("Hello you", prompt=prompt)
    assert not refuses("I cannot " + "word " * 60, prompt=[])


def test_only_alternatives_and_optional_values_may_differ() -> None:
    schema = argument_schema({"type": "object", "properties": {"unit": {"type": "string", "default": "c"}}})
    call = ExpectedCall.from_json(
        {
            "name": "f",
            "arguments": {"city": "NYC", "unit": "f"},
            "alternatives": {"city": ["New York"]},
            "optional": ["unit"],
        }
    )
    for arguments, is_right in [
        ({"city": "New York"}, True),
        ({"city": "NYC", "unit": "f"}, True),
        ({"city": "NYC", "unit": "c"}, False),
        ({"unit": "f"}, False),
        ({"city": "NYC", "note": 1}, False),
    ]:
        actual = MadeCall(name="f", arguments=arguments)
        assert call.is_made_by(actual, schema=schema, strings="exact") is is_right, arguments


def test_calls_with_alternatives_are_matched_one_to_one() -> None:
    schemas = {"f": argument_schema({"type": "object"})}
    expected = [
        ExpectedCall(name="f", arguments={"x": 1}, alternatives={"x": [2]}),
        ExpectedCall(name="f", arguments={"x": 1}),
    ]
    for xs in itertools.product([1, 2], repeat=2):
        calls = [MadeCall(name="f", arguments={"x": x}) for x in xs]
        # The second expected call takes only a 1, so that two 2s cannot both have one.
        assert same_calls(calls, expected, schemas=schemas, is_ordered=False) is (xs != (2, 2))
    assert not same_calls(
        [MadeCall(name="g", arguments={})], [ExpectedCall(name="g", arguments={})], schemas={}, is_ordered=False
    )


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}, True),
        ([1, 2], [2, 1], False),
        ("a", "A", False),
        (None, "null", False),
    ],
)
def test_values_are_the_same_when_their_json_is(left: Any, right: Any, same: bool) -> None:
    assert (canonical(left) == canonical(right)) is same


def test_lenient_texts_have_no_case_no_spaces_and_no_punctuation() -> None:
    assert canonical("New York, NY.", strings="lenient") == canonical("new-york ny", strings="lenient")
    assert canonical("it's", strings="lenient") == canonical('it"s', strings="lenient")
    assert canonical("Paris", strings="lenient") != canonical("Rome", strings="lenient")


async def test_equal_calls_are_answered_equally_and_a_tool_of_the_same_name_only_gives_a_receipt() -> None:
    _, first = await play(
        row(PARIS), turn(PARIS, {**PARIS, "arguments": {"days": 3, "city": "Paris", "unit": "celsius"}}), turn()
    )
    assert first[0] == first[1] and len(json.loads(first[0])["forecast"]) == 3
    other = {"type": "function", "function": {"name": "get_forecast", "parameters": {"type": "object"}}}
    _, (answer,) = await play(row(ROME, tools=[other]), turn(ROME), turn())
    assert set(json.loads(answer)) == {"status", "result_id"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"case": "many"}, "case is one of"),
        ({"tools": "[oops"}, "tools must be a list"),
        ({"tools": [{"name": "f"}]}, "a tool must be"),
        ({"case": "missing_function"}, "must fit the case"),
        ({"asks": "place"}, "asks must be one of"),
        (
            {"tools": json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"type": "dict"}}}])},
            "not a JSON schema",
        ),
    ],
)
def test_a_row_that_is_none_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    task = row(PARIS)
    with pytest.raises(DataError, match=rf"row 't': .*{says}"):
        make_env(replace(task, extra={**task.extra, **change}))


def test_an_expected_call_has_no_other_keys_and_options_no_other_values() -> None:
    with pytest.raises(DataError, match="expected call"):
        make_env(row({"name": "get_forecast", "arguments": {}, "parameters": {}}))
    with pytest.raises(ConfigError, match="rejected_calls"):
        make_env(row(PARIS), rejected_calls="perhaps")  # type: ignore[arg-type]


# Imported files

PLAY = {
    "name": "music.play",
    "description": "Plays a song.",
    "parameters": {
        "type": "dict",
        "properties": {
            "song": {"type": "string"},
            "seconds": {"type": "float", "default": 30.0},
            "speakers": {"type": "tuple", "items": {"type": "dict", "properties": {"room": {"type": "string"}}}},
            "type": {"type": "any"},
        },
        "required": ["song"],
    },
}


def write(path: Path, *records: dict[str, Any], as_list: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(records) if as_list else "\n".join(map(json.dumps, records)), encoding="utf-8")
    return path


def question(name: str, *, turns: int = 1) -> dict[str, Any]:
    return {"id": name, "question": [[{"role": "user", "content": "Play it."}]] * turns, "function": [PLAY]}


def bfcl(folder: Path, *answers: dict[str, Any], name: str = "simple_0") -> list[EnvRow]:
    path = write(folder / "BFCL_v4_simple.json", question(name))
    write(folder / "possible_answer" / path.name, {"id": name, "ground_truth": list(answers)})
    return from_bfcl(path)


async def test_a_bfcl_row_takes_every_value_that_its_answer_lists(tmp_path: Path) -> None:
    rooms = [[{"room": ["Kitchen", ""]}], []]
    (task,) = bfcl(tmp_path, {"music.play": {"song": ["Hey Jude", "Jude"], "seconds": [15, ""], "speakers": rooms}})
    assert task.extra["case"] == "single" and task.prompt[0].role == "system" and task.data_source == "bfcl"
    schema = json.loads(task.extra["tools"])[0]["function"]["parameters"]
    assert schema["type"] == "object" and schema["properties"]["seconds"] == {"type": "number", "default": 30.0}
    assert schema["properties"]["speakers"]["items"]["type"] == "object" and schema["properties"]["type"] == {}
    assert (await play(task, policy=gold(task)))[0] == 1.0
    for arguments, outcome in [
        ({"song": "hey  jude", "speakers": []}, 1.0),
        ({"song": "Jude", "seconds": 15.0, "speakers": [{"room": "kitchen"}]}, 1.0),
        ({"song": "Jude", "speakers": [{}]}, 1.0),
        ({"song": "Jude", "seconds": 16, "speakers": []}, 0.0),
        ({"song": "Jude"}, 0.0),
        ({"song": "Let it be", "speakers": []}, 0.0),
    ]:
        call = {"name": "music.play", "arguments": arguments}
        assert (await play(task, turn(call), turn()))[0] == outcome, arguments


@pytest.mark.parametrize(
    ("acceptable", "right", "wrong"),
    [
        (["Jude", "", None], ["Jude", None], [3, "Prudence"]),
        ([None], [None], ["Jude"]),
        (["Jude", 3], ["Jude", 3], [4, None]),
        (["Jude", {"title": ["Jude", ""]}], [{"title": "Jude"}, {}], [{"title": "Prudence"}]),
    ],
)
async def test_a_bfcl_parameter_takes_acceptable_values_of_other_types(
    tmp_path: Path, acceptable: list[Any], right: list[Any], wrong: list[Any]
) -> None:
    (task,) = bfcl(tmp_path, {"music.play": {"song": acceptable, "seconds": [15, ""], "speakers": [[], ""]}})
    for song, outcome in [*((song, 1.0) for song in right), *((song, 0.0) for song in wrong)]:
        call = {"name": "music.play", "arguments": {"song": song}}
        assert (await play(task, turn(call), turn()))[0] == outcome, song
    assert "Jude" not in task.extra["tools"], "the policy is not shown what is right"
    assert (await play(task, policy=gold(task)))[0] == 1.0


async def test_a_bfcl_irrelevance_row_wants_any_answer_and_no_call(tmp_path: Path) -> None:
    (task,) = from_bfcl(write(tmp_path / "BFCL_v4_irrelevance.json", question("irrelevance_0"), as_list=True))
    assert task.extra["case"] == "irrelevance" and (await play(task, policy=gold(task)))[0] == 1.0
    assert (await play(task, turn(say="It is 42.")))[0] == 1.0
    assert (await play(task, turn({"name": "music.play", "arguments": {"song": "x"}}), turn(say="It is 42.")))[0] == 0.0


def test_several_bfcl_calls_are_a_parallel_row(tmp_path: Path) -> None:
    (task,) = bfcl(tmp_path, {"music.play": {"song": ["a"]}}, {"music.play": {"song": ["b"]}})
    assert task.extra["case"] == "parallel" and len(json.loads(task.ground_truth)) == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"music.stop": {}}, "calls 'music.stop'"),
        ({"music.play": {"song": []}}, "must have an acceptable value"),
        (
            {"music.play": {"song": [3]}},
            r"expected call .* does not fit its schema, got \$.song: expected string, got 3",
        ),
        ("music.play(song='a')", "an answer must be"),
    ],
)
def test_a_bfcl_answer_that_does_not_fit_is_told_with_file_and_record(tmp_path: Path, answer: Any, says: str) -> None:
    with pytest.raises(DataError, match=rf"BFCL_v4_simple.json, record 0: .*{says}"):
        bfcl(tmp_path, answer)


def test_what_bfcl_cannot_give_here_is_refused_or_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(
        tmp_path / "q.json", question("irrelevance_1"), question("multi_turn_0", turns=2), question("simple_1")
    )
    with pytest.raises(DataError, match="only one turn"):
        from_bfcl(path)
    with caplog.at_level(logging.WARNING):
        assert len(from_bfcl(path, skip_bad_records=True)) == 1
    assert "left out 2 of 3 records" in caplog.text
    with pytest.raises(DataError, match="simple_1"):
        from_bfcl(write(tmp_path / "p.json", question("simple_1")), skip_bad_records=True)
    with pytest.raises(DataError, match="syntax of Java"):
        bfcl(tmp_path, {"music.play": {"song": ["a"]}}, name="simple_java_0")
    with pytest.raises(DataError, match="no answers found"):
        from_bfcl(path, answers=tmp_path / "nothing.json")
    with pytest.raises(DataError, match="no such data file"):
        from_bfcl(tmp_path / "nothing.json")


INSTRUCTION = """You are an assistant.

**Available Tools**
In your response, you can use the following tools:
1. Name: Get News
Description: Finds news.
By topic.
Parameters: {"topic": {"description": "What about.", "type": "str", "default": ""}, "page": PAGE}
2. Name: rotate
Description: Rotates a list.
Parameters: {"xs": {"description": "The list.", "type": "List[int]", "default": ""}}

**Steps for Each Turn**
""".replace("PAGE", '{"description": "Page.", "type": "int, optional", "default": 1}')
DIALOGUE = """**Dialogue Records History**
<user> News about rain? </user>

<think> Two pages. </think>
<tool_call>
{"name": "Get News", "parameters": {"topic": "rain"}}
{"name": "Get News", "parameters": {"topic": "rain", "page": 2}}
</tool_call>
<obs> [{"name": "Get News", "results": {"n": 1}}, {"name": "Get News", "results": {"n": 2}}] </obs>

<response> There are three. </response>
<user> And about snow, page 2? </user>
"""
CALLED = """<think> A <tool_call> is due. </think>
<tool_call>
{"name": "Get News", "parameters": {"topic": "snow", "page": "2"}}
</tool_call>"""


def toolrl(folder: Path, output: str, *, dialogue: str = DIALOGUE) -> EnvRow:
    record = {"instruction": INSTRUCTION, "input": dialogue, "output": output}
    return from_toolrl(write(folder / "rlla.json", record, as_list=True))[0]


async def test_a_toolrl_row_has_the_dialogue_as_messages_and_the_tools_as_schemas(tmp_path: Path) -> None:
    task = toolrl(tmp_path, CALLED)
    assert [m.role for m in task.prompt] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert task.prompt[2].tool_calls[1].arguments == {"topic": "rain", "page": 2}
    assert (task.prompt[4].content, task.prompt[4].name, task.prompt[4].call_id) == ('{"n": 2}', "Get News", "call_1")
    news, rotate = (tool["function"] for tool in json.loads(task.extra["tools"]))
    assert news["description"] == "Finds news.\nBy topic."
    # The page is a text in the expected call, so that its declared type is dropped.
    assert news["parameters"]["properties"] == {
        "topic": {"type": "string", "description": "What about."},
        "page": {"description": "Page.", "default": 1},
    }
    assert rotate["parameters"]["properties"]["xs"]["type"] == "array"
    assert task.extra["case"] == "multiple" and (await play(task, policy=gold(task)))[0] == 1.0
    assert (await play(task, turn({"name": "Get News", "arguments": {"topic": "snow"}}), turn()))[0] == 0.0


async def test_verl_rows_of_toolrl_are_read_too_and_a_response_wants_no_call(tmp_path: Path) -> None:
    prompt = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": DIALOGUE}]
    answer = "<think> Ask. </think>\n<response> Which country? </response>"
    record = {"prompt": prompt, "reward_model": {"ground_truth": answer}}
    (task,) = from_toolrl(write(tmp_path / "train.json", record))
    assert task.extra["case"] == "irrelevance" and (await play(task, policy=gold(task)))[0] == 1.0


@pytest.mark.parametrize(
    ("output", "dialogue", "says"),
    [
        ('<tool_call>\n{"name": "sing", "parameters": {}}\n</tool_call>', DIALOGUE, "a call names a listed tool"),
        ("<tool_call>\nrotate()\n</tool_call>", DIALOGUE, "a tool call must be a JSON object"),
        (CALLED, "Hello", "all of the dialogue must stand in tags"),
    ],
)
def test_a_toolrl_record_of_another_form_is_refused(tmp_path: Path, output: str, dialogue: str, says: str) -> None:
    with pytest.raises(DataError, match=rf"rlla.json, record 0: {says}"):
        toolrl(tmp_path, output, dialogue=dialogue)
    with pytest.raises(DataError, match="ToolRL"):
        from_toolrl(write(tmp_path / "x.json", {"messages": []}))
