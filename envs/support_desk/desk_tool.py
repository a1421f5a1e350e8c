"""Tools of a domain: methods that read and change its database."""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Mapping
from typing import Any

from verl_agentic import ToolResult
from verl_agentic.base.tools.function_tool import FunctionTool

from .database import Database, Record, Tables
from .scenario import Assertion, Call
from .tau2_files import Tau2Files

_OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_MAX_EXPRESSION_CHARS = 200
TRANSFER = "transfer_to_human_agents"


class RefusedError(Exception):
    """A tool refuses what it is asked to do; the message says why."""


class DeskTool(FunctionTool[..., Any]):
    """A method of a domain as a tool; refusals are errors for the caller."""

    def __init__(self, domain: Domain, name: str) -> None:
        """Makes a tool of a method."""
        super().__init__(getattr(domain, name))
        self._domain = domain

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers one call."""
        try:
            result = await super().call(arguments)
        except RefusedError as refused:
            return ToolResult(f"Error: {refused}", is_error=True)
        if not result.is_error:
            self._domain.carried_out.append((self.name, dict(arguments)))
            self._domain.settle()
        return result


class Domain:
    """Tools that all domains have. A subclass adds coroutine methods, and lists them in `reads`, `changes`, `hands`."""

    tables: tuple[str, ...] = ()
    """Tables of the database."""
    reads: tuple[str, ...] = ("calculate", TRANSFER)
    """Names of tools that only read."""
    changes: tuple[str, ...] = ()
    """Names of tools that change the database."""
    hands: tuple[str, ...] = ()
    """Names of the customer's tools."""
    preparations: tuple[str, ...] = ()
    """Names of further methods that a task may call before the conversation."""
    assertions: tuple[str, ...] = ()
    """Names of methods that return whether a state holds."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.carried_out: list[tuple[str, dict[str, Any]]] = []
        """Calls of both sides that were carried out."""

    @classmethod
    def read_tables(cls, files: Tau2Files) -> Tables:
        """Returns tau2's database. Raises DataError if a file is missing or malformed."""
        return files.json("db.json")

    def tools(self) -> list[DeskTool]:
        """Returns the tools of the desk."""
        return [DeskTool(self, name) for name in (*self.reads, *self.changes)]

    def hand_tools(self) -> list[DeskTool]:
        """Returns the tools of the customer."""
        return [DeskTool(self, name) for name in self.hands]

    def settle(self) -> None:
        """Carries the effects of a call over to the other side."""

    def prepare(self, call: Call) -> None:
        """Makes a call of the task's initial state."""
        _run_call(getattr(self, call["name"]), call["arguments"])
        self.settle()

    def replay(self, call: Call) -> None:
        """Makes a call of a tool; a refused one changes nothing."""
        _run_call(DeskTool(self, call["name"]).call, {"arguments": call["arguments"]})

    def holds(self, assertion: Assertion) -> bool:
        """Returns whether an assertion about the state has its expected value."""
        return getattr(self, assertion["name"])(**assertion["arguments"]) == assertion["value"]

    async def calculate(self, expression: str) -> str:
        """Calculates a sum, difference, product or quotient of numbers.

        Args:
            expression: such as (12.5 + 3) * 2.
        """
        try:
            if len(expression) > _MAX_EXPRESSION_CHARS:
                raise ValueError
            return str(round(_evaluate_node(ast.parse(expression, mode="eval").body), 2))
        except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError) as cause:
            raise RefusedError("the expression must have numbers, + - * / and brackets only") from cause

    async def transfer_to_human_agents(self, summary: str) -> str:
        """Hands the customer over to a human agent, which ends the conversation.

        Args:
            summary: what the customer wants.
        """
        return "Transfer successful"

    def _find_record(self, table: str, key: str) -> Record:
        record = self.database.get(table, key)
        if record is None:
            raise RefusedError(f"{table.removesuffix('s')} not found")
        return record

    def _payment_method(self, user_id: str, payment_id: str) -> Record:
        method = self._find_record("users", user_id)["payment_methods"].get(payment_id)
        if method is None:
            raise RefusedError(f"payment method {payment_id} not found")
        return method


def _run_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Calls a function, or a coroutine function that never waits, so that no event loop is needed."""
    coroutine = function(**arguments)
    if hasattr(coroutine, "send"):
        with contextlib.suppress(StopIteration):
            coroutine.send(None)


def _evaluate_node(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate_node(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate_node(node.left), _evaluate_node(node.right))
    raise ValueError(node)
