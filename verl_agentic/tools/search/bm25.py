"""BM25 in this process: an index over a corpus, built once with the library bm25s, saved, and memory-mapped after that.

Paper: https://arxiv.org/abs/2407.03618 (BM25S). Lucene's variant with k1 = 1.5 and b = 0.75.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import DataError
from verl_agentic.tools.search.corpus import Corpus
from verl_agentic.tools.search.retriever import Passage
from verl_agentic.tools.search.saved_index import noting_locations, open_reader, save_once

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
        numbers = pick_best(scores, np.flatnonzero(scores > 0), top_k)
        return [replace(self._read(int(i)), score=float(scores[i])) for i in numbers]


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
    name = f"{fingerprint}-{_FORMAT}-{_import_bm25s().__version__}"
    saved = save_once(corpus, _FOLDER, name, lambda partial: _save_index(corpus, partial))
    if saved is None:
        return Bm25Index.from_passages([passage for _, passage in corpus.passages()], fingerprint=fingerprint)
    scorer = _import_bm25s().BM25.load(saved, mmap=True, show_progress=False)
    # The same memory without the class `memmap`, whose slices are slow.
    scorer.scores.update({name: np.asarray(scorer.scores[name]) for name in ("data", "indices", "indptr")})
    return Bm25Index(scorer, open_reader(corpus, saved), fingerprint=fingerprint)


def pick_best(scores: np.ndarray, numbers: np.ndarray, top_k: int) -> np.ndarray:
    """Returns the `top_k` of some numbers with the best scores; ties are broken by number."""
    if len(numbers) > top_k:
        values = scores[numbers]
        numbers = numbers[values >= np.partition(values, -top_k)[-top_k]]
    return numbers[np.lexsort((numbers, -scores[numbers]))][:top_k]


def _save_index(corpus: Corpus, folder: Path) -> None:
    with noting_locations(corpus, folder) as passages:
        _build_scorer(passages).save(folder, show_progress=False)


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


def _import_bm25s() -> Any:
    with needs_extra("search", what="searching in this process"):
        bm25s = importlib.import_module("bm25s")
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG itself
    return bm25s
