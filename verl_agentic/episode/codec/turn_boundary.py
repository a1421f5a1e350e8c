"""The seam between a turn that the policy sampled and the messages that follow it.

verl's token builders render new messages exactly, but after a synthetic conversation, which some chat templates refuse.
There, the template renders the messages after a question and a turn of the policy, in the first form that it takes
(`message_forms`). Nothing that the policy wrote is rendered again, beside the names and ids of its calls.

Builders also expect that a turn ended with the one token that the chat template ends it with. A turn may also end with
another stop token (`<|endoftext|>`), with a stop text, or in the middle of a word; and the builder for families that
verl does not know leaves out what the template writes after that token. What is missing is added here, after the
sampled tokens, none of which is altered.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

from jinja2.exceptions import SecurityError

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.episode.codec.control_tokens import template_source
from verl_agentic.episode.codec.message_forms import ChatMessage, WriteCalls, prompt_forms, reply_forms

logger = logging.getLogger(__name__)
_USER = {"role": "user", "content": "0"}
_REPLIES = ({"role": "assistant", "content": "0"}, {"role": "assistant", "content": "1"})
_SEEN_TOKENS = 32  # of the stream; builders look at its last few tokens
_MAX_REMEMBERED, _MAX_KEY_CHARS = 256, 2_000
_PROBE = "probe{index}text"
_NO_ARGUMENTS = {"type": "object", "properties": {}}
_TOOLS = [{"type": "function", "function": {"name": "t", "description": "", "parameters": _NO_ARGUMENTS}}]


class ContextBuilder(Protocol):
    """The part of verl's Continuous Token builder that is used here."""

    def build_initial_tokens(self, messages: list[ChatMessage], *, tools: list[Any] | None = None) -> list[int]: ...

    def merge_context_tokens(
        self,
        previous_messages: list[ChatMessage],
        updated_messages: list[ChatMessage],
        runtime_token_ids: list[int],
        *,
        tools: list[Any] | None = None,
    ) -> Any: ...

    def render_delta_token_id(
        self, prefix_messages: list[ChatMessage], appended_messages: list[ChatMessage]
    ) -> list[int]: ...


class TurnBoundary:
    """Appends messages to a stream that ends with a turn of the policy, however that turn ended."""

    def __init__(self, builder: ContextBuilder, tokenizer: Any, *, stop_token_ids: Sequence[int] = ()) -> None:
        """Makes the seam of a model.

        Args:
            builder: verl's token builder.
            stop_token_ids: ids that end a turn and that the template writes itself before what follows.
        """
        self._prompt_builder, self._builder = builder, _remember_renderings(builder)
        self._tokenizer = tokenizer
        self._stop_token_ids = frozenset(stop_token_ids)
        self._needs_tools: dict[frozenset[str], bool] = {}
        self._first_ways: dict[tuple[str, ...], int] = {}
        self._are_blank: dict[int, bool] = {}

    def prompt(self, messages: Sequence[ChatMessage], *, tools: Any, write_calls: WriteCalls) -> list[int]:
        """Returns the tokens of a conversation up to and with the header of the policy's turn.

        Args:
            tools: the schemas of the prompt, or None.
            write_calls: see `message_forms.prompt_forms`.

        Raises:
            ConfigError: the template needs tools, or does what Jinja's sandbox forbids.
            Exception: that of the template, if it takes no form of the conversation.
        """
        refusal: Exception | None = None
        for form in prompt_forms(messages, write_calls=write_calls):
            try:
                return list(self._prompt_builder.build_initial_tokens(form, tools=tools))
            except Exception as cause:
                _refuse_forbidden(cause)
                refusal = refusal or cause
        assert refusal is not None
        if tools is None and self._needs_tools_always:
            raise ConfigError(
                f"the chat template renders no prompt without tools, got {type(refusal).__name__}: {refusal}; use an "
                "environment with tools, or set actor_rollout_ref.model.custom_chat_template"
            ) from refusal
        raise refusal

    def append(
        self, previous: Sequence[ChatMessage], new: Sequence[ChatMessage], *, stream: Sequence[int], tools: Any
    ) -> tuple[int, list[int]]:
        """Returns how many tokens at the end of the stream are taken back, and what is appended then.

        Tokens are taken back only where a template writes another token in their place.

        Args:
            previous: the policy's turn; what came before it cannot matter.
            new: the messages after it.
            stream: the ids that the policy has seen and sampled; ends with its turn.
            tools: the schemas that the prompt was rendered with.

        Raises:
            ConfigError: the template renders no messages of these roles after a turn.
            DataError: it renders some, and not these.
        """
        last_ids = list(stream[-_SEEN_TOKENS:])
        closed = [*last_ids, *self._find_missing_end(last_ids)]
        roles = _shape_of(new)
        if roles not in self._first_ways:
            self._first_ways[roles] = self._find_way(roles, tools)
        refusal: Exception | None = None
        for number, way in enumerate(self._iter_ways(previous, new, closed, tools)):
            if number < self._first_ways[roles]:
                continue
            try:
                num_kept, appended = way()
            except Exception as cause:
                _refuse_forbidden(cause)
                refusal = cause
                continue
            return max(0, len(last_ids) - num_kept), closed[len(last_ids) : num_kept] + appended
        raise DataError(f"the chat template cannot render these messages, got {refusal}") from refusal

    def _find_way(self, roles: tuple[str, ...], tools: Any) -> int:
        """Returns the number of the first way in which messages of these roles reach the policy.

        Other messages than those of the episode are rendered, so the policy has no influence on the way. The builder's
        way counts only if the template takes such messages after a turn: in a synthetic conversation, some templates
        take a message of the system for a turn of the policy.
        """
        if not template_source(self._tokenizer):  # the builder alone knows how to render
            return 0
        texts = [_PROBE.replace("{index}", str(index)) for index in range(len(roles))]
        new = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        for index, message in enumerate(new):
            if message["role"] == "tool":
                message |= {"name": "probe", "tool_call_id": f"call_0_{index}"}
        (turn, _), _ = next(reply_forms(new))
        ways = list(self._iter_ways([turn], new, self._turn_closing, tools))
        faults = [self._find_fault(way, texts) for way in ways]
        sound_ways = [number for number, fault in enumerate(faults) if not fault]
        if not sound_ways:
            raise ConfigError(
                f"the chat template renders no message of {', '.join(dict.fromkeys(roles))} after a turn of the "
                f"policy, {faults[1]}; set actor_rollout_ref.model.custom_chat_template, or use another model"
            )
        return sound_ways[-1] if sound_ways == [0, len(ways) - 1] else sound_ways[0]

    def _find_fault(self, way: Callable[[], tuple[int, list[int]]], texts: Sequence[str]) -> str:
        """Returns why messages with these texts do not reach the policy in a way; empty if they do."""
        try:
            text = self._tokenizer.decode(way()[1])
        except Exception as cause:
            _refuse_forbidden(cause)
            return f"got {type(cause).__name__}: {cause}"
        return "" if all(part in text for part in texts) else "it leaves their text out"

    def _iter_ways(
        self, previous: Sequence[ChatMessage], new: Sequence[ChatMessage], closed: list[int], tools: Any
    ) -> Iterator[Callable[[], tuple[int, list[int]]]]:
        """Yields ways to render messages: each returns how much of `closed` stays, and what is appended to it."""
        yield partial(self._render_with_builder, previous, new, closed, tools)
        for turns, messages in reply_forms(new):
            yield partial(self._render_after_turn, turns, messages, closed, tools)

    def _render_with_builder(
        self, previous: Sequence[ChatMessage], new: Sequence[ChatMessage], closed: list[int], tools: Any
    ) -> tuple[int, list[int]]:
        """Renders messages with verl's builder."""
        before = [_USER, *previous]  # some templates want a question before an answer
        merged = self._merge_tokens(before, new, closed, tools)
        num_kept = len(closed) - merged.removed_prefix_token_count
        appended = list(merged.token_ids[num_kept:])
        # Taken back and written again: it stays the sampled one.
        if closed[num_kept:] == appended[: len(closed) - num_kept]:
            appended, num_kept = appended[len(closed) - num_kept :], len(closed)
        if num_kept == len(closed) and closed[-1:] == self._turn_closing[-1:]:
            appended = self._after_end(appended) or self._turn_separator + appended
        return num_kept, appended

    def _render_after_turn(
        self, turns: list[ChatMessage], messages: list[ChatMessage], closed: list[int], tools: Any
    ) -> tuple[int, list[int]]:
        """Renders messages with the template, after a question and a turn of the policy."""
        _, appended = self._split_after_turn(turns, messages, tools)
        separator = self._turn_ending[len(self._turn_closing) :] if closed[-1:] == self._turn_closing[-1:] else []
        return len(closed), self._after_end(appended) or separator + appended

    def _after_end(self, appended: list[int]) -> list[int]:
        """Returns what stands after an end of the policy's turn in appended tokens; empty if they begin with none.

        The last turn of a conversation ends otherwise in some templates, so that its end looks new before a message.
        """
        end, begin = self._turn_closing[self._count_blanks(self._turn_closing) :], self._count_blanks(appended)
        return appended[begin + len(end) :] if end and appended[begin : begin + len(end)] == end else []

    def _split_after_turn(
        self, turns: Sequence[ChatMessage], messages: list[ChatMessage], tools: Any
    ) -> tuple[list[int], list[int]]:
        """Returns the tokens that end a turn, and those of the messages and of the next turn's header.

        The same conversation with another turn ends alike, from the end of that turn on. Without the messages, it ends
        with the end of the turn alone.
        """
        whole, bare = (
            _common_end(*(self._render_ids([_USER, turn, *new], with_header=bool(new), tools=tools) for turn in turns))
            for new in (messages, [])
        )
        bare = self._without_header(bare)
        length = next((n for n, (a, b) in enumerate(zip(whole, bare, strict=False)) if a != b), len(bare))
        return whole[:length], whole[length:]

    def _count_blanks(self, tokens: list[int]) -> int:
        """Returns how many tokens of white space stand at the beginning."""
        return next((n for n, token in enumerate(tokens) if not self._is_blank(token)), len(tokens))

    def _is_blank(self, token: int) -> bool:
        if token not in self._are_blank:
            self._are_blank[token] = not self._tokenizer.decode([token]).strip()
        return self._are_blank[token]

    def _without_header(self, ending: list[int]) -> list[int]:
        """Returns what stands after the content of a last turn, without the header that some templates always write."""
        eos = self._tokenizer.eos_token_id
        if eos not in ending or not self._always_writes_header:
            return ending
        return ending[: len(ending) - ending[::-1].index(eos)]

    @cached_property
    def _always_writes_header(self) -> bool:
        """Returns whether the header of the policy's turn is not an option of the template."""
        try:
            conversations = (
                self._render_ids([_USER, _REPLIES[0]], with_header=h, tools=self._own_tools) for h in (True, False)
            )
            return operator.eq(*conversations)
        except Exception as cause:
            logger.info("the chat template renders no turn: %s", cause)
            return False

    def _render_ids(self, messages: Sequence[ChatMessage], *, with_header: bool, tools: Any) -> list[int]:
        options = getattr(self._builder, "chat_template_kwargs", None) or {}
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=with_header, tools=tools, **options
        )
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _merge_tokens(
        self, before: list[ChatMessage], new: Sequence[ChatMessage], closed: list[int], tools: Any
    ) -> Any:
        """Returns the builder's merge. It renders all tools twice for every message; where that has made no difference
        for messages of the same roles, they are left out."""
        roles = frozenset(message["role"] for message in new)
        after = before + list(new)
        if tools is not None and not self._needs_tools.get(roles, True):
            tools = None
        merged = self._builder.merge_context_tokens(before, after, closed, tools=tools)
        if tools is not None and roles not in self._needs_tools:
            try:
                without = self._builder.merge_context_tokens(before, after, closed)
                self._needs_tools[roles] = list(without.token_ids) != list(merged.token_ids)
            except Exception as cause:
                logger.info("observations are rendered together with the tools: %s", cause)
                self._needs_tools[roles] = True
        return merged

    def ends_with_token(self, stream: Sequence[int]) -> bool:
        """Returns whether the policy has ended its turn itself, with a special token."""
        return bool(stream) and stream[-1] in self._special_tokens

    def header(self) -> str:
        """Returns the end of a prompt: what opens a turn of the policy, and a little of what stands before it."""
        return self._tokenizer.decode(self._short_prompt[-_SEEN_TOKENS:])

    @cached_property
    def _needs_tools_always(self) -> bool:
        """Returns whether the template renders a question with tools only."""
        for tools in (None, _TOOLS):
            with contextlib.suppress(Exception):
                self._builder.build_initial_tokens([_USER], tools=tools)
                return tools is not None
        return False

    @cached_property
    def _short_prompt(self) -> list[int]:
        """A short prompt."""
        return list(self._builder.build_initial_tokens([_USER], tools=self._own_tools))

    @property
    def _own_tools(self) -> Any:
        return _TOOLS if self._needs_tools_always else None

    def _find_missing_end(self, last_ids: list[int]) -> list[int]:
        """Returns what must follow the last token so that the turn has ended."""
        closing = self._turn_closing
        num_written = next((n for n in range(len(closing), 0, -1) if last_ids[-n:] == closing[:n]), 0)
        return [] if not num_written and last_ids and last_ids[-1] in self._end_ids else closing[num_written:]

    @cached_property
    def _turn_ending(self) -> list[int]:
        """Tokens that the template writes after the content of a turn."""
        try:
            endings = (self._builder.render_delta_token_id([_USER], [reply]) for reply in _REPLIES)
            return self._without_header(_common_end(*endings))
        except Exception as cause:
            logger.info("verl's builder does not render a turn: %s", cause)
        try:
            return self._split_after_turn(_REPLIES, [_USER], self._own_tools)[0]
        except Exception as cause:
            # Models without a template have a builder that knows how their turns end.
            logger.info("how a turn ends could not be read off the chat template: %s", cause)
            return []

    @cached_property
    def _turn_closing(self) -> list[int]:
        """The beginning of the ending that closes a turn: up to its last special token, or all of it."""
        special = [index for index, token in enumerate(self._turn_ending) if token in self._special_tokens]
        return self._turn_ending[: special[-1] + 1] if special else self._turn_ending

    @cached_property
    def _turn_separator(self) -> list[int]:
        """Tokens that the template writes between the end of a turn and the next turn, if the builder omits them."""
        before, rest = [_USER, _REPLIES[0]], self._turn_ending[len(self._turn_closing) :]
        if not rest:
            return []
        try:
            merged = self._builder.merge_context_tokens(before, [*before, _USER], self._turn_closing[-1:])
        except Exception as cause:  # of the builder for unknown families, which never writes it
            logger.info("verl's builder does not render a message of the user: %s", cause)
            return rest
        return [] if list(merged.token_ids[1:])[: len(rest)] == rest else rest

    @cached_property
    def _end_ids(self) -> frozenset[int]:
        """Ids that end a turn and after which the template may go on."""
        template = template_source(self._tokenizer)
        named = {i for i, text in self._special_tokens.items() if text in template}
        if "eos_token" in template and self._tokenizer.eos_token_id is not None:
            named.add(self._tokenizer.eos_token_id)
        # What a prompt is made of begins turns, with one exception: messages often end with the same token.
        beginning = {*self._short_prompt}
        ending = {i for i in self._turn_closing[-1:] if i in self._special_tokens}
        return frozenset((named - beginning) | ending | self._stop_token_ids)

    @cached_property
    def _special_tokens(self) -> Mapping[int, str]:
        added = getattr(self._tokenizer, "added_tokens_decoder", {})
        return {i: token.content for i, token in added.items() if token.special}


def _refuse_forbidden(cause: Exception) -> None:
    """Raises a ConfigError if Jinja's sandbox forbids what the template does: no other form of the messages helps."""
    if isinstance(cause, SecurityError):
        raise ConfigError(
            f"the chat template cannot be rendered in the sandbox of transformers, got {cause}; set "
            "actor_rollout_ref.model.custom_chat_template to one that changes no values, or use a text protocol"
        ) from cause


def _shape_of(messages: Sequence[ChatMessage]) -> tuple[str, ...]:
    """Returns the roles of messages, at most two of a kind in a row: the policy chooses how many results there are."""
    roles: list[str] = []
    for message in messages:
        if roles[-2:] != [message["role"]] * 2:
            roles.append(message["role"])
    return tuple(roles)


def _common_end(first: list[int], second: list[int]) -> list[int]:
    """Returns the tokens with which both lists end."""
    pairs = zip(first[::-1], second[::-1], strict=False)
    length = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    return first[len(first) - length :]


def _remember_renderings(builder: ContextBuilder) -> Any:
    """Returns a builder that renders faster, and knows the messages it puts before new ones.

    Where verl's builders change, they are taken as they are.
    """
    if not hasattr(builder, "_render_tokens"):
        return builder
    remembering: Any = copy.copy(builder)
    remembering._render_tokens = _Renderer(builder)
    return remembering


class _Renderer:
    """Renders as verl's builder does, without what transformers does around the encoding: half of the time.

    The first rendering of every shape (roles, tools, generation prompt) is compared with the builder's own. One that
    differs, or cannot be made, leaves the shape to the builder.

    The builder renders the same messages before all new ones. They are rendered once. Their text is encoded once, too,
    where a special token follows it: tokenizers split a text there before anything else.
    """

    def __init__(self, builder: Any) -> None:
        self._render_ids = builder._render_tokens
        self._tokenizer: Any = getattr(builder, "tokenizer", None)
        self._options = getattr(builder, "chat_template_kwargs", None) or {}
        self._is_same: dict[tuple[Any, ...], bool] = {}
        self._known: dict[str, tuple[str, list[int]]] = {}
        self._before: tuple[str, list[int]] = "", []
        """Text and tokens of what was last put before new messages."""
        self._starts = tuple(
            token.content
            for token in getattr(self._tokenizer, "added_tokens_decoder", {}).values()
            if token.special and not (token.lstrip or token.single_word or token.normalized)
        )

    def __call__(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool, tools: Any = None) -> list[int]:
        key = "" if add_generation_prompt or tools else repr(messages)
        if not 0 < len(key) < _MAX_KEY_CHARS:
            return self._render_checked(messages, add_generation_prompt=add_generation_prompt, tools=tools)[1]
        rendering = self._known.get(key)
        if rendering is None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            rendering = self._known[key] = self._render_checked(messages, add_generation_prompt=False, tools=tools)
        self._before = rendering
        return list(rendering[1])

    def _render_checked(self, messages: Sequence[ChatMessage], **options: Any) -> tuple[str, list[int]]:
        """Returns text and tokens; no text where the builder alone knows it."""
        shape = (*(message["role"] for message in messages), options["add_generation_prompt"], bool(options["tools"]))
        if self._is_same.get(shape) and not self._is_set_to_cut():
            return self._render_rest(messages, **options)
        text, builder_ids = "", self._render_ids(messages, **options)
        if shape not in self._is_same:
            try:
                text, ids = self._render_rest(messages, **options)
                self._is_same[shape] = ids == builder_ids
            except Exception as cause:
                logger.info("verl's builder renders %s: %s", shape, cause)
                self._is_same[shape] = False
        return text if self._is_same[shape] else "", builder_ids

    def _render_rest(self, messages: Sequence[ChatMessage], **options: Any) -> tuple[str, list[int]]:
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, **options, **self._options)
        before, ids = self._before
        if not (before and text.startswith(before) and text.startswith(self._starts, len(before))):
            before, ids = "", []
        backend = self._tokenizer.backend_tokenizer
        return text, ids + backend.encode_batch_fast([text[len(before) :]], add_special_tokens=False)[0].ids

    def _is_set_to_cut(self) -> bool:
        """Tells whether somebody has set the tokenizer to cut or pad; transformers resets that before it encodes."""
        backend = self._tokenizer.backend_tokenizer
        return backend.truncation is not None or backend.padding is not None
