"""Dense search in this process: passages whose embeddings are close to that of the query, and a mixture with BM25.

Papers: https://arxiv.org/abs/2004.04906 (DPR), https://doi.org/10.1145/1571941.1572114 (reciprocal rank fusion).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from verl_agentic.base.errors import DataError
from verl_agentic.tools.search.bm25 import pick_best
from verl_agentic.tools.search.corpus import Corpus
from verl_agentic.tools.search.retriever import Index, Passage
from verl_agentic.tools.search.saved_index import noting_locations, open_reader, save_once

_FORMAT = 1
"""Version of the index format; increase it if saved data change."""
_FOLDER, _VECTORS = ".dense", "vectors.npy"
_CACHED_QUERIES = 4_096
_RANK_OFFSET, _NUM_FUSED = 60, 100
"""Of reciprocal rank fusion, as in its paper; and the number of passages of each list."""

Embed = Callable[[list[str]], np.ndarray]
"""Texts -> rows of length 1."""


class DenseIndex:
    """Finds passages by the similarity of their meaning; the score is the cosine."""

    def __init__(self, vectors: np.ndarray, read: Callable[[int], Passage], embed: Embed, *, fingerprint: str) -> None:
        """Takes one row per passage, a function number -> passage, and the embedding of queries."""
        self._vectors = vectors
        self._read = read
        # The siblings of a group often search for the same.
        self._embed_query = functools.lru_cache(_CACHED_QUERIES)(lambda query: embed([query])[0])
        self.fingerprint = fingerprint
        """Hash of the content of the corpus."""

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, query: str, *, top_k: int) -> list[Passage]:
        """Returns the passages that fit best, at most `top_k`; ties go to the earlier one."""
        scores = self._vectors @ self._embed_query(query)
        numbers = pick_best(scores, np.arange(len(scores)), top_k)
        return [replace(self._read(int(i)), score=float(scores[i])) for i in numbers]


class HybridIndex:
    """Merges the results of two indexes of one corpus by reciprocal rank fusion."""

    def __init__(self, first: Index, second: Index) -> None:
        self._indexes = (first, second)
        self.fingerprint = first.fingerprint
        """Hash of the content of the corpus."""

    def search(self, query: str, *, top_k: int) -> list[Passage]:
        """Returns the passages with the best ranks in both, at most `top_k`; ties go to the first index."""
        scores: dict[Passage, float] = defaultdict(float)
        for index in self._indexes:
            for rank, passage in enumerate(index.search(query, top_k=max(top_k, _NUM_FUSED)), start=1):
                scores[replace(passage, score=0.0)] += 1 / (_RANK_OFFSET + rank)
        best = sorted(scores.items(), key=lambda item: -item[1])[:top_k]
        return [replace(passage, score=score) for passage, score in best]


def open_dense_index(folder: Path, embedding_model: str) -> DenseIndex:
    """Returns the dense index of a corpus folder; embeds the passages if no vectors are saved for model and content.

    The vectors are saved in the folder itself (`.dense/<content hash>-<model hash>`) and memory-mapped. Vectors of
    another content or model are removed. If the folder is not writable, every process embeds for itself.

    Args:
        folder: the corpus.
        embedding_model: a model that `verl-agentic model fetch` knows, or a folder; see `cpu.text_embedder`.

    Raises:
        ConfigError: the model pools tokens in an unknown way.
        DataError: the corpus is missing or cannot be read, or the model is missing.
    """
    from verl_agentic.cpu.text_embedder import TextEmbedder, hash_model

    corpus, model = Corpus(folder), find_embedding_model(embedding_model)
    embed = TextEmbedder(model).embed
    fingerprint = corpus.fingerprint()
    name = f"{fingerprint}-{_FORMAT}-{hash_model(model)}"
    saved = save_once(corpus, _FOLDER, name, lambda partial: _save_vectors(corpus, partial, embed))
    if saved is None:
        passages = [passage for _, passage in corpus.passages()]
        return DenseIndex(_embed_passages(passages, embed), passages.__getitem__, embed, fingerprint=fingerprint)
    vectors = np.asarray(np.load(saved / _VECTORS, mmap_mode="r"))
    return DenseIndex(vectors, open_reader(corpus, saved), embed, fingerprint=fingerprint)


def find_embedding_model(name: str) -> Path:
    """Returns the folder of an embedding model.

    Raises:
        DataError: it was not fetched, or there is no such folder.
    """
    from verl_agentic.cpu.model_fetch.fetch import folder_of
    from verl_agentic.cpu.model_fetch.known_models import MODELS

    folder = folder_of(name, dtype="float32") if name in MODELS else Path(name)
    if not (folder / "config.json").is_file():
        command = f"run `verl-agentic model fetch {name}`" if name in MODELS else "give a folder, or a known model"
        raise DataError(f"an embedding model is missing, got {name!r} without {folder / 'config.json'}; {command}")
    return folder


def _save_vectors(corpus: Corpus, folder: Path, embed: Embed) -> None:
    with noting_locations(corpus, folder) as passages:
        np.save(folder / _VECTORS, _embed_passages(list(passages), embed))


def _embed_passages(passages: list[Passage], embed: Embed) -> np.ndarray:
    if not passages:
        raise DataError("a corpus must have passages, got none; see its *.jsonl files")
    return embed([passage.contents for passage in passages])
