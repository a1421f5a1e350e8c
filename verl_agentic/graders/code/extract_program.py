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
        return _choose_program(blocks, fn_name, language)
    return parser.unfenced(lines, fn_name) if language == "python" else None


def _choose_program(blocks: Sequence[_Block], fn_name: str | None, language: str) -> str | None:
    earlier_names: set[str] = set()
    ranked: list[tuple[tuple[int, bool, bool, int], str]] = []
    for index, block in enumerate(blocks):
        is_tagged = block.tag in _get_tags(language)
        if not is_tagged and block.tag:
            continue
        rank = _rank_block(block, earlier_names, fn_name) if language == "python" else 2
        if rank is None and is_tagged and block.content.strip():
            rank = 4
        if rank is not None:
            ranked.append(((rank, not is_tagged, not block.is_closed, -index), block.content))
        if block.tree is not None:
            earlier_names |= _collect_names(block.tree, ast.Store)
    return min(ranked)[1] if ranked else None


def _get_tags(language: str) -> tuple[str, ...]:
    return _TAGS.get(language, (language.lower(),))


def _rank_block(block: _Block, earlier_names: set[str], fn_name: str | None) -> int | None:
    if block.tree is None:
        return None
    if fn_name and _defines_name(block.tree, fn_name):
        return 1
    kinds = {_classify_statement(statement) for statement in block.tree.body}
    if "acts" in kinds:
        return 3 if _is_example(block.tree, earlier_names) else 2
    return 3 if "defines" in kinds else None


def _if_program(tree: ast.Module | None, code: str, fn_name: str | None) -> str | None:
    """Returns the code if it has executable statements or defines the function, else None."""
    rank = _rank_block(_Block(content=code, tag="", is_closed=True, tree=tree), set(), fn_name)
    return code if rank in (1, 2) else None


def _classify_statement(statement: ast.stmt) -> str:
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


def _is_example(tree: ast.Module, earlier_names: set[str]) -> bool:
    """Returns whether a block uses names that only an earlier block defines."""
    missing = _collect_names(tree, ast.Load) - _collect_names(tree, ast.Store) - vars(builtins).keys()
    return not missing.isdisjoint(earlier_names)


def _collect_names(tree: ast.Module, context: type[ast.expr_context]) -> set[str]:
    """Returns the names that a program reads or, with `ast.Store`, binds."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    if context is ast.Load:
        return names
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    return names


def _defines_name(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if (
            isinstance(node, ast.ClassDef)
            and node.name == "Solution"
            and _defines_name(ast.Module(node.body, []), name)
        ):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return True
        is_binding = isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom)
        if is_binding and name in _collect_names(ast.Module([node], []), ast.Store):
            return True
    return False


class _Parser:
    """Finds blocks in lines, with a parse budget per text."""

    def __init__(self, language: str) -> None:
        self._language, self._left = language, _BUDGET_CHARS

    def blocks(self, source_lines: Sequence[str], depth: int = 0) -> Iterator[_Block]:
        """Yields the fenced blocks in order, including those nested in Markdown blocks."""
        lines, index = list(source_lines), 0
        while index < len(lines):
            opened = _parse_opening(lines[index])
            if opened is None:
                index += 1
                continue
            tag = opened[1]
            block, index, rest = self._read_block(lines, index, *opened)
            if _parse_opening(rest):  # text after the closing fence
                index -= 1
                lines[index] = rest
            inner: list[_Block] = []
            if tag not in _get_tags(self._language) and block.tree is None and depth < _MAX_DEPTH:
                inner = list(self.blocks(block.content.split("\n"), depth + 1))
            yield from inner or [block]

    def _read_block(self, lines: Sequence[str], start: int, fence: str, tag: str) -> tuple[_Block, int, str]:
        """Returns the block that opens in line `start`, the number of the next line, and the text after its fence."""
        may_parse = self._language == "python" and tag in ("", *_get_tags("python"))
        first: tuple[_Block, int, str] | None = None
        for stop, last, rest, is_closed in _iter_closers(lines, start, fence):
            code = _dedent_block([*lines[start + 1 : stop], *last], lines[start])
            tree, code = self.parse(code) if may_parse else (None, code)
            candidate = _Block(content=code, tag=tag, is_closed=is_closed, tree=tree), stop + is_closed, rest
            first = first or candidate
            if tree is not None:
                return candidate
            if not may_parse or self._left < 0:
                break
        assert first is not None
        return first

    def unfenced(self, lines: Sequence[str], fn_name: str | None) -> str | None:
        """Returns the program of a text without fences; the text around it must not be Python."""
        whole = self.parse(_join_lines(lines))
        if whole[0] is not None:
            return _if_program(*whole, fn_name)
        starts = [index for index, line in enumerate(lines) if _CODE_START.match(line)]
        for start in starts[:_MAX_CLOSERS]:
            code = self._cut_at_error(_join_lines(lines[start:]))
            if code.count("\n") > 1 and (program := _if_program(*self.parse(code), fn_name)):
                return program
        return None

    def _cut_at_error(self, code: str) -> str:
        """Returns the code up to the first line that is not code."""
        for _ in range(4):
            line = self._error_line(code)
            if line is None:
                return code
            code = _join_lines(code.split("\n")[: line - 1])
        return ""

    def _error_line(self, code: str) -> int | None:
        """Returns the line of the first syntax error; 1 for other parse failures; None for valid code."""
        return error_line(code) if self._spend_budget(code) else 1

    def parse(self, code: str) -> tuple[ast.Module | None, str]:
        """Returns the tree (None if the code does not parse) and the dedented code."""
        for variant in dict.fromkeys((code, textwrap.dedent(code))):
            if not code.strip() or not self._spend_budget(variant):
                break
            if (tree := parse_python(variant)) is not None:
                return tree, variant
        return None, code

    def _spend_budget(self, code: str) -> bool:
        self._left -= len(code) + _PARSE_CHARS
        return len(code) <= MAX_CHARS and self._left >= 0


def _parse_opening(line: str) -> tuple[str, str] | None:
    """Returns fence and tag of a line that opens a block; text may precede backticks followed by at most one word."""
    start = len(line) - len(line.lstrip())
    match = _FENCE.match(line, start)
    if not match and (place := line.find("```")) > start:
        match = _FENCE.match(line, place)
        match = match if match and len(match["info"].split()) <= 1 else None
    return (match["fence"], _parse_tag(match["info"])) if match else None


def _parse_tag(info: str) -> str:
    """Returns the language of an info string: `python`, `Python 3`, `python title="x"`, `{.python .numbered}`."""
    word = re.split(r"[\s,:;={}]+", info.strip().strip("{}. \t"))[0].lower()
    if word.endswith(".py"):
        return "python"
    return re.sub(r"[\d.]+$", "", word) if word.startswith("py") else word


def _iter_closers(lines: Sequence[str], start: int, fence: str) -> Iterator[tuple[int, list[str], str, bool]]:
    """Yields (line number, rest of the block, text after the fence, is a closing fence) for each possible end of the
    block.

    The first is right unless the program contains a fence in a string. A fence with a tag opens the next block, so this
    block was not closed; the same holds for the end of the text.
    """
    count = 0
    for index in range(start + 1, len(lines)):
        line = lines[index].strip()
        if line.startswith(fence):
            rest = line.lstrip(fence[0])
            is_closed = not rest or rest[0].isspace()
            yield index, [], rest.strip() if is_closed else "", is_closed
        elif line.endswith(fence):
            yield index, [lines[index].rstrip().rstrip(fence[0])], "", True
        else:
            continue
        count += 1
        if count == _MAX_CLOSERS:
            return
    if not count:
        yield len(lines), [], "", False


def _dedent_block(content: Sequence[str], opening: str) -> str:
    """Returns the lines of a block without the indent of its opening fence."""
    indent = len(opening) - len(opening.lstrip())
    cut = [line[min(indent, len(line) - len(line.lstrip())) :] for line in content]
    return _join_lines(cut)


def _join_lines(lines: Sequence[str]) -> str:
    text = "\n".join(lines).rstrip("\n")
    return f"{text}\n" if text else ""
