"""The tag parser: tagged spans and reasoning in what the policy wrote; linear time on any input."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

_MAX_FAILURES = 64
"""Maximum number of failed attempts to parse spans per text; each may read all of it."""


@dataclass(frozen=True, kw_only=True)
class Tag:
    """Opening and closing tag of a kind of span."""

    kind: str
    opening: str
    """A regular expression."""
    closing: str
    """A text; empty for a tag that stands alone, which is an unclosed span without a body."""
    parse: Callable[[str, int], tuple[Any, int] | None] | None = None
    """Parses a span from the end of its opening tag on; returns what it holds and the offset after its closing tag,
    None where it does not follow its grammar. So a closing tag in quotes does not end a span."""


@dataclass(frozen=True, kw_only=True)
class TagSpan:
    """A tagged part of a text."""

    kind: str
    start: int
    """Offset of the opening tag."""
    end: int
    """Offset one past the closing tag; the end of the text when it is missing."""
    opening: str
    """The opening tag as it was written."""
    body: str
    """Text between the tags."""
    is_closed: bool
    in_reasoning: bool
    parsed: Any = None
    """What `Tag.parse` returned."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Spans and blocks of reasoning in a text."""

    text: str
    spans: tuple[TagSpan, ...]
    """In the order they were written; none stands inside another."""
    reasoning: tuple[tuple[int, int], ...]
    """Offsets of the blocks of reasoning, their tags included."""

    def outside(self, kinds: Iterable[str], *, with_reasoning: bool) -> str:
        """Returns the text without the closed spans of these kinds, and without the reasoning unless it is asked for.

        A span inside the reasoning goes or stays with it.
        """
        names = set(kinds)
        cuts = [(s.start, s.end) for s in self.spans if s.kind in names and s.is_closed and not s.in_reasoning]
        if not with_reasoning:
            cuts += self.reasoning
        pieces, offset = [], 0
        for start, end in sorted(cuts):
            pieces.append(self.text[offset:start])
            offset = max(offset, end)
        return "".join([*pieces, self.text[offset:]])


class Scanner:
    """Finds the spans of some kinds of tags.

    An opening tag inside a span is part of its body. Inside a block of reasoning only closed spans count, so that
    the policy may speak of its tags there; where the reasoning never ends, open ones count as well.
    """

    def __init__(
        self,
        tags: Sequence[Tag],
        *,
        reasoning: tuple[str, str] | None,
        later_reasoning: Literal["any", "closed", "none"] = "closed",
    ) -> None:
        """Makes a scanner.

        Args:
            tags: the kinds of spans; where two could open at the same place, the first one does.
            reasoning: what opens and closes a block of reasoning, None where there is none.
            later_reasoning: blocks of reasoning that may begin after other text; other tags of reasoning are text.
        """
        self._tags = tuple(tags)
        self._reasoning = reasoning
        self._later_reasoning = later_reasoning
        parts = [f"(?P<t{i}>{tag.opening})" for i, tag in enumerate(self._tags)]
        self._opening = re.compile("|".join(parts) or r"(?!)")
        marks = [f"(?P<enter>{re.escape(reasoning[0])})|(?P<leave>{re.escape(reasoning[1])})"] if reasoning else []
        self._any = re.compile("|".join([*parts, *marks]) or r"(?!)")

    def scan(self, text: str, *, starts_in_reasoning: bool = False) -> Scan:
        """Returns what stands in `text`.

        An end of reasoning that was never begun ends a block that began before the text.

        Args:
            text: what the policy wrote in a turn.
            starts_in_reasoning: the prompt has opened a block of reasoning.
        """
        spans: list[TagSpan] = []
        reasoning: list[tuple[int, int]] = []
        offset = 0
        if starts_in_reasoning and self._reasoning is not None:
            offset = self._read_reasoning(text, 0, 0, spans, reasoning)
        begin, has_spoken, has_marks, num_failures = offset, False, offset > 0, 0
        last_end = text.rfind(self._reasoning[1]) if self._reasoning is not None else -1
        while (match := self._any.search(text, offset)) is not None:
            has_spoken = has_spoken or bool(text[begin : match.start()].strip())
            is_mark = match.lastgroup in ("enter", "leave")
            if is_mark and has_spoken and self._is_text(match, has_marks=has_marks, last_end=last_end):
                offset, has_marks = match.end(), True
                continue
            has_marks = has_marks or is_mark
            if match.lastgroup == "enter":
                offset = self._read_reasoning(text, match.start(), match.end(), spans, reasoning)
            elif match.lastgroup == "leave":
                # Spans before it were already taken for real ones; their text is no longer part of the reasoning.
                reasoning.append((offset, match.end()))
                offset = match.end()
            else:
                spans.append(self._read_span(match, limit=len(text), can_parse=num_failures < _MAX_FAILURES))
                num_failures += spans[-1].parsed is None
                offset = spans[-1].end
            begin = offset
        return Scan(text=text, spans=tuple(spans), reasoning=tuple(reasoning))

    def _is_text(self, mark: re.Match[str], *, has_marks: bool, last_end: int) -> bool:
        """Returns whether a tag of reasoning is text, where it stands after other text."""
        if mark.lastgroup == "leave":
            return self._later_reasoning == "none" and has_marks
        return self._later_reasoning == "none" or (self._later_reasoning == "closed" and mark.start() > last_end)

    def _read_reasoning(
        self, text: str, start: int, offset: int, spans: list[TagSpan], reasoning: list[tuple[int, int]]
    ) -> int:
        """Notes a block of reasoning and the spans in it; returns where it ends."""
        assert self._reasoning is not None
        closing = self._reasoning[1]
        inner = text.find(closing, offset)
        is_closed = inner >= 0
        inner = inner if is_closed else len(text)
        end = inner + len(closing) if is_closed else inner
        reasoning.append((start, end))
        spans += (s for s in self._iter_spans(text, offset, inner) if s.is_closed or not is_closed)
        return end

    def _iter_spans(self, text: str, start: int, end: int) -> Iterator[TagSpan]:
        offset = start
        while (match := self._opening.search(text, offset, end)) is not None:
            span = self._read_span(match, limit=end, in_reasoning=True, can_parse=False)
            yield span
            offset = span.end

    def _read_span(self, match: re.Match[str], *, limit: int, in_reasoning: bool = False, can_parse: bool) -> TagSpan:
        tag = next(tag for i, tag in enumerate(self._tags) if match[f"t{i}"] is not None)
        text, begin = match.string, match.end()
        result = tag.parse(text, begin) if can_parse and tag.parse is not None else None
        closed_at = result[1] - len(tag.closing) if result is not None else text.find(tag.closing, begin, limit)
        has_end = closed_at >= 0
        body_end = closed_at if has_end else limit
        return TagSpan(
            kind=tag.kind,
            start=match.start(),
            end=body_end + len(tag.closing) if has_end else limit,
            opening=match[0],
            body=text[begin:body_end],
            is_closed=has_end and bool(tag.closing),
            in_reasoning=in_reasoning,
            parsed=result[0] if result is not None else None,
        )


def blocks(text: str, tag: str) -> list[str]:
    """Returns the content of each `<tag>...</tag>`, in order; a block ends at the first closing tag after it."""
    # What a `Scanner` of this tag finds, in a tenth of its time.
    opening, closing, contents, offset = f"<{tag}>", f"</{tag}>", [], 0
    while (start := text.find(opening, offset)) >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        contents.append(text[start + len(opening) : end])
        offset = end + len(closing)
    return contents


def last_block(texts: Sequence[str], tag: str) -> str | None:
    """Returns the content of the last complete block of the last text that has one, without white space around it."""
    for text in reversed(texts):
        if contents := blocks(text, tag):
            return contents[-1].strip()
    return None


def has_one_block(text: str, tag: str) -> bool:
    """Returns whether `<tag>` opens once and `</tag>` closes once, after it."""
    return marks(text, [tag]) == [tag, f"/{tag}"]


def marks(text: str, tags: Iterable[str]) -> list[str]:
    """Returns the tags of a text in order, without their brackets: `think`, `/think`, ..."""
    return re.findall(f"<(/?(?:{'|'.join(map(re.escape, tags))}))>", text)


def are_flat(tags: Sequence[str]) -> bool:
    """Tells whether tags, as `marks` gives them, open and close in turn, none inside another."""
    return len(tags) % 2 == 0 and all(
        not tags[i].startswith("/") and tags[i + 1] == f"/{tags[i]}" for i in range(0, len(tags), 2)
    )
