"""Changelog items of a release, without items about packaging, documentation and credits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence

from verl_agentic.swe.releases.file_kinds import kind_of

_CHANGELOG = re.compile(
    r"(^|/)(CHANGES?|CHANGELOG|HISTORY|NEWS|RELEASES?|change_?log|versions|whats_?new|release_notes)[^/]*$", re.I
)
_README = re.compile(r"^README[^/]*$", re.I)
_BULLET = re.compile(r"^\s*([-*+•]|\d{1,2}[.)])\s+")
_BARE = re.compile(r"^[\s=\-~^#*_`.+|:<>]*$")
_HEADING = re.compile(
    r"^\s*(#+\s|\.\. )|^[\s#*\[v(]*((version|release|unreleased)\b.{0,40}"
    r"|\d+(\.\d+)+\S*(\s.{0,25}\b\d{4}\b.{0,12}|\s\W*unreleased\W*)?)$"
    r"|^[\s#*]*(added|changed|fixed|removed|deprecated|security|features?|bug ?fixes|fixes|improvements|other|misc\w*"
    r"|internal|documentation|breaking changes?|new features?|enhancements)\W*$|^\s*released\b.{0,40}$"
    r"|^\W*(change\s?log|changes|(release )?history|news|release notes)\W*$",
    re.I,
)
_NOISE = re.compile(
    r"\b(python ?[23]\b|python ?[23]\.\d+|pypy|cpython|build (backend|system)|pyproject|setup\.(py|cfg)|setuptools"
    r"|hatch\w*|flit|poetry|packag(e|ing)|wheels?|sdist|tox|nox|github actions|travis|appveyor|ci\b|codecov|coverage"
    r"|pre-commit|ruff|black\b|flake8|isort|mypy|pyright|type (hints?|annotations?)|typing|docs?\b|documentation"
    r"|docstrings?|readme|changelog|typos?|badge|thanks|credits?|contribut\w*|maintainers?|licen[cs]e|copyright"
    r"|bump\w*|dependabot|dependency|dependencies|test suite|tests?\b|refactor\w*|lint\w*|sphinx|read the docs"
    r"|end[- ]of[- ]life|version number)",
    re.I,
)
_BEHAVIOUR = re.compile(r"\b(fix(es|ed)?|bug|raise[sd]?|return[sed]*|crash\w*|incorrect\w*|wrong\w*|error)\b", re.I)
_LINKS = (
    (re.compile(r":\w+(?::\w+)?:`~?([^`<]*?)(?:\s*<[^`]*>)?`"), r"`\1`"),
    (re.compile(r"\(?(?:issue|pull request|pr|gh|bug|see|closes|fixes)?:?\s*`?#\d+`?\)?", re.I), ""),
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),
    (re.compile(r"\(?\bhttps?://\S+"), ""),
    (re.compile(r"[\s(,]*\b(?:thanks(?: to)?|by|from)\s+`?@[\w-]+`?\)?", re.I), ""),
    (re.compile(r"`issue`?\s*`?\d*`?|`\d+`(?=[\s,.]*$)"), ""),
    (re.compile(r"\s*\([^()]{2,40}$"), ""),  # an author whose link is gone
    (re.compile(r"[ \t]{2,}"), " "),
    (re.compile(r"\s+([.,;:])"), r"\1"),
)
_VERSION = re.compile(r"^\W*v?\d+(\.\d+)+\W*\s+")
_CODE = re.compile(r"^(>>>|\.\.\. |\$ )")
_MAX_WORDS = 150


def changelog_items(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[str]:
    """Returns the items that a release adds to the changelog, or else to the README."""
    best: list[str] = []
    for pattern in (_CHANGELOG, _README):
        for path in new:
            if pattern.search(path) and kind_of(path) in ("docs", "other"):
                added = _list_added(old.get(path), new[path])
                if pattern is _README:  # which has other news too
                    added = _from_first_version(added)
                new_items = items_of(added)
                best = max(best, new_items, key=lambda items: sum(map(len, items)))
        if best:
            break
    return best


def items_of(lines: Sequence[str]) -> list[str]:
    """Splits lines of a changelog into items: bullets with their continuation, or paragraphs. Headings are dropped."""
    items: list[list[str]] = []
    is_open = False
    for line in lines:
        if _BARE.match(line) or _HEADING.search(line):
            is_open = False
        elif _BULLET.match(line):
            items.append([_BULLET.sub("", line)])
            is_open = True
        elif is_open:
            items[-1].append(line)
        else:
            items.append([line])
            is_open = True
    sentences = [sentence for item in items for sentence in _join_sentences(item)]
    return [text for sentence in sentences if (text := _clean_text(sentence))]


def _join_sentences(lines: Sequence[str]) -> list[str]:
    """Joins the lines of an item; a line that begins a new sentence after a credit or a full stop begins a new item."""
    sentences: list[str] = []
    for line in lines:
        is_new = bool(sentences) and line.strip()[:1].isupper() and sentences[-1].rstrip().endswith((")", ".", ":"))
        if sentences and not is_new:
            sentences[-1] = f"{sentences[-1]} {line.strip()}"
        else:
            sentences.append(_VERSION.sub("", line.strip()))
    return sentences


def relevant_items(items: Sequence[str], *, words: Collection[str]) -> list[str]:
    """Returns the items about behaviour, at most 150 words; those that share a word with the change come alone.

    Args:
        items: of a changelog.
        words: names of changed functions, of their modules and of failing tests.
    """
    behaviour_items = [
        item for item in items if not _NOISE.search(item) or (_BEHAVIOUR.search(item) and words_of(item) & {*words})
    ]
    related = [item for item in behaviour_items if words_of(item) & {*words}]
    chosen, total = [], 0
    for item in related or behaviour_items:
        total += len(item.split())
        if chosen and total > _MAX_WORDS:
            break
        chosen.append(item)
    return chosen


def words_of(text: str) -> set[str]:
    """Returns the lower-case words of at least four letters, with names split at `_` and capitals."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)
    return {part.lower().rstrip("s") for part in parts if len(part) > 3} - _COMMON


# fmt: off
_COMMON = frozenset((
    "test", "with", "from", "that", "this", "when", "value", "return", "none", "true", "false", "self", "python",
    "init", "name", "arg", "kwarg", "string", "default", "have", "some", "more", "only", "other", "into", "make",
    "made", "should", "would", "could", "does", "error", "type", "function", "method", "clas",
))
# fmt: on


def _from_first_version(lines: Sequence[str]) -> list[str]:
    """Returns the lines from the first one that begins with a version on."""
    start = next((index for index, line in enumerate(lines) if _VERSION.match(_BULLET.sub("", line) + " ")), len(lines))
    return list(lines[start:])


def _list_added(old: bytes | None, new: bytes) -> list[str]:
    if old is None:
        return []
    before, after = (text.decode(errors="replace").splitlines() for text in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        line for tag, _, _, a, b in matcher.get_opcodes() if tag in ("insert", "replace") for line in [*after[a:b], ""]
    ]


def _clean_text(text: str) -> str:
    for pattern, replacement in _LINKS:
        text = pattern.sub(replacement, text)
    text = text.strip(" \t.,;:-")
    return text if re.search(r"[A-Za-z]{3}", text) and not _CODE.match(text) else ""
