"""The task of a row: what must be equal in two rows that are the same task."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.text.normal_form import one_form
from verl_agentic.log.files.parquet import extra_of, ground_truth_of

BOOKKEEPING = frozenset({"index", "split", "task_id", "id", "uid", "env", "tool_selection", "plan"})
"""Keys of `extra_info` that number, name, route or plan a row."""
COLUMNS = ("prompt", "messages", "question", "text", "reward_model", "extra_info", "data_source")
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words: each of their characters is a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_WORD_OR_CHARACTER = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_OPERATORS = re.compile(r"[-+*/<>=^]+")
_OPERAND_BEFORE = re.compile(r"(?:[\d)]|\b[^\W\d_]) *$")
_OPERAND_AFTER = re.compile(r" *[\d(.]| *[^\W\d_]\b")
# A drawing, such as a maze or brackets, and not punctuation between words.
_DRAWING = re.compile(r"[^\w\s](?:\s?[^\w\s]){3,}")
_SIGNS = frozenset({"Sm", "So"})


@dataclass(frozen=True, kw_only=True)
class RowTask:
    """The parts of a row that are compared."""

    words: Sequence[str]
    """Of the prompt without system messages, in normal form."""
    prompt_key: int
    """64-bit digest of the words and of `_find_symbols`: `3 - 5` is not `3 + 5`."""
    words_key: int
    """64-bit digest of the words."""
    answer_key: int
    """64-bit digest of the ground truth and the hidden fields of the task; 0 if the row has none."""
    source: str
    """`data_source`."""


def task_of_record(record: Mapping[str, Any], location: str) -> RowTask:
    """Returns the task of a row.

    Args:
        record: columns; the prompt is in `prompt`, `messages`, `question` or `text`.
        location: begins error messages.

    Raises:
        DataError: the row has no prompt, or its ground truth or hidden fields are malformed.
    """
    text = one_form(prompt_text(record, location))
    words = words_of(text)
    answer = _render_answer(record, location)
    return RowTask(
        words=words,
        prompt_key=_hash_text(" ".join([*words, "\0", *_find_symbols(text)])),
        words_key=_hash_text(" ".join(words)),
        answer_key=_hash_text(answer) if answer else 0,
        source=str(record.get("data_source") or ""),
    )


def words_of(text: str) -> list[str]:
    """Returns the words of a text in `one_form`: letters and digits, without apostrophes."""
    pattern = _WORD if text.isascii() else _WORD_OR_CHARACTER
    return pattern.findall(text.replace("'", ""))


def prompt_text(record: Mapping[str, Any], location: str) -> str:
    """Returns the text of the prompt: of `messages`, what is before the first message of the assistant.

    Raises DataError without one.
    """
    name = next((name for name in ("prompt", "messages", "question", "text") if record.get(name)), None)
    if name is None:
        raise DataError(
            f"{location} has no prompt, got the columns {sorted(record)}; it must be in prompt, messages, question "
            "or text"
        )
    value = record[name]
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not all(isinstance(message, Mapping) for message in value):
        raise DataError(
            f"{location}: {name} must be a text or a list of messages, got {str(value)[:80]!r}; write it so"
        )
    by_policy = [number for number, message in enumerate(value) if message.get("role") == "assistant"]
    # Examples in a prompt are turns of the assistant, too. What it ends with is the beginning of an answer.
    if by_policy and (name != "prompt" or by_policy[-1] == len(value) - 1):
        value = value[: by_policy[-1 if name == "prompt" else 0]]
    messages: list[Mapping[str, Any]] = list(value)
    # The same question below another system prompt is the same task.
    task_messages = [message for message in messages if message.get("role") != "system"] or messages
    return "\n".join(_join_content(message) for message in task_messages)


def _join_content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))


def _render_answer(record: Mapping[str, Any], location: str) -> str:
    """Returns the ground truth and the hidden fields as text; empty without any."""
    truth = _normalise_value(ground_truth_of(record.get("reward_model"), location))
    extra = extra_of(record.get("extra_info"), location)
    hidden = _normalise_value({key: value for key, value in extra.items() if key not in BOOKKEEPING})
    if truth in (None, "") and not hidden:
        return ""
    is_number = isinstance(truth, int | float) and not isinstance(truth, bool)
    truth = str(truth).strip() if is_number or isinstance(truth, str) else truth
    return json.dumps([truth, hidden], sort_keys=True, default=str)


def _normalise_value(value: Any) -> Any:
    """Returns a value as it would be in any file: parquet adds empty keys, and makes integers floats."""
    if isinstance(value, Mapping):
        plain = {key: _normalise_value(item) for key, item in value.items()}
        return {key: item for key, item in plain.items() if item is not None and item not in ({}, [], "")}
    if isinstance(value, list | tuple):
        return [_normalise_value(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _find_symbols(text: str) -> list[str]:
    """Returns the operators between operands, drawings and signs; other such characters are punctuation."""
    symbols = []
    for match in _OPERATORS.finditer(text):
        before = text[max(0, match.start() - 9) : match.start()]
        if _OPERAND_AFTER.match(text, match.end()) and _OPERAND_BEFORE.search(before):
            symbols.append(match[0])
    drawings = ("".join(match.split()) for match in _DRAWING.findall(text))
    symbols += [drawing for drawing in drawings if len(set(drawing)) > 1]
    if not text.isascii():
        symbols += [char for char in text if not char.isascii() and unicodedata.category(char) in _SIGNS]
    return symbols


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") or 1
