"""A corpus of docstrings: functions, classes and methods of Python's standard library, as the interpreter shows them.

The questions about it are written by hand, in other words than the docstrings (`docstring_questions.tsv`).
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

from verl_agentic.base.paths import cache_dir

from .question import Hop, Question

DOCSTRINGS = "docstrings"
"""The name of this corpus."""
_FORMAT = 1
"""Version of the corpus; increase it if its passages change."""
QUESTIONS = Path(__file__).with_name("docstring_questions.tsv")
"""Lines of function, retrievers that find its docstring among the first 5, and question."""
NEITHER = "-"


def make_questions(*, lost: bool = False) -> list[Question]:
    """Returns the questions, two or fewer about a function; the answer is its name.

    Args:
        lost: adds those whose docstring neither retriever finds among the first 5. `benchmarks/search_recall.py` says
            which these are.
    """
    rows = [line.split("\t") for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return [
        Question(
            id=f"docstring-{number}",
            kind="docstring",
            subject=name,
            text=text,
            answers=(name,),
            hops=(Hop(query=text, passage_id=name),),
        )
        for number, (name, retrievers, text) in enumerate(rows)
        if lost or retrievers != NEITHER
    ]


@functools.lru_cache(maxsize=1)
def docstrings_folder() -> Path:
    """Returns the corpus folder in the user's cache; written at the first use with this release of Python."""
    path = cache_dir() / "corpora" / f"{DOCSTRINGS}-{_FORMAT}-{platform.python_version()}" / "passages.jsonl"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("print_docstrings.py")
        result = subprocess.run([sys.executable, "-I", "-S", str(program)], capture_output=True, check=True)
        part = path.with_name(f"{os.getpid()}.part")
        part.write_bytes(result.stdout)
        part.rename(path)
    return path.parent
