"""Linear temporal logic over the labels of turns: which label may come next.

Labels are names of tools, and `answer` for the final answer. A specification such as `G(search -> F answer)` is read
over finite traces: it must hold when the episode ends. It becomes an automaton by progression: after a label, what is
left of the formula is the next state. A label is allowed if an accepting state can still be reached.

Grammar: `true`, `false`, labels, `!a`, `a & b`, `a | b`, `a -> b`, `X a` (there is a next turn, and a holds then),
`F a` (a holds at some turn), `G a` (at every turn), `a U b` (a holds until b does), and brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, Observation

ANSWER = "answer"
_TOKEN = re.compile(r"\s*(->|[()!&|]|[A-Za-z_][\w.-]*)")
_UNARY = {"!", "X", "F", "G"}
_MAX_STATES = 1_000
Formula = tuple[Any, ...]
TRUE: Formula = ("true",)
FALSE: Formula = ("false",)


def parse_ltl(text: str) -> Formula:
    """Returns a formula. Raises ConfigError if the text is none."""
    tokens, end = [], 0
    while end < len(text.rstrip()):
        match = _TOKEN.match(text, end)
        if match is None:
            raise ConfigError(f"a specification must be LTL, got {text!r}, unreadable at {text[end : end + 20]!r}")
        tokens.append(match[1])
        end = match.end()
    parser = _Parser(tokens, text)
    formula = parser.implication()
    if parser.left:
        raise ConfigError(f"a specification must be one formula, got {text!r} with {parser.left[0]!r} left over")
    return formula


class _Parser:
    """Reads operators by their strength: `->`, `|`, `&`, `U`, and the unary ones."""

    def __init__(self, tokens: list[str], text: str) -> None:
        self.left, self._text = tokens, text

    def implication(self) -> Formula:
        first = self._parse_disjunction()
        return _make_or(_make_not(first), self.implication()) if self._take_token("->") else first

    def _parse_disjunction(self) -> Formula:
        formula = self._parse_conjunction()
        while self._take_token("|"):
            formula = _make_or(formula, self._parse_conjunction())
        return formula

    def _parse_conjunction(self) -> Formula:
        formula = self._parse_until()
        while self._take_token("&"):
            formula = _make_and(formula, self._parse_until())
        return formula

    def _parse_until(self) -> Formula:
        first = self._parse_unary()
        return ("U", first, self._parse_until()) if self._take_token("U") else first

    def _parse_unary(self) -> Formula:
        token = self.left.pop(0) if self.left else ""
        if token == "(":
            formula = self.implication()
            if not self._take_token(")"):
                raise ConfigError(f"a bracket must be closed, got {self._text!r}; close it")
            return formula
        if token in _UNARY:
            inner = self._parse_unary()
            return (
                _make_not(inner) if token == "!" else ("X", inner) if token == "X" else _make_eventually(token, inner)
            )
        if token in ("true", "false"):
            return (token,)
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", token) or token == "U":
            raise ConfigError(f"a label must follow, got {token!r} in {self._text!r}; write one")
        return ("label", token)

    def _take_token(self, token: str) -> bool:
        if self.left and self.left[0] == token:
            self.left.pop(0)
            return True
        return False


def _make_eventually(kind: str, inner: Formula) -> Formula:
    return ("U", TRUE, inner) if kind == "F" else _make_not(("U", TRUE, _make_not(inner)))


def _make_not(inner: Formula) -> Formula:
    if inner in (TRUE, FALSE):
        return FALSE if inner == TRUE else TRUE
    return inner[1] if inner[0] == "!" else ("!", inner)


def _make_and(formula: Formula, other: Formula) -> Formula:
    parts = (formula[1] if formula[0] == "and" else frozenset([formula])) | (
        other[1] if other[0] == "and" else frozenset([other])
    )
    parts -= {TRUE}
    if FALSE in parts or any(_make_not(part) in parts for part in parts):
        return FALSE
    return TRUE if not parts else next(iter(parts)) if len(parts) == 1 else ("and", parts)


def _make_or(formula: Formula, other: Formula) -> Formula:
    return _make_not(_make_and(_make_not(formula), _make_not(other)))


def labels_of(formula: Formula) -> set[str]:
    """Returns the labels in a formula."""
    if formula[0] == "label":
        return {formula[1]}
    inner: Iterable[Formula] = formula[1] if formula[0] == "and" else formula[1:]
    return set().union(*(labels_of(part) for part in inner))


@lru_cache(maxsize=65_536)
def progress(formula: Formula, label: str) -> Formula:
    """Returns what must hold for the rest of the trace, if this turn has the label."""
    kind = formula[0]
    if kind == "label":
        return TRUE if formula[1] == label else FALSE
    if kind == "!":
        return _make_not(progress(formula[1], label))
    if kind == "and":
        conjunction = TRUE
        for part in sorted(formula[1], key=repr):
            conjunction = _make_and(conjunction, progress(part, label))
        return conjunction
    if kind == "X":
        return _make_and(formula[1], _SOME_TURN)
    if kind == "U":
        return _make_or(progress(formula[2], label), _make_and(progress(formula[1], label), formula))
    return formula


_SOME_TURN: Formula = ("U", TRUE, TRUE)
"""Holds if there is a further turn."""


def accepts(formula: Formula) -> bool:
    """Returns whether a formula holds for the empty rest of a trace."""
    kind = formula[0]
    if kind == "!":
        return not accepts(formula[1])
    if kind == "and":
        return all(map(accepts, formula[1]))
    return kind == "true"


class LtlAutomaton:
    """The states of a specification; `answer` ends the trace."""

    def __init__(self, spec: str, labels: Iterable[str]) -> None:
        """Compiles a specification over the names of the tools.

        Raises:
            ConfigError: it is not LTL, names another label, has too many states, or allows no episode.
        """
        self.start = parse_ltl(spec)
        self.labels = tuple(dict.fromkeys([*labels, ANSWER]))
        if unknown := sorted(labels_of(self.start) - set(self.labels)):
            raise ConfigError(f"a specification names tools or {ANSWER}, got {unknown}; known ones: {self.labels}")
        self._edges: dict[Formula, dict[str, Formula]] = {}
        self._explore_states(spec)
        self._live = self._find_live_states()
        if self.start not in self._live:
            raise ConfigError(f"a specification must allow some episode that answers, got {spec!r}; weaken it")

    def allowed(self, state: Formula) -> tuple[str, ...]:
        """Returns the labels that may come next; in the order of the labels."""
        return tuple(label for label in self.labels if self._is_allowed(self._edges[state][label], label))

    def after(self, state: Formula, label: str) -> Formula:
        """Returns the state after an allowed label."""
        return self._edges[state][label]

    def _is_allowed(self, state: Formula, label: str) -> bool:
        return accepts(state) if label == ANSWER else state in self._live

    def _explore_states(self, spec: str) -> None:
        waiting = [self.start]
        while waiting:
            state = waiting.pop()
            if state in self._edges:
                continue
            if len(self._edges) >= _MAX_STATES:
                raise ConfigError(f"a specification may have {_MAX_STATES} states, {spec!r} has more; simplify it")
            self._edges[state] = {label: progress(state, label) for label in self.labels}
            waiting += [next_state for label, next_state in self._edges[state].items() if label != ANSWER]

    def _find_live_states(self) -> set[Formula]:
        """Returns the states from which an answer that satisfies the specification can be reached."""
        live = {state for state, edges in self._edges.items() if accepts(edges[ANSWER])}
        while True:
            more = {
                state
                for state, edges in self._edges.items()
                if state not in live and any(edges[label] in live for label in self.labels if label != ANSWER)
            }
            if not more:
                return live
            live |= more


_automaton_of = lru_cache(maxsize=64)(LtlAutomaton)


class LtlConstraint:
    """The constraint of one episode, and its state."""

    def __init__(self, spec: str, tools: Iterable[str]) -> None:
        """Compiles a specification, once per process. Raises ConfigError as `LtlAutomaton`."""
        self._automaton = _automaton_of(spec, tuple(tools))
        self._state = self._automaton.start

    @property
    def required_calls(self) -> tuple[str, ...]:
        """The tools of which one must come next; empty if the answer may come."""
        allowed = self._automaton.allowed(self._state)
        return () if ANSWER in allowed else allowed

    def apply(self, action: Action) -> Action:
        """Returns the action with its forbidden calls as errors; the others change the state.

        Malformed calls and calls of other tools are no labels: they change nothing.
        """
        calls = list(action.tool_calls)
        for place, call in enumerate(calls):
            if call.error is not None or call.name not in self._automaton.labels:
                continue
            if call.name in self._automaton.allowed(self._state):
                self._state = self._automaton.after(self._state, call.name)
            else:
                calls[place] = replace(call, error=self._write_refusal(), error_kind="invalid_action")
        return replace(action, tool_calls=tuple(calls))

    def refuse_answer(self, action: Action) -> Observation | None:
        """Returns an error in place of the end of the episode, if an answer is not allowed yet."""
        if action.tool_calls or ANSWER in self._automaton.allowed(self._state):
            return None
        return Observation((Message("user", self._write_refusal()),))

    def _write_refusal(self) -> str:
        allowed = ", ".join(self._automaton.allowed(self._state))
        return f"this is not allowed now, and was not carried out; what may come next: {allowed}"
