"""The BM25 index: what it finds, how it is saved, and that all episodes share it without waiting for each other."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import math
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import DataError, MissingDependencyError, SearchError
from verl_agentic.tools.search.bm25 import Bm25Index, open_index, words_of
from verl_agentic.tools.search.local_retriever import LocalRetriever, local_retriever
from verl_agentic.tools.search.retriever import Passage

PASSAGES = [
    Passage(id="1", title="Bolin", text="Bolin lives in Kardum."),
    Passage(id="2", title="Kardum", text="Kardum lies on the river Oked."),
    Passage(id="3", title="Memo", text="Memo lives in Kardum. The teacher of Memo is Bolin."),
    Passage(id="4", title="json.dumps", text="Its parameters are obj, skip_keys and sort_keys."),
]


def ids(passages: list[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def write_corpus(folder: Path, passages: list[Passage] = PASSAGES, *, name: str = "passages.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in passages]
    (folder / name).write_text("".join(lines))
    return folder


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Town of Kardum", ["town", "kardum"]),
        ("json.dumps(sort_keys=True)", ["json", "dumps", "sort_keys", "sort", "keys", "true"]),
        ("__init__", ["__init__", "init"]),
        ("東京は日本", ["東", "京", "は", "日", "本"]),
        ("Zürich 2024", ["zürich", "2024"]),
        ("?! --", []),
    ],
)
def test_words_are_lower_case_and_names_are_also_found_by_their_parts(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("query", "top_k", "found"),
    [
        ("Kardum", 1, ["2"]),  # title and text: two of five words
        ("kardum", 3, ["2", "1", "3"]),
        ("Where does Bolin live?", 3, ["1", "3"]),
        ("keys", 3, ["4"]),
        ("lives in Kardum lives in Kardum", 9, ["1", "3", "2"]),
        ("nobody knows", 3, []),
        ("the of", 3, []),
        ("", 3, []),
    ],
)
def test_the_passages_that_fit_best_come_first_and_those_that_share_no_word_never(
    query: str, top_k: int, found: list[str]
) -> None:
    passages = Bm25Index.from_passages(PASSAGES).search(query, top_k=top_k)
    assert ids(passages) == found
    scores = [passage.score for passage in passages]
    assert all(score > 0 for score in scores) and scores == sorted(scores, reverse=True)


def test_the_score_is_lucenes_bm25() -> None:
    index = Bm25Index.from_passages(PASSAGES)
    lengths = [len(words_of(passage.contents)) for passage in PASSAGES]
    # `Oked` stands once, in one of 4 passages: idf = ln(1 + (4 - 1 + 0.5) / (1 + 0.5)), times
    # 1 / (1 + 1.5 * (0.25 + 0.75 * length / average length)).
    share = lengths[1] / (sum(lengths) / 4)
    expected = math.log(1 + 3.5 / 1.5) / (1 + 1.5 * (0.25 + 0.75 * share))
    assert index.search("Oked", top_k=1)[0].score == pytest.approx(expected)


def test_a_word_that_is_repeated_in_a_query_weighs_no_more() -> None:
    index = Bm25Index.from_passages(PASSAGES)
    assert index.search("lives Kardum lives lives", top_k=9) == index.search("lives Kardum", top_k=9)


@pytest.mark.parametrize("top_k", [1, 3, 30])
def test_equal_passages_come_in_the_order_of_the_corpus(top_k: int) -> None:
    twins = [Passage(id=str(i), title="", text="same words") for i in range(20)]
    best = Passage(id="best", title="", text="same")
    found = Bm25Index.from_passages([*twins, best]).search("same", top_k=top_k)
    assert ids(found) == ["best", *map(str, range(20))][:top_k]


def test_a_saved_index_finds_the_same_and_is_mapped_not_read(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path)
    first = open_index(folder)
    (saved,) = [path for path in (folder / ".bm25").iterdir() if path.is_dir()]
    built_at = saved.stat().st_mtime_ns
    again, in_memory = open_index(folder), Bm25Index.from_passages(PASSAGES)
    assert saved.stat().st_mtime_ns == built_at and len(again) == 4
    for query in ("Kardum", "Bolin", "river", "lives in Kardum", "skip_keys"):
        assert first.search(query, top_k=3) == again.search(query, top_k=3) == in_memory.search(query, top_k=3) != []
    assert all(
        isinstance(array.base, np.memmap) for array in (again._scorer.scores["data"], again._scorer.scores["indices"])
    )


def test_a_corpus_that_changed_is_indexed_anew_and_the_old_index_goes(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path)
    before = open_index(folder)
    write_corpus(folder, PASSAGES[:1])
    after = open_index(folder)
    assert before.fingerprint != after.fingerprint and ids(after.search("Kardum", top_k=3)) == ["1"]
    assert len([path for path in (folder / ".bm25").iterdir() if path.is_dir()]) == 1


def test_all_files_of_the_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path, PASSAGES[2:], name="b.jsonl")
    write_corpus(folder, PASSAGES[:2], name="a.jsonl")
    (folder / "notes.txt").write_text("Kardum")
    index = open_index(folder)
    assert len(index) == 4 and ids(index.search("lives in Kardum", top_k=9)) == ["1", "3", "2"]


def test_the_corpora_of_search_r1_can_be_read(tmp_path: Path) -> None:
    line = json.dumps({"id": "7", "contents": '"Kardum"\nKardum lies on\nthe Oked.'})
    (tmp_path / "wiki.jsonl").write_text(f"\n{line}\n")
    (passage,) = open_index(tmp_path).search("Oked", top_k=3)
    assert (passage.id, passage.title, passage.text) == ("7", "Kardum", "Kardum lies on\nthe Oked.")
    assert passage.contents == '"Kardum"\nKardum lies on\nthe Oked.'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a corpus is a folder with \*\.jsonl files, got .*; make one"),
        ('{"text": "x"}\nnot json\n', r"corpus\.jsonl:2 is not JSON, got b'not json\\n'"),
        ('{"title": "x"}\n', r"corpus\.jsonl:1 is no passage, got \['title'\]"),
        ("[1]\n", r"corpus\.jsonl:1 is no passage, got \[1\];"),
        ('{"text": "?!"}\n', r"a corpus must have words, got 1 passages"),
        ("", r"a corpus must have words, got 0 passages"),
    ],
)
def test_what_is_no_corpus_is_refused_with_the_place(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "corpus.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        open_index(tmp_path)
    assert not list(tmp_path.glob(".bm25/*-1-*"))  # nothing half built is taken for an index


def test_without_a_place_for_the_index_it_is_kept_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_corpus(tmp_path)
    (folder / ".bm25").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        index = open_index(folder)
    assert "cannot be saved" in caplog.text
    assert ids(index.search("Oked", top_k=3)) == ["2"] and index.fingerprint


def test_while_one_builds_the_index_others_wait_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_corpus(tmp_path)
    (folder / ".bm25").mkdir()
    lock = os.open(folder / ".bm25" / "lock", os.O_RDWR | os.O_CREAT)  # as another process would hold it
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor() as threads, caplog.at_level(logging.INFO):
        waiting = [threads.submit(open_index, folder) for _ in range(3)]
        time.sleep(0.2)
        assert not any(index.done() for index in waiting) and len(list((folder / ".bm25").iterdir())) == 1
        os.close(lock)
        assert [ids(index.result(30).search("Oked", top_k=1)) for index in waiting] == [["2"]] * 3
    assert caplog.text.count("built an index of") == 1


def test_without_bm25s_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'verl-agentic\[search\]'"):
        Bm25Index.from_passages(PASSAGES)


async def test_all_callers_wait_for_one_load_and_none_is_held_up_meanwhile() -> None:
    loads: list[int] = []
    goes_on = threading.Event()

    def load() -> Bm25Index:
        loads.append(threading.get_ident())
        assert goes_on.wait(20), "the event loop is held up"
        return Bm25Index.from_passages(PASSAGES)

    retriever = LocalRetriever(load)
    gives_up = asyncio.create_task(retriever.ready())
    searches = [asyncio.create_task(retriever.search(["Oked", "nothing"], top_k=3)) for _ in range(50)]
    await asyncio.sleep(0.05)
    gives_up.cancel()  # takes the load from nobody
    for _ in range(10):
        await asyncio.sleep(0.01)
    goes_on.set()
    await asyncio.wait(searches)
    assert [[ids(found) for found in search.result()] for search in searches] == [[["2"], []]] * 50
    assert len(loads) == 1 and loads[0] != threading.get_ident()


async def test_a_load_that_failed_is_told_and_tried_anew() -> None:
    outcomes: list[Any] = [OSError("disk"), DataError("bad corpus"), Bm25Index.from_passages(PASSAGES)]

    def load() -> Bm25Index:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    retriever = LocalRetriever(load)
    with pytest.raises(SearchError, match="loading the index failed, got OSError: disk"):
        await retriever.ready()
    with pytest.raises(DataError, match="bad corpus"):
        await retriever.search(["Oked"], top_k=1)
    assert ids((await retriever.search(["Oked"], top_k=1))[0]) == ["2"]


def test_a_folder_has_one_retriever_for_all_event_loops(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path)
    retriever = local_retriever(folder)
    assert local_retriever(str(folder)) is retriever
    results = [asyncio.run(retriever.search(["Oked"], top_k=1)) for _ in range(2)]
    assert results[0] == results[1] and ids(results[0][0]) == ["2"]
