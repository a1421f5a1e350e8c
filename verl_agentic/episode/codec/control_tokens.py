"""Keeps texts of tools, environments, sub-agents and the policy from speaking with the framework's voice.

Such a text may hold the text of special tokens or of a protocol's tags. Encoded as they are, they would end the message
and begin a turn of the user or of the policy. So each of them is broken by a space that can be seen. Codecs render no
message that has not passed a `Guard`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from verl_agentic.base.types import Message, ToolCall

_TAG = re.compile(r"</?[A-Za-z｜][^<>\s=]*>|<\|[^<>\s]+\|?>")
_DELIMITER = re.compile(r"\[/?[A-Z][A-Z_]+\]|<</?[A-Z]+>>")  # of turns, in templates of Mistral and Llama 2
_HARD = re.compile(r"<[|｜].*[|｜]>")
_ASCII = "".join(map(chr, range(128)))
_MOST_PASSES = 4  # one is enough, unless a normaliser takes spaces away
_REASONING = ("<think>", "</think>")
# Other added tokens are words of the vocabulary (runs of spaces, HTML), which a web page may hold.
_LOOKS_LIKE_A_MARKER = re.compile(r"\S*[<\[]\S*[|｜_:]\S*[>\]]\S*")


class Markers:
    """The texts that must not stand in an observation."""

    def __init__(self, texts: Iterable[str], *, normalise: Callable[[str], str] | None = None) -> None:
        """Takes the texts; those of one character cannot be broken and are left out.

        Args:
            texts: the markers.
            normalise: what the tokenizer does to a text before it looks for tokens; None: nothing.
        """
        self.texts = frozenset(text for text in texts if len(text) > 1)
        self._pattern = self._normal = re.compile(_pattern_of(self.texts))
        self._normalise = normalise
        if normalise is not None:
            self._normal = re.compile(_pattern_of({*self.texts, *map(normalise, self.texts)}))
            self._keeps_ascii = normalise(_ASCII) == _ASCII

    def neutralise(self, text: str) -> tuple[str, int]:
        """Returns the text with a space after the first character of every marker, and how many were broken.

        A text that only becomes a marker when the tokenizer normalises it comes back normalised.
        """
        text, broken = _break_markers(text, self._pattern)
        for _ in range(_MOST_PASSES):
            if (normal := self._hidden_in(text)) is None:
                break
            text, more = _break_markers(normal, self._normal)
            broken += more
        return text, broken

    def are_in(self, text: str) -> bool:
        """Returns whether a marker stands in the text: one search, or two where the tokenizer changes the text."""
        return self._pattern.search(text) is not None or self._hidden_in(text) is not None

    def _hidden_in(self, text: str) -> str | None:
        """Returns the text as the tokenizer normalises it, if it changes it and a marker stands in it then."""
        if self._normalise is None or (self._keeps_ascii and text.isascii()):
            return None
        normal = self._normalise(text)
        return normal if normal != text and self._normal.search(normal) else None


def _break_markers(text: str, pattern: re.Pattern[str]) -> tuple[str, int]:
    broken = 0
    while True:
        text, count = pattern.subn(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        if not count:
            return text, broken
        broken += count  # and look again: what is left of a marker may hold a shorter one


class Guard:
    """Makes the messages of a conversation harmless before they are rendered, by who wrote them.

    | text | what is broken |
    |---|---|
    | results of tools, quoted text | special tokens and all tags |
    | other observations | special tokens, the tags around observations, those of the template |
    | the policy's turns, and the user in the prompt | the same, but not the tags that the policy may write |
    | the system | special tokens |
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        around: Iterable[str] = (),
        tags: Iterable[str] = (),
        reasoning: Iterable[str] = (),
        written_tags: Iterable[str] = (),
    ) -> None:
        """Makes the guard of a protocol and a model.

        Args:
            around: tags that stand around an observation.
            tags: tags of calls and answers.
            reasoning: tags of reasoning, which the policy writes and prompts speak of.
            written_tags: other tags that the policy writes in its turns, and prompts speak of.
        """
        token_markers, special = tokenizer_markers(tokenizer), special_tokens(tokenizer)
        around, reasoning = {*token_markers, *around}, {*reasoning}
        spared = {*reasoning, *_REASONING, *written_tags} - special
        markers = partial(Markers, normalise=_normaliser_of(tokenizer))
        self._result = markers({*around, *tags, *reasoning})
        self._notice = markers(around)
        self._policy = markers(around - spared)
        self._prompt = {"system": markers(special), "user": markers(token_markers - spared)}
        self._schemas: dict[tuple[int, ...], tuple[Sequence[Any], list[Any]]] = {}

    def observed(self, message: Message, *, is_result: bool = True) -> tuple[Message, int]:
        """Returns an observation with harmless content, name and call id, and how many markers were broken."""
        if message.role == "system":
            return _neutralise_message(message, self._prompt["system"])
        return _neutralise_message(message, self._result if is_result else self._notice)

    def prompt(self, messages: Iterable[Message]) -> list[Message]:
        """Returns the messages of a prompt, or of a conversation that is rendered again."""
        return [self._neutralise_prompt(message) for message in messages]

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Returns the schemas of tools with harmless texts; those that were seen before at once."""
        key = tuple(map(id, schemas))
        if key not in self._schemas:
            if len(self._schemas) >= _MAX_SCHEMAS:
                self._schemas.clear()
            # The schemas too, so that no others get their ids.
            self._schemas[key] = tuple(schemas), [_neutralise_json(schema, self._prompt["user"]) for schema in schemas]
        return self._schemas[key][1]

    def _neutralise_prompt(self, message: Message) -> Message:
        if message.role == "tool":
            return _neutralise_message(message, self._result)[0]
        markers = self._policy if message.role == "assistant" else self._prompt[message.role]
        if not message.quoted:
            return _neutralise_message(message, markers)[0]
        own_text = message.content.removesuffix(message.quoted)
        content = markers.neutralise(own_text)[0] + self._result.neutralise(message.quoted)[0]
        return _neutralise_message(replace(message, content=content, quoted=""), markers)[0]


_MAX_SCHEMAS = 256


def _neutralise_message(message: Message, markers: Markers) -> tuple[Message, int]:
    """Returns the message without markers, and how many were broken; one search where there is none."""
    calls = message.tool_calls
    parts = [message.content, message.name, message.call_id, message.reasoning]
    for call in calls:
        parts += (call.name, call.call_id, *_iter_texts(call.arguments))
    if not markers.are_in("\n".join(parts)):
        return message, 0
    broken = sum(markers.neutralise(part)[1] for part in parts)
    content, name, call_id, reasoning = (markers.neutralise(part)[0] for part in parts[:4])
    safe_calls = tuple(_safe_call(call, markers) for call in calls)
    safe = replace(message, content=content, name=name, call_id=call_id, reasoning=reasoning, tool_calls=safe_calls)
    return safe, broken


def _safe_call(call: ToolCall, markers: Markers) -> ToolCall:
    name, call_id = markers.neutralise(call.name)[0], markers.neutralise(call.call_id)[0]
    return replace(call, name=name, call_id=call_id, arguments=_neutralise_json(call.arguments, markers))


def _iter_texts(value: Any) -> Iterable[str]:
    """Yields the texts in a JSON value, names of keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _iter_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iter_texts(item)


def _neutralise_json(value: Any, markers: Markers) -> Any:
    """Returns a JSON value whose texts have no markers."""
    if isinstance(value, str):
        return markers.neutralise(value)[0]
    if isinstance(value, Mapping):
        return {_neutralise_json(key, markers): _neutralise_json(item, markers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_neutralise_json(item, markers) for item in value]
    return value


def _pattern_of(texts: Iterable[str]) -> str:
    """Returns a pattern for the longest of these texts; their common beginnings are looked at once.

    Some vocabularies have thousands of markers, and an observation may be long.
    """
    tree: dict[str, Any] = {}
    for text in texts:
        node = tree
        for char in text:
            node = node.setdefault(char, {})
        node[""] = {}
    return _write_branches(tree) if tree else r"(?!)"


def _write_branches(node: dict[str, Any]) -> str:
    parts = [
        re.escape(char) + (_write_branches(rest) if rest != {"": {}} else "") for char, rest in node.items() if char
    ]
    pattern = parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
    return f"(?:{pattern})?" if "" in node else pattern


def tokenizer_markers(tokenizer: Any) -> set[str]:
    """Returns the texts that a tokenizer or its chat template treat as more than text.

    These are its special tokens, its other added tokens that look like markers, and the tags that its chat template
    writes (`<tool_response>`, ...), whether they are tokens of their own or not.
    """
    template = template_source(tokenizer)
    markers = set(tokenizer.all_special_tokens) | {*tags_in(template), *_DELIMITER.findall(template)}
    for token in getattr(tokenizer, "added_tokens_decoder", {}).values():
        text = token.content
        if token.special or _LOOKS_LIKE_A_MARKER.fullmatch(text) or (text.strip() and text in template):
            markers.add(text)
    return markers


def special_tokens(tokenizer: Any) -> set[str]:
    """Returns the markers that are nothing but control: special tokens, and what is written as such tokens are."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    named = {text for text in tokenizer_markers(tokenizer) if _HARD.fullmatch(text) or _DELIMITER.fullmatch(text)}
    return {*tokenizer.all_special_tokens, *(token.content for token in added if token.special), *named}


def _normaliser_of(tokenizer: Any) -> Callable[[str], str] | None:
    """Returns what a tokenizer does to texts, such as NFKC, which makes `<` of a full-width one."""
    normaliser = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return None if normaliser is None else normaliser.normalize_str


def template_source(tokenizer: Any) -> str:
    """Returns the source of the tokenizer's chat templates; empty when it has none."""
    template = getattr(tokenizer, "chat_template", None) or ""
    return template if isinstance(template, str) else "\n".join(map(str, template.values()))


def tags_in(text: str) -> list[str]:
    """Returns the tags that a text names, such as `<result>`, `</result>` and `<|end|>`."""
    return _TAG.findall(text)
