"""A corpus on disk: a folder of JSON lines with random access to passages."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.tools.search.retriever import Passage, passage_of

_CHUNK_BYTES = 2**20


class Corpus:
    """All `*.jsonl` files of a folder, in the order of their names, opened for reading.

    Files may be replaced later, but not changed in place.
    """

    def __init__(self, folder: Path) -> None:
        """Opens the files. Raises DataError if there are no files."""
        self.folder = folder
        self.paths = sorted(path for path in folder.glob("*.jsonl") if path.is_file())
        if not self.paths:
            raise DataError(f"a corpus is a folder with *.jsonl files, got {folder}; make one, or name another")
        self._files = [os.open(path, os.O_RDONLY) for path in self.paths]

    def close(self) -> None:
        """Closes the files."""
        while self._files:
            os.close(self._files.pop())

    def fingerprint(self) -> str:
        """Returns a hash of all files: 16 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=8)
        for file in self._files:
            size, offset = os.fstat(file).st_size, 0
            digest.update(size.to_bytes(8, "big"))
            while chunk := os.pread(file, _CHUNK_BYTES, offset):
                digest.update(chunk)
                offset += len(chunk)
        return digest.hexdigest()

    def passages(self) -> Iterator[tuple[tuple[int, int, int], Passage]]:
        """Yields (number of the file, offset, length in bytes) and passage, in order; empty lines are skipped.

        Raises:
            DataError: a line is not a passage.
        """
        for number, path in enumerate(self.paths):
            offset = 0
            with open(self._files[number], "rb", closefd=False) as file:
                file.seek(0)
                for line_number, line in enumerate(file, start=1):
                    if line.strip():
                        passage = passage_of(_parse_line(line, f"{path}:{line_number}"), f"{path}:{line_number}")
                        yield (number, offset, len(line)), passage
                    offset += len(line)

    def read(self, location: tuple[int, int, int]) -> Passage:
        """Returns the passage at a location; thread-safe."""
        number, offset, length = location
        source = f"{self.paths[number]}, byte {offset}"
        return passage_of(_parse_line(os.pread(self._files[number], length, offset), source), source)


def _parse_line(line: bytes, source: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as cause:
        raise DataError(f"{source} is not JSON, got {line[:80]!r}; write one object per line") from cause
