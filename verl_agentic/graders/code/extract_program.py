"""Finds the program in a text: a fenced block, or a program without a fence.

Candidates are ranked; the last one of the best rank is the program:

1. with `fn_name`, a block that defines that function, or a class `Solution` that has it as a method 2. a block with
executable statements that uses no name which only an earlier block defines (an example call) 3. a block that parses,
but only defines
4. a block that is tagged as a program but does not parse

Within a rank, blocks tagged with the language come before untagged ones, and closed blocks before a truncated one.
Blocks of other languages and sample output (`5`, `YES`, `[1, 2]`) are not programs.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verl_agentic.base.text.python_source import error_line, parse_python

MAX_CHARS = 100_000
"""A longer block is not parsed."""
_MAX_TEXT = 400_000
_BUDGET_CHARS = 400_000
"""Maximum number of characters parsed per text."""
_PARSE_CHARS = 400
"""Fixed cost of a parse, in characters."""
_MAX_CLOSERS = 16
_MAX_DEPTH = 3
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_TAGS = {
    "python": ("python", "py", "pypy", "cpython"),
    "cpp": ("cpp", "c++", "cc", "cxx"),
    "nodejs": ("javascript", "js", "node", "nodejs"),
    "bash": ("bash", "sh", "shell"),
    "go": ("go", "golang"),
    "rust": ("rust", "rs"),
    "ruby": ("ruby", "rb"),
    "perl": ("perl", "pl"),
}
_CODE_START = re.compile(
    r"(?:import |from \w|def |class |@\w|#|if |for |while |try:|with |print\(|[A-Za-z_][\w, .\[\]]*=[^=])"
)


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A fenced block."""

    content: str
    tag: str
    is_closed: bool
    tree: ast.Module | None = None


def extract_code(text: str, *, fn_name: str | None = None, language: str = "python") -> str | None:
    """Returns the program of a text by the rules of this module, or None.

    A text without a fence may be a program with or without prose around it; Python only.

    Args:
        text: the policy's answer.
        fn_name: function that the program must define, if tests call one.
        language: a key of `sandbox.run_code.languages.LANGUAGES`.
    """
    lines = text[-_MAX_TEXT:].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff").split("\n")
    parser = _Parser(language)
    blocks = list(parser.blocks(lines))
    if blocks:
        return _choose(blocks, fn_name, language)
    return parser.unfenced(lines, fn_name) if language == "python" else None


def _choose(blocks: Sequence[_Block], fn_name: str | None, language: str) -> str | None:
    known: set[str] = set()
    ranked: list[tuple[tuple[int, bool, bool, int], str]] = []
    for index, block in enumerate(blocks):
        is_tagged = block.tag in _tags(language)
        if not is_tagged and block.tag:
            continue
        rank = _rank(block, known, fn_name) if language == "python" else 2
        if rank is None and is_tagged and block.content.strip():
            rank = 4
        if rank is not None:
            ranked.append(((rank, not is_tagged, not block.is_closed, -index), block.content))
        if block.tree is not None:
            known |= _names(block.tree, ast.Store)
    return min(ranked)[1] if ranked else None


def _tags(language: str) -> tuple[str, ...]:
    return _TAGS.get(language, (language.lower(),))


def _rank(block: _Block, known: set[str], fn_name: str | None) -> int | None:
    if block.tree is None:
        return None
    if fn_name and _defines(block.tree, fn_name):
        return 1
    kinds = {_kind(statement) for statement in block.tree.body}
    if "acts" in kinds:
        return 3 if _is_example(block.tree, known) else 2
    return 3 if "defines" in kinds else None


def _if_program(tree: ast.Module | None, code: str, fn_name: str | None) -> str | None:
    """Returns the code if it has executable statements or defines the function, else None."""
    rank = _rank(_Block(content=code, tag="", is_closed=True, tree=tree), set(), fn_name)
    return code if rank in (1, 2) else None


def _kind(statement: ast.stmt) -> str:
    """Returns `acts`, `defines`, or `nothing` (sample output and prose that parses)."""
    if isinstance(statement, ast.Expr):
        return "acts" if any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(statement)) else "nothing"
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return "nothing"
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return "defines"
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return "acts" if any(isinstance(node, ast.Call) for node in ast.walk(statement)) else "defines"
    return "nothing" if isinstance(statement, ast.Pass) else "acts"


def _is_example(tree: ast.Module, known: set[str]) -> bool:
    """Returns whether a block uses names that only an earlier block defines."""
    missing = _names(tree, ast.Load) - _names(tree, ast.Store) - vars(builtins).keys()
    return not missing.isdisjoint(known)


def _names(tree: ast.Module, context: type[ast.expr_context]) -> set[str]:
    """Returns the names that a program reads or, with `ast.Store`, binds."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    if context is ast.Load:
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return found


def _defines(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Solution" and _defines(ast.Module(node.body, []), name):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return True
        is_binding = isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom)
        if is_binding and name in _names(ast.Module([node], []), ast.Store):
            return True
    return False


class _Parser:
    """Finds blocks in lines, with a parse budget per text."""

    def __init__(self, language: str) -> None:
        self._language, self._left = language, _BUDGET_CHARS

    def blocks(self, given: Sequence[str], depth: int = 0) -> Iterator[_Block]:
        """Yields the fenced blocks in order, including those nested in Markdown blocks."""
        lines, at = list(given), 0
        while at < len(lines):
            opened = _opening(lines[at])
            if opened is None:
                at += 1
                continue
            tag = opened[1]
            block, at, rest = self._block(lines, at, *opened)
            if _opening(rest):  # text after the closing fence
                at -= 1
                lines[at] = rest
            inner: list[_Block] = []
            if tag not in _tags(self._language) and block.tree is None and depth < _MAX_DEPTH:
                inner = list(self.blocks(block.content.split("\n"), depth + 1))
            yield from inner or [block]

    def _block(self, lines: Sequence[str], start: int, fence: str, tag: str) -> tuple[_Block, int, str]:
        """Returns the block that opens in line `start`, the number of the next line, and the text after its fence."""
        may_parse = self._language == "python" and tag in ("", *_tags("python"))
        first: tuple[_Block, int, str] | None = None
        for stop, last, rest, is_closed in _closers(lines, start, fence):
            code = _dedented([*lines[start + 1 : stop], *last], lines[start])
            tree, code = self.parse(code) if may_parse else (None, code)
            found = _Block(content=code, tag=tag, is_closed=is_closed, tree=tree), stop + is_closed, rest
            first = first or found
            if tree is not None:
                return found
            if not may_parse or self._left < 0:
                break
        assert first is not None
        return first

    def unfenced(self, lines: Sequence[str], fn_name: str | None) -> str | None:
        """Returns the program of a text without fences; the text around it must not be Python."""
        whole = self.parse(_joined(lines))
        if whole[0] is not None:
            return _if_program(*whole, fn_name)
        starts = [at for at, line in enumerate(lines) if _CODE_START.match(line)]
        for start in starts[:_MAX_CLOSERS]:
            code = self._longest(_joined(lines[start:]))
            if code.count("\n") > 1 and (program := _if_program(*self.parse(code), fn_name)):
                return program
        return None

    def _longest(self, code: str) -> str:
        """Returns the code up to the first line that is not code."""
        for _ in range(4):
            line = self._error_line(code)
            if line is None:
                return code
            code = _joined(code.split("\n")[: line - 1])
        return ""

    def _error_line(self, code: str) -> int | None:
        """Returns the line of the first syntax error; 1 for other parse failures; None for valid code."""
        return error_line(code) if self._take(code) else 1

    def parse(self, code: str) -> tuple[ast.Module | None, str]:
        """Returns the tree (None if the code does not parse) and the dedented code."""
        for variant in dict.fromkeys((code, textwrap.dedent(code))):
            if not code.strip() or not self._take(variant):
                break
            if (tree := parse_python(variant)) is not None:
                return tree, variant
        return None, code

    def _take(self, code: str) -> bool:
        self._left -= len(code) + _PARSE_CHARS
        return len(code) <= MAX_CHARS and self._left >= 0


def _opening(line: str) -> tuple[str, str] | None:
    """Returns fence and tag of a line that opens a block; text may precede backticks followed by at most one word."""
    start = len(line) - len(line.lstrip())
    found = _FENCE.match(line, start)
    if not found and (at := line.find("```")) > start:
        found = _FENCE.match(line, at)
        found = found if found and len(found["info"].split()) <= 1 else None
    return (found["fence"], _tag(found["info"])) if found else None


def _tag(info: str) -> str:
    """Returns the language of an info string: `python`, `Python 3`, `python title="x"`, `{.python .numbered}`."""
    word = re.split(r"[\s,:;={}]+", info.strip().strip("{}. \t"))[0].lower()
    if word.endswith(".py"):
        return "python"
    return re.sub(r"[\d.]+$", "", word) if word.startswith("py") else word


def _closers(lines: Sequence[str], start: int, fence: str) -> Iterator[tuple[int, list[str], str, bool]]:
    """Yields (line number, rest of the block, text after the fence, is a closing fence) for each possible end of the
    block.

    The first is right unless the program contains a fence in a string. A fence with a tag opens the next block, so this
    block was not closed; the same holds for the end of the text.
    """
    count = 0
    for at in range(start + 1, len(lines)):
        line = lines[at].strip()
        if line.startswith(fence):
            rest = line.lstrip(fence[0])
            is_closed = not rest or rest[0].isspace()
            yield at, [], rest.strip() if is_closed else "", is_closed
        elif line.endswith(fence):
            yield at, [lines[at].rstrip().rstrip(fence[0])], "", True
        else:
            continue
        count += 1
        if count == _MAX_CLOSERS:
            return
    if not count:
        yield len(lines), [], "", False


def _dedented(content: Sequence[str], opening: str) -> str:
    """Returns the lines of a block without the indent of its opening fence."""
    indent = len(opening) - len(opening.lstrip())
    cut = [line[min(indent, len(line) - len(line.lstrip())) :] for line in content]
    return _joined(cut)


def _joined(lines: Sequence[str]) -> str:
    text = "\n".join(lines).rstrip("\n")
    return f"{text}\n" if text else ""
