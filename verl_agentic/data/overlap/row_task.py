"""The task of a row: what must be equal in two rows that are the same task."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.data.parquet import extra_of, ground_truth_of
from verl_agentic.errors import DataError
from verl_agentic.rewards.text.normal_form import one_form

BOOKKEEPING = frozenset({"index", "split", "task_id", "id", "uid", "env", "tool_selection"})
"""Keys of `extra_info` that number, name or route a row."""
COLUMNS = ("prompt", "messages", "question", "text", "reward_model", "extra_info", "data_source")
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words: each of their characters is a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_WORD_OR_CHARACTER = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_OPERATORS = re.compile(r"[-+*/<>=^]+")
_OPERAND_BEFORE = re.compile(r"(?:[\d)]|\b[^\W\d_]) *$")
_OPERAND_AFTER = re.compile(r" *[\d(.]| *[^\W\d_]\b")


@dataclass(frozen=True, kw_only=True)
class RowTask:
    """The parts of a row that are compared."""

    words: Sequence[str]
    """Of all messages before the first one of the assistant, without system messages, in normal form."""
    prompt_key: int
    """64-bit digest of the words and of the operators between operands: `3 - 5` is not `3 + 5`."""
    answer_key: int
    """64-bit digest of the ground truth and the hidden fields of the task; 0 if the row has none."""
    source: str
    """`data_source`."""


def task_of_record(record: Mapping[str, Any], where: str) -> RowTask:
    """Returns the task of a row.

    Args:
        record: columns; the prompt is in `prompt`, `messages`, `question` or `text`.
        where: begins error messages.

    Raises:
        DataError: the row has no prompt, or its ground truth or hidden fields are malformed.
    """
    text = one_form(prompt_text(record, where))
    found = words_of(text)
    answer = _answer(record, where)
    return RowTask(
        words=found,
        prompt_key=_digest(" ".join([*found, "\0", *_operations(text)])),
        answer_key=_digest(answer) if answer else 0,
        source=str(record.get("data_source") or ""),
    )


def words_of(text: str) -> list[str]:
    """Returns the words of a text in `one_form`: letters and digits, without apostrophes."""
    pattern = _WORD if text.isascii() else _WORD_OR_CHARACTER
    return pattern.findall(text.replace("'", ""))


def prompt_text(record: Mapping[str, Any], where: str) -> str:
    """Returns the text of the messages before the first one of the assistant. Raises DataError without one."""
    name = next((name for name in ("prompt", "messages", "question", "text") if record.get(name)), None)
    if name is None:
        raise DataError(
            f"{where} has no prompt, got the columns {sorted(record)}; it must be in prompt, messages, question or text"
        )
    value = record[name]
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not all(isinstance(message, Mapping) for message in value):
        raise DataError(f"{where}: {name} must be a text or a list of messages, got {str(value)[:80]!r}; write it so")
    asked: list[Mapping[str, Any]] = []
    for message in value:
        if message.get("role") == "assistant":
            break
        asked.append(message)
    # The same question below another system prompt is the same task.
    own = [message for message in asked if message.get("role") != "system"] or asked
    return "\n".join(_content(message) for message in own)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))


def _answer(record: Mapping[str, Any], where: str) -> str:
    """Returns the ground truth and the hidden fields as text; empty without any."""
    truth = ground_truth_of(record.get("reward_model"), where)
    extra = extra_of(record.get("extra_info"), where)
    hidden = {key: value for key, value in extra.items() if key not in BOOKKEEPING and value not in ({}, [], "")}
    if truth in (None, "") and not hidden:
        return ""
    return json.dumps([truth.strip() if isinstance(truth, str) else truth, hidden], sort_keys=True, default=str)


def _operations(text: str) -> list[str]:
    """Returns the operators between operands; other such characters are punctuation."""
    operations = []
    for found in _OPERATORS.finditer(text):
        before = text[max(0, found.start() - 9) : found.start()]
        if _OPERAND_AFTER.match(text, found.end()) and _OPERAND_BEFORE.search(before):
            operations.append(found[0])
    return operations


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") or 1
