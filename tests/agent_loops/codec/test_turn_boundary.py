"""The seam between turns is rendered with no more than it needs, and still token for token as the template wants it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from chat_templates import CHATML_WITH_TOOLS, Family

from verl_agentic.episode.codec.turn_boundary import TurnBoundary, _remember_renderings
from verl_agentic.tools.python import SCHEMA

TOOLS = [dict(SCHEMA)]
SAID = {"role": "assistant", "content": "hm"}
ANSWER = {"role": "tool", "content": "42"}
# What a tool answers is written with the number of tools: no real template does that, but one might.
COUNTS_TOOLS = CHATML_WITH_TOOLS.replace(
    "'\\n<tool_response>\\n' + m.content", "'\\n<tool_response>\\n' + (tools or []) | length | string + m.content"
)


class Watched:
    """A builder that keeps what it was asked to render."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.rendered: list[tuple[bool, bool]] = []

        tokenizer = builder.tokenizer = copy.copy(builder.tokenizer)
        apply = tokenizer.apply_chat_template

        def render(messages: Sequence[Any], *, add_generation_prompt: bool, tools: Any = None, **options: Any) -> Any:
            self.rendered.append((add_generation_prompt, tools is not None))
            return apply(messages, add_generation_prompt=add_generation_prompt, tools=tools, **options)

        tokenizer.apply_chat_template = render


@pytest.fixture
def make(families: dict[str, Any]) -> Any:
    def make(template: str) -> tuple[Any, Watched]:
        chat = Family("x", template, "qwen3").chat(families["chatml"].tokenizer)
        return chat, Watched(chat.builder)

    return make


def append(boundary: TurnBoundary, chat: Any, content: str, role: str = "tool") -> str:
    stream = [*chat.tokenizer.encode("hm"), chat.token("<|im_end|>")]
    new = [{"role": role, "content": content}]
    removed, ids = boundary.append([SAID], new, stream=stream, tools=TOOLS)
    assert removed == 0
    return chat.text(ids)


def test_tools_that_make_no_difference_are_rendered_once_for_messages_of_a_role(make: Any) -> None:
    chat, watched = make(CHATML_WITH_TOOLS)
    boundary = TurnBoundary(chat.builder, chat.tokenizer)
    texts = [append(boundary, chat, content) for content in ("1", "2", "3")]
    wrapped = "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert texts == [wrapped.format(content) for content in ("1", "2", "3")]
    watched.rendered.clear()
    append(boundary, chat, "4")
    # Only the whole: what comes before the new message is known.
    assert watched.rendered == [(True, False)]
    append(boundary, chat, "now you", role="user")
    assert (True, True) in watched.rendered, "another role is looked at anew"


def test_tools_that_make_a_difference_are_rendered_every_time(make: Any) -> None:
    chat, watched = make(COUNTS_TOOLS)
    boundary = TurnBoundary(chat.builder, chat.tokenizer)
    for content in ("a", "b", "c"):
        watched.rendered.clear()
        assert f"<tool_response>\n1{content}\n" in append(boundary, chat, content)
        assert (True, True) in watched.rendered


def test_a_builder_without_the_part_that_is_watched_works_all_the_same(make: Any) -> None:
    chat, _ = make(CHATML_WITH_TOOLS)

    class Plain:
        """Has only what verl documents."""

        build_initial_tokens = staticmethod(chat.builder.build_initial_tokens)
        merge_context_tokens = staticmethod(chat.builder.merge_context_tokens)
        render_delta_token_id = staticmethod(chat.builder.render_delta_token_id)

    boundary = TurnBoundary(Plain(), chat.tokenizer)  # type: ignore[arg-type]
    remembering = TurnBoundary(chat.builder, chat.tokenizer)
    assert append(boundary, chat, "42") == append(remembering, chat, "42")


def test_a_turn_that_ended_with_a_stop_id_unknown_to_the_template_gets_no_second_end(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    stop_id = chat.token("<|endoftext|>")
    assert "<|endoftext|>" not in chat.tokenizer.chat_template
    stream, new = [*chat.tokenizer.encode("hm"), stop_id], [{"role": "user", "content": "and?"}]
    texts = []
    for stop_ids in ([], [stop_id]):
        boundary = TurnBoundary(chat.builder, chat.tokenizer, stop_token_ids=stop_ids)
        removed, ids = boundary.append([SAID], new, stream=stream, tools=None)
        assert removed == 0
        texts.append(chat.text(ids))
    message = "<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n"
    assert texts == [f"<|im_end|>\n{message}", message]


def test_what_is_remembered_has_bounds(make: Any) -> None:
    chat, watched = make(CHATML_WITH_TOOLS)
    boundary = TurnBoundary(chat.builder, chat.tokenizer)
    append(boundary, chat, "first")
    for number in range(300):  # a tool's name stands in what comes before its answer
        new = [{**ANSWER, "name": f"tool{number}"}]
        stream = [*chat.tokenizer.encode("hm"), chat.token("<|im_end|>")]
        boundary.append([SAID], new, stream=stream, tools=None)
    watched.rendered.clear()
    append(boundary, chat, "again")
    assert len(watched.rendered) == 2, "it was forgotten, and is rendered anew"


def test_a_shape_that_renders_otherwise_is_left_to_the_builder(make: Any) -> None:
    chat, _ = make(CHATML_WITH_TOOLS)

    class Marked(type(chat.builder)):
        """Renders something that no template says."""

        def _render_tokens(self, *args: Any, **kwargs: Any) -> list[int]:
            return [7, *super()._render_tokens(*args, **kwargs)]

    chat.builder.__class__ = Marked
    boundary = _remember_renderings(chat.builder)
    for _ in range(3):
        assert boundary._render_tokens([SAID], add_generation_prompt=True)[0] == 7


def test_what_follows_a_known_beginning_is_encoded_as_in_the_whole_text(families: dict[str, Any]) -> None:
    contents = ("42", " 42\n", "", "<|im_end|>\n", "é\u0301", "\n\n<tool_call>", "\u200b", "<|im_start|>x" * 3)
    for chat in families.values():
        fast = _remember_renderings(chat.builder)
        for role in ("user", "tool", "user"):
            for content in contents:
                before, after = [SAID], [{"role": role, "content": content, "name": "python"}]
                options = {"add_generation_prompt": True}
                expected = chat.builder.render_delta_token_id(before, after, **options)
                assert fast.render_delta_token_id(before, after, **options) == expected, (chat, role, content)


def test_a_known_beginning_is_not_encoded_again(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    fast, encoded = _remember_renderings(chat.builder), []
    backend = chat.tokenizer.backend_tokenizer

    class Backend:
        truncation = padding = None

        def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
            encoded.extend(texts)
            return backend.encode_batch_fast(texts, **options)

    class Tokenizer:
        backend_tokenizer = Backend()
        apply_chat_template = chat.tokenizer.apply_chat_template

    fast._render_tokens._tokenizer = Tokenizer()
    for content in ("41", "42"):
        fast.render_delta_token_id([SAID], [{"role": "user", "content": content}])
    assert encoded[-1] == "<|im_start|>user\n42<|im_end|>\n"


def test_a_tokenizer_that_cuts_is_left_to_the_builder(make: Any) -> None:
    chat, _ = make(CHATML_WITH_TOOLS)
    boundary = _remember_renderings(chat.builder)
    long = [{"role": "user", "content": "one two three " * 20}]
    whole = boundary._render_tokens(long, add_generation_prompt=True)
    for _ in range(3):
        chat.builder.tokenizer.backend_tokenizer.enable_truncation(4)
        assert boundary._render_tokens(long, add_generation_prompt=True) == whole
