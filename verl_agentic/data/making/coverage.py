"""Coverage of made data: rows of each cell, such as a question, a topic or a relation, and candidates for the tail."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.making.maker import Candidate, Maker, Record
from verl_agentic.graders.models.chat_model import ChatModel

_ROUNDS = 3


class CoveringMaker(Maker, Protocol):
    """A maker whose rows belong to cells that can be asked for."""

    def list_cells(self) -> Sequence[str]:
        """Returns all cells."""
        ...

    def find_cells(self, record: Record) -> Collection[str]:
        """Returns the cells of a row."""
        ...

    async def make_for(
        self, cell: str, rows: Sequence[Record], *, seed: int, number: int, model: ChatModel | None
    ) -> Record:
        """Returns a row of a cell; raises as `Candidate.record`.

        Args:
            cell: one of `list_cells`.
            rows: those of the cell that are there.
            seed, number: equal ones give equal draws.
            model: for makers that need one.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Numbers of rows by cell."""

    rows: Mapping[str, int]
    min_rows: int
    """Number of rows of a covered cell."""

    @property
    def tail(self) -> list[str]:
        """The cells that are not covered, the rarest first."""
        rare = [cell for cell, count in self.rows.items() if count < self.min_rows]
        return sorted(rare, key=lambda cell: self.rows[cell])

    @property
    def share(self) -> float:
        """The share of covered cells."""
        return 1 - len(self.tail) / len(self.rows) if self.rows else 1.0


def require_cells(maker: Maker) -> CoveringMaker:
    """Returns a maker as one whose cells can be asked for. Raises ConfigError if it has none."""
    covering: Any = maker
    if not hasattr(maker, "make_for") or not covering.list_cells():
        raise ConfigError(f"--cover needs a kind with cells, got {type(maker).__name__}; leave --cover out")
    return covering


class Tails:
    """Measures the coverage of rows, and makes candidates for the rows that cells lack, in at most `_ROUNDS` rounds."""

    def __init__(
        self,
        maker: CoveringMaker,
        *,
        min_rows: int,
        seed: int,
        model: ChatModel | None,
        without: Container[str] = (),
    ) -> None:
        """Takes the cells of a maker, except those of `without`."""
        self._maker, self._min_rows, self._seed, self._model = maker, min_rows, seed, model
        self._cells = [cell for cell in maker.list_cells() if cell not in without]
        self._num_asked: Counter[str] = Counter()
        self._num_rounds = 0

    def measure(self, rows: Sequence[Record]) -> Coverage:
        """Returns the number of rows of each cell."""
        counts = {cell: len(cell_rows) for cell, cell_rows in self._group_rows(rows).items()}
        return Coverage(rows=counts, min_rows=self._min_rows)

    def make(self, rows: Sequence[Record]) -> list[Candidate]:
        """Returns the candidates of the next round; none if all cells are covered, or after the last round."""
        self._num_rounds += 1
        candidates = []
        for cell, cell_rows in self._group_rows(rows).items() if self._num_rounds <= _ROUNDS else ():
            for _ in range(self._min_rows - len(cell_rows)):
                number = self._num_asked[cell]
                record = functools.partial(
                    self._maker.make_for, cell, cell_rows, seed=self._seed, number=number, model=self._model
                )
                candidates.append(Candidate(key=f"{self._seed}-cover-{number}-{cell}", record=record))
                self._num_asked[cell] += 1
        return candidates

    def _group_rows(self, rows: Sequence[Record]) -> dict[str, list[Record]]:
        rows_by_cell: dict[str, list[Record]] = {cell: [] for cell in self._cells}
        for row in rows:
            for cell in rows_by_cell.keys() & {*self._maker.find_cells(row)}:
                rows_by_cell[cell].append(row)
        return rows_by_cell
