"""Finds the rows of files that repeat earlier rows, or rows of other files."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np

from verl_agentic.base.parent_process import end_with_parent
from verl_agentic.data.overlap.chunks import Chunk, chunks_of
from verl_agentic.data.overlap.duplicates import exact_pairs, first_copies, near_candidates, num_other_answers
from verl_agentic.data.overlap.ngrams import Hashes, similarity
from verl_agentic.data.overlap.row_task import RowTask
from verl_agentic.data.overlap.summary import ChunkSummary, Grams, Ints, SpanIndex, read_grams, read_tasks, summarise

Kind = Literal["exact", "near", "span"]
KINDS: tuple[Kind, ...] = ("exact", "near", "span")
SIMILARITY = 0.8
"""Jaccard similarity of the 13-grams of near duplicates, without common ones."""
_MIN_COMMON, _COMMON_SHARE = 10, 0.001
"""A gram in more different rows than both is common: it belongs to a template, not to a task."""
_SAMPLED_CHUNKS = 24
_MAX_INDEXED = 40_000_000
_MAX_VERIFIED_ROWS = 100_000
_MIN_PARALLEL_CHUNKS = 8


@dataclass(frozen=True, kw_only=True)
class Overlaps:
    """The result. Rows are numbered through all files of `against`, then through all of `files`."""

    files: Sequence[Path]
    """Those of `against`, then those that were checked."""
    starts: Sequence[int]
    """Number of the first row of each file, and the number of all rows."""
    num_against_files: int
    chunks: Sequence[Chunk]
    chunk_starts: Ints
    """Number of the first row of each chunk, and the number of all rows."""
    kinds: np.ndarray
    """[N] index in `KINDS`, or -1."""
    others: Ints
    """[N] the row that is repeated, or -1."""
    pairs: Ints
    """[P, 2] rows that repeat each other, exactly or nearly; a row may be in several."""
    sources: Sequence[str]
    """[N] `data_source` of each row."""
    other_answers: int
    """Different tasks with the same prompt, which are no duplicates."""
    common: Hashes
    """Sorted hashes of the grams that are left out as common."""
    thinning: int
    """One gram of `against` in this number is searched for."""
    is_complete: bool
    """Whether all rows were read before the deadline."""

    @property
    def num_against(self) -> int:
        """Rows of `against`."""
        return self.starts[self.num_against_files]

    @property
    def repeated(self) -> Ints:
        """The checked rows that repeat another one."""
        return np.flatnonzero(self.kinds >= 0)

    @property
    def leaked(self) -> Ints:
        """The checked rows that repeat a row of `against`."""
        return np.flatnonzero((self.kinds >= 0) & (self.others < self.num_against))

    def place(self, row: int) -> tuple[int, int]:
        """Returns (index of the file, number in the file) of a row."""
        file = int(np.searchsorted(self.starts, row, side="right")) - 1
        return file, row - self.starts[file]

    def repeated_in(self, file: int) -> Ints:
        """Returns the numbers of the repeated rows in a file of `files`."""
        start, stop = self.starts[file], self.starts[file + 1]
        return self.repeated[(self.repeated >= start) & (self.repeated < stop)] - start

    def tasks(self, rows: Sequence[int]) -> dict[int, RowTask]:
        """Reads rows again: number -> task."""
        unique_rows, tasks_by_row = np.unique(np.array(rows, dtype=np.int64)), {}
        places = np.searchsorted(self.chunk_starts, unique_rows, side="right") - 1
        for place in np.unique(places):
            chunk_rows = unique_rows[places == place]
            tasks = read_tasks(self.chunks[place], (chunk_rows - self.chunk_starts[place]).tolist())
            tasks_by_row.update(zip(chunk_rows.tolist(), tasks, strict=True))
        return tasks_by_row


def find_overlaps(
    files: Sequence[Path], against: Sequence[Path] = (), *, jobs: int = 1, budget_s: float = float("inf")
) -> Overlaps:
    """Finds duplicates.

    A row repeats another one if it has the same key (`exact`: prompt, ground truth and hidden fields in normal form),
    if 80 % of their 13-grams are the same (`near`), or if they share a 13-gram (`span`; only with rows of `against`).
    Rows with one prompt and different ground truths or hidden fields are different tasks.

    Args:
        files: to check; every row is compared with those before it.
        against: further files that are compared with each row.
        jobs: processes.
        budget_s: reading stops after this time.

    Raises:
        DataError: a file cannot be read, or a row has no prompt.
    """
    paths = [*against, *files]
    chunks = [chunks_of(path) for path in paths]
    old, new = [*chain(*chunks[: len(against)])], [*chain(*chunks[len(against) :])]
    deadline = time.monotonic() + budget_s
    with _open_pool(jobs if len(old) + len(new) >= _MIN_PARALLEL_CHUNKS else 1) as pool:
        common = np.union1d(*(_common_grams(side, pool) for side in (old, new)))
        thinning = _choose_thinning(old, pool)
        grams = list(
            _limit_time(deadline, _map_chunks(pool, partial(read_grams, common=common, thinning=thinning), old))
        )
        index = SpanIndex.make(grams) if grams else SpanIndex()
        del grams
        with _share_index(index, pool) as place:
            work = partial(_summarise_chunk, common=common, index=place)
            summaries = list(_limit_time(deadline, _map_chunks(pool, work, [*old, *new])))
        read = [*old, *new][: len(summaries)]
        sizes = [len(summary.sources) for summary in summaries]
        num_against = sum(sizes[: len(old)])
        keys = np.concatenate([np.zeros((0, 3), np.uint64), *(summary.keys for summary in summaries)])
        kinds, others, pairs = _classify_rows(
            summaries, keys, num_against, partial(_measure_similarities, read, sizes, common, pool)
        )
    return Overlaps(
        files=paths,
        starts=_find_starts(chunks, sizes),
        num_against_files=len(against),
        chunks=read,
        chunk_starts=np.cumsum([0, *sizes]),
        kinds=kinds,
        others=others,
        pairs=pairs,
        sources=[source for summary in summaries for source in summary.sources],
        other_answers=num_other_answers(keys),
        common=common,
        thinning=thinning,
        is_complete=len(read) == len(old) + len(new),
    )


def _classify_rows(
    summaries: Sequence[ChunkSummary], keys: Hashes, num_against: int, similarities: Callable[[Ints], np.ndarray]
) -> tuple[np.ndarray, Ints, Ints]:
    """Returns the kind of each row, the row that it repeats, and all exact and near pairs."""
    others = first_copies(keys)
    kinds = np.where(others >= 0, 0, -1).astype(np.int8)
    bands = np.concatenate([np.zeros((0, 20), np.uint64), *(summary.bands for summary in summaries)])
    pairs = near_candidates(bands, keys, kinds >= 0)
    pairs = pairs[pairs[:, 0] >= num_against]
    pairs = pairs[similarities(pairs) >= SIMILARITY][::-1]  # the first pair of a row is written last,
    pairs = pairs[np.argsort(pairs[:, 1] < num_against, kind="stable")]  # and after others the first of `against`
    kinds[pairs[:, 0]], others[pairs[:, 0]] = 1, pairs[:, 1]
    spans = np.concatenate([np.zeros(0, np.int64), *(summary.span_rows for summary in summaries)])
    rows = np.flatnonzero((kinds < 0) & (spans >= 0))
    rows = rows[rows >= num_against]
    kinds[rows], others[rows] = 2, spans[rows]
    kinds[:num_against], others[:num_against] = -1, -1
    return kinds, others, np.concatenate([exact_pairs(keys), pairs])


def _measure_similarities(
    chunks: Sequence[Chunk], sizes: Sequence[int], common: Hashes, pool: Executor | None, pairs: Ints
) -> np.ndarray:
    """Returns the similarity of each pair of rows; the rows are read again, a bounded number at a time."""
    starts = np.cumsum([0, *sizes])
    similarities = np.zeros(len(pairs))
    step = _MAX_VERIFIED_ROWS // 2
    for begin in range(0, len(pairs), step):
        part = pairs[begin : begin + step]
        rows = np.unique(part)
        places = np.searchsorted(starts, rows, side="right") - 1
        work = [(chunks[place], (rows[places == place] - starts[place]).tolist()) for place in np.unique(places)]
        grams: dict[int, Hashes] = {}
        remaining = iter(rows.tolist())
        for read in _map_chunks(pool, partial(_read_some, common=common), work):
            for hashes in np.split(read.hashes, np.cumsum(read.counts)[:-1]):
                grams[next(remaining)] = hashes
        similarities[begin : begin + step] = [similarity(grams[row], grams[other]) for row, other in part.tolist()]
    return similarities


def _common_grams(chunks: Sequence[Chunk], pool: Executor | None) -> Hashes:
    """Returns the sorted grams that are in too many different rows to belong to one task; measured on a sample."""
    step = max(1, -(-len(chunks) // _SAMPLED_CHUNKS))
    sampled = list(_map_chunks(pool, read_grams, chunks[::step]))
    if not sampled:
        return np.zeros(0, dtype=np.uint64)
    keys = np.concatenate([part.keys for part in sampled])
    _, first = np.unique(keys, axis=0, return_index=True)
    is_first = np.zeros(len(keys), dtype=bool)
    is_first[first] = True
    counts = np.concatenate([part.counts for part in sampled])
    is_kept = np.repeat(is_first, counts)
    rows = np.repeat(np.arange(len(keys)), counts)[is_kept]
    hashes = np.concatenate([part.hashes for part in sampled])[is_kept]
    order = np.lexsort((rows, hashes))
    hashes, rows = hashes[order], rows[order]
    is_new = np.ones(len(hashes), dtype=bool)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | (rows[1:] != rows[:-1])  # a gram counts once in a row
    grams, in_rows = np.unique(hashes[is_new], return_counts=True)
    share = len(sampled) / len(chunks)
    limit = max(_MIN_COMMON, _COMMON_SHARE * len(keys) / share) * share
    return grams[in_rows > max(limit, 3 if share < 1 else 0)]


def _choose_thinning(chunks: Sequence[Chunk], pool: Executor | None) -> int:
    """Returns the factor by which the index is thinned, so that it fits into memory."""
    if len(chunks) <= _MIN_PARALLEL_CHUNKS:
        return 1
    sizes = [len(part.hashes) for part in _map_chunks(pool, read_grams, chunks[:: len(chunks) // 4])]
    return max(1, round(np.mean(sizes) * len(chunks) / _MAX_INDEXED))


@contextmanager
def _share_index(index: SpanIndex, pool: Executor | None) -> Iterator[SpanIndex | Path]:
    """Yields the index, or for processes a folder from which they map it."""
    if pool is None:
        yield index
        return
    with tempfile.TemporaryDirectory(prefix="overlap_") as folder:
        index.save(Path(folder))
        yield Path(folder)


_load = lru_cache(maxsize=1)(SpanIndex.load)


def _summarise_chunk(chunk: Chunk, *, common: Hashes, index: SpanIndex | Path) -> ChunkSummary:
    return summarise(chunk, common=common, index=_load(index) if isinstance(index, Path) else index)


def _read_some(work: tuple[Chunk, Sequence[int]], *, common: Hashes) -> Grams:
    chunk, rows = work
    return read_grams(chunk, common=common, rows=rows)


@contextmanager
def _open_pool(jobs: int) -> Iterator[Executor | None]:
    if jobs == 1:
        yield None
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        yield pool


def _map_chunks(pool: Executor | None, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Yields results in order; at most two chunks per process wait, so that memory stays bounded."""
    if pool is None:
        yield from map(function, items)
        return
    waiting = []
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > 2 * (pool._max_workers):  # pyright: ignore
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def _limit_time(deadline: float, results: Iterator[Any]) -> Iterator[Any]:
    for result in results:
        yield result
        if time.monotonic() > deadline:
            return


def _find_starts(chunks: Sequence[Sequence[Chunk]], sizes: Sequence[int]) -> list[int]:
    ends = np.cumsum([len(of_file) for of_file in chunks])
    rows = np.cumsum([0, *sizes])
    return [0, *(int(rows[min(end, len(sizes))]) for end in ends)]
