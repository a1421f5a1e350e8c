"""Dense search: embeddings, saved vectors, the mixture with BM25, and what a missing model says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_bert import save_tiny_bert

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.cpu.text_embedder import TextEmbedder
from verl_agentic.tools.search.dense import HybridIndex, open_dense_index
from verl_agentic.tools.search.local_retriever import local_retriever
from verl_agentic.tools.search.retriever import Passage

TEXTS = ["the river", "Bolin lives in the town near the harbour", "", "market", "the town lies on the river Oked " * 9]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", TEXTS)


def write_corpus(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    records = [{"id": str(number), "title": f"{number}", "text": text} for number, text in enumerate(texts)]
    (folder / "passages.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def saved_names(corpus: Path) -> list[str]:
    return [path.name for path in (corpus / ".dense").iterdir() if path.is_dir()]


def ids(passages: list[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def test_an_embedding_has_length_1_and_does_not_depend_on_the_rest_of_its_batch(model: Path) -> None:
    embedder = TextEmbedder(model)
    together = embedder.embed(TEXTS)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1.0, abs=1e-5)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    # 12 tokens count, as the folder says.
    np.testing.assert_allclose(together[4], embedder.embed([TEXTS[4] + "market"])[0], atol=1e-6)


def test_an_embedding_is_the_mean_of_its_tokens_or_the_first(model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(model)("the river", return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(model)(**inputs).last_hidden_state[0].numpy()
    first = save_tiny_bert(tmp_path / "first", pooling="pooling_mode_cls_token")
    for folder, expected in ((model, hidden.mean(0)), (first, hidden[0])):
        np.testing.assert_allclose(
            TextEmbedder(folder).embed(["the river"])[0], expected / np.linalg.norm(expected), atol=1e-5
        )


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pooling_mode_max_tokens"):
        TextEmbedder(save_tiny_bert(tmp_path / "max", pooling="pooling_mode_max_tokens"))


def test_the_most_similar_passages_come_first_with_their_cosines(model: Path, corpus: Path) -> None:
    passages = open_dense_index(corpus, str(model)).search("a river in a town", top_k=3)
    query, *vectors = TextEmbedder(model).embed(
        ["a river in a town", *(f'"{number}"\n{text}' for number, text in enumerate(TEXTS))]
    )
    cosines = np.array(vectors) @ query
    best = np.argsort(-cosines)[:3]
    assert ids(passages) == [str(number) for number in best]
    assert [passage.score for passage in passages] == pytest.approx(cosines[best].tolist(), abs=1e-5)


def test_vectors_are_computed_once_and_mapped(model: Path, corpus: Path) -> None:
    before = open_dense_index(corpus, str(model))
    (saved,) = (corpus / ".dense").glob("*/vectors.npy")
    written_ns = saved.stat().st_mtime_ns
    again = open_dense_index(corpus, str(model))
    assert saved.stat().st_mtime_ns == written_ns and isinstance(again._vectors.base, np.memmap)
    assert again.search("river", top_k=2) == before.search("river", top_k=2) and len(again) == len(TEXTS)


def test_vectors_of_other_files_or_another_model_are_computed_anew(model: Path, corpus: Path, tmp_path: Path) -> None:
    open_dense_index(corpus, str(model))
    names = saved_names(corpus)
    other = save_tiny_bert(tmp_path / "other", seed=1)
    for folder, texts in ((other, TEXTS), (other, TEXTS[:2])):
        write_corpus(corpus, texts)
        assert len(open_dense_index(corpus, str(folder))) == len(texts)
        names += saved_names(corpus)
    assert len(set(names)) == len(names) == 3


class Ranking:
    """An index that finds the same passages for each query."""

    fingerprint = "f"

    def __init__(self, *names: str) -> None:
        self._names = names

    def search(self, query: str, *, top_k: int) -> list[Passage]:
        return [Passage(title=name, text="", id=name, score=9.0 - i) for i, name in enumerate(self._names)][:top_k]


def test_a_hybrid_index_adds_the_reciprocal_ranks_of_both() -> None:
    index = HybridIndex(Ranking("a", "b", "c"), Ranking("d", "b"))
    passages = index.search("query", top_k=3)
    assert ids(passages) == ["b", "a", "d"]
    assert [passage.score for passage in passages] == pytest.approx([2 / 62, 1 / 61, 1 / 61])


async def test_the_retriever_of_a_process_can_be_of_each_kind(model: Path, corpus: Path) -> None:
    kinds = {
        kind: local_retriever(corpus, kind=kind, embedding_model=str(model)) for kind in ("bm25", "dense", "hybrid")
    }
    results = {kind: (await retriever.search(["the harbour"], top_k=5))[0] for kind, retriever in kinds.items()}
    assert ids(results["bm25"]) == ["1"] and len(results["dense"]) == 5
    assert results["hybrid"][0].score <= 2 / 61 and set(ids(results["hybrid"])) == {"0", "1", "2", "3", "4"}
    assert local_retriever(corpus, kind="dense", embedding_model=str(model)) is kinds["dense"]
    with pytest.raises(ConfigError, match=r"retriever must be one of \['bm25', 'dense', 'hybrid'\], got 'tfidf'"):
        local_retriever(corpus, kind="tfidf")  # pyright: ignore[reportArgumentType]


async def test_a_missing_model_is_an_error_with_the_command_that_fetches_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    with pytest.raises(DataError, match="verl-agentic model fetch minilm"):
        await local_retriever(corpus, kind="dense").ready()
    with pytest.raises(DataError, match="an embedding model is missing, got 'nowhere'"):
        open_dense_index(corpus, "nowhere")


@pytest.mark.slow
def test_the_real_model_knows_which_sentences_mean_the_same() -> None:
    from verl_agentic.cpu.model_fetch.fetch import model_folder

    try:
        folder = model_folder("minilm", dtype="float32")
    except DataError as error:
        pytest.skip(f"the embedding model is not here: {error}")
    texts = ["A man is eating food.", "A man eats a meal.", "The weather is lovely today."]
    vectors = TextEmbedder(folder).embed(texts)
    # As sentence-transformers 6.2.0 computes them from the same folder.
    assert (vectors @ vectors[0]).tolist() == pytest.approx([1.0, 0.908, -0.021], abs=1e-3)
