"""BM25 in this process: an index over a corpus, built once with the library bm25s, saved, and memory-mapped after that.

Paper: https://arxiv.org/abs/2407.03618 (BM25S). Lucene's variant with k1 = 1.5 and b = 0.75.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import DataError
from verl_agentic.tools.search.corpus import Corpus
from verl_agentic.tools.search.retriever import Passage

logger = logging.getLogger(__name__)
_FORMAT = 1
"""Version of the index format; increase it if words or saved data change."""
_FOLDER = ".bm25"
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"  # scripts without spaces between words
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
# Words of nearly every passage, which cost time and do not affect the ranking.
_STOP_WORDS = frozenset(
    re.findall(r"\w+", "a an and are as at be by for from has in is it of on or that the this to was which with")
)


def words_of(text: str) -> list[str]:
    """Returns the indexed words of a text in lower case; a name with underscores also gives its parts."""
    words: list[str] = []
    for word in _WORD.findall(text.lower()):
        if word in _STOP_WORDS:
            continue
        words.append(word)
        if "_" in word:
            words += [part for part in word.split("_") if part]
    return words


class Bm25Index:
    """Finds passages by the words they share with a query; thread-safe."""

    def __init__(self, scorer: Any, read: Callable[[int], Passage], *, fingerprint: str) -> None:
        """Takes a `bm25s.BM25`, and a function number -> passage; see `from_passages` and `open_index`."""
        self._scorer = scorer
        self._read = read
        self.fingerprint = fingerprint
        """Hash of the content of the corpus."""

    @classmethod
    def from_passages(cls, passages: Sequence[Passage], *, fingerprint: str = "") -> Bm25Index:
        """Builds an index that is kept in memory only.

        Raises:
            DataError: there is no passage, or none with a word in it.
            MissingDependencyError: bm25s is not installed.
        """
        return cls(_build_scorer(passages), passages.__getitem__, fingerprint=fingerprint)

    def __len__(self) -> int:
        return int(self._scorer.scores["num_docs"])

    def search(self, query: str, *, top_k: int) -> list[Passage]:
        """Returns the passages that fit best, at most `top_k`; ties go to the earlier one.

        A repeated word of a query counts once.
        """
        words = [word for word in dict.fromkeys(words_of(query)) if word in self._scorer.vocab_dict]
        if not words:
            return []
        scores = self._scorer.get_scores(words)
        return [replace(self._read(int(i)), score=float(scores[i])) for i in _pick_best(scores, top_k)]


def open_index(folder: Path) -> Bm25Index:
    """Returns the index of a corpus folder; builds it if none is saved for its content.

    It is saved in the folder itself (`.bm25/<content hash>`) and memory-mapped, so that the processes of a machine
    share its pages; only one process builds at a time. An index of earlier content is removed. If the folder is not
    writable, every process builds its own index in memory.

    Raises:
        DataError: the corpus is missing or cannot be read.
        MissingDependencyError: bm25s is not installed.
    """
    corpus = Corpus(folder)
    fingerprint = corpus.fingerprint()
    saved = folder / _FOLDER / f"{fingerprint}-{_FORMAT}-{_import_bm25s().__version__}"
    try:
        if not saved.is_dir():
            with _lock_folder(folder / _FOLDER):
                if not saved.is_dir():  # another process may have built it
                    _save_index(corpus, saved)
    except OSError as error:
        logger.warning("the index of %s cannot be saved (%s): it is kept in memory, once per process", folder, error)
        return Bm25Index.from_passages([passage for _, passage in corpus.passages()], fingerprint=fingerprint)
    scorer = _import_bm25s().BM25.load(saved, mmap=True, show_progress=False)
    # The same memory without the class `memmap`, whose slices are slow.
    scorer.scores.update({name: np.asarray(scorer.scores[name]) for name in ("data", "indices", "indptr")})
    locations = np.load(saved / "locations.npy", mmap_mode="r")
    return Bm25Index(scorer, lambda i: corpus.read(tuple(locations[i].tolist())), fingerprint=fingerprint)


def _pick_best(scores: np.ndarray, top_k: int) -> np.ndarray:
    """Returns the numbers of the `top_k` best of those above 0; ties are broken by number."""
    numbers = np.flatnonzero(scores > 0)
    if len(numbers) > top_k:
        values = scores[numbers]
        numbers = numbers[values >= np.partition(values, -top_k)[-top_k]]
    return numbers[np.lexsort((numbers, -scores[numbers]))][:top_k]


def _save_index(corpus: Corpus, target: Path) -> None:
    """Builds the index and saves it atomically; removes other indexes beside it."""
    for stale in target.parent.iterdir():
        if stale.is_dir():
            shutil.rmtree(stale)
    locations: list[tuple[int, int, int]] = []
    scorer = _build_scorer(_note_locations(corpus, locations))
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=target.parent))
    scorer.save(partial, show_progress=False)
    np.save(partial / "locations.npy", np.array(locations, dtype=np.int64))
    partial.chmod(0o755)
    partial.rename(target)
    logger.info("built the BM25 index of %s: %d passages", corpus.folder, len(locations))


def _note_locations(corpus: Corpus, locations: list[tuple[int, int, int]]) -> Iterator[Passage]:
    for location, passage in corpus.passages():
        locations.append(location)
        yield passage


def _build_scorer(passages: Iterable[Passage]) -> Any:
    vocabulary: dict[str, int] = {}
    tokens = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in words_of(passage.contents)] for passage in passages
    ]
    if not vocabulary:
        raise DataError(f"a corpus must have words, got {len(tokens)} passages without any; see its *.jsonl files")
    scorer = _import_bm25s().BM25()
    scorer.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
    return scorer


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder of indexes; the lock ends with its process."""
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _import_bm25s() -> Any:
    with needs_extra("search", what="searching in this process"):
        bm25s = importlib.import_module("bm25s")
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG itself
    return bm25s
