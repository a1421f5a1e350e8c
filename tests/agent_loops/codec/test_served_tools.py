"""Tools in the form in which servers pass them to chat templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.codec.served_tools import find_difference, served_tool
from verl_agentic.episode.protocols.factory import CodecOptions, make_codec

PARAMETERS = {"type": "object", "properties": {}}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": function}


# What `model_dump` of the request classes of vLLM 0.24.0 and SGLang 0.5.23 gives, keys in order.
SERVED = [
    (
        tool(parameters=PARAMETERS, name="f"),
        tool(name="f", description=None, parameters=PARAMETERS),
        {**tool(parameters=PARAMETERS, name="f", description=None), "defer_loading": None},
    ),
    (
        tool(description="d", name="f", strict=None, parameters=None),
        tool(name="f", description="d", parameters=None),
        {**tool(description="d", name="f", parameters=None), "defer_loading": None},
    ),
    (
        {**tool(name="f", strict=True, other=1), "defer_loading": True},
        {
            **tool(name="f", description=None, parameters=None, strict=True, defer_loading=True, other=1),
            "defer_loading": True,
        },
        {**tool(name="f", strict=True, description=None, parameters=None, defer_loading=True), "defer_loading": True},
    ),
]


@pytest.mark.parametrize(("given", "vllm", "sglang"), SERVED)
def test_tools_have_the_keys_and_the_order_of_the_server(given: Any, vllm: Any, sglang: Any) -> None:
    assert json.dumps(served_tool(given, "vllm")) == json.dumps(vllm)
    assert json.dumps(served_tool(given, "sglang")) == json.dumps(sglang)
    assert served_tool(given, "given") is given


async def test_the_prompt_has_the_tools_in_the_chosen_form(tmp_path: Any) -> None:
    tokenizer, codecs = tiny_codecs(tmp_path)
    tokenizer.chat_template = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + tokenizer.chat_template
    texts = {}
    for form in ("given", "vllm", "sglang"):
        chat: Any = codecs["chat"]
        codec = make_codec(
            "chat",
            tokenizer=tokenizer,
            builder=chat._boundary._prompt_builder,
            parser=chat._parser,
            tool_format="hermes",
            options=CodecOptions(tools_as=form),
        )
        ids = await codec.encode_prompt([Message("user", "go")], [tool(parameters=PARAMETERS, name="f")])
        texts[form] = tokenizer.decode(ids)
        assert ("null" in texts[form], "defer_loading" in texts[form]) == (form != "given", form == "sglang")
        added = codec.announce_tools([], added=[tool(name="g")])
        assert ("defer_loading" in added) == (form == "sglang")
    assert len(set(texts.values())) == 3


def test_a_protocol_that_lists_tools_itself_refuses_the_option(tmp_path: Any) -> None:
    tokenizer, codecs = tiny_codecs(tmp_path)
    chat: Any = codecs["chat"]
    arguments = {"tokenizer": tokenizer, "builder": chat._boundary._prompt_builder, "parser": chat._parser}
    with pytest.raises(ConfigError, match="tools_as"):
        make_codec("r1", **arguments, tool_format="hermes", options=CodecOptions(tools_as="vllm"))


def test_a_difference_has_its_place_and_both_texts() -> None:
    assert find_difference([1, 2, 3], [1, 2, 3], decode=str) is None
    assert find_difference([1, 2, 3], [1, 9], decode=str) == (1, "[1, 2, 3]", "[1, 9]")
    assert find_difference([1, 2], [1, 2, 3], decode=str) == (2, "[1, 2]", "[1, 2, 3]")
