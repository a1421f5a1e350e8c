"""A server of the chat API as a policy: messages and tools in, a message with tool calls out.

The loop needs tokens. vLLM returns those of a chat on request (`return_token_ids`). Other servers do not: then ids are
computed afterwards, with the local tokenizer or from bytes. Those approximate the length of a turn and are not the
sampled ids.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from verl_agentic.base.errors import PolicyError
from verl_agentic.base.types import Action, Message, ToolCall, load_arguments
from verl_agentic.episode.codec.calls.json_values import UNREADABLE, load_json, reason_of
from verl_agentic.episode.codec.calls.parsed_turn import call_with, fit_arguments, parameters_of
from verl_agentic.episode.codec.calls.tool_formats import THINK
from verl_agentic.episode.codec.clipping import TextTokenizer
from verl_agentic.episode.codec.codec import Codec, ContextTokens, Schema
from verl_agentic.episode.codec.control_tokens import Guard
from verl_agentic.episode.codec.served_tools import find_difference
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.evaluate.policies.byte_tokenizer import ByteTokenizer
from verl_agentic.evaluate.policies.completions import (
    Endpoint,
    Sampling,
    TurnRefusedError,
    finish_reason_of,
    prompt_ids_of,
    token_ids_of,
    usage_of,
)
from verl_agentic.graders.models.chat_choice import first_choice, read_choice

IdSource = Literal["exact", "sampled", "approximate"]
"""`exact`: all ids are the server's. `sampled`: those of turns are, and its prompts differ from those encoded here.
`approximate`: all ids were encoded here."""


logger = logging.getLogger(__name__)
_reported: set[str] = set()
"""Servers whose prompts were reported to differ."""


class _AnyTokenizer:
    """Replaces an unknown tokenizer: removes turn markers of common model families."""

    all_special_tokens = (
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "[INST]", "[/INST]", "<bos>", "<eos>"),
        *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
        *("<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>", "<|user|>", "<|assistant|>", "<|system|>"),
        *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|constrain|>"),
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    )


def plain_text(message: Message) -> str:
    """Returns a turn as text without a template: its thoughts between tags, the content, a line of JSON per call."""
    message = with_thoughts(message)
    calls = [json.dumps({"name": c.name, "arguments": dict(c.arguments)}) for c in message.tool_calls]
    return "\n".join([message.content, *calls] if message.content else calls)


def with_thoughts(message: Message) -> Message:
    """Returns a turn whose content begins with its thoughts, between tags."""
    if not message.reasoning:
        return message
    block = "\n".join([THINK[0], message.reasoning.strip("\n"), THINK[1]])
    return replace(message, content=f"{block}\n\n{message.content}", reasoning="")


class ChatConversation:
    """The policy and the codec of one episode. The server's messages are not parsed again.

    Only text without calls goes through the local codec, if any, because servers without a tool parser leave calls in
    the text.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        sampling: Sampling,
        tokenizer: TextTokenizer | None = None,
        codec: Codec | None = None,
        asks_for_ids: bool = False,
        max_tokens_field: str = "max_tokens",
    ) -> None:
        """Makes the two ends of an episode.

        Args:
            sampling: how turns are sampled.
            tokenizer: gives counts and ids of the record; None: four bytes per token.
            codec: of the tokenizer, with the chat protocol.
            asks_for_ids: ask the server for the ids that it reads and samples; needs its own tokenizer.
            max_tokens_field: the server's name of the maximum answer length.
        """
        self._endpoint = endpoint
        self._sampling = sampling
        self.tokenizer: TextTokenizer = tokenizer or ByteTokenizer()
        self._codec = codec
        self._asks_for_ids = asks_for_ids
        self._max_tokens_field = max_tokens_field
        self._sources: set[IdSource] = set()
        self._guard: Guard = getattr(codec, "guard", None) or Guard(_AnyTokenizer())
        self._tools: list[dict[str, Any]] = []
        self._messages_by_ids: dict[tuple[int, ...], Message] = {}
        """Ids of a turn -> the server's message."""
        self._unreadable: dict[str, str] = {}
        """Id of a call -> its raw arguments, if they are not JSON."""
        self._reasoning_fields: Sequence[str] = ()
        """Names under which the server returned thoughts."""
        self.usage: Counter[str] = Counter()
        """Tokens as the server counts them."""

    # The policy.

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples one turn; see `Policy.generate`."""
        body = {
            "messages": [self._to_wire(message) for message in self._guard.prompt(messages)],
            self._max_tokens_field: max_tokens,
            **self._sampling.to_body(),
        }
        if self._tools:
            body["tools"] = self._guard.tools(self._tools)
        if self._asks_for_ids:
            body["return_token_ids"] = True
        # The server renders these with its own template, and encodes special tokens in them.
        try:
            answer = await self._endpoint.post("/chat/completions", body)
        except TurnRefusedError as refused:
            return refused.completion
        self.usage.update(usage_of(answer))
        choice = first_choice(answer)
        finish_reason, reply = finish_reason_of(choice), self._read_message(answer, number=len(self._messages_by_ids))
        token_ids = token_ids_of(choice) if self._asks_for_ids else None
        if token_ids is None:
            self._sources.add("approximate")
            # The local count may exceed the server's. Then the record is cut, the message is not.
            token_ids = [*self._encode_text(self.render_action(reply)), int(self.tokenizer.eos_token_id)][:max_tokens]
        else:
            served = prompt_ids_of(answer, choice)
            self._sources.add("exact" if served == list(prompt_ids) else "sampled")
            self._report_difference(prompt_ids, served)
        self._messages_by_ids[tuple(token_ids)] = reply
        return Completion(token_ids=token_ids, log_probs=None, finish_reason=finish_reason)

    def _report_difference(self, prompt_ids: Sequence[int], served: Sequence[int] | None) -> None:
        """Warns once per server where its prompt differs from that of training."""
        url = self._endpoint.config.url
        difference = find_difference(prompt_ids, served, decode=self.tokenizer.decode) if served else None
        if difference is not None and url not in _reported:
            _reported.add(url)
            logger.warning(
                "the server's prompt differs from that of training at token %d: %r here, %r there; see tools_as, and "
                "the chat template of the server",
                *difference,
            )

    @property
    def id_source(self) -> IdSource:
        """The source of all ids so far."""
        worst_first: tuple[IdSource, ...] = ("approximate", "sampled", "exact")
        sources = self._sources or {"exact" if self._asks_for_ids else "approximate"}
        return next(source for source in worst_first if source in sources)

    def _read_message(self, answer: Mapping[str, Any], *, number: int) -> Message:
        """Returns the message of an answer. Raises PolicyError if it has no message."""
        try:
            choice = read_choice(answer)
        except ValueError as cause:
            raise PolicyError(str(cause)) from cause
        calls = [self._read_call(call, f"call_{number}_{index}") for index, call in enumerate(choice.calls)]
        self._reasoning_fields = [name for name, text in choice.thoughts.items() if text] or self._reasoning_fields
        reasoning = _replace_surrogates(next(filter(None, choice.thoughts.values()), ""))
        return Message("assistant", _replace_surrogates(choice.content), tool_calls=tuple(calls), reasoning=reasoning)

    def _read_call(self, call: Any, default_id: str) -> ToolCall:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise PolicyError(f"a tool call must have a function, got {str(call)[:200]}")
        call_id, name = str(call.get("id") or default_id), str(function.get("name") or "")
        arguments = function.get("arguments")
        try:
            value = load_arguments(arguments, load=load_json)
        except UNREADABLE as cause:
            self._unreadable[call_id] = _replace_surrogates(str(arguments))
            return ToolCall(name, {}, call_id, f"the arguments are no JSON: {reason_of(cause)}", "malformed_json")
        return replace(call_with(name, value, call_id=call_id), call_id=call_id)

    def _to_wire(self, message: Message) -> dict[str, Any]:
        """Returns a message in OpenAI's form, whose arguments are JSON text."""
        wire: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            wire["tool_calls"] = [self._call_to_wire(call) for call in message.tool_calls]
        if message.role == "tool":
            wire["tool_call_id"] = message.call_id
        if message.reasoning:
            (safe,) = self._guard.prompt([Message("assistant", message.reasoning)])
            wire |= dict.fromkeys(self._reasoning_fields, safe.content)
        return wire

    def _call_to_wire(self, call: ToolCall) -> dict[str, Any]:
        arguments: Mapping[str, Any] = call.arguments
        if call.call_id in self._unreadable:  # servers read the arguments of the history: it must be JSON
            safe, _ = self._guard.observed(Message("tool", self._unreadable[call.call_id]))
            arguments = {"malformed_arguments": safe.content}
        function = {"name": call.name or "unknown", "arguments": json.dumps(dict(arguments), ensure_ascii=False)}
        return {"id": call.call_id, "type": "function", "function": function}

    # The codec.

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """None: the server knows where its turns end."""
        return ()

    @property
    def stop_texts(self) -> Sequence[str]:
        """None: the server knows where its turns end."""
        return ()

    def render_action(self, message: Message, *, continues: bool = False) -> str:
        """Returns a turn as text; see `Codec.render_action`."""
        if self._codec is not None:
            return self._codec.render_action(with_thoughts(message))
        return plain_text(message)

    def call_prefix(self, tool: str) -> str:
        """Returns nothing: turns of such a server cannot have forced text."""
        return ""

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Schema]) -> list[int]:
        """Returns ids of the prompt, encoded here, and keeps the tools for requests."""
        self._tools = [dict(tool) for tool in tools]
        if self._codec is not None:
            return await self._codec.encode_prompt(messages, tools)
        return self._encode_text("".join(map(json.dumps, self._tools)) + _join_messages(messages))

    async def encode_context(
        self, previous: Sequence[Message], new: Sequence[Message], *, stream: Sequence[int], tools: Sequence[Schema]
    ) -> ContextTokens:
        """Returns ids of new messages, encoded here; see `Codec.encode_context`."""
        if self._codec is not None:
            return await self._codec.encode_context(previous, new, stream=stream, tools=tools)
        return ContextTokens(0, self._encode_text(_join_messages(new)))

    def announce_tools(self, tools: Sequence[Schema], *, added: Sequence[Schema]) -> str:
        """Returns the tools as text. Without a codec, requests have the new tools, too: many servers refuse calls of
        others. With one, the server must read the prompt that training has."""
        if self._codec is not None:
            return self._codec.announce_tools(tools, added=added)
        self._tools = [dict(tool) for tool in tools]
        return "\n".join(map(json.dumps, added))

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]) -> Action:
        """Returns the server's message for these ids; arguments are checked as in training."""
        message = self._messages_by_ids.get(tuple(token_ids))
        if self._codec is not None and (message is None or not message.tool_calls):
            return await self._read_text(self._codec, message, token_ids, turn=turn, tools=tools)
        if message is None:
            message = Message("assistant", self.tokenizer.decode(token_ids))
        parameters = parameters_of(tools)
        calls = tuple(fit_arguments(call, parameters.get(call.name), raw={}) for call in message.tool_calls)
        return Action(
            turn=turn,
            text=self.render_action(message),
            content=message.content,
            tool_calls=calls,
            reasoning=message.reasoning,
        )

    async def _read_text(
        self, codec: Codec, message: Message | None, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]
    ) -> Action:
        """Returns a turn without calls of the server's, read by the codec: its text may hold calls."""
        if message is None or not message.reasoning:
            return await codec.decode_action(token_ids, turn=turn, tools=tools)
        ids = self._encode_text(codec.render_action(replace(message, reasoning="")))
        action = await codec.decode_action(ids, turn=turn, tools=tools)
        closing = codec.render_action(Message("assistant", "")).strip()
        return replace(
            action,
            text=self.render_action(message),
            content=action.content.removeprefix(closing).strip(),
            reasoning=message.reasoning,
        )

    def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Empty: this policy is not trained."""
        return ()

    def _encode_text(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def _join_messages(messages: Sequence[Message]) -> str:
    return "".join(f"{message.role}\n{message.content}\n" for message in messages)


def _replace_surrogates(text: str) -> str:
    """Returns the text without lone surrogates, which JSON may contain but UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
