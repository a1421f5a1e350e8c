"""A database of JSON records: episodes share it, and each has its own changes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Record = dict[str, Any]
Tables = Mapping[str, Mapping[str, Record]]


class Database:
    """Tables of records by their ids. Records are copied when they are edited, so that others never see a change."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        """The records at the start."""
        self._edited: dict[tuple[str, str], Record] = {}

    def get(self, table: str, key: str) -> Record | None:
        """Returns a record to read, or None."""
        return self._edited.get((table, key)) or self.tables[table].get(key)

    def records(self, table: str) -> Iterator[Record]:
        """Yields all records of a table to read."""
        for key, record in self.tables[table].items():
            yield self._edited.get((table, key), record)
        yield from (
            record for (name, key), record in self._edited.items() if name == table and key not in self.tables[table]
        )

    def edit(self, table: str, key: str) -> Record:
        """Returns the record of this episode, to change it. Raises KeyError if there is none."""
        if (table, key) not in self._edited:
            self._edited[table, key] = copy.deepcopy(self.tables[table][key])
        return self._edited[table, key]

    def add(self, table: str, key: str, record: Record) -> None:
        """Adds a record."""
        self._edited[table, key] = record

    def changes(self) -> dict[tuple[str, str], Record]:
        """Returns the records that differ from those at the start; equal changes mean equal databases."""
        return {
            (table, key): record
            for (table, key), record in self._edited.items()
            if record != self.tables[table].get(key)
        }
