"""Lines at the foot of a terminal, below all other output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

_SAVE, _RESTORE = "\0337", "\0338"
"""Store the position of the cursor, and go back to it."""
_WHOLE_SCREEN = "\033[r"
_LINE_DOWN = "\033D"
"""Scrolls at the end of the screen, as a newline does, but stays in the column."""
_CLEAR_LINE, _CLEAR_BELOW = "\033[K", "\033[J"


class TerminalFoot:
    """The last lines of a terminal, which other output does not reach: the lines above them scroll on their own.

    `rich.live` moves the cursor instead. That is only right as long as nobody else writes, and here other processes
    and libraries in C write to the same terminal.
    """

    def __init__(self, stream: IO[str], *, height: int) -> None:
        """Draws nothing yet.

        Args:
            stream: a terminal.
            height: number of lines.
        """
        self._descriptor = stream.fileno()
        self._height = height
        self._num_rows = 0
        """Rows of the terminal for which the foot was opened; 0: it is not open."""

    def fits(self) -> bool:
        """Tells whether other output has at least as many rows."""
        return self._count_rows() >= 2 * self._height

    def draw(self, lines: Sequence[str]) -> None:
        """Shows lines in the place of those before; opens the foot anew where the terminal has another size."""
        num_rows = self._count_rows()
        if not self.fits():
            self.close()
            return
        text = self._open(num_rows) if num_rows != self._num_rows else ""
        top = num_rows - self._height + 1
        contents = [*lines, *[""] * self._height][: self._height]
        rows = "".join(f"\033[{top + number};1H{line}{_CLEAR_LINE}" for number, line in enumerate(contents))
        self._write(f"{text}{_SAVE}{rows}{_RESTORE}")

    def close(self, lines: Sequence[str] = ()) -> None:
        """Gives the rows back to other output, and prints lines as such."""
        text = ""
        if self._num_rows:
            text = f"{_SAVE}{_WHOLE_SCREEN}\033[{self._num_rows - self._height + 1};1H{_CLEAR_BELOW}{_RESTORE}"
            self._num_rows = 0
        self._write(text + "".join(f"{line}\n" for line in lines))

    def _open(self, num_rows: int) -> str:
        """Returns what makes room: the cursor and all text before it stay above the foot."""
        self._num_rows = num_rows
        room = _LINE_DOWN * self._height + f"\033[{self._height}A"
        return f"{_SAVE}{_WHOLE_SCREEN}{_RESTORE}{room}{_SAVE}\033[1;{num_rows - self._height}r{_RESTORE}"

    def _count_rows(self) -> int:
        return os.get_terminal_size(self._descriptor).lines

    def _write(self, text: str) -> None:
        """Writes in one call, so that output of others is before it or after it."""
        os.write(self._descriptor, text.encode())
