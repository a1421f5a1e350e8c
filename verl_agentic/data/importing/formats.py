"""The table of formats: which columns of a published data set hold the question and the answer, and how to read them.

The columns are those that the sets have on the Hugging Face hub; docs/data_import.md names the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.data.importing.answer_readers import read_box, read_golden_answers, read_hashes, read_value
from verl_agentic.data.importing.case_readers import read_all_cases, read_tests

Reader = Callable[[Any, Mapping[str, Any]], Any]
"""Value of a column, record -> answer. Raises RefusedError with the reason why the record is no row."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """Columns of a data set; of several, the first that a file has."""

    env: str
    """The environment of the rows."""
    question: tuple[str, ...]
    answer: Mapping[str, Reader]
    """Column -> its reader; the first one also reads a column that the user names. Dots lead into objects."""


def _maths(question: tuple[str, ...], answer: Mapping[str, Reader]) -> Format:
    return Format(env="python_math", question=question, answer=answer)


def _search(answer: Mapping[str, Reader]) -> Format:
    return Format(env="search_qa", question=("question",), answer=answer)


def _code(question: tuple[str, ...], answer: Mapping[str, Reader]) -> Format:
    return Format(env="code_tests", question=question, answer=answer)


FORMATS: Mapping[str, Format] = {
    "aime": _maths(("problem", "Problem", "question"), {"answer": read_value, "Answer": read_value}),
    "dapo_math": _maths(("prompt",), {"reward_model.ground_truth": read_value, "solution": read_value}),
    "deepscaler": _maths(("problem",), {"answer": read_value}),
    "gsm8k": _maths(("question",), {"answer": read_hashes}),
    "math": _maths(("problem",), {"solution": read_box, "answer": read_value}),
    "search_r1": _search(
        {"golden_answers": read_golden_answers, "reward_model.ground_truth.target": read_golden_answers}
    ),
    "hotpotqa": _search({"answer": read_golden_answers}),
    "nq": _search({"answer": read_golden_answers}),
    "apps": _code(("question",), {"input_output": read_tests}),
    "deepcoder": _code(("problem",), {"tests": read_tests}),
    "livecodebench": _code(("question_content",), {"private_test_cases": read_all_cases}),
}
"""Name -> format."""
