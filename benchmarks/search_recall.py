"""Recall of BM25, dense and hybrid search over the questions about Python's docstrings in `envs/search_qa`.

python benchmarks/search_recall.py              # needs `verl-agentic model fetch minilm`
python benchmarks/search_recall.py --write      # and notes which retrievers find each question's docstring
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.episode.env_package import load_env_package
from verl_agentic.tools.search.bm25 import open_index
from verl_agentic.tools.search.dense import HybridIndex, open_dense_index

CUTS = (1, 3, 5, 10)
SHOWN = 5


def rank_answers(questions: Sequence[Any], docstrings: Any) -> dict[str, list[int | None]]:
    """Returns retriever -> place of each question's docstring, from 0; None below the first 10."""
    folder = docstrings.docstrings_folder()
    bm25, dense = open_index(folder), open_dense_index(folder, "minilm")
    indexes = {"bm25": bm25, "dense": dense, "hybrid": HybridIndex(bm25, dense)}
    ranks: dict[str, list[int | None]] = {kind: [] for kind in indexes}
    for question in questions:
        for kind, index in indexes.items():
            ids = [passage.id for passage in index.search(question.text, top_k=CUTS[-1])]
            ranks[kind].append(ids.index(question.subject) if question.subject in ids else None)
    return ranks


def print_recall(title: str, ranks: Mapping[str, Sequence[int | None]], chosen: Sequence[bool]) -> None:
    """Prints a table of recall over the chosen questions."""
    print(f"\n{title}: {sum(chosen)}\n| retriever | {' | '.join(f'recall@{cut}' for cut in CUTS)} |")
    print("|---" * (len(CUTS) + 1) + "|")
    for kind, places in ranks.items():
        shown = [place for place, is_chosen in zip(places, chosen, strict=True) if is_chosen]
        shares = [sum(place is not None and place < cut for place in shown) / len(shown) for cut in CUTS]
        print(f"| {kind} | {' | '.join(f'{share:.2f}' for share in shares)} |")


def main() -> None:
    """Prints the recall over all questions and over those of `make_rows`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="write the retrievers into the file of questions")
    args = parser.parse_args()
    package = load_env_package("search_qa").make_env.__module__.rpartition(".")[0]
    docstrings = importlib.import_module(f"{package}.docstrings")
    questions = docstrings.make_questions(lost=True)
    ranks = rank_answers(questions, docstrings)
    finders = [
        ",".join(kind for kind in ("bm25", "dense") if (place := ranks[kind][number]) is not None and place < SHOWN)
        for number in range(len(questions))
    ]
    print_recall("all questions that were written", ranks, [True] * len(questions))
    print_recall(f"questions found by bm25 or dense within {SHOWN}", ranks, [bool(finder) for finder in finders])
    if args.write:
        docstrings.QUESTIONS.write_text(
            "".join(
                f"{question.subject}\t{finder or docstrings.NEITHER}\t{question.text}\n"
                for question, finder in zip(questions, finders, strict=True)
            ),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
