"""Quotes data for judges, so that nothing in it can act as an instruction, a delimiter or a special token.

Three independent protections: blocks have random delimiters, fresh for every request, that do not occur in the data.
Quoted text has no `<` and no brackets of special tokens, so it cannot contain delimiters or end-of-turn tokens.
Invisible characters are spelled out.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.rewards.sample import Sample

View = Literal["trajectory", "answer"]
Source = Literal["task", "reference", "policy", "tool", "answer"]
_MAX_BLOCKS = 200
_MAX_SPELLINGS = 50_000
_PREFIX = "data-"
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Invisible or blank characters with categories of letters, marks or symbols.
_INVISIBLE = frozenset({0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0})
_VARIATION_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_KEPT = frozenset(map(ord, "\n\t"))
# Mistral's control tokens; those of other families start with `<`.
_BRACKET_TOKEN = re.compile(r"\[(?=/?[A-Z_]{3,32}\])")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A piece of data with its author."""

    source: Source
    text: str
    turn: int | None = None

    def to_list(self) -> list[Any]:
        """Returns the block as JSON, for a cache key."""
        return [self.source, self.turn, self.text]


class _Spelling(dict[int, Any]):
    """A bounded cache of how each character is shown."""

    def __missing__(self, code: int) -> str | int:
        spelling = self._spell_char(code)
        if len(self) < _MAX_SPELLINGS:
            self[code] = spelling
        return spelling

    @staticmethod
    def _spell_char(code: int) -> str | int:
        if code in _KEPT:
            return code
        if code == ord("<"):
            return "\u2039"
        is_hidden = (
            unicodedata.category(chr(code)) in _INVISIBLE_CATEGORIES
            or code in _INVISIBLE
            or any(code in selectors for selectors in _VARIATION_SELECTORS)
        )
        return f"\\u{{{code:X}}}" if is_hidden else code


_SPELLING = _Spelling()


def visible(text: str) -> str:
    r"""Returns the text without hidden characters and special tokens.

    Control characters (but line breaks and tabs), directional marks, zero-width characters, tags, variation selectors,
    private, unassigned and lone surrogate code points become `\u{200B}`; `<` becomes `‹`; `[INST]` becomes `⁅INST]`.
    """
    return _BRACKET_TOKEN.sub("\u2045", text.translate(_SPELLING))


def capped(text: str, max_chars: int) -> str:
    """Returns a text of at most `max_chars` characters plus a marker: its head, how much is cut, its tail."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    tail = max_chars - head
    return f"{text[:head]}\n[... {len(text) - max_chars} characters cut here ...]\n{text[len(text) - tail :]}"


def shown(text: str, max_chars: int) -> str:
    """Returns the text visible and capped, in time linear in `max_chars`."""
    return capped(visible(capped(text, max_chars)), max_chars)


def fresh_token(texts: Iterable[str]) -> str:
    """Returns a random 128-bit token that occurs in none of the texts."""
    all_texts = list(texts)
    while True:
        token = secrets.token_hex(16)
        if not any(token in text for text in all_texts):
            return token


def quoted(blocks: Sequence[Block], token: str) -> str:
    """Returns the blocks between delimiters with the token.

    Args:
        blocks: visible blocks of `blocks_of`.
        token: of `fresh_token` for these blocks.
    """
    return "\n\n".join(_quote_block(block, token) for block in blocks)


def _quote_block(block: Block, token: str) -> str:
    turn = "" if block.turn is None else f' turn="{block.turn}"'
    return f'<{_PREFIX}{token} source="{block.source}"{turn}>\n{block.text}\n</{_PREFIX}{token}>'


def blocks_of(
    sample: Sample,
    *,
    view: View = "trajectory",
    thoughts: bool = False,
    reference: bool = True,
    max_chars: int = 40_000,
) -> tuple[Block, ...]:
    """Returns a sample for judges: task, optional reference, turns and observations, final answer.

    Args:
        view: `trajectory`, or `answer` for the final answer only.
        thoughts: whether to show the policy's thoughts.
        reference: whether to show the ground truth.
        max_chars: limit of task, reference and final answer each, and of all turns together.
    """
    task = "\n\n".join(f"{message.role}: {message.content}" for message in sample.prompt)
    blocks = [Block(source="task", text=shown(task, max_chars))]
    if reference and sample.ground_truth is not None:
        blocks.append(Block(source="reference", text=shown(_as_text(sample.ground_truth), max_chars)))
    if view == "trajectory":
        blocks += _fit_blocks(list(_iter_turn_blocks(sample, thoughts=thoughts)), max_chars)
    answer = sample.final_answer if thoughts else without_thoughts(sample.final_answer)
    return (*blocks, Block(source="answer", text=shown(answer, max_chars)))


def _iter_turn_blocks(sample: Sample, *, thoughts: bool) -> Iterator[Block]:
    for turn in sample.turns:
        yield Block(source="policy", turn=turn.index, text=turn.text if thoughts else without_thoughts(turn.text))
        for observation in turn.observations:
            yield Block(source="tool", turn=turn.index, text=observation)


def _fit_blocks(blocks: list[Block], max_chars: int) -> list[Block]:
    """Returns visible blocks with at most `max_chars` in total; long ones get equal shares."""
    left_out = len(blocks) - _MAX_BLOCKS
    if left_out > 0:
        half = _MAX_BLOCKS // 2
        note = Block(source="tool", text=f"[... {left_out} blocks cut here ...]")
        blocks = [*blocks[:half], note, *blocks[len(blocks) - half :]]
    texts = [shown(block.text, max_chars) for block in blocks]
    share = _compute_share(sorted(map(len, texts)), max_chars)
    return [
        Block(source=block.source, turn=block.turn, text=capped(text, share))
        for block, text in zip(blocks, texts, strict=True)
    ]


def _compute_share(lengths: Sequence[int], total: int) -> int:
    """Returns the maximum cap with which texts of these sorted lengths fit into the total."""
    remaining = total
    for index, length in enumerate(lengths):
        share = remaining // (len(lengths) - index)
        if length > share:
            return share
        remaining -= length
    return sys.maxsize


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
