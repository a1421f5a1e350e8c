"""Tools of a domain: methods that read and change its database."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from verl_agentic import ToolResult
from verl_agentic.tools.function_tool import FunctionTool

from .database import Database, Record

_OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_MAX_EXPRESSION_CHARS = 200
TRANSFER = "transfer_to_human_agents"


class RefusedError(Exception):
    """A tool refuses what it is asked to do; the message says why."""


class DeskTool(FunctionTool[..., Any]):
    """A method of a domain as a tool; refusals are errors for the policy."""

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers one call."""
        try:
            return await super().call(arguments)
        except RefusedError as refused:
            return ToolResult(f"Error: {refused}", is_error=True)


class Domain:
    """Tools that all domains have. A subclass adds coroutine methods, and lists them in `reads` and `changes`."""

    reads: tuple[str, ...] = ("calculate", TRANSFER)
    """Names of tools that only read."""
    changes: tuple[str, ...] = ()
    """Names of tools that change the database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def tools(self) -> list[DeskTool]:
        """Returns all tools."""
        return [DeskTool(getattr(self, name)) for name in (*self.reads, *self.changes)]

    async def calculate(self, expression: str) -> str:
        """Calculates a sum, difference, product or quotient of numbers.

        Args:
            expression: such as (12.5 + 3) * 2.
        """
        try:
            if len(expression) > _MAX_EXPRESSION_CHARS:
                raise ValueError
            return str(round(_value(ast.parse(expression, mode="eval").body), 2))
        except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError) as cause:
            raise RefusedError("the expression must have numbers, + - * / and brackets only") from cause

    async def transfer_to_human_agents(self, summary: str) -> str:
        """Hands the customer over to a human agent, which ends the conversation.

        Args:
            summary: what the customer wants.
        """
        return "Transfer successful"

    def _find(self, table: str, key: str) -> Record:
        record = self.database.get(table, key)
        if record is None:
            raise RefusedError(f"{table.removesuffix('s')} not found")
        return record


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(node)
