"""The codec of a protocol that writes its actions as text: in tags, as JSON objects, functions, or lists of calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message
from verl_agentic.episode.codec.calls.parsed_turn import parameters_of
from verl_agentic.episode.codec.codec import ContextTokens, Schema, check_schemas, continue_reasoning, from_last_turn
from verl_agentic.episode.codec.control_tokens import Guard, tags_in
from verl_agentic.episode.codec.decoding import exact_decoder, tokens_between
from verl_agentic.episode.codec.message_forms import to_template
from verl_agentic.episode.codec.threads import offload, offload_if_long
from verl_agentic.episode.codec.turn_boundary import ContextBuilder, TurnBoundary
from verl_agentic.episode.protocols.call_list_actions import CallListActions
from verl_agentic.episode.protocols.function_actions import TAGS, FunctionActions, list_functions
from verl_agentic.episode.protocols.json_actions import JsonActions
from verl_agentic.episode.protocols.load_protocol import Protocol
from verl_agentic.episode.protocols.tag_actions import INVALID, TagActions

_ANY_TOOLS = ("functions", "call_list")
"""Kinds of protocols that can call any tool."""
Actions = JsonActions | FunctionActions | CallListActions | TagActions


class TextCodec:
    """Prompts, actions and observations of a text protocol.

    If the protocol writes observations into the policy's turn, they are appended as text, and the policy continues. If
    the policy ended the turn with its own token, the observation is a user message instead.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        tokenizer: Any,
        builder: ContextBuilder | None,
        repair: bool = False,
        check_arguments: bool = True,
        self_written: bool = False,
        train_self_written: bool = False,
    ) -> None:
        """Makes the codec of a protocol and a model.

        Args:
            protocol: the protocol, of any kind but `chat`.
            builder: verl's token builder; None for a model without a chat template (plain text prompt).
            repair: fix JSON that is almost right.
            check_arguments: marks calls whose arguments do not fit their tool's schema as errors.
            self_written: the policy writes observations itself, and no call is executed.
            train_self_written: whether these observations are trained.

        Raises:
            ConfigError: the protocol has no self-written observations, or `repair` lacks its package.
        """
        if self_written and protocol.self_written is None:
            raise ConfigError(f"protocol {protocol.name!r} has no tags for self-written observations; add self_written")
        self._protocol = protocol
        self._tokenizer = tokenizer
        self._exact_text = exact_decoder(tokenizer)
        self._boundary = None if builder is None else TurnBoundary(builder, tokenizer)
        self._check_arguments = check_arguments
        self._untrained = protocol.self_written if self_written and not train_self_written else None
        self._actions = _make_actions(protocol, repair=repair, self_written=self_written)
        calls = [form.tags[1] for form in protocol.calls]
        self._stop_texts = tuple(text for text in protocol.stop if not (self_written and text in calls))
        tags = [tag for form in (*protocol.calls, protocol.answer) if form for tag in form.tags if "<" in tag]
        tags += TAGS if protocol.kind == "functions" else protocol.call_tags or ()
        self.guard = Guard(
            tokenizer,
            around=[*tags_in(protocol.observation), *tags_in(protocol.notice)],
            tags=tags,
            reasoning=protocol.reasoning or (),
            written_tags=[*tags, *((protocol.self_written or ()) if self_written else ())],
        )
        """Renders all messages."""

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """None in addition to the model's own."""
        return ()

    @property
    def stop_texts(self) -> Sequence[str]:
        """The protocol's; see `Codec.stop_texts`."""
        return self._stop_texts

    def render_action(self, message: Message, *, continues: bool = False) -> str:
        """See `Codec.render_action`. Raises ConfigError if the message calls a tool that the protocol cannot call."""
        text = self._actions.write(message)
        has_header = not continues or self._protocol.observed_in == "user"
        return self._as_begun(text) if has_header else text

    def call_prefix(self, tool: str) -> str:
        """Returns the start of a call in the protocol's form, outside of reasoning; see `Codec.call_prefix`."""
        return self._as_begun(self._actions.prefix(tool))

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Schema]) -> list[int]:
        """Returns the prompt with the protocol's instructions; see `Codec.encode_prompt`.

        A conversation with turns of the policy is continued.

        Raises:
            ConfigError: the environment has a tool that the protocol cannot call.
            DataError: the parameters of a tool are not a JSON schema.
        """
        self._check_tools(tools)
        begun = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
        prompt = self._with_instructions(self.guard.prompt(messages[:begun]), self.guard.tools(tools))
        return await offload(self._encode_prompt, prompt, messages[begun:])

    async def encode_context(
        self, previous: Sequence[Message], new: Sequence[Message], *, stream: Sequence[int], tools: Sequence[Schema]
    ) -> ContextTokens:
        """Returns the observations in the protocol's form; see `Codec.encode_context`."""
        text, broken = self._write_observation(new)
        removed, token_ids = await offload_if_long(len(text), self._append_text, from_last_turn(previous), text, stream)
        return ContextTokens(removed, token_ids, neutralised=broken)

    def announce_tools(self, tools: Sequence[Schema], *, added: Sequence[Schema]) -> str:
        """Returns the tools as the prompt lists them; see `Codec.announce_tools`."""
        self._check_tools(added)
        return self._describe_tools(self.guard.tools(added))

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]) -> Action:
        """Returns the parsed turn; see `Codec.decode_action`."""
        ids = list(token_ids)
        text, starts_in_reasoning = await offload_if_long(len(ids), self._decode_turn, ids)
        parsed = self._actions.read(
            self._without_end(text),
            turn=turn,
            parameters=parameters_of(tools) if self._check_arguments else {},
            # A turn that continues after an observation has no header.
            in_reasoning=starts_in_reasoning and (turn == 0 or self._protocol.observed_in == "user"),
        )
        return Action(
            turn=turn,
            text=text,
            content=parsed.content.strip(),
            tool_calls=parsed.calls,
            answer=parsed.answer,
            counts=parsed.counts,
        )

    def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Returns the spans of self-written observations; see `Codec.untrained_spans`."""
        if self._untrained is None:
            return ()
        return tokens_between(self._tokenizer, token_ids, *self._untrained)

    # Prompts.

    def _check_tools(self, tools: Sequence[Schema]) -> None:
        if self._check_arguments:
            check_schemas(tools)
        if self._protocol.kind in _ANY_TOOLS:
            return
        arguments = {form.tool: form.argument for form in self._protocol.calls}
        for name, parameters in parameters_of(tools).items():
            properties = (parameters or {}).get("properties", {})
            if name not in arguments or (properties and arguments[name] not in properties):
                raise ConfigError(
                    f"protocol {self._protocol.name!r} calls the tools and arguments {arguments}, got a tool {name!r} "
                    f"with the arguments {sorted(properties)}; choose another protocol, or write one for it"
                )

    def _with_instructions(self, messages: Sequence[Message], tools: Sequence[Schema]) -> list[Message]:
        """Returns the messages of a prompt with the protocol's instructions."""
        system = [m.content for m in messages if m.role == "system"]
        rest = [m for m in messages if m.role != "system"]
        if rest:
            question = self._protocol.question.replace("{tools}", self._describe_tools(tools))
            rest[-1] = replace(rest[-1], content=question.replace("{prompt}", rest[-1].content))
        text = "\n\n".join(part for part in (self._protocol.system, *system) if part)
        return [*([Message("system", text)] if text else []), *rest]

    def _describe_tools(self, tools: Sequence[Schema]) -> str:
        return list_functions(tools) if self._protocol.kind in _ANY_TOOLS else _list_tools(tools)

    def _encode_prompt(self, prompt: Sequence[Message], begun: Sequence[Message]) -> list[int]:
        if self._boundary is not None and self._protocol.observed_in == "user":
            return self._render_prompt([*prompt, *self._as_chat(begun)])
        if self._boundary is None:
            text = self._protocol.raw.replace("{prompt}", "\n\n".join(m.content for m in prompt))
            ids = list(self._tokenizer.encode(text))
        else:
            ids = self._render_prompt(prompt)
        beginning = self._as_text(begun)
        return [*ids, *(self._encode_text(beginning) if beginning else ())]

    def _render_prompt(self, messages: Sequence[Message]) -> list[int]:
        assert self._boundary is not None
        chat = list(map(to_template, messages))
        return self._boundary.prompt(chat, tools=None, write_calls=lambda calls: "")

    def _as_chat(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the policy's turns and their observations as assistant and user messages."""
        chat: list[Message] = []
        for message in messages:
            if message.role == "assistant":
                chat.append(Message("assistant", self._write_action(message)))
            elif chat and chat[-1].role == "user":
                chat[-1] = replace(
                    chat[-1], content=f"{chat[-1].content}\n{self._write_observation([message])[0].strip()}"
                )
            else:
                chat.append(Message("user", self._write_observation([message])[0].strip()))
        return chat

    def _write_action(self, message: Message) -> str:
        (safe,) = self.guard.prompt([message])
        return self._actions.write(safe)

    def _as_text(self, messages: Sequence[Message]) -> str:
        """Returns the policy's turns and their observations as one text, which follows a header."""
        texts = [
            self._write_action(message) if message.role == "assistant" else self._write_observation([message])[0]
            for message in messages
        ]
        return "".join([self._as_begun(texts[0]), *texts[1:]]) if texts else ""

    # Observations.

    def _write_observation(self, messages: Iterable[Message]) -> tuple[str, int]:
        """Returns messages in the protocol's form, and the number of escaped markers."""
        parts, broken = [], 0
        for message in messages:
            is_result = message.role == "tool" and not message.call_id.startswith(INVALID)
            safe, count = self.guard.observed(message, is_result=is_result)
            form = self._protocol.observation if is_result else self._protocol.notice
            parts.append(form.replace("{content}", safe.content))
            broken += count
        joint = "\n" if self._protocol.observed_in == "user" else ""
        return joint.join(parts), broken

    def _append_text(self, previous: Sequence[Message], text: str, stream: Sequence[int]) -> tuple[int, list[int]]:
        boundary = self._boundary
        if boundary is None or (self._protocol.observed_in == "assistant" and not boundary.ends_with_token(stream)):
            return 0, self._encode_text(text)
        before = list(map(to_template, self.guard.prompt(previous)))
        return boundary.append(before, [Message("user", text.strip()).to_dict()], stream=stream, tools=None)

    def _encode_text(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    # Actions.

    def _as_begun(self, text: str) -> str:
        """Returns a turn as it follows the header, which may have opened a block of reasoning."""
        if self._protocol.reasoning is None or not self._starts_in_reasoning:
            return text
        return continue_reasoning(text, self._protocol.reasoning)

    def _decode_turn(self, ids: list[int]) -> tuple[str, bool]:
        return self._exact_text(ids), self._starts_in_reasoning

    @cached_property
    def _starts_in_reasoning(self) -> bool:
        """Returns whether the prompt opens a block of reasoning."""
        if self._protocol.reasoning is None:
            return False
        header = self._protocol.raw if self._boundary is None else self._boundary.header()
        return header.rstrip().endswith(self._protocol.reasoning[0])

    def _without_end(self, text: str) -> str:
        ends = (token for token in self._tokenizer.all_special_tokens if text.endswith(token))
        return text.removesuffix(next(ends, ""))


def _make_actions(protocol: Protocol, *, repair: bool, self_written: bool) -> Actions:
    if protocol.kind == "json":
        return JsonActions(protocol, repair=repair)
    if protocol.kind == "call_list":
        return CallListActions(protocol, repair=repair)
    return (
        FunctionActions(protocol) if protocol.kind == "functions" else TagActions(protocol, self_written=self_written)
    )


def _list_tools(tools: Sequence[Schema]) -> str:
    functions = [tool["function"] for tool in tools]
    return "\n".join(
        f"- {f['name']}({', '.join(f.get('parameters', {}).get('properties', {}))}): {f.get('description', '')}"
        for f in functions
    )
