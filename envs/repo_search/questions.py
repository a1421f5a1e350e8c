"""Questions about Python sources with known answers: what a function does, and where a name is defined and called."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from verl_agentic.base.text.python_source import parse_python

Places = dict[str, list[list[int]]]
"""Path -> first and last line of each place."""
_MIN_WORDS, _MAX_WORDS = 6, 40
_MIN_LINES, _MAX_LINES = 3, 80
_MAX_CALLS, _MIN_NAME = 6, 5
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, kw_only=True)
class SearchQuestion:
    """A question and the places that answer it."""

    id: str
    kind: str
    """`docstring` or `calls`."""
    query: str
    places: Places


def questions_about(files: Mapping[str, bytes]) -> list[SearchQuestion]:
    """Returns the questions about a repository, in the order of their ids."""
    texts = {path: files[path].decode("utf-8", "replace") for path in sorted(files)}
    modules = {path: tree for path, text in texts.items() if (tree := parse_python(text)) is not None}
    definitions = [(path, node) for path, tree in modules.items() for node in _iter_definitions(tree)]
    names = Counter(node.name for _, node in definitions)
    calls: dict[str, Places] = defaultdict(lambda: defaultdict(list))
    for path, tree in modules.items():
        for name, span in _iter_calls(tree):
            if span not in calls[name][path]:
                calls[name][path].append(span)
    sentences = Counter(_first_sentence(node) for _, node in definitions)
    questions = []
    for path, node in definitions:
        span = _span_of(node)
        if not _MIN_LINES <= span[1] - span[0] + 1 <= _MAX_LINES:
            continue
        sentence = _first_sentence(node)
        if sentence and sentences[sentence] == 1:
            query = f"Where is the code for this?\n{sentence}"
            questions.append(_build_question("docstring", path, node, query, {path: [span]}))
        used = calls.get(node.name, {})
        num_calls = sum(map(len, used.values()))
        if names[node.name] == 1 and len(node.name) >= _MIN_NAME and 1 <= num_calls <= _MAX_CALLS:
            places = {
                other: sorted([*used.get(other, []), *([span] if other == path else [])]) for other in {path, *used}
            }
            query = f"Where is `{node.name}` defined, and where is it called by this name?"
            questions.append(_build_question("calls", path, node, query, dict(sorted(places.items()))))
    return sorted(questions, key=lambda question: question.id)


def _build_question(kind: str, path: str, node: _Definition, query: str, places: Places) -> SearchQuestion:
    return SearchQuestion(id=f"{kind}/{path}:{node.lineno}", kind=kind, query=query, places=places)


def _iter_definitions(tree: ast.Module) -> Iterator[_Definition]:
    return (node for node in ast.walk(tree) if isinstance(node, _Definition) and not node.name.startswith("__"))


def _iter_calls(tree: ast.Module) -> Iterator[tuple[str, list[int]]]:
    """Yields the name and the lines of each call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            yield name, [node.lineno, node.end_lineno or node.lineno]


def _span_of(node: _Definition) -> list[int]:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return [first, node.end_lineno or node.lineno]


def _first_sentence(node: _Definition) -> str:
    """Returns the first sentence of a docstring; empty if it says too little, or names the definition."""
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?]) ", text)[0]
    is_good = _MIN_WORDS <= len(sentence.split()) <= _MAX_WORDS and node.name.lower() not in sentence.lower()
    return sentence if is_good else ""
