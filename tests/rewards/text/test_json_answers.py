"""JSON of models: right JSON is what it is, and a backslash that is not escaped changes nothing around it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_texts import TEXTS, write_unescaped

from verl_agentic.base.text.reasoning import strip_thoughts
from verl_agentic.graders.text.json_answers import load_json_answer

_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(value=_VALUES, is_ascii=st.booleans(), with_prose=st.booleans())
@example(value=["a\\", ", "], is_ascii=True, with_prose=False)
def test_right_json_has_the_value_that_json_gives_it(value: Any, is_ascii: bool, with_prose: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert load_json_answer(text, with_prose=with_prose) == json.loads(text)
    for fence in ("```", "````"):
        fenced = f"<think>\nI see.</think>\n{fence}json\n{text}\n{fence}"
        assert load_json_answer(fenced, with_prose=with_prose) == value


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3), flag=st.sampled_from(["true", "false"]), is_raw=st.booleans())
def test_text_with_backslashes_leaves_what_is_around_it_as_it_was(texts: list[str], flag: str, is_raw: bool) -> None:
    strings = [write_unescaped(text, is_raw=is_raw) for text in texts]
    items = ", ".join(f'{{"first": {string}, "flag": {flag}, "last": {string}}}' for string in strings)
    read = load_json_answer(f'{{"items": [{items}], "end": {strings[0]}}}')
    assert [item["flag"] for item in read["items"]] == [flag == "true"] * len(texts)
    assert all(item.keys() == {"first", "flag", "last"} and item["first"] == item["last"] for item in read["items"])
    assert read["end"] == read["items"][0]["first"]


@pytest.mark.parametrize(
    "text", [r"6 \cdot 7", r"\sqrt{2}", r"\(x\)", r"\$5", r"C:\dir", r"\d+\s", "C:\\", r"\uvec", r"\'"]
)
def test_a_backslash_that_begins_no_escape_is_itself(text: str) -> None:
    assert load_json_answer(f'{{"a": "{text}", "b": "\\u00e9\\n"}}') == {"a": text, "b": "é\n"}


@pytest.mark.parametrize(
    "text", ["", "x", "{", '{"a": 1} {"b": 2}', '{"a": 1', 'Sure: {"a": 1}', "{'a': 1}", '{"a": \\1}']
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        load_json_answer(text)


@pytest.mark.parametrize(
    "text",
    ['Sure:\n```json\n{"a": [1]}\n```\nDone.', 'Sure: {"a": [1]}.', 'I {think}</think>\n{"a": [1]}', '{"a": [1]}'],
)
def test_json_may_stand_in_prose_where_that_is_asked_for(text: str) -> None:
    assert load_json_answer(text, with_prose=True) == {"a": [1]}


def test_a_draft_in_thoughts_is_not_the_answer() -> None:
    for text in ('<think>{"a": 1}</think> No.', '<think>maybe {"a": 1}'):
        with pytest.raises(ValueError, match=r".+"):
            load_json_answer(text, with_prose=True)


@pytest.mark.sample(5)
@pytest.mark.parametrize("piece", ['\\"', '"\\', "</think>{", "\\", '{"a\\": 1, ', "```", "1", "<think>"])
def test_any_answer_is_read_in_linear_time(piece: str) -> None:
    started = time.process_time()
    for text in (piece * 20_000, '{"a": "' + piece * 20_000):
        with pytest.raises((ValueError, RecursionError)):
            load_json_answer(text + "x", with_prose=True)
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" Hi ", "Hi"),
        ("<think>a</think>\nHi", "Hi"),
        ("a</think>Hi", "Hi"),
        ("<think>a<think>b</think>c</think>Hi", "Hi"),
        ("[THINK]a[/THINK]Hi", "Hi"),
        ("<think>a", ""),
        ("<think></think>", ""),
        ("<turn><think>a</think>b</turn>", "<turn><think>a</think>b</turn>"),
    ],
)
def test_thoughts_before_an_answer_are_no_part_of_it(text: str, answer: str) -> None:
    assert strip_thoughts(text) == answer
