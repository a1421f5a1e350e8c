"""The codec of a model folder: verl's own builder and parser for that model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from verl.experimental.agent_loop.tool_parser import HermesToolParser
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder
from verl_versions import needs_verl

from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message
from verl_agentic.verl.rollout.model_codec import load_codec


@needs_verl(">=0.9.1", "hf_model_type of create_continuous_token_builder")
def test_the_builder_is_the_one_that_verl_chooses_for_the_model_family(tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, codec = tiny_chat
    assert type(codec._builder) is type(create_continuous_token_builder(tokenizer, hf_model_type="qwen3"))
    assert type(codec._parser) is HermesToolParser


async def test_calls_that_cannot_be_read_do_not_fill_the_log(
    tiny_chat: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer, codec = tiny_chat
    with caplog.at_level(logging.DEBUG):
        action = await codec.decode_action(tokenizer.encode("<tool_call>x</tool_call>"), turn=0, tools=[])
    assert action.tool_calls[0].error and "Failed to decode" not in caplog.text


async def test_a_prompt_of_the_loaded_codec_ends_with_the_header_of_the_policys_turn(
    tiny_chat: tuple[Any, Any],
) -> None:
    tokenizer, codec = tiny_chat
    ids = await codec.encode_prompt([Message("user", "Hi")], [])
    assert tokenizer.decode(ids).endswith("<|im_start|>assistant\n")


def test_a_folder_without_a_model_and_an_unknown_parser_are_data_errors(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tokenizer"):
        load_codec(str(tmp_path))
    with pytest.raises(DataError, match="'morse'"):
        load_codec(str(tiny_model), tool_format="morse")
