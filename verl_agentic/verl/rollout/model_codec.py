"""The chat codec of a model folder, outside a training run: the same verl classes that rollouts use."""

from __future__ import annotations

import logging
from typing import Any

from verl_agentic.base.errors import DataError, boundary
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.protocols.factory import CodecOptions, make_codec
from verl_agentic.verl.quick_imports import without_collections


def load_codec(
    model_path: str, *, tool_format: str = "hermes", protocol: str = "chat", options: CodecOptions | None = None
) -> tuple[Any, Codec]:
    """Returns tokenizer and codec of a Hugging Face folder.

    Args:
        model_path: folder, or name on the hub, with config, tokenizer and chat template.
        tool_format: name of a verl tool parser, as in `rollout.multi_turn.format`.
        protocol: name or path; see `load_protocol.load_protocol`.
        options: of the protocol.

    Raises:
        DataError: the folder is not loadable, or verl has no such parser.
        ConfigError: no such protocol, or options that it does not have.
    """
    with without_collections():
        from verl.experimental.agent_loop import tool_parser
        from verl.utils.tokenizer import hf_tokenizer

        from verl_agentic.verl.rollout.token_builder import token_builder

    if tool_format not in (parsers := tool_parser.ToolParser._registry):
        raise DataError(f"verl has no tool parser {tool_format!r}; give one of {sorted(parsers)}")
    tool_parser.logger.setLevel(logging.CRITICAL)  # the loop answers and counts calls that cannot be read
    with boundary(DataError, f"loading the tokenizer of {model_path!r} (a folder, or a name on the hub)"):
        tokenizer = hf_tokenizer(model_path)
        builder = token_builder(tokenizer, model_path)
        parser = tool_parser.ToolParser.get_tool_parser(tool_format, tokenizer)
    codec = make_codec(
        protocol, tokenizer=tokenizer, builder=builder, parser=parser, tool_format=tool_format, options=options
    )
    return tokenizer, codec
