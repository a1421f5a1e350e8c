"""Every bad call is answered with what was wrong with it, whichever of verl's parsers reads the turn."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from call_reading import INTEGER, TEXT, TextTokenizer, everywhere, kinds, tool
from call_reading import read as read_with
from hypothesis import assume, given
from hypothesis import strategies as st
from verl.experimental.agent_loop.tool_parser import FunctionCall, HermesToolParser, ToolParser

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Action, Message, ToolCall
from verl_agentic.episode.codec.calls.gemma_arguments import read_gemma, write_gemma
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn
from verl_agentic.episode.codec.calls.tool_calls import CallReader
from verl_agentic.episode.codec.calls.tool_formats import FORMATS
from verl_agentic.episode.codec.codec import MALFORMED_CALL, ChatTemplateCodec

PYTHON = tool("python", code=TEXT)
MIXED = tool(
    "mixed",
    text=TEXT,
    count=INTEGER,
    flag={"type": "boolean"},
    items={"type": "array", "items": TEXT},
    nested={"type": "object", "properties": {"a": {"anyOf": [INTEGER, {"type": "null"}]}}},
    maybe={"anyOf": [TEXT, {"type": "null"}]},
)
ARGUMENTS = {
    "text": "42",
    "count": 7,
    "flag": True,
    "items": ["a", "b"],
    "nested": {"a": None},
    "maybe": "for i in range(3):\n    print('é', i)",
}


def read(name: str, text: str, *, tools: Any = (PYTHON, MIXED), **options: bool) -> ParsedTurn:
    return read_with(name, text, tools=tools, **options)


def write(name: str, tool_name: str = "python", arguments: Mapping[str, Any] | None = None) -> str:
    return FORMATS[name].write([(tool_name, {"code": "print(1)"} if arguments is None else arguments)])


def test_every_parser_that_verl_registers_has_its_format() -> None:
    assert set(FORMATS) == {name for name in ToolParser._registry if not name.startswith("test_")}


@everywhere
def test_what_is_written_in_a_format_is_read_back_with_verls_parser(name: str) -> None:
    parsed = read(name, write(name, "mixed", ARGUMENTS))
    (call,) = parsed.calls
    assert (call.name, call.arguments, call.error) == ("mixed", ARGUMENTS, None)
    assert parsed.content == "" and parsed.counts == {}


@everywhere
def test_arguments_keep_their_text_where_the_schema_says_text(name: str) -> None:
    for text in ("42", "4.20", "true", "null", "None", '{"a":  1}', "[1]", "print(1)"):
        (call,) = read(name, write(name, "python", {"code": text})).calls
        assert (call.arguments, call.error) == ({"code": text}, None)


@everywhere
def test_several_calls_are_read_in_order_with_what_is_said_before_them(name: str) -> None:
    form = FORMATS[name]
    calls = [("python", {"code": str(i)}) for i in range(1 if name == "gpt-oss" else 3)]
    parsed = read(name, form.said_before.replace("{content}", "First.") + form.write(calls))
    assert [(c.name, c.arguments) for c in parsed.calls] == calls
    assert len({c.call_id for c in parsed.calls}) == len(calls)
    assert parsed.content.strip() == ("" if name == "gpt-oss" else "First.")  # there it is reasoning


def bad_texts(name: str) -> dict[str, tuple[str, str]]:
    """Returns, by name, a mistake in the form of a format, and its kind."""
    form = FORMATS[name]
    opening, closing = form.block
    good = write(name)
    mistakes = {
        "nothing inside": (f"{opening} \n{closing}", "empty"),
        "not closed": (good.removesuffix(closing), "unclosed"),
        "cut in the middle": (good[: len(opening) + (len(good) - len(opening)) // 2], "unclosed"),
        "in the reasoning": (f"{form.reasoning[0]} I will {good} {form.reasoning[1]}", "in_reasoning"),
        "in reasoning that never ends": (f"{form.reasoning[0]} I will {good}", "in_reasoning"),
        "wrong type": (write(name, "mixed", {**ARGUMENTS, "count": "many"}), "wrong_arguments"),
        "argument missing": (write(name, "python", {}), "wrong_arguments"),
    }
    if form.is_json:
        mistakes |= {
            "bad json": (good.replace('"code"', "code"), "malformed_json"),
            "trailing comma": (good.replace(')"}', ')",}'), "malformed_json"),
            "single quotes": (good.replace('"code"', "'code'"), "malformed_json"),
            "a list": (good.replace('{"code": "print(1)"}', "[1]"), "not_an_object"),
            "not a number": (good.replace('"print(1)"', "NaN"), "malformed_json"),
            "half a character": (good.replace("print(1)", r"\ud800"), "malformed_json"),
            "too deep": (good.replace('"print(1)"', "[" * 100_000), "malformed_json"),
        }
    elif name != "glm":  # where any text is the name of a tool
        mistakes["nonsense"] = (f"{opening}nonsense{closing}", "malformed_json")
    return mistakes


@everywhere
def test_every_mistake_has_its_kind_and_a_message_and_no_other_consequence(name: str) -> None:
    for what, (text, kind) in bad_texts(name).items():
        parsed = read(name, text)
        assert kinds(parsed) == [kind], what
        (call,) = parsed.calls
        assert call.error and call.call_id and "\ud800" not in call.error, what
        assert not any(tag in call.error for tag in FORMATS[name].block), "tags would be broken up in an observation"


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"gpt-oss"}))  # there a turn ends with its first call
def test_a_good_call_beside_a_bad_one_is_carried_out(name: str) -> None:
    empty = "".join(FORMATS[name].block)
    assert kinds(read(name, f"{empty}\n{write(name)}")) == ["empty", None]
    assert kinds(read(name, f"{write(name)}\n{FORMATS[name].block[0]}")) == [None, "empty"]


@everywhere
def test_a_turn_without_a_call_is_content(name: str) -> None:
    form = FORMATS[name]
    parsed = read(name, form.said.replace("{content}", "It is 42."))
    assert (parsed.content, parsed.answer, parsed.calls) == ("It is 42.", None, ())


@everywhere
def test_the_answer_of_a_turn_that_reasons_is_what_stands_outside_the_reasoning(name: str) -> None:
    form = FORMATS[name]
    said = form.said.replace("{content}", "It is 42.")
    thought = f"{form.reasoning[0]}Maybe 41, or {form.block[0]}?{form.reasoning[1]}"
    parsed = read(name, thought + said)
    assert (parsed.answer, parsed.calls) == ("It is 42.", ())
    assert ("Maybe 41" in parsed.content) == form.reasoning_is_text
    assert read(name, f"{form.reasoning[0]}It is 41.").answer == ""
    assert read(name, f"It is 41.{form.reasoning[1]}{said}").answer == "It is 42.", "begun in the turn before"


@everywhere
def test_reasoning_that_the_prompt_has_opened_is_reasoning(name: str) -> None:
    closing = FORMATS[name].reasoning[1]
    text = f"Perhaps {write(name)}{closing}Done."
    assert kinds(read(name, text, thinks=True)) == ["in_reasoning"]
    assert kinds(read(name, text, thinks=False)) == [None]
    assert read(name, f"Hm.{closing}Done.", thinks=True).answer == "Done."


def test_a_call_outside_its_block_is_told_so() -> None:
    text = "<function=python>\n<parameter=code>\n1\n</parameter>\n</function>"
    (call,) = read("qwen3_coder", text).calls
    assert call.error_kind == "malformed_json" and "/tool_call" in str(call.error)
    parsed = read("qwen3_coder", text, repair=True)
    assert [(c.arguments, c.error) for c in parsed.calls] == [({"code": "1"}, None)]
    assert parsed.counts == {"repaired_calls": 1.0}


def test_text_behind_a_mention_of_tags_in_the_reasoning_is_no_call() -> None:
    parsed = read("hermes", "<think>I could write <tool_call> now.</think>No need.")
    assert (parsed.calls, parsed.answer) == ((), "No need.")


def test_tags_inside_a_call_are_part_of_it() -> None:
    code = "x = '<think><tool_call>'"
    (call,) = read("hermes", write("hermes", arguments={"code": code})).calls
    assert call.arguments == {"code": code}


def test_a_mistake_says_where_it_is_and_begins_with_the_rule() -> None:
    (call,) = read("hermes", '<tool_call>{"name": "python" "arguments": {}}</tool_call>').calls
    assert call.error == f"{MALFORMED_CALL} (Expecting ',' delimiter, character 18)"
    (call,) = read("hermes", '<tool_call>{"name": "python", "args": {}}</tool_call>').calls
    assert (call.name, call.error) == ("python", f"{MALFORMED_CALL} (a key is missing)")
    (call,) = read("hermes", write("hermes", arguments={"code": 5})).calls
    assert call.error == "the arguments of 'python' do not fit its schema\n- $.code: expected string, got 5"


def test_names_and_ids_of_kimi_are_the_models_own() -> None:
    (call,) = read("kimi", write("kimi")).calls
    assert (call.name, call.call_id) == ("python", "functions.python:0")
    (call,) = read("kimi", write("kimi", "searcher")).calls
    assert call.name == "searcher", "a name is not bent to that of a tool that has the same arguments"


REPAIRABLE = {
    "trailing comma": '{"name": "python", "arguments": {"code": "1",}}',
    "single quotes": "{'name': 'python', 'arguments': {'code': '1'}}",
    "python's literals": '{"name": "python", "arguments": {"code": "1"}, "strict": True, "id": None}',
    "braces missing": '{"name": "python", "arguments": {"code": "1"',
    "a fence": '```json\n{"name": "python", "arguments": {"code": "1"}}\n```',
    "another key": '{"name": "python", "parameters": {"code": "1"}}',
    "arguments as text": '{"name": "python", "arguments": "{\\"code\\": \\"1\\"}"}',
    "comma missing": '{"name": "python" "arguments": {"code": "1"}}',
}


@pytest.mark.parametrize("text", REPAIRABLE.values(), ids=list(REPAIRABLE))
def test_repair_is_off_unless_asked_for_and_counted_where_it_helped(text: str) -> None:
    for whole in (f"<tool_call>\n{text}\n</tool_call>", f"<tool_call>\n{text}"):
        assert None not in kinds(read("hermes", whole))
        parsed = read("hermes", whole, repair=True)
        assert [(c.name, c.arguments, c.error) for c in parsed.calls] == [("python", {"code": "1"}, None)]
        assert parsed.counts == {"repaired_calls": 1.0}


def test_a_line_break_inside_a_text_is_repaired() -> None:
    text = '<tool_call>{"name": "python", "arguments": {"code": "a\nb"}}</tool_call>'
    assert kinds(read("hermes", text)) == ["malformed_json"]
    assert read("hermes", text, repair=True).calls[0].arguments == {"code": "a\nb"}


@everywhere
def test_a_call_that_lacks_its_end_is_repaired_in_every_format(name: str) -> None:
    whole = write(name)
    cuts = [whole.removesuffix(FORMATS[name].block[1])]
    if FORMATS[name].value is not None:
        cuts.append(whole.partition("print(1)")[0] + "print(1)")
    for cut in cuts:
        assert kinds(read(name, cut)) == ["unclosed"]
        parsed = read(name, cut, repair=True)
        assert [(c.arguments, c.error) for c in parsed.calls] == [({"code": "print(1)"}, None)]
        assert parsed.counts == {"repaired_calls": 1.0}


def test_a_good_call_is_not_counted_as_repaired_and_nonsense_stays_an_error() -> None:
    assert read("hermes", write("hermes"), repair=True).counts == {}
    for text in ("nonsense", "[]", "{}", '{"name": 1}', "", "[" * 20_000):
        parsed = read("hermes", f"<tool_call>{text}</tool_call>", repair=True)
        assert None not in kinds(parsed) and parsed.counts == {}


def test_arguments_are_not_checked_for_tools_that_are_not_known_or_have_no_schema() -> None:
    call = write("hermes", "other", {"x": [1]})
    assert kinds(read("hermes", call)) == [None]
    assert kinds(read("hermes", call, tools=[{"type": "function", "function": {"name": "other"}}])) == [None]


def test_references_and_alternatives_of_a_schema_are_followed_for_untyped_values() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/id"}, "b": {"anyOf": [INTEGER, {"type": "null"}]}},
        "$defs": {"id": TEXT},
    }
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    for name in ("qwen3_coder", "glm", "seed", "minimax"):
        (call,) = read(name, write(name, "look", {"a": "007", "b": 7}), tools=tools).calls
        assert (call.arguments, call.error) == ({"a": "007", "b": 7}, None)


def test_booleans_as_pythons_templates_write_them_are_booleans() -> None:
    tools = [tool("switch", on={"type": "boolean"})]
    text = "<tool_call><function=switch><parameter=on>\nTrue\n</parameter></function></tool_call>"
    assert read("qwen3_coder", text, tools=tools).calls[0].arguments == {"on": True}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("ab <>|\"'{}[]:,\n\\é", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), json_values, max_size=3))
def test_gemmas_notation_is_read_as_it_is_written(value: dict[str, Any]) -> None:
    assume('<|"|>' not in json.dumps(value).replace("\\", ""))  # its own quotation mark it cannot quote
    assert read_gemma(write_gemma(value))[0] == value


@pytest.mark.parametrize("text", ["", "x", "{", "{a", "{a:", '{a:<|"|>x}', "{a:[1}", "{a:1 b:2}", "{a:}", "{a:1,a:2}"])
def test_what_is_no_object_in_gemmas_notation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^no |^a text without|^neither|twice$"):
        read_gemma(text)


fragments = st.lists(
    st.sampled_from(
        [t for form in FORMATS.values() for t in form.tags]
        + ['{"name": "python", "arguments": ', '{"code": "1"}', "}", "python", "code", "\n", "=", ">", '"', "é", "1"]
    ),
    max_size=12,
).map("".join)


@given(name=st.sampled_from(sorted(FORMATS)), text=fragments, repair=st.booleans(), thinks=st.booleans())
def test_no_text_makes_a_reader_fail_and_every_call_can_be_carried_out_or_says_why_not(
    name: str, text: str, repair: bool, thinks: bool
) -> None:
    parsed = read(name, text, repair=repair, thinks=thinks)
    for call, kind in zip(parsed.calls, kinds(parsed), strict=True):
        assert kind is not None or (call.name != "python" or isinstance(call.arguments["code"], str))
        assert call.call_id
    form = FORMATS[name]
    if form.reasoning[0] not in text and not thinks and form.block_pattern is None:
        tags = [*form.block, *(form.unit or ())[:1]]
        is_attempt = any(tag in text for tag in tags) or re.search(form.stray_pattern or "(?!)", text) is not None
        assert bool(parsed.calls) == is_attempt, "an attempt is never dropped"


class OwnHermesParser(HermesToolParser):
    """Parser of a user under the name of one of verl's."""


def test_a_parser_that_would_not_be_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="another name"):
        CallReader(OwnHermesParser(TextTokenizer()), tool_format=FORMATS["hermes"])  # type: ignore[abstract]


# Parsers that verl does not bring.


@ToolParser.register("test_morse")
class MorseParser(ToolParser):
    """Calls are between two dots; reads those that say `ok`, with the ids of the real tokenizer."""

    tool_call_start_token, tool_call_end_token = "..", "--"

    async def extract_tool_calls(self, responses_ids: Any, tools: Any = None) -> tuple[str, list[FunctionCall]]:
        text = self.tokenizer.decode(responses_ids)
        found = [FunctionCall(name="python", arguments=word) for word in text.split() if word.startswith("{")]
        return text, found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('.. {"code":"1"} --', [None]),
        ('.. {"code":1} --', ["wrong_arguments"]),
        (".. {nonsense --", ["malformed_json"]),
        ('.. {"code":"1"} -- .. oops --', [None, "malformed_json"]),
        ("..", ["malformed_json"]),
        ("fine", []),
    ],
)
def test_a_parser_of_the_user_works_and_what_it_drops_is_told(
    families: dict[str, Any], text: str, expected: list[str | None]
) -> None:
    chat = families["chatml"]
    codec = chat.codec_for("test_morse")
    action = asyncio.run(codec.decode_action(chat.tokenizer.encode(text), turn=1, tools=[PYTHON]))
    assert [call.error_kind for call in action.tool_calls] == expected
    assert [call.call_id for call in action.tool_calls] == [f"call_1_{i}" for i in range(len(expected))]


# Through the codec of a model.


def decode(codec: ChatTemplateCodec, chat: Any, text: str) -> Action:
    ids = [*chat.tokenizer.encode(text), chat.token(chat.family.end)]
    return asyncio.run(codec.decode_action(ids, turn=0, tools=[PYTHON]))


@everywhere
def test_a_codec_writes_and_reads_the_same_turn_in_every_format(families: dict[str, Any], name: str) -> None:
    chat = families["chatml"]
    codec = chat.codec_for(name)
    wanted = Message("assistant", "I compute.", tool_calls=(ToolCall("python", {"code": "print('<|x|>é')"}),))
    action = decode(codec, chat, codec.render_action(wanted))
    assert [(c.name, c.arguments, c.error) for c in action.tool_calls] == [
        ("python", {"code": "print('<|x|>é')"}, None)
    ]
    assert "I compute." in action.text
    final = decode(codec, chat, codec.render_action(Message("assistant", "It is 42.")))
    assert (final.content, final.tool_calls) == ("It is 42.", ())
    assert codec.render_action(wanted).partition(codec.call_prefix("python"))[1]


def test_unchecked_arguments_reach_the_environment(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    text = write("hermes", arguments={"code": 5})
    assert decode(chat.codec, chat, text).tool_calls[0].error_kind == "wrong_arguments"
    (call,) = decode(chat.codec_for(check_arguments=False), chat, text).tool_calls
    assert (call.arguments, call.error) == ({"code": 5}, None)


def test_the_token_that_ends_a_turn_is_no_part_of_a_call(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    assert decode(chat.codec, chat, "<tool_call>").tool_calls[0].error_kind == "empty"
    cut = write("hermes").partition("}")[0]
    assert decode(chat.codec_for(repair=True), chat, cut).tool_calls[0].arguments == {"code": "print(1)"}


def test_repairs_are_counted_in_the_action(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    text = "<tool_call>{'name': 'python', 'arguments': {'code': '1'}}</tool_call>"
    action = decode(chat.codec_for(repair=True), chat, text)
    assert action.counts == {"repaired_calls": 1.0} and action.tool_calls[0].error is None


def test_a_schema_that_is_none_is_refused_with_the_prompt(families: dict[str, Any]) -> None:
    broken = tool("python", code={"type": "text"})
    with pytest.raises(DataError, match="not a JSON schema"):
        asyncio.run(families["chatml"].codec.encode_prompt([Message("user", "Hi")], [broken]))


def test_reasoning_that_the_template_opens_is_noticed(families: dict[str, Any]) -> None:
    text = f"Perhaps {write('hermes')}</think>Done."
    for name, expected in (("strips thinking", "in_reasoning"), ("chatml", None)):
        chat = families[name]
        assert decode(chat.codec, chat, text).tool_calls[0].error_kind == expected


def test_json_of_a_call_may_hold_the_end_of_turn_token(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    action = decode(chat.codec, chat, write("hermes", arguments={"code": "print('<|im_end|>')"}))
    assert action.tool_calls[0].arguments == {"code": "print('<|im_end|>')"}
    assert json.loads(json.dumps(action.tool_calls[0].arguments)) == {"code": "print('<|im_end|>')"}
