"""Localisation: files, then elements (functions and classes) of these files, then ranges of lines.

Paper: https://arxiv.org/abs/2407.01489 (Agentless). Deviations: its three steps ask a model. Here BM25 over words and
parts of names ranks files and elements; the places that a model found with `repo_search` can be used instead.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_agentic.base.text.python_source import parse_python
from verl_agentic.swe.releases.file_kinds import kind_of

Spans = dict[str, list[tuple[int, int]]]
"""Path -> sorted, disjoint ranges of lines, from 1, both ends included."""
_K1, _B = 1.2, 0.75
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PATH_WEIGHT = 5  # a word of the path counts like as many words of the text
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, kw_only=True)
class _Element:
    """A function, or a class without its methods."""

    path: str
    first: int
    last: int
    words: Sequence[str]


def localise(
    files: Mapping[str, str], issue: str, *, max_files: int = 3, max_elements: int = 8, around: int = 10
) -> Spans:
    """Returns the ranges of lines that an issue is probably about, by its words.

    Args:
        files: path -> text of the repository. Only Python sources count, no tests.
        issue: the statement.
        max_files: number of files; those without a word of the issue do not count.
        max_elements: number of functions and classes of all these files together.
        around: lines shown before and after an element.
    """
    query = set(words_of(issue))
    sources = {path: text for path, text in files.items() if kind_of(path) == "source"}
    ranked = ranked_by(query, {path: words_of(text) + _PATH_WEIGHT * words_of(path) for path, text in sources.items()})
    chosen = ranked[:max_files]
    elements = {
        str(number): part for number, part in enumerate(e for path in chosen for e in elements_of(path, sources[path]))
    }
    best = ranked_by(query, {key: part.words for key, part in elements.items()})[:max_elements]
    spans_by_path: Spans = {path: [] for path in chosen}
    for element in (elements[key] for key in best):
        spans_by_path[element.path].append((element.first, element.last))
    return {path: widened(spans, sources[path], around) for path, spans in spans_by_path.items()}


def ranked_by(query: set[str], texts: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the keys of the texts that share a word with the query, best first (BM25)."""
    counts = {key: Counter(words) for key, words in texts.items()}
    mean = sum(map(len, texts.values())) / max(len(texts), 1) or 1.0
    shared = {word: sum(word in count for count in counts.values()) for word in query}
    weights = {word: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for word, n in shared.items() if n}

    def score(key: str) -> float:
        norm = _K1 * (1 - _B + _B * len(texts[key]) / mean)
        return sum(
            weight * counts[key][word] * (_K1 + 1) / (counts[key][word] + norm) for word, weight in weights.items()
        )

    scores = {key: score(key) for key in texts}
    return sorted((key for key in texts if scores[key] > 0), key=lambda key: (-scores[key], key))


def words_of(text: str) -> list[str]:
    """Returns the words of a text and the parts of its names, in lower case."""
    return [word.lower() for word in _WORD.findall(text) if len(word) > 1]


def elements_of(path: str, text: str) -> list[_Element]:
    """Returns the functions of a file, and its classes up to their first method."""
    tree, lines = parse_python(text), text.split("\n")
    elements = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _Definition):
            last = node.end_lineno or node.lineno
            if isinstance(node, ast.ClassDef):
                methods = [_first_line_of(item) for item in node.body if isinstance(item, _Definition)]
                last = min([last, *(max(node.lineno, first - 1) for first in methods)])
            words = words_of("\n".join(lines[_first_line_of(node) - 1 : last])) + _PATH_WEIGHT * words_of(node.name)
            elements.append(_Element(path=path, first=_first_line_of(node), last=last, words=words))
    return sorted(elements, key=lambda item: (item.first, -item.last))


def widened(spans: Sequence[tuple[int, int]], text: str, around: int) -> list[tuple[int, int]]:
    """Returns ranges with lines around them, sorted and joined where they meet."""
    last_line = len(text.removesuffix("\n").split("\n"))
    joined: list[tuple[int, int]] = []
    for first, last in sorted((max(1, a - around), min(last_line, b + around)) for a, b in spans if a <= last_line):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def excerpt(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Returns ranges of lines, and the heads of all other definitions (the skeleton); `...` replaces the rest."""
    lines, tree = text.removesuffix("\n").split("\n"), parse_python(text)
    line_numbers = {number for first, last in spans for number in range(first, last + 1)}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _Definition):
            line_numbers.update(range(_first_line_of(node), max(node.lineno, node.body[0].lineno - 1) + 1))
    parts: list[str] = []
    for number, line in enumerate(lines, start=1):
        if number in line_numbers:
            parts.append(line)
        elif not parts or parts[-1] != "...":
            parts.append("...")
    return "\n".join(parts)


def _first_line_of(node: _Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
