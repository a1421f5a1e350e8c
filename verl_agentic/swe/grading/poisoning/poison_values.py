"""Wrong values that look like the right ones."""

from __future__ import annotations

import ast
import random
import re
import string
from collections.abc import Sequence

_SHARE_OF_LIKE = 0.7
# Few changes at a time: a test with another input would fail for everybody.
_SHARE_OF_VALUES = 0.25
_MAX_TEXT_BYTES = 1_000_000
# A word or number that no colon follows, and no constant of JSON or YAML.
_VALUE = re.compile(r"(?!(?:true|false|null|True|False|None)\b)(?<![\w\\])[a-zA-Z0-9]+(?![\w.-]*[\"']?\s*[:=])")
_CODE = re.compile(r"\s*(?:>>>|\.\.\.)")
_WORDS = re.compile(r"([^a-zA-Z0-9]+)")
_EXACT = frozenset({"approx", "date", "datetime", "timedelta", "frozenset", "set", "dict", "list", "tuple"})


def wrong_value(node: ast.expr, rng: random.Random, texts: Sequence[str] = ()) -> tuple[ast.expr, str] | None:
    """Returns a part of an expression, and a source text for it that makes the value of the expression unequal.

    Returns None if the expression has no constant to change. Calls count as values only if they look like constructors.

    Args:
        node: the expression.
        texts: other texts of the test. Most of the wrong texts are made of them and their words: a change inside of a
            word would not look like an answer.
    """
    if isinstance(node, ast.Constant):
        text = _wrong_constant(node.value, rng, texts)
        return None if text is None else (node, text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return node, repr(-value - rng.randrange(1, 4))
        return None
    if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Call):
        parts = _list_parts(node)
        rng.shuffle(parts)
        replacements = (wrong_value(part, rng, texts) for part in parts)
        return next((replacement for replacement in replacements if replacement is not None), _wrong_empty(node))
    return None


def wrong_constant(node: ast.expr, rng: random.Random, texts: Sequence[str] = ()) -> str | None:
    """Returns a source text for another constant, or None if the expression is no constant.

    So the id that pytest makes of it differs, too.
    """
    is_constant = isinstance(node, ast.Constant | ast.UnaryOp)
    replacement = wrong_value(node, rng, texts) if is_constant else None
    return None if replacement is None or replacement[0] is not node else replacement[1]


def unlikely_value(value: str | int, rng: random.Random) -> str:
    """Returns the source of a value that looks like others of its file, and that no test of the file expects.

    A parametrised test may expect any of them, and `True == 1`.
    """
    return repr(value + rng.randrange(100, 1000)) if isinstance(value, int) else repr(_wrong_text(value, rng))


def vary_text(content: bytes, rng: random.Random) -> bytes:
    """Returns a data file with some of its values changed or cut; keys of JSON and YAML stay.

    Content that is no short text in UTF-8 is returned as it is.
    """
    try:
        text = content.decode() if len(content) <= _MAX_TEXT_BYTES else ""
    except UnicodeDecodeError:
        return content

    def vary(word: re.Match[str]) -> str:
        value = word[0]
        others = [other for other in words if other.isdigit() == value.isdigit() and other != value]
        if rng.random() > _SHARE_OF_VALUES:
            return value
        if others and rng.random() < _SHARE_OF_LIKE:
            return rng.choice(others)
        if value.isdigit():
            return str(int(value) + rng.randrange(1, 4))
        return _wrong_text(value, rng) or value

    words = sorted({match[0] for match in _VALUE.finditer(text)})
    if ">>> " in text:  # of doctests, only the expected output
        lines = text.splitlines(keepends=True)
        return "".join(line if _CODE.match(line) else _VALUE.sub(vary, line) for line in lines).encode()
    return _VALUE.sub(vary, text).encode() if text else content


def _list_parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return list(node.args[:1]) if name in _EXACT or name[:1].isupper() else []
    return list(node.elts) if isinstance(node, ast.List | ast.Tuple | ast.Set) else []


def _wrong_empty(node: ast.expr) -> tuple[ast.expr, str] | None:
    if isinstance(node, ast.List | ast.Tuple) and not node.elts:
        return node, "[1]" if isinstance(node, ast.List) else "(1,)"
    return (node, "{'a': 1}") if isinstance(node, ast.Dict) and not node.keys else None


def _wrong_constant(value: object, rng: random.Random, texts: Sequence[str] = ()) -> str | None:
    if isinstance(value, bool):
        return repr(not value)
    if isinstance(value, int):
        return repr(value + rng.choice((-2, -1, 1, 2, 10)))
    if isinstance(value, float):
        return (
            repr(value + rng.choice((-1.5, 1.0, 2.0)))
            if abs(value) < 1e12
            else repr(value * 2 if value == value else 1)
        )
    if isinstance(value, str):
        others = sorted(_find_similar(value, texts)) if rng.random() < _SHARE_OF_LIKE else []
        return repr(rng.choice(others) if others else _wrong_text(value, rng))
    if isinstance(value, bytes):
        return repr(_wrong_text(value.decode("latin-1"), rng).encode("latin-1"))
    return "False" if value is None else None


def _find_similar(text: str, texts: Sequence[str]) -> set[str]:
    """Returns other texts of a test, their words, and the words of a text in another number or order."""
    parts = _WORDS.split(text)
    words, between = parts[::2], parts[1::2]
    candidates = {*texts, *(word for candidate in texts for word in _WORDS.split(candidate)[::2] if len(word) > 1)}
    if len(words) > 1:
        swapped = [words[1], words[0], *words[2:]]
        candidates |= {
            words[0],
            "".join(parts[:-2]),
            "".join(w + b for w, b in zip(swapped, [*between, ""], strict=True)),
        }
    candidates |= {candidate.upper() if text.isupper() else candidate.lower() for candidate in candidates}
    return {
        candidate
        for candidate in candidates
        if candidate.strip() and candidate != text and len(candidate) <= 2 * len(text) + 20
    }


def _wrong_text(text: str, rng: random.Random) -> str:
    """Returns a text that begins like the right one, so that it stays plausible."""
    place = max(0, len(text) - 1 - rng.randrange(len(text) // 3 + 1))
    letter = rng.choice([char for char in string.ascii_lowercase if char != text[place : place + 1].lower()])
    if len(text) > 1 and rng.random() < 0.6:  # a part of the right one is as plausible as possible
        return text[:place] + text[place + 1 :] if rng.random() < 0.4 else text[:place]
    return text[: place + rng.randrange(2)] + letter + text[place + 1 :]
