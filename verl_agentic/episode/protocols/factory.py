"""Chooses and makes the codec of a protocol."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings
from verl_agentic.episode.codec.calls.tool_calls import CallParser
from verl_agentic.episode.codec.codec import ChatTemplateCodec, Codec
from verl_agentic.episode.codec.control_tokens import template_source
from verl_agentic.episode.codec.served_tools import ToolForm
from verl_agentic.episode.codec.turn_boundary import ContextBuilder
from verl_agentic.episode.protocols.load_protocol import Protocol, load_protocol
from verl_agentic.episode.protocols.text_codec import TextCodec

_MAX_KEPT = 16
_kept: OrderedDict[Any, tuple[Any, Codec]] = OrderedDict()


class CodecOptions(Settings):
    """Options of a protocol."""

    repair: bool = False
    """Fix calls that are almost valid (a trailing comma, single quotes, a missing brace); see `repaired_calls`."""
    check_arguments: bool = True
    """Check the arguments of a call against the schema of its tool. An invalid call gets the reasons as tool output."""
    tools_as: ToolForm = "given"
    """Form in which the chat template gets the tools: as they are `given`, or as `vllm` or `sglang` pass them on."""
    self_written: bool = False
    """The policy writes the observations itself, and no call is executed."""
    train_self_written: bool = False
    """Train on the observations that the policy writes."""


def make_codec(
    protocol: str,
    *,
    tokenizer: Any,
    builder: ContextBuilder,
    parser: CallParser,
    tool_format: str,
    options: CodecOptions | None = None,
) -> Codec:
    """Returns the codec of a protocol, cached by its arguments.

    Args:
        protocol: name or path; see `load_protocol`.
        builder: verl's token builder of the model.
        parser: verl's tool parser; only protocol `chat` uses it.
        tool_format: its name in verl's registry.
        options: what the user chooses.

    Raises:
        ConfigError: the protocol or an option is unknown, or a package is missing.
    """
    options = options or CodecOptions()
    kwargs = json.dumps(getattr(builder, "chat_template_kwargs", None) or {}, sort_keys=True, default=str)
    key = (id(tokenizer), template_source(tokenizer), type(builder), kwargs, protocol, tool_format, options)
    if key not in _kept:
        data = load_protocol(protocol)
        codec = _make_codec(data, options, tokenizer=tokenizer, builder=builder, parser=parser, tool_format=tool_format)
        _kept[key] = tokenizer, codec  # keeps the tokenizer alive, so that its id stays unique
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key][1]


def _make_codec(
    protocol: Protocol,
    options: CodecOptions,
    *,
    tokenizer: Any,
    builder: ContextBuilder,
    parser: CallParser,
    tool_format: str,
) -> Codec:
    if protocol.kind != "chat":
        if options.tools_as != "given":
            raise ConfigError(
                f"tools_as is about the tools of chat templates, got {options.tools_as!r} for a protocol that lists "
                "them itself; leave it out, or use protocol chat"
            )
        return TextCodec(
            protocol,
            tokenizer=tokenizer,
            builder=builder if template_source(tokenizer) else None,
            repair=options.repair,
            check_arguments=options.check_arguments,
            self_written=options.self_written,
            train_self_written=options.train_self_written,
        )
    if options.self_written:
        raise ConfigError("protocol 'chat' has no self-written observations; use one of tags, such as search_r1")
    return ChatTemplateCodec(
        builder=builder,
        parser=parser,
        tokenizer=tokenizer,
        tool_format=tool_format,
        repair=options.repair,
        check_arguments=options.check_arguments,
        tools_as=options.tools_as,
    )
