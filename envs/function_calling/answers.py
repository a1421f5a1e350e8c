"""Checks of answers without a call: that no tool fits, or a question about missing values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

TOPICS: Mapping[str, Sequence[str]] = {
    "place": ("city", "town", "place", "location", "room", "zone", "where", "destination"),
    "date": ("date", "day", "when"),
    "time": ("time", "hour", "when", "o'clock"),
    "person": ("name", "who", "whom", "recipient", "person", "contact", "address", "artist", "to which"),
    "amount": ("amount", "how much", "how many", "how long", "number", "nights", "temperature", "degrees"),
    "unit": ("unit", "currency", "into what", "into which"),
    "product": ("product", "item", "article", "sku", "what are you looking for"),
    "path": ("path", "folder", "file", "where", "destination"),
    "text": ("text", "message", "say", "content"),
}
"""Missing part of a request -> words, one of which a question about it contains."""

_MOST_TOPICS = 4  # a question that names all topics does not count
_MOST_WORDS = 60
_REFUSAL = re.compile(
    r"\b(can(?:'t|not| not)|unable|not able|none of|no (?:\w+ ){0,2}(?:tools?|functions?)|not possible"
    r"|(?:do|does|did)(?:n't| not) have|(?:is|are)(?:n't| not) (?:available|supported|possible))\b"
)


def refuses(answer: str, *, prompt: Iterable[str]) -> bool:
    """Returns whether an answer says that the request cannot be done, without a question.

    Args:
        answer: of the policy.
        prompt: earlier texts of the conversation; repetitions of them do not count.
    """
    text = _own_words(answer, prompt)
    return "?" not in text and _is_short(text) and _REFUSAL.search(text) is not None


def asks_for(topic: str, answer: str, *, prompt: Iterable[str]) -> bool:
    """Returns whether an answer is a question about one of `TOPICS`; see `refuses`."""
    text = _own_words(answer, prompt)
    named = {name for name, words in TOPICS.items() if any(_has_word(text, word) for word in words)}
    return "?" in text and _is_short(text) and topic in named and len(named) <= _MOST_TOPICS


def says_something(answer: str, *, prompt: Iterable[str]) -> bool:
    """Returns whether an answer is more than a repetition of the prompt."""
    return _own_words(answer, prompt) != ""


def _own_words(answer: str, prompt: Iterable[str]) -> str:
    text_left = _normalize_text(answer)
    for text in sorted(map(_normalize_text, prompt), key=len, reverse=True):
        text_left = text_left.replace(text, " ") if text else text_left
    return text_left.strip()


def _normalize_text(text: str) -> str:
    return " ".join(text.replace("’", "'").lower().split())


def _is_short(text: str) -> bool:
    return len(text.split()) <= _MOST_WORDS


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None
