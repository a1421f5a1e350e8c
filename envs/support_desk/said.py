"""Finds required texts in replies to a customer; texts buried among others of their form do not count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from verl_agentic.graders.components.tau_bench import comparable_text

MAX_REPLY_CHARS = 1_000
"""Longer replies give no required text."""
_MAX_OTHERS = 3
"""Maximum number of amounts beside the required one that nobody has mentioned, such as a sum; and of values of the
customer's other records."""
_VALUE = re.compile(r"\d[\d.:-]{2,}\d")
_NUMBER = re.compile(r"\d+")
_REFUSAL = re.compile(
    r"\b(can ?not|can['\u2019]?t|could(n['\u2019]t| not)|unable|unfortunately|impossible|ineligible|wo(n['\u2019]t)"
    r"|will not|not (be )?(able|allowed|possible|permitted|eligible|available|covered)|no longer|refus\w+|declin\w+"
    r"|denied|(not|n['\u2019]t) (meet|qualify|apply|permit|allow)\w*|against (our|the) polic\w+)\b",
    re.IGNORECASE,
)


def states_refusal(replies: Iterable[str]) -> bool:
    """Returns whether a reply of at most 1,000 characters says that a wish is refused."""
    return any(len(reply) <= MAX_REPLY_CHARS and _REFUSAL.search(reply) for reply in replies)


def gives_outputs(outputs: Iterable[str], replies: Sequence[str], *, allowed_text: str, others: str) -> bool:
    """Returns whether replies have each output as whole words, and no other value of its form.

    Values are numbers, dates and amounts. So neither a copy of all records nor a list of possible values gives one.

    Args:
        outputs: required texts.
        replies: of the policy. Those above 1,000 characters give no output, but their other values count.
        allowed_text: texts whose values may be named beside the outputs: what the customer said, and his record.
        others: his other records.
    """
    expected = {comparable_text(output) for output in outputs}
    short = [comparable_text(reply) for reply in replies if len(reply) <= MAX_REPLY_CHARS]
    everything, allowed_text = "\n".join(map(comparable_text, replies)), comparable_text(allowed_text)
    foreign = {value for value in _VALUE.findall(everything) if value in comparable_text(others)}
    if len([value for value in foreign if value not in allowed_text]) > _MAX_OTHERS:
        return False
    for output in expected:
        before, after = (r"\d" if char.isdigit() else r"\w" for char in (output[:1], output[-1:]))
        if not any(re.search(f"(?<!{before}){re.escape(output)}(?!{after})", reply) for reply in short):
            return False
        same_form = {
            value for value in _values_like(output, everything) if value not in expected and value not in allowed_text
        }
        if len(same_form) > (_MAX_OTHERS if "." in output else 0):
            return False
    return True


def values_of(record: Any) -> str:
    """Returns the leaves of a record as text."""
    if isinstance(record, dict):
        return "\n".join(values_of(value) for value in record.values())
    if isinstance(record, list | tuple):
        return "\n".join(map(values_of, record))
    return f"{record:.2f} {record}" if isinstance(record, float) else str(record)


def _values_like(output: str, text: str) -> list[str]:
    """Returns the values with the form of an output, also overlapping ones; none for words and small numbers."""
    digits = _NUMBER.findall(output)
    if len("".join(digits)) < 4:
        return []
    if "." in output:
        return re.findall(r"(?<!\d)\d+\.\d\d(?!\d)", text)
    form = "".join(rf"\d{{{len(part)}}}" if part.isdigit() else re.escape(part) for part in re.split(r"(\d+)", output))
    return [match[1] for match in re.finditer(f"(?=({form}))", text)]
