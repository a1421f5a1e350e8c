"""A call is what was written, or it is malformed: no reader drops or alters a text of the policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from call_reading import INTEGER, TEXT, everywhere, kinds, read, tool
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.types import Message
from verl_agentic.episode.codec.calls.tool_formats import FORMATS, ToolFormat

UNTYPED = ("qwen3_coder", "glm", "seed", "minimax")
BOOLEAN, NUMBER = {"type": "boolean"}, {"type": "number"}
OPTIONAL = {"anyOf": [TEXT, {"type": "null"}]}
NAMES = ("edit", "get-news.v2", "math.factorial", "mcp__server__tool", "a/b", "läs")
PIECES = (
    *sorted({tag for form in FORMATS.values() for tag in (*form.tags, *(form.value or ()))}),
    *("<parameter=a>", '<parameter name="a">', "<arg_key>", "</arg_key>", "<|call|>", "<|message|>", '<|"|>'),
    *('"', "'", "\\", "\n", " ", "\t", "{", "}", "[", "]", ",", ":", "é", "🙂", "null", "42", "x"),
)
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b-c", "d.e"]), inner, max_size=3)
    ),
    max_leaves=6,
)
SCHEMAS: dict[type, Any] = {
    str: TEXT,
    bool: BOOLEAN,
    int: INTEGER,
    float: NUMBER,
    list: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
}


def edit(**properties: Any) -> dict[str, Any]:
    """Returns a tool whose arguments are all optional."""
    made = tool("edit", **properties)
    made["function"]["parameters"]["required"] = []
    return made


@given(
    name=st.sampled_from(sorted(FORMATS)),
    called=st.sampled_from(NAMES),
    arguments=st.dictionaries(st.sampled_from(["path", "dry_run", "old-text", "new.text"]), values, max_size=3),
)
def test_a_written_call_is_read_as_it_is_or_malformed(name: str, called: str, arguments: dict[str, Any]) -> None:
    form = FORMATS[name]
    schemas = tool(called, **{key: SCHEMAS[type(value)] for key, value in arguments.items()})
    parsed = read(name, form.write([(called, arguments)]), tools=[schemas])
    if [call.error for call in parsed.calls] == [None]:
        (call,) = parsed.calls
        assert (call.name, json.dumps(call.arguments)) == (called, json.dumps(arguments))
        assert parsed.content == ""
    else:
        own_tags = (*(form.value or ()), "<arg_key>", "<parameter", '<|"|>')
        written = json.dumps(arguments, ensure_ascii=False).replace('\\"', '"')
        assert not form.is_json and any(tag in written for tag in own_tags), "only its own tags cannot stand in a value"
        assert set(kinds(parsed)) <= {"malformed_json", "unclosed", "wrong_arguments", "empty"}


def mutations(text: str, form: ToolFormat) -> Iterator[str]:
    """Yields a written call with each of its tags dropped, misspelt, doubled or moved, and with text beside them."""
    fragments = {
        *form.block,
        *(form.unit or ()),
        *(form.value or ()),
        "<parameter=",
        'name="',
        ' string="',
        "</arg_key>",
    }
    fragments |= {">", "{", "}", '"', ",", ":", "\n", "=", "<|message|>", "<|constrain|>json", "to="}
    for fragment in sorted(fragments):
        start = -1
        while (start := text.find(fragment, start + 1)) >= 0:
            before, after = text[:start], text[start + len(fragment) :]
            for put in (
                "",
                fragment * 2,
                f"{fragment} ",
                f" {fragment}",
                f"{fragment}LOOSE ",
                fragment[:-1],
                fragment.upper(),
            ):
                yield before + put + after
    for cut in range(0, len(text), 3):
        yield text[:cut]
        yield text[:cut] + text[cut + 3 :]


@pytest.mark.sample(1)
@everywhere
def test_no_mistake_in_a_call_loses_an_argument_silently(name: str) -> None:
    form = FORMATS[name]
    arguments = {"path": "FIRST", "old": " SECOND\n", "dry_run": True, "note": "THIRD"}
    tools = [edit(path=TEXT, old=TEXT, dry_run=BOOLEAN, note=TEXT)]
    num_good = 0
    for text in mutations(form.write([("edit", arguments)]), form):
        parsed = read(name, text, tools=tools)
        if not parsed.calls or any(call.error for call in parsed.calls):
            continue
        num_good += 1
        called = json.dumps([(call.name, call.arguments) for call in parsed.calls])
        for word in ("FIRST", "SECOND", "THIRD", "LOOSE"):
            assert word not in text or word in called or word in parsed.content, text
    assert num_good, "some changes are of white space"


def tagged(name: str, body: str) -> str:
    """Returns a call of `edit` with a body in the form of qwen3_coder, in another format."""
    form = FORMATS[name]
    opening = form.call[0].replace("{name}", "edit").replace("{index}", "0")
    return f"{form.block[0]}\n{opening}{body}{form.call[1]}{form.block[1]}"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("qwen3_coder", "<parameter=path>\na.py\n<parameter=dry_run>\ntrue\n</parameter>\n"),
        ("qwen3_coder", "<parameter=path>a.py<parameter=dry_run>true</parameter>"),
        ("qwen3_coder", '<parameter=path>\na.py\n<parameter name="dry_run">\ntrue\n</parameter>\n'),
        ("qwen3_coder", "<parameter=dry_run>\ntrue\n"),
        ("qwen3_coder", '<parameter name="dry_run">\ntrue\n</parameter>\n'),
        ("qwen3_coder", "<parameter=path\na.py\n</parameter>\n"),
        ("qwen3_coder", '{"path": "a.py"}\n'),
        ("qwen3_coder", "The path is a.py.\n"),
        ("qwen3_coder", "<parameter=path>\na\n</parameter>\nand\n<parameter=old>\nb\n</parameter>\n"),
        ("qwen3_coder", "<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n"),
        ("seed", "<parameter=path>a.py<parameter=dry_run>true</parameter>\n"),
        ("seed", '<parameter name="path">x</parameter>\n'),
        ("minimax", "<parameter name='path'>x</parameter>\n"),
        ("minimax", "<parameter=path>x</parameter>\n"),
        ("minimax", '<parameter name="path">x\n'),
        ("minimax", '<parameter name="path">x<parameter name="old">y</parameter>\n'),
        ("glm", "<arg_key>path</arg_key>\n"),
        ("glm", "<arg_key>path</arg_key>\n<value>x</value>\n"),
        ("glm", "<arg_key>path</arg_key>\n<arg_value>x\n<arg_key>old</arg_key>\n<arg_value>y</arg_value>\n"),
        ("deepseek_v4", '<｜DSML｜parameter name="path">x</｜DSML｜parameter>\n'),
        ("deepseek_v4", '<｜DSML｜parameter name="path" string="True">x</｜DSML｜parameter>\n'),
        ("deepseek_v4", '<｜DSML｜parameter string="true" name="path">x</｜DSML｜parameter>\n'),
        ("deepseek_v4", '{"path": "x"}\n'),
        ("gemma4", '{path:a.py old:<|"|>x<|"|>}'),
        ("gemma4", '{path:<|"|>a<|"|>,path:<|"|>b<|"|>}'),
        ("hermes", '{"path": "a", "path": "b"}'),
        ("kimi", '{"path": "a"} {"old": "b"}'),
        ("gpt-oss", '{"path": "a", "old": {"x": 1, "x": 2}}'),
    ],
)
def test_an_argument_that_cannot_be_read_makes_the_call_malformed(name: str, body: str) -> None:
    parsed = read(name, tagged(name, body), tools=[edit(path=TEXT, old=TEXT, dry_run=BOOLEAN)])
    assert kinds(parsed) == ["malformed_json"]
    assert parsed.calls[0].name in ("edit", "")


def test_a_parameter_beside_the_arguments_makes_a_call_malformed() -> None:
    text = '<tool_call>{"name": "edit", "arguments": {"path": "a"}, "dry_run": true}</tool_call>'
    (call,) = read("hermes", text, tools=[edit(path=TEXT, dry_run=BOOLEAN)]).calls
    assert call.error_kind == "malformed_json" and "'dry_run'" in str(call.error)


@pytest.mark.parametrize("name", UNTYPED)
def test_a_text_keeps_its_white_space_and_its_quotes(name: str) -> None:
    for text in ("    return x\n", '"quoted"', " ", "", "\n\n", "\r\n", "'", "007", ".5"):
        (call,) = read(name, FORMATS[name].write([("edit", {"old": text})]), tools=[edit(old=TEXT)]).calls
        assert (call.arguments, call.error) == ({"old": text}, None)


@pytest.mark.parametrize("name", UNTYPED)
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (BOOLEAN, "TRUE", True),
        (BOOLEAN, "False", False),
        (NUMBER, ".5", 0.5),
        (NUMBER, "1e3", 1000.0),
        (INTEGER, "007", 7),
        (INTEGER, " 7 ", 7),
        ({"type": "array"}, "['x', 'y']", ["x", "y"]),
        ({"type": "array"}, "('x', None)", ["x", None]),
        ({"type": "object"}, "{'k': True}", {"k": True}),
        (OPTIONAL, "None", None),
        (OPTIONAL, "null", None),
        (OPTIONAL, "42", "42"),
        ({"type": ["integer", "null"]}, "None", None),
        ({"type": ["integer", "string"]}, "5", 5),
        ({"type": ["number", "string"]}, "1.10", "1.10"),
        ({"enum": ["a b", "c"]}, "a b", "a b"),
        ({}, "1.10", "1.10"),
        ({}, "[1]", [1]),
    ],
)
def test_the_schema_says_what_a_text_stands_for(name: str, schema: Any, text: str, value: Any) -> None:
    (call,) = read(name, FORMATS[name].write([("edit", {"a": text})]), tools=[edit(a=schema)]).calls
    assert call.error is None
    assert json.dumps(call.arguments) == json.dumps({"a": value})


@pytest.mark.parametrize(
    "text", ["{'a': 1, 'a': 2}", "{1, 2}", "{1: 2}", "[" * 9_000, "-" * 9_000, "[1+2]", "[f'{x}']"]
)
def test_what_is_no_value_is_an_error_that_shows_it(text: str) -> None:
    tools = [edit(a={"type": ["object", "array"]})]
    (call,) = read("qwen3_coder", FORMATS["qwen3_coder"].write([("edit", {"a": text})]), tools=tools).calls
    assert call.error_kind == "wrong_arguments" and "$.a" in str(call.error)


def test_types_are_found_behind_references_and_alternatives() -> None:
    schema = {
        "$ref": "#/$defs/all",
        "$defs": {"all": {"allOf": [{"type": "object", "properties": {"a": INTEGER, "b": TEXT}}]}},
    }
    tools = [{"type": "function", "function": {"name": "edit", "parameters": schema}}]
    (call,) = read("glm", FORMATS["glm"].write([("edit", {"a": "007", "b": "007"})]), tools=tools).calls
    assert (call.arguments, call.error) == ({"a": 7, "b": "007"}, None)


ROLE, CHANNEL = "<|start|>assistant", "<|channel|>commentary"
THOUGHT = f"<|channel|>analysis<|message|>I call to=functions.x.<|end|>{ROLE}"


@pytest.mark.parametrize("before", ["", ROLE, THOUGHT])
@pytest.mark.parametrize(
    "header",
    [
        f" to=functions.edit{CHANNEL} json<|message|>",
        f" to=functions.edit{CHANNEL}<|message|>",
        f" to=functions.edit{CHANNEL} <|constrain|>json<|message|>",
        f"{CHANNEL} to=functions.edit <|constrain|>json<|message|>",
        f"{CHANNEL} to=functions.edit<|constrain|>json<|message|>",
        f"{CHANNEL} to=functions.edit json<|message|>",
        f"{CHANNEL} to=functions.edit<|message|>",
        f"{CHANNEL} <|constrain|>json to=functions.edit<|message|>",
        "<|channel|>analysis to=functions.edit code<|message|>",
        f"{CHANNEL} to=edit<|message|>",
        f" to=edit{CHANNEL}<|message|>",
    ],
)
def test_every_header_that_names_a_tool_calls_it(before: str, header: str) -> None:
    arguments = {"old": "<|call|> to=functions.x<|message|>"}
    parsed = read("gpt-oss", f"{before}{header}{json.dumps(arguments)}<|call|>", tools=[edit(old=TEXT)])
    assert [(call.name, call.arguments, call.error) for call in parsed.calls] == [("edit", arguments, None)]
    assert parsed.content == ""


@pytest.mark.parametrize(
    "text",
    [
        f"{CHANNEL} json<|message|>{{}}<|call|>",
        f"{CHANNEL} to=python<|message|>print(1)<|call|>",
        f"{CHANNEL} to=functions.edit",
        '{"old": "x"}<|call|>',
        f" to=functions.edit{CHANNEL} json",
    ],
)
def test_markup_of_a_call_is_never_an_answer(text: str) -> None:
    assert None not in kinds(read("gpt-oss", text, tools=[edit(old=TEXT)])) != []


@everywhere
def test_a_call_without_its_beginning_is_malformed_and_hides_no_other(name: str) -> None:
    form = FORMATS[name]
    call = form.write([("edit", {"old": "x"})])
    tools = [edit(old=TEXT)]
    for rest in (form.block[1], call.removeprefix(form.block[0]).removeprefix("edit")):
        good_after = read(name, f"{rest}\n{call}", tools=tools)
        assert None not in kinds(read(name, rest, tools=tools)) != [] and kinds(good_after)[-1] is None
        thought = f"{form.reasoning[0]}I close it with {form.block[1]}{form.reasoning[1]}"
    assert kinds(read(name, f"{thought}{call}", tools=tools)) == [None]


def test_an_answer_may_have_a_type_and_speak_of_recipients() -> None:
    parsed = read("gpt-oss", '<|channel|>final <|constrain|>json<|message|>{"a": "to=functions.edit"}')
    assert (parsed.content, parsed.calls) == ('{"a": "to=functions.edit"}', ())


@pytest.mark.parametrize("name", ["hermes", "kimi", "gpt-oss"])
@pytest.mark.parametrize("empty", ["null", "", " ", '""'])
def test_null_and_blank_arguments_are_none(name: str, empty: str) -> None:
    text = FORMATS[name].write([("edit", {})]).replace("{}", empty)
    if name == "hermes" and not empty.strip():
        return  # no JSON
    (call,) = read(name, text, tools=[edit(old=TEXT)]).calls
    assert (call.name, call.arguments, call.error) == ("edit", {}, None)


@pytest.mark.parametrize("arguments", [None, "", "  ", "null", "{}", {}])
def test_messages_may_write_no_arguments_in_any_way(arguments: Any) -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
    }
    assert Message.from_dict(message).tool_calls[0].arguments == {}


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.reasoning_is_text])
def test_reasoning_begins_before_other_text_only(name: str) -> None:
    opening, closing = FORMATS[name].reasoning
    call = FORMATS[name].write([("edit", {"old": "x"})])
    said = f"The tag {opening} opens a thought and {closing} ends it.\nThe answer is 7."
    for text in (said, said.replace(closing, "that")):
        parsed = read(name, text)
        assert (parsed.answer or parsed.content, parsed.calls) == (text, ())
        assert kinds(read(name, f"{text}\n{call}", tools=[edit(old=TEXT)])) == [None]
    for thought in (f"{opening}a{closing}", f"\n {opening}a{closing}\n{opening}b{closing}\n"):
        assert (read(name, thought + said).answer or "").strip() == said
    assert kinds(read(name, f"{opening}a{closing}\n{opening}{call}{closing}")) == ["in_reasoning"]
    assert kinds(read(name, f"a{closing}{call}", thinks=True)) == [None]


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "kimi", "gpt-oss"])
def test_arguments_have_their_types_where_they_are_not_checked(families: dict[str, Any], name: str) -> None:
    chat = families["chatml"]
    codec = chat.codec_for(name, check_arguments=False)
    text = FORMATS[name].write([("edit", {"n": 7, "s": "42", "b": "many"})])
    tools = [edit(n=INTEGER, s=TEXT, b=INTEGER)]
    action = asyncio.run(codec.decode_action(chat.tokenizer.encode(text), turn=0, tools=tools))
    assert [(c.arguments, c.error) for c in action.tool_calls] == [({"n": 7, "s": "42", "b": "many"}, None)]
    for broken in ({"n": {"type": "text"}}, {"n": INTEGER, "s": 5}):
        action = asyncio.run(codec.decode_action(chat.tokenizer.encode(text), turn=0, tools=[edit(**broken)]))
        assert [c.error for c in action.tool_calls] == [None]
