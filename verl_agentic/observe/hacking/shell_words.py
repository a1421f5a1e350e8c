"""Splits shell text into simple commands, without running or expanding anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_OPERATORS = ";&|()<>`\n"
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][\w.]*)\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WRAPPERS = frozenset(
    [
        "sudo",
        "env",
        "time",
        "nohup",
        "timeout",
        "xargs",
        "command",
        "exec",
        "nice",
        "setsid",
        "stdbuf",
        "if",
        "then",
        "else",
        "elif",
        "while",
        "until",
        "do",
        "!",
        "{",
        "}",
    ]
)
_OF_WRAPPER = re.compile(r"-|\d+[smh]?$|[A-Za-z_]\w*=")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")


@dataclass(frozen=True, kw_only=True)
class ShellCommand:
    """One program with its arguments."""

    words: Sequence[str]
    """Program first; quotes are removed, variables are not expanded."""
    outputs: Sequence[tuple[str, bool]] = ()
    """Files that it writes by redirection, and whether it appends to them."""
    body: str = ""
    """The here-document that it reads."""

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""

    @property
    def arguments(self) -> Sequence[str]:
        """All words behind the program."""
        return self.words[1:]


@dataclass(kw_only=True)
class _Line:
    text: str
    bodies: list[str] = field(default_factory=list)


def split_commands(text: str) -> Iterator[ShellCommand]:
    """Yields the simple commands of a text in order, those inside `$(...)` and backticks included.

    Text that is not shell yields words that are not programs.
    """
    for line in _iter_lines(text):
        bodies = iter(line.bodies)
        for words in _iter_simple_commands(_split_tokens(line.text)):
            command = _parse_command(words, bodies)
            for word in words:
                for inner in _SUBSTITUTION.finditer(word):
                    yield from (
                        _parse_command(part, iter(()))
                        for part in _iter_simple_commands(_split_tokens(inner[1] or inner[2] or ""))
                    )
            if command.words or command.outputs:
                yield command


def _iter_lines(text: str) -> Iterator[_Line]:
    """Yields pieces that end outside of quotes if possible, with their here-documents."""
    rows = text.replace("\\\n", " ").split("\n")
    pending_rows: list[str] = []
    place = 0
    while place < len(rows):
        row = rows[place]
        place += 1
        if row.lstrip().startswith("#"):
            continue
        pending_rows.append(row)
        ends = [match[2] for match in _HEREDOC.finditer(row)]
        if not ends:
            continue
        bodies = []
        for end in ends:
            start = place
            while place < len(rows) and rows[place].strip() != end:
                place += 1
            bodies.append("\n".join(rows[start:place]))
            place += 1
        yield _Line(text="\n".join(pending_rows), bodies=bodies)
        pending_rows = []
    yield _Line(text="\n".join(pending_rows))


def _split_tokens(text: str) -> list[str]:
    try:
        return _lex_text(text)
    except ValueError:  # a quote is never closed: each line is read for itself
        tokens: list[str] = []
        for line in text.split("\n"):
            try:
                tokens += [*_lex_text(line), "\n"]
            except ValueError:
                tokens += [*line.split(), "\n"]
        return tokens


def _lex_text(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    return list(lexer)


def _iter_simple_commands(tokens: Sequence[str]) -> Iterator[list[str]]:
    """Yields the tokens of each simple command, redirections among them."""
    words: list[str] = []
    for token in tokens:
        if token and not token.strip(_OPERATORS) and not set(token) & set("<>"):
            yield words
            words = []
        else:
            words.append(token)
    yield words


def _parse_command(tokens: Sequence[str], bodies: Iterator[str]) -> ShellCommand:
    words: list[str] = []
    outputs: list[tuple[str, bool]] = []
    body, place = "", 0
    while place < len(tokens):
        token = tokens[place]
        is_operator = bool(token) and not token.strip(_OPERATORS)
        place += 1
        if not is_operator:
            words.append(token)
            continue
        target = tokens[place] if place < len(tokens) else ""
        place += 1
        if ">" in token and not token.endswith("&"):
            outputs.append((target, ">>" in token))
        elif token.startswith("<<") and token != "<<<":
            body = next(bodies, "")
    return ShellCommand(words=_unwrap_words(words), outputs=outputs, body=body)


def _unwrap_words(words: list[str]) -> list[str]:
    """Returns the words from the program on, without assignments and wrappers."""
    place = 0
    while place < len(words):
        if _ASSIGNMENT.match(words[place]):
            place += 1
        elif words[place].rsplit("/", 1)[-1] in _WRAPPERS:
            place += 1
            while place < len(words) and _OF_WRAPPER.match(words[place]):
                place += 1
        else:
            break
    rest = words[place:]
    return [rest[0].lstrip("!"), *rest[1:]] if rest else []
