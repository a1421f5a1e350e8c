"""The texts of turns without the special tokens that ended them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from verl_agentic.rewards.sample import Turn

_END_TOKEN = re.compile(r"(?:<\|[^<>|\s]{1,40}\|>|</s>|<eos>|<end_of_turn>)\Z")
_LONGEST_END_TOKEN = 64
_MAX_END_TOKENS = 8


def texts(turns: Sequence[Turn], *, starts_in_reasoning: bool) -> Iterator[str]:
    """Yields what each turn says, without the special tokens that ended it and without white space around it.

    Args:
        turns: of the episode.
        starts_in_reasoning: the chat template has opened `<think>` in the prompt; it is put back.
    """
    for turn in turns:
        yield ("<think>" if starts_in_reasoning else "") + without_end_tokens(turn.text)


def without_end_tokens(text: str) -> str:
    """Returns a text without the special tokens at its end and without white space around it."""
    text = text.strip()
    for _ in range(_MAX_END_TOKENS):
        match = _END_TOKEN.search(text, max(0, len(text) - _LONGEST_END_TOKEN))
        if match is None:
            break
        text = text[: match.start()].rstrip()
    return text
