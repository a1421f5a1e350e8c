"""Keys and hashes of a chunk's rows, which are kept in place of their texts while files are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.data.overlap.chunks import Chunk
from verl_agentic.data.overlap.ngrams import Hashes, bands_of, grams_of, is_in
from verl_agentic.data.overlap.row_task import RowTask, task_of_record

Ints = NDArray[np.int64]
_NONE = np.zeros(0, dtype=np.uint64)
_MAX_TABLE_BITS = 26


@dataclass(frozen=True, kw_only=True)
class Grams:
    """The grams of a chunk's rows."""

    keys: Hashes
    """[N, 3] keys of prompt, answer and words."""
    hashes: Hashes
    counts: Ints
    """[N] grams of each row; they are consecutive in `hashes`."""


@dataclass(frozen=True, kw_only=True)
class SpanIndex:
    """The grams of the rows that others are compared with, without common ones."""

    hashes: Hashes = field(default_factory=lambda: _NONE)
    """Sorted."""
    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The first row of each gram."""
    keys: Hashes = field(default_factory=lambda: np.zeros((0, 3), dtype=np.uint64))
    """[A, 3] keys of these rows."""
    table: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Whether a hash with these first bits is among `hashes`: most grams need no search."""

    @classmethod
    def make(cls, parts: Sequence[Grams]) -> SpanIndex:
        """Builds the index of the rows of chunks, in their order."""
        keys = np.concatenate([part.keys for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        hashes, first = np.unique(np.concatenate([part.hashes for part in parts]), return_index=True)
        rows = np.searchsorted(np.cumsum(counts), first, side="right")
        bits = min(_MAX_TABLE_BITS, len(hashes).bit_length() + 4)
        table = np.zeros(1 << bits, dtype=bool)
        table[_first_bits(hashes, table)] = True
        return cls(hashes=hashes, rows=rows, keys=keys, table=table)

    def save(self, folder: Path) -> None:
        """Writes the arrays, so that processes share them."""
        for name, array in vars(self).items():
            np.save(folder / f"{name}.npy", array)

    @classmethod
    def load(cls, folder: Path) -> SpanIndex:
        """Maps the arrays of `save` into memory."""
        arrays: dict[str, Any] = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
        return cls(**arrays)


@dataclass(frozen=True, kw_only=True)
class ChunkSummary:
    """A chunk's rows."""

    keys: Hashes
    """[N, 3] keys of prompt, answer and words."""
    bands: Hashes
    """[N, 20] bands of the MinHash signatures; zeros for a row without grams."""
    sources: Sequence[str]
    span_rows: Ints
    """[N] row of the index that shares most grams; -1 if none does."""


def read_grams(chunk: Chunk, *, common: Hashes = _NONE, thinning: int = 1, rows: Sequence[int] | None = None) -> Grams:
    """Returns the grams of a chunk's rows without common ones.

    Args:
        chunk: to read.
        common: sorted hashes that are left out.
        thinning: keep one gram in this number, by its hash.
        rows: only these rows, by ascending number in the chunk.
    """
    return _make_grams(read_tasks(chunk, rows), common, thinning)


def summarise(chunk: Chunk, *, common: Hashes, index: SpanIndex) -> ChunkSummary:
    """Returns the summary of a chunk, with the spans that it shares with rows of the index."""
    tasks = read_tasks(chunk)
    grams = _make_grams(tasks, common, 1)
    return ChunkSummary(
        keys=grams.keys,
        bands=bands_of(grams.hashes, grams.counts),
        sources=[task.source for task in tasks],
        span_rows=_span_rows(grams, index),
    )


def read_tasks(chunk: Chunk, rows: Sequence[int] | None = None) -> list[RowTask]:
    """Returns the tasks of a chunk's rows; of those with these ascending numbers if `rows` is given."""
    row_set = None if rows is None else set(rows)
    return [
        task_of_record(record, location)
        for number, (location, record) in enumerate(chunk.records())
        if row_set is None or number in row_set
    ]


def _make_grams(tasks: Sequence[RowTask], common: Hashes, thinning: int) -> Grams:
    hashes, counts = grams_of([task.words for task in tasks], [task.prompt_key for task in tasks])
    is_kept = ~is_in(hashes, common)
    if thinning > 1:
        is_kept &= hashes % np.uint64(thinning) == 0
    if not is_kept.all():
        counts = np.bincount(np.repeat(np.arange(len(tasks)), counts)[is_kept], minlength=len(tasks))
        hashes = hashes[is_kept]
    row_keys = [(task.prompt_key, task.answer_key, task.words_key) for task in tasks]
    keys = np.array(row_keys, dtype=np.uint64).reshape(-1, 3)
    return Grams(keys=keys, hashes=hashes, counts=counts)


def _span_rows(grams: Grams, index: SpanIndex) -> Ints:
    """Returns for each row the row of the index that shares most of its grams, or -1."""
    span_rows = np.full(len(grams.keys), -1, dtype=np.int64)
    if not len(index.hashes):
        return span_rows
    places = np.flatnonzero(index.table[_first_bits(grams.hashes, index.table)])
    places = places[is_in(grams.hashes[places], index.hashes)]
    rows = np.repeat(np.arange(len(grams.keys)), grams.counts)[places]
    others = index.rows[np.searchsorted(index.hashes, grams.hashes[places])]
    differ = are_different_tasks(grams.keys[rows], index.keys[others])
    pairs, counts = np.unique(np.stack([rows[~differ], others[~differ]], axis=1), axis=0, return_counts=True)
    order = np.argsort(counts, kind="stable")
    span_rows[pairs[order, 0]] = pairs[order, 1]
    return span_rows


def are_different_tasks(one_keys: Hashes, other_keys: Hashes) -> NDArray[np.bool_]:
    """Returns which pairs of rows have the same words and different answers or hidden fields."""
    has_same_words = one_keys[:, 2] == other_keys[:, 2]
    is_known = (one_keys[:, 1] != 0) & (other_keys[:, 1] != 0)
    return has_same_words & is_known & (one_keys[:, 1] != other_keys[:, 1])


def _first_bits(hashes: Hashes, table: np.ndarray) -> Ints:
    return (hashes >> np.uint64(65 - len(table).bit_length())).astype(np.int64)
