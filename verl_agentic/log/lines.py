"""Small records of a run, a JSON line each: metrics, findings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.paths import make_private
from verl_agentic.log.secrets import own_secrets

logger = logging.getLogger(__name__)


class Lines:
    """A file of JSON lines. Write errors are logged once and not raised."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet."""
        self.path = path
        self._is_well = True

    def append(self, record: Mapping[str, Any]) -> None:
        """Writes a record to disk, without secrets."""
        try:
            line = json.dumps(own_secrets().removed(dict(record)), default=str)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            make_private(self.path)
            with self.path.open("a", encoding="utf-8") as file:
                # An incomplete line of a failed write must not break this line.
                file.write(line + "\n" if self._is_well else f"\n{line}\n")
            self._is_well = True
        except (OSError, ValueError) as cause:
            if self._is_well:
                logger.warning("%s cannot be written: %s", self.path, cause)
            self._is_well = False


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the records of a file; incomplete and malformed lines are left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
