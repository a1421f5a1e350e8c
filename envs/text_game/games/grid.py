"""Boards of characters: directions, reading, drawing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from verl_agentic import DataError

from .game import Style

Cell = tuple[int, int]
"""(row, column), from 0 at the top left."""
DIRECTIONS: dict[str, Cell] = {"Up": (-1, 0), "Right": (0, 1), "Down": (1, 0), "Left": (0, -1)}
"""Clockwise, so that the neighbours in this order are the two sideways directions."""
NAMES = tuple(DIRECTIONS)
_BY_TEXT = {name.casefold(): name for name in NAMES}


def read_direction(text: str) -> str | None:
    """Returns the direction of a text, in any case; None without one."""
    return _BY_TEXT.get(text.strip().casefold())


def after(cell: Cell, direction: str) -> Cell:
    """Returns the neighbour of a cell."""
    row, column = DIRECTIONS[direction]
    return cell[0] + row, cell[1] + column


def cells(board: Iterable[str], symbols: str) -> list[Cell]:
    """Returns the cells that hold one of the symbols, row by row."""
    return [(r, c) for r, line in enumerate(board) for c, symbol in enumerate(line) if symbol in symbols]


def read_board(board: Any, *, symbols: str) -> tuple[str, ...]:
    """Returns a board that is a rectangle of known symbols.

    Raises:
        DataError: it is not.
    """
    lines = tuple(board) if isinstance(board, (list, tuple)) else ()
    is_board = bool(lines) and all(isinstance(line, str) and len(line) == len(lines[0]) > 0 for line in lines)
    if not is_board or set("".join(lines)) - set(symbols):
        raise DataError(
            f"the board must be a list of lines of one length made of {symbols!r}, got {board!r}; make the rows anew"
        )
    return lines


def draw(board: Iterable[str], *, style: Style, legend: Mapping[str, str]) -> str:
    """Returns the board as text, and the positions of the symbols in `legend`."""
    lines = list(board)
    # Spaces keep tokenizers from merging neighbours; the compact style saves tokens.
    drawn = [line if style == "compact" else " ".join(line) for line in lines]
    return "\n".join([*drawn, *_list_positions(lines, legend)])


def _list_positions(board: list[str], legend: Mapping[str, str]) -> Iterable[str]:
    for symbols, name in legend.items():
        positions = cells(board, symbols)
        if positions:
            yield f"{name}: " + " ".join(f"({row},{column})" for row, column in positions)
