"""A corpus from the documentation on this machine: Python and installed packages, with questions.

It is built locally, so that no text is distributed. Equal installed packages give equal corpora.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_agentic import ConfigError, DataError
from verl_agentic.tools.search.bm25 import open_index
from verl_agentic.tools.search.corpus import Corpus
from verl_agentic.tools.search.retriever import Passage

from .packages import Package, read_debian_packages, read_distributions
from .python_docs import PythonDoc, read_standard_library
from .question import Question
from .questions import make_questions

logger = logging.getLogger(__name__)
_QUESTIONS = "questions"
"""Subfolder with one file of questions, named after the content of the corpus that they are about."""


def build_corpus(folder: Path) -> int:
    """Writes passages, index and questions into a new folder; returns the number of questions.

    The folder is written atomically.

    Raises:
        ConfigError: the folder exists already.
        MissingDependencyError: bm25s is not installed.
    """
    if folder.exists():
        raise ConfigError(f"a corpus is built into a folder of its own, got {folder}, which exists; remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        count = _build_corpus(partial)
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise
    return count


def fingerprint_of(folder: Path) -> str:
    """Returns the hash of a corpus folder's content. Raises DataError: there is no corpus."""
    corpus = Corpus(folder)
    try:
        return corpus.fingerprint()
    finally:
        corpus.close()


def read_questions(folder: Path) -> tuple[list[Question], str]:
    """Returns the questions of a corpus and its fingerprint.

    Raises:
        DataError: the corpus or its questions are missing, or the corpus has changed.
    """
    fingerprint = fingerprint_of(folder)
    path = folder / _QUESTIONS / f"{fingerprint}.jsonl"
    if not path.is_file():
        raise DataError(f"{folder} has no questions for the passages that it holds, got no {path}; build it anew")
    with path.open(encoding="utf-8") as lines:
        return [
            Question.from_dict(json.loads(line), f"{path}:{n}") for n, line in enumerate(lines, start=1)
        ], fingerprint


def make_passages(docs: Iterable[PythonDoc], packages: Iterable[Package]) -> list[Passage]:
    """Returns the passages of all items; a name that is defined twice, under an `if`, gives one passage."""
    passages = [*(doc.passage() for doc in docs), *(p for package in packages for p in package.passages())]
    return list({passage.id: passage for passage in reversed(passages)}.values())[::-1]


def _build_corpus(folder: Path) -> int:
    docs = read_standard_library()
    packages = [*read_distributions(), *read_debian_packages()]
    passages = make_passages(docs, packages)
    _write_records([{"id": p.id, "title": p.title, "text": p.text} for p in passages], folder / "passages.jsonl")
    index = open_index(folder)
    questions = make_questions(docs, packages, index)
    _write_records([asdict(question) for question in questions], folder / _QUESTIONS / f"{index.fingerprint}.jsonl")
    logger.info("built a corpus of %d passages with %d questions", len(passages), len(questions))
    return len(questions)


def _write_records(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
