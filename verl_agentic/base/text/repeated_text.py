"""Repeated n-grams of texts. Numbers that only count on are equal."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from itertools import count

# Words in scripts with spaces, characters in those without; long runs in pieces, so that "aaaa..." has many words.
_EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_EAST_ASIAN}]|[^\W{_EAST_ASIAN}]{{1,16}}|[^\w\s]")
_COUNTED = re.compile(r"(\D*)(\d{1,9})")
_RECENT = 16


def repeated_share(texts: list[str], *, n: int) -> float:
    """Returns the share of repeated n-grams over all texts, in [0, 1]; 0 if no text is long enough.

    A number that counts on (the next one or the one before of a recent number) between words is equal to others of its
    kind, so that a counter does not hide a loop. Numbers beside numbers, as in lists, differ.
    """
    seen_hashes: set[int] = set()
    total = 0
    letters: defaultdict[str, int] = defaultdict(count().__next__)  # one for each word: n-grams become slices
    for text in texts:
        spelt = "".join(map(chr, map(letters.__getitem__, _without_counters(_WORD.findall(text)))))
        starts = range(len(spelt) - n + 1)
        seen_hashes.update([hash(spelt[start : start + n]) for start in starts])
        total += len(starts)
    return 1.0 - len(seen_hashes) / total if total else 0.0


def _without_counters(words: list[str]) -> list[str]:
    """Returns words in which numbers that count on are replaced by a sign."""
    recent: deque[int] = deque(maxlen=_RECENT)
    changed = list(words)
    for index, word in enumerate(words):
        if not (word[-1].isdecimal() and word[0].isalnum()) or (match := _COUNTED.fullmatch(word)) is None:
            continue
        value = int(match[2])
        if (value - 1 in recent or value + 1 in recent) and not _has_number_beside(words, index):
            changed[index] = f"{match[1]}#"
        recent.append(value)
    return changed


def _has_number_beside(words: list[str], index: int) -> bool:
    """Returns whether the word before or after one, punctuation left out, ends with a digit."""
    sides = range(index - 1, -1, -1), range(index + 1, len(words))
    neighbours = (next((words[place] for place in side if words[place][0].isalnum()), "") for side in sides)
    return any(word[-1:].isdecimal() for word in neighbours)
