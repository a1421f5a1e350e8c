"""The codec of scripts: the chat template of the tiny models over bytes.

Writes and reads the same texts as verl's classes do with a tiny model. It needs neither verl nor transformers, whose
import takes longer than a validation.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from verl_agentic.cpu.tiny_model import CHAT_TEMPLATE, END, PAD, START, TAGS
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.protocols.factory import make_codec

_FORMAT = "hermes"
_SPECIAL = (PAD, END, START)
_ADDED = (*_SPECIAL, *TAGS)
_SPLIT = re.compile(f"({'|'.join(map(re.escape, _ADDED))})")
_BEFORE = ({"role": "user", "content": "0"}, {"role": "assistant", "content": "0"})
"""Stands before new messages while they are rendered; it does not change their text."""


def make_script_codec(protocol: str) -> tuple[ByteLevelTokenizer, Codec]:
    """Returns a tokenizer and the codec of a protocol.

    Raises:
        ConfigError: the protocol is unknown, or a package is missing.
    """
    tokenizer = ByteLevelTokenizer()
    codec = make_codec(
        protocol, tokenizer=tokenizer, builder=_Builder(tokenizer), parser=_Parser(tokenizer), tool_format=_FORMAT
    )
    return tokenizer, codec


class ByteLevelTokenizer:
    """One token for each byte of UTF-8, special token and tag."""

    chat_template = CHAT_TEMPLATE
    all_special_tokens = (END, PAD, START)
    eos_token_id = _ADDED.index(END)
    added_tokens_decoder: Mapping[int, Any] = {
        token_id: SimpleNamespace(content=text, special=text in _SPECIAL) for token_id, text in enumerate(_ADDED)
    }

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Returns the ids of a text; never adds special tokens.

        Raises:
            UnicodeEncodeError: the text has lone surrogates.
        """
        token_ids: list[int] = []
        for index, part in enumerate(_SPLIT.split(text)):
            is_added = index % 2 == 1
            token_ids += [_ADDED.index(part)] if is_added else [len(_ADDED) + byte for byte in part.encode()]
        return token_ids

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool = False) -> str:
        """Returns the text of ids; incomplete characters become U+FFFD."""
        return b"".join(map(_TEXTS.__getitem__, token_ids)).decode("utf-8", "replace")

    def save_pretrained(self, folder: str) -> None:
        """Writes `tokenizer.json`, with which the viewer decodes ids; it does not encode."""
        from tokenizers import AddedToken, Tokenizer, decoders, models

        # The characters that byte-level BPE writes for bytes: printable ones stand for themselves.
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
        vocabulary = {text: token_id for token_id, text in enumerate(_ADDED)}
        vocabulary |= {names[byte]: len(_ADDED) + byte for byte in range(256)}
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
        Path(folder).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(Path(folder) / "tokenizer.json"))


_TEXTS = (*(text.encode() for text in _ADDED), *(bytes([byte]) for byte in range(256)))
"""Id -> bytes."""


class _Parser:
    """Takes the place of the parser of verl, which `CallReader` does not ask."""

    stop_token_ids: list[int] = []  # noqa: RUF012

    def __init__(self, tokenizer: ByteLevelTokenizer) -> None:
        self.tokenizer = tokenizer

    async def extract_tool_calls(self, responses_ids: Any, tools: Any = None) -> tuple[str, list[Any]]:
        raise NotImplementedError("`CallReader` reads calls")


@dataclass(frozen=True)
class _Merge:
    token_ids: list[int]
    removed_prefix_token_count: int = 0


class _Builder:
    """Renders messages as verl's `ContinuousTokenBuilder` of the tiny models does."""

    def __init__(self, tokenizer: ByteLevelTokenizer) -> None:
        self._encode = tokenizer.encode

    def build_initial_tokens(self, messages: list[Any], *, tools: list[Any] | None = None) -> list[int]:
        return self._encode(_render_messages(messages, tools=tools, add_generation_prompt=True))

    def merge_context_tokens(
        self,
        previous_messages: list[Any],
        updated_messages: list[Any],
        runtime_token_ids: list[int],
        *,
        tools: Any = None,
    ) -> _Merge:
        new = updated_messages[len(previous_messages) :]
        text = _render_messages([*_BEFORE, *new], add_generation_prompt=True).removeprefix(_render_text_before())
        # A turn ends with this token, and the template goes on with a line break.
        is_ended = runtime_token_ids[-1:] == self._encode(END)
        return _Merge([*runtime_token_ids, *self._encode("\n" * is_ended + text)])

    def render_delta_token_id(self, prefix_messages: list[Any], appended_messages: list[Any]) -> list[int]:
        text = _render_messages([*prefix_messages, *appended_messages])
        return self._encode(text.removeprefix(_render_messages(prefix_messages)))


def _render_messages(messages: Sequence[Any], **options: Any) -> str:
    return _load_template().render(messages=messages, **options)


@functools.cache
def _render_text_before() -> str:
    return _render_messages(_BEFORE)


@functools.cache
def _load_template() -> Any:
    """Returns the template with the settings of transformers."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    return environment.from_string(CHAT_TEMPLATE)
