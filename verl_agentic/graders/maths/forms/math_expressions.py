r"""Reads an expression of LaTeX, plain text or Python into a tree: `\frac12x^2`, `5pi/6`, `-1 + exp(16)`, `2\sin^2 x`.

A node's kind is `number`, `name`, `constant`, `add`, `mul`, `neg`, `div`, `pow`, `mixed`, `degrees` or a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

MAX_DEPTH = 40
"""Maximum nesting of an expression."""


class Node(NamedTuple):
    """A number, name or operation."""

    kind: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)


class UnreadableError(ValueError):
    """The text is no expression of this notation."""


_TOKENS = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?P<exponent>[eE][+-]?\d{1,4}(?![\w^]))?"
    r"|(?P<command>\\[A-Za-z]+|\\[^A-Za-z])|(?P<word>[A-Za-z]+)|(?P<sign>\*\*|[^\sA-Za-z0-9\\]))"
)
_PYTHON_I = re.compile(r"(?<=[*+-])\s*I\b|(?<=\d)j(?=\)?$)")
_PYTHON_E = re.compile(r"\bE(?=\*\*|\^)")
_MODULES = re.compile(r"\b(?:math|np|numpy|sympy|sp|cmath)\.(?=[a-zA-Z])")
_FUNCTIONS = frozenset(
    """sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh ln log lg exp sqrt cbrt abs
    floor ceil gcd lcm max min""".split()  # noqa: SIM905
)
_CALLS = {
    "Rational": "div", "Fraction": "div", "pow": "pow", "binomial": "binomial", "comb": "binomial", "C": "binomial",
    "factorial": "factorial", "Abs": "abs", "ceiling": "ceil", "root": "root",
}  # fmt: skip
"""Functions of Python and sympy that need brackets."""
_INVERSES = {"sin": "asin", "cos": "acos", "tan": "atan"}
_SAME = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_GREEK = frozenset(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell""".split()  # noqa: SIM905
)
_CONSTANTS = {"pi": "pi", "e": "e", "infty": "infinity", "infinity": "infinity", "oo": "infinity", "inf": "infinity",
              "imath": "i"}  # fmt: skip
_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "|": "|", "\\|": "\\|", "\\lfloor": "\\rfloor",
            "\\lceil": "\\rceil", "\\lvert": "\\rvert", "\\vert": "\\vert"}  # fmt: skip
_BRACKET_FUNCTIONS = {"|": "abs", "\\|": "abs", "\\lvert": "abs", "\\vert": "abs", "\\lfloor": "floor",
                      "\\lceil": "ceil"}  # fmt: skip
_ACCENTS = frozenset(("\\vec", "\\overrightarrow", "\\overline", "\\hat", "\\bar", "\\tilde", "\\mathcal", "\\mathbb"))
_PRODUCTS = frozenset(("*", "\\times", "\\cdot", "\\ast", "\\bullet"))
_QUOTIENTS = frozenset(("/", "\\div"))
_ENDS = frozenset((")", "]", "}", "\\}", "\\rfloor", "\\rceil", "\\rvert", ",", "+", "-", "=", "&", ";"))


def read_expression(text: str) -> Node:
    """Returns the tree of a text that `math_notation.tidy` returned.

    Raises:
        UnreadableError: it is no expression, or nested too deeply.
    """
    return _Parser(text).parse()


def names_of(node: Node) -> set[str]:
    """Returns the names of variables in a tree; `i` is one."""
    return {part.name for part in nodes_of(node) if part.kind == "name"}


def nodes_of(node: Node) -> Iterator[Node]:
    """Yields all nodes of a tree."""
    stack = [node]
    while stack:
        part = stack.pop()
        yield part
        stack += part.args


def may_be_product(word: str) -> bool:
    """Returns whether letters may be variables that are multiplied: `ab`, `xyz` and `abc`, but not `yes`."""
    is_run = all(ord(next_letter) - ord(letter) == 1 for letter, next_letter in pairwise(word))
    return (len(word) < 3 and word.casefold() not in ("no", "on")) or (is_run and len(word) > 2)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_iter_tokens(_PYTHON_E.sub("e", _PYTHON_I.sub("i", _MODULES.sub("", text)))))
        self._place = 0
        self._closings: list[str] = []

    def parse(self) -> Node:
        node = self._parse_sum()
        if self._peek():
            raise UnreadableError(f"{self._peek()!r} is unexpected")
        return node

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise UnreadableError("the expression is not complete")
        self._place += 1
        return token

    def _accept(self, *tokens: str) -> bool:
        is_next = self._peek() in tokens and bool(self._peek())
        self._place += is_next
        return is_next

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise UnreadableError(f"{token!r} is missing")

    def _parse_sum(self) -> Node:
        if len(self._closings) > MAX_DEPTH:
            raise UnreadableError("it is nested too deeply")
        terms = [self._parse_product()]
        while self._peek() in ("+", "-"):
            is_negative = self._take() == "-"
            term = self._parse_product()
            terms.append(Node("neg", (term,)) if is_negative else term)
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def _parse_product(self) -> Node:
        if self._accept("-"):
            return Node("neg", (self._parse_product(),))
        if self._accept("+"):
            return self._parse_product()
        node = self._parse_factor()
        while token := self._peek():
            if self._accept(*_PRODUCTS):
                node = _multiply_nodes(node, self._parse_signed_factor())
            elif self._accept(*_QUOTIENTS):
                node = Node("div", (node, self._parse_signed_factor()))
            elif self._starts_factor(token):
                node = self._parse_joined_factor(node)
            else:
                break
        return node

    def _parse_signed_factor(self) -> Node:
        if self._accept("-"):
            return Node("neg", (self._parse_signed_factor(),))
        self._accept("+")
        return self._parse_factor()

    def _parse_joined_factor(self, node: Node) -> Node:
        """Reads a factor that is written next to another one: a product or the fraction of a mixed number."""
        token = self._peek()
        right = self._parse_factor()
        is_whole = node.kind == "number" and node.value.denominator == 1
        last = node.args[-1] if node.kind == "mul" else node
        if token[:1].isdigit() and last.kind == "number":
            low = self._parse_factor() if is_whole and self._accept("/") else Node("")
            if {right.kind, low.kind} != {"number"}:
                raise UnreadableError("two numbers stand side by side")
            right = Node("div", (right, low))
        elif not (token == "\\frac" and is_whole and {part.kind for part in right.args} == {"number"}):
            return _multiply_nodes(node, right)
        return Node("mixed", (node, right))

    def _starts_factor(self, token: str) -> bool:
        if self._closings and token == self._closings[-1]:
            return False
        return token not in _ENDS | _PRODUCTS | _QUOTIENTS and (
            token[0].isalnum() or token in _CLOSING or (token[0] == "\\" and len(token) > 2 and token[1].isalpha())
        )

    def _parse_factor(self) -> Node:
        node = self._parse_atom()
        while True:
            if self._accept("!"):
                node = Node("factorial", (node,))
            elif self._accept("^", "**"):
                node = Node("degrees", (node,)) if self._is_degree() else Node("pow", (node, self._parse_exponent()))
            else:
                return node

    def _is_degree(self) -> bool:
        if self._tokens[self._place : self._place + 3] == ["{", "\\circ", "}"]:
            self._place += 3
            return True
        return False

    def _parse_exponent(self) -> Node:
        if self._accept("-"):
            return Node("neg", (self._parse_exponent(),))
        self._accept("+")
        node = self._parse_atom()
        return Node("pow", (node, self._parse_exponent())) if self._accept("^", "**") else node

    def _parse_argument(self) -> Node:
        """Reads a group in braces, or one digit, letter or command."""
        token = self._peek()
        if token.isdigit() and len(token) > 1:
            self._tokens[self._place : self._place + 1] = [token[0], token[1:]]
        return self._parse_atom()

    def _parse_atom(self) -> Node:
        token = self._take()
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            return Node("number", value=Fraction(token))
        if token in _CLOSING:
            return self._parse_bracket(token)
        word = token.removeprefix("\\")
        if word in _FUNCTIONS:
            return self._parse_function(word)
        if word in _CALLS and self._peek() == "(" and (len(word) > 1 or "," in self._tokens[self._place :]):
            return self._parse_call(_CALLS[word])
        if token in ("\\frac", "\\binom"):
            top, low = self._parse_argument(), self._parse_argument()
            return Node("div" if token == "\\frac" else "binomial", (top, low))
        if token in _ACCENTS:
            return Node("name", name=f"{word} {''.join(self._take_group())}")
        if word in _CONSTANTS:
            return Node("name", name="i") if word == "imath" else Node("constant", name=_CONSTANTS[word])
        if (token[0] == "\\" and word in _GREEK) or (token[0] != "\\" and word.isalpha()):
            return Node("name", name=word + self._parse_subscript())
        raise UnreadableError(f"{token!r} is unknown")

    def _parse_subscript(self) -> str:
        return f"_{''.join(self._take_group())}" if self._accept("_") else ""

    def _take_group(self) -> list[str]:
        """Takes the tokens of a group in braces, or one token."""
        tokens = [self._take()]
        if tokens == ["{"]:
            tokens = []
            while not self._accept("}"):
                tokens.append(self._take())
        return tokens

    def _parse_bracket(self, opening: str) -> Node:
        closing = _CLOSING[opening]
        self._closings.append(closing)
        inside = self._parse_sum()
        self._expect(closing)
        self._closings.pop()
        return Node(_BRACKET_FUNCTIONS[opening], (inside,)) if opening in _BRACKET_FUNCTIONS else inside

    def _parse_call(self, kind: str) -> Node:
        self._expect("(")
        self._closings.append(")")
        args = [self._parse_sum()]
        while self._accept(","):
            args.append(self._parse_sum())
        self._expect(")")
        self._closings.pop()
        if len(args) != 2 - (kind in ("factorial", "abs", "ceil")):
            if kind != "div" or len(args) != 1:
                raise UnreadableError(f"{kind} has another number of arguments")
            return args[0]
        if kind == "root":
            return Node("pow", (args[0], Node("div", (Node("number", value=Fraction(1)), args[1]))))
        return Node(kind, tuple(args))

    def _parse_function(self, name: str) -> Node:
        if name in ("sqrt", "cbrt"):
            return self._parse_root(name)
        if name in ("gcd", "lcm", "max", "min"):
            return self._parse_call(name)
        if name in ("abs", "floor", "ceil"):
            return Node(name, (self._parse_atom(),))
        base = self._parse_base() if name == "log" else None
        power = None
        if self._accept("^", "**"):
            power = self._parse_exponent()
        if name == "log" and base is None:
            base = self._parse_base()
        if power == Node("neg", (Node("number", value=Fraction(1)),)) and name in _INVERSES:
            name, power = _INVERSES[name], None
        argument = self._parse_function_argument()
        if name == "log" and self._accept(","):
            base = self._parse_sum()
            self._expect(")")
        node = Node(_SAME.get(name, name), (argument,) if base is None else (argument, base))
        return node if power is None else Node("pow", (node, power))

    def _parse_base(self) -> Node | None:
        return self._parse_argument() if self._accept("_") else None

    def _parse_function_argument(self) -> Node:
        """Reads the brackets after a function, or the product without another function: `\\sin 2x\\cos x`."""
        opening = self._peek()
        if opening in ("(", "[", "\\{"):
            self._take()
            closing = _CLOSING[opening]
            self._closings.append(closing)
            inside = self._parse_sum()
            if self._peek() != ",":
                self._expect(closing)
            self._closings.pop()
            return inside
        self._accept("+")
        if self._accept("-"):
            return Node("neg", (self._parse_function_argument(),))
        node = self._parse_factor()
        while (token := self._peek()) and (token == "/" or self._starts_factor(token)):
            if token.removeprefix("\\") in _FUNCTIONS or token in ("(", "["):
                break
            node = Node("div", (node, self._parse_factor())) if self._accept("/") else self._parse_joined_factor(node)
        return node

    def _parse_root(self, name: str) -> Node:
        degree = Node("number", value=Fraction(3 if name == "cbrt" else 2))
        if self._peek() == "[":
            self._take()
            degree = self._parse_sum()
            self._expect("]")
        return Node(
            "pow", (self._parse_argument(), Node("div", (Node("number", value=Fraction(1)), degree))), name="root"
        )


def _multiply_nodes(first: Node, second: Node) -> Node:
    return Node("mul", (*(first.args if first.kind == "mul" else (first,)), second))


def _iter_tokens(text: str) -> Iterator[str]:
    place = 0
    text = text.rstrip()
    while place < len(text):
        token = _TOKENS.match(text, place)
        if token is None or not token[0].isascii():
            raise UnreadableError(f"{text[place]!r} is unknown")
        place = token.end()
        if token["number"]:
            yield token["number"].replace(",", "") + (token["exponent"] or "")
        elif token["word"]:
            yield from _split_letters(token["word"])
        elif (token["command"] or "") not in ("\\ ", "\\,", "\\!"):
            yield token["command"] or token["sign"]


def _split_letters(word: str) -> Iterator[str]:
    """Splits a run of letters into names of functions and constants, and variables."""
    if word in _FUNCTIONS or word in _CALLS or word in _CONSTANTS:
        yield word
        return
    for part in sorted((*_FUNCTIONS, "pi"), key=len, reverse=True):
        before, name, after = word.partition(part)
        if name and len(before) < 3 and (len(after) < 2 or after in _CONSTANTS):
            yield from before
            yield part
            yield from [after] if after in _CONSTANTS else after
            return
    if len(word) > 1 and not may_be_product(word) and not (len(word) < 4 and word.islower()):
        raise UnreadableError(f"{word!r} is a word")
    yield from word
