"""Between messages and tokens: how a conversation becomes ids, and sampled ids become an action."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.schema_check import argument_schema
from verl_agentic.base.types import Action, Message
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn, Schema, parameters_of
from verl_agentic.episode.codec.calls.tool_calls import CallParser, CallReader, ForeignReader
from verl_agentic.episode.codec.calls.tool_formats import FORMATS, MALFORMED_CALL, ToolFormat
from verl_agentic.episode.codec.control_tokens import Guard
from verl_agentic.episode.codec.decoding import exact_decoder
from verl_agentic.episode.codec.message_forms import to_template
from verl_agentic.episode.codec.served_tools import ToolForm, served_tool
from verl_agentic.episode.codec.threads import offload, offload_if_long
from verl_agentic.episode.codec.turn_boundary import ContextBuilder, TurnBoundary

__all__ = ["MALFORMED_CALL", "ChatTemplateCodec", "Codec", "ContextTokens", "Schema", "check_schemas"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ContextTokens:
    """Tokens that carry new messages to the policy, as an edit at the end of the stream."""

    removed: int
    """Number of tokens at the end of the stream that the template takes back."""
    token_ids: Sequence[int]
    """Appended tokens, including separators and the header of the next turn."""
    neutralised: int = 0
    """Number of markers (special tokens, tags of the protocol) in the messages that were broken up."""

    @property
    def growth(self) -> int:
        """Number of tokens by which the stream grows."""
        return len(self.token_ids) - self.removed


class Codec(Protocol):
    """One protocol of turns: chat-template tool calls, tags, ..."""

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """Ids that end a turn beside the model's own end-of-turn tokens."""
        ...

    @property
    def stop_texts(self) -> Sequence[str]:
        """Texts that end a turn; the tokens that hold them are sampled ones and stay."""
        ...

    def render_action(self, message: Message, *, continues: bool = False) -> str:
        """Returns an assistant message as the policy would write it, without the token that ends its turn.

        Reasoning that the header of the turn has opened is closed first.

        Args:
            continues: the turn follows an observation that the protocol writes into the policy's turn, so it has no
                header; see `render_next_action`.
        """
        ...

    def call_prefix(self, tool: str) -> str:
        """Returns how a turn begins that calls `tool`, up to its arguments; what forces a call writes it."""
        ...

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Schema]) -> list[int]:
        """Returns the ids of a prompt, up to and with the header of the policy's turn.

        No message can forge what the framework writes.
        """
        ...

    async def encode_context(
        self, previous: Sequence[Message], new: Sequence[Message], *, stream: Sequence[int], tools: Sequence[Schema]
    ) -> ContextTokens:
        """Returns the edit that appends `new` messages to a stream that ends with a turn of the policy.

        No message can forge what the framework writes; those of the system may speak of its tags.
        """
        ...

    def announce_tools(self, tools: Sequence[Schema], *, added: Sequence[Schema]) -> str:
        """Returns a description of `added` tools for a message in mid-episode, as a prompt describes them.

        From now on, the policy can call `tools`. Checks the new tools as `encode_prompt` does.
        """
        ...

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]) -> Action:
        """Returns what the policy did with the tokens it sampled in `turn`."""
        ...

    def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Returns the `[start, end)` offsets of sampled tokens of a turn that the protocol keeps out of the loss."""
        ...


class ChatTemplateCodec:
    """Tool calls as the model's chat template writes them, through verl's token builder and tool parsers."""

    def __init__(
        self,
        *,
        builder: ContextBuilder,
        parser: CallParser,
        tokenizer: Any,
        tool_format: str = "hermes",
        repair: bool = False,
        check_arguments: bool = True,
        tools_as: ToolForm = "given",
    ) -> None:
        """Makes the codec of a model.

        Args:
            builder: verl's token builder.
            parser: verl's tool parser.
            tool_format: name of the parser in verl's registry. Parsers that verl does not bring are taken as they
                are: what they drop is malformed, and nothing is known of their reasoning.
            repair: fix calls that are almost right.
            check_arguments: calls whose arguments do not fit the schema of their tool carry an error.
            tools_as: form in which the template gets the tools.

        Raises:
            MissingDependencyError: `repair` needs a package that is not installed.
        """
        self._builder = builder
        self._parser = parser
        self._tokenizer = tokenizer
        self._exact_text = exact_decoder(tokenizer)
        self._format = FORMATS.get(tool_format)
        self._check_arguments = check_arguments
        self._tools_as: ToolForm = tools_as
        self._reader = None
        if self._format is not None:
            self._reader = CallReader(parser, tool_format=self._format, repair=repair, check_arguments=check_arguments)
        self._boundary = TurnBoundary(builder, tokenizer, stop_token_ids=parser.stop_token_ids)
        tags, reasoning = (self._format.tags, self._format.reasoning) if self._format else ((), ())
        self.guard = Guard(tokenizer, around=tags, reasoning=reasoning)
        """Through which every message goes that is rendered."""
        self._special_tokens = sorted(set(tokenizer.all_special_tokens), key=len, reverse=True)
        self._shows_tools: bool | None = None

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """Ids of the tokens that the tool parser must see at the end of a turn."""
        return tuple(self._parser.stop_token_ids)

    @property
    def stop_texts(self) -> Sequence[str]:
        """None: chat templates end a turn with a token."""
        return ()

    def render_action(self, message: Message, *, continues: bool = False) -> str:
        """Returns the turn in the model's own form of tool calls; see `Codec.render_action`."""
        form = self._written_format
        if not message.tool_calls:
            text = form.said.replace("{content}", message.content)
        else:
            before = form.said_before.replace("{content}", message.content) if message.content else ""
            text = before + form.write((call.name, call.arguments) for call in message.tool_calls)
        opening, closing = form.reasoning
        if not message.reasoning or closing in message.content:
            return self.close_reasoning(text)
        thoughts = form.thoughts.replace("{content}", message.reasoning.strip("\n"))  # as templates print them
        if self._starts_in_reasoning:
            header = self._boundary.header()
            thoughts = thoughts.partition(opening)[2].removeprefix(header[len(header.rstrip()) :])
        return thoughts + text

    def call_prefix(self, tool: str) -> str:
        """Returns the beginning of a call in the model's own form, outside of the reasoning that a prompt may have
        opened; see `Codec.call_prefix`."""
        return self.close_reasoning(self._written_format.prefix(tool))

    def close_reasoning(self, text: str) -> str:
        """Returns a turn as it follows the header, which may have opened a block of reasoning; see
        `continue_reasoning`."""
        if not self._starts_in_reasoning:
            return text
        return continue_reasoning(text, self._written_format.reasoning)

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Schema]) -> list[int]:
        """Returns the rendered prompt; see `Codec.encode_prompt`.

        Raises:
            DataError: the parameters of a tool are no JSON schema.
        """
        if self._check_arguments:
            check_schemas(tools)
        safe = self.guard.prompt(messages)
        return await offload(self._encode_prompt, list(map(to_template, safe)), self._to_template_tools(tools))

    async def encode_context(
        self, previous: Sequence[Message], new: Sequence[Message], *, stream: Sequence[int], tools: Sequence[Schema]
    ) -> ContextTokens:
        """Returns the edit that verl's token builder makes; see `Codec.encode_context`."""
        before = list(map(to_template, self.guard.prompt(from_last_turn(previous))))
        guarded = [self.guard.observed(message) for message in new]
        safe = [message for message, _ in guarded]
        removed, token_ids = await offload_if_long(
            sum(len(message.content) for message in safe),
            self._boundary.append,
            before,
            list(map(to_template, safe)),
            stream=stream,
            tools=self._to_template_tools(tools),
        )
        return ContextTokens(removed, token_ids, neutralised=sum(broken for _, broken in guarded))

    def announce_tools(self, tools: Sequence[Schema], *, added: Sequence[Schema]) -> str:
        """Returns the schemas, one in a line; see `Codec.announce_tools`."""
        if self._check_arguments:
            check_schemas(added)
        return "\n".join(json.dumps(schema, ensure_ascii=False) for schema in self._serve_tools(added))

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]) -> Action:
        """Returns the parsed turn; calls that cannot be carried out say why."""
        ids = list(token_ids)
        text, starts_in_reasoning = await offload_if_long(len(ids), self._decode_turn, ids)
        parsed = await self._read_turn(ids, text, turn, tools, starts_in_reasoning)
        return Action(
            turn=turn,
            text=text,
            content=self._strip_special(parsed.content),
            tool_calls=parsed.calls,
            answer=None if parsed.answer is None else self._strip_special(parsed.answer),
            counts=parsed.counts,
        )

    def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        """None: everything that was sampled is trained."""
        return ()

    async def _read_turn(
        self, ids: list[int], text: str, turn: int, tools: Sequence[Schema], starts_in_reasoning: bool
    ) -> ParsedTurn:
        if self._reader is None:
            checked = tools if self._check_arguments else ()
            return await ForeignReader(self._parser).read(ids, text, turn=turn, tools=checked)
        text = self._without_end(text)
        return await self._reader.read(text, turn=turn, tools=tools, starts_in_reasoning=starts_in_reasoning)

    def _encode_prompt(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        render = partial(self._boundary.prompt, messages, write_calls=self._written_format.write)
        ids = render(tools=tools)
        if tools is not None and self._shows_tools is None:
            try:
                self._shows_tools = ids != render(tools=None)
            except ConfigError:  # a template that needs tools
                self._shows_tools = True
            if not self._shows_tools:
                logger.warning(
                    "the chat template does not print tools, got %d of them; the policy will not know them: use "
                    "another template, or a protocol that lists them",
                    len(tools),
                )
        return ids

    def _to_template_tools(self, schemas: Sequence[Schema]) -> list[Any] | None:
        # A template takes "no tools" as None; an empty list makes some print an empty tool section.
        return self._serve_tools(schemas) or None

    def _serve_tools(self, schemas: Sequence[Schema]) -> list[Any]:
        return [served_tool(schema, self._tools_as) for schema in self.guard.tools(schemas)]

    def _decode_turn(self, ids: list[int]) -> tuple[str, bool]:
        return self._exact_text(ids), self._starts_in_reasoning

    @property
    def _written_format(self) -> ToolFormat:
        return self._format or FORMATS["hermes"]

    @cached_property
    def _starts_in_reasoning(self) -> bool:
        """Returns whether the header of the policy's turn opens a block of reasoning."""
        return self._format is not None and self._boundary.header().rstrip().endswith(self._format.reasoning[0])

    def _without_end(self, text: str) -> str:
        """Returns the text without the special token that ended it, unless that token closes a call."""
        assert self._format is not None
        for token in self._special_tokens:
            if text.endswith(token) and token not in self._format.tags:
                return text.removesuffix(token)
        return text

    def _strip_special(self, text: str) -> str:
        for token in self._special_tokens:
            text = text.replace(token, "")
        return text.strip()


def render_next_action(codec: Codec, message: Message, *, before: Sequence[Message]) -> str:
    """Returns the policy's next turn in a conversation as text; see `Codec.render_action`."""
    last = next((earlier for earlier in reversed(before) if earlier.role == "assistant"), None)
    if last is not None and codec.stop_texts and any(call.error is None for call in last.tool_calls):
        return codec.render_action(message, continues=True)
    return codec.render_action(message)


def continue_reasoning(text: str, tags: tuple[str, str]) -> str:
    """Returns a turn as it continues the block of reasoning that its header has opened.

    A turn that closes the block itself stays as it is, without a second opening tag.

    Args:
        tags: what opens and closes the block.
    """
    opening, closing = tags
    if closing in text:
        return text.removeprefix(opening)
    return f"{closing}\n\n{text}"


def check_schemas(tools: Sequence[Schema]) -> None:
    """Fails early when the arguments of a tool could not be checked.

    Raises:
        DataError: the parameters of a tool are no JSON schema.
    """
    for parameters in parameters_of(tools).values():
        if parameters is not None:
            argument_schema(parameters)


def from_last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Returns the end of a conversation, from the policy's last turn on.

    More of it would make every turn cost more than the one before.
    """
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant":
            return messages[index:]
    return messages
